-- What scripts have in common whose first two arguments are the window and the instance that loads what they make due in it.

local horizon, loader, unloaded = after(tonumber(ARGV[1])), living(ARGV[2]), false

-- Puts a waiting row in, loaded if it is near. Returns whether it is.
local function arm(row, due)
    local near = due <= horizon
    local life = near and loader
    put(row, WAITING, due, life)
    unloaded = unloaded or near and not life
    return life and 1 or 0
end

local function finish()
    flush()
    save_sequence()
    if unloaded then
        hint()
    end
end
