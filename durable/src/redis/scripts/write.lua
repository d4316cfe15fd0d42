-- write: window, loader, then for each write
--   's', key, value, due, period or 0, '1' if only when absent | 'm', key, due | 'r', key
-- -> for each: ARMED, version, due, loaded, replaced or 0 | REMOVED, version, value | ABSENT | PRESENT | FLYING, token
-- O(log n) for each write.

local ARMED, REMOVED, ABSENT, PRESENT, FLYING = 1, 2, 3, 4, 5
local answers = {}
local function answer(...)
    for _, value in ipairs({ ... }) do
        answers[#answers + 1] = value
    end
end

local function absent_or_flying(key)
    local token = latest_token(key)
    if token then
        answer(FLYING, tonumber(token))
    else
        answer(ABSENT)
    end
end

local function take_waiting(version)
    local row = find(version)
    take(row)
    return row
end

local function arm_anew(row, due, replaced)
    row.deadline = due
    local is_loaded = arm(row, due)
    answer(ARMED, tonumber(row.version), due, is_loaded, tonumber(replaced or 0))
end

local at = 3
while ARGV[at] do
    local op, key = ARGV[at], ARGV[at + 1]
    local version = call('HGET', keys, key)
    if op == 's' then
        local only_absent = ARGV[at + 5] == '1'
        if only_absent and version then
            answer(PRESENT)
        elseif only_absent and latest_token(key) then
            absent_or_flying(key)
        else
            if version then
                take_waiting(version)
            end
            local row = { key = key, value = ARGV[at + 2], period = tonumber(ARGV[at + 4]), attempt = 0 }
            arm_anew(row, due_at(ARGV[at + 3]), version)
        end
        at = at + 6
    elseif op == 'm' then
        if version then
            arm_anew(take_waiting(version), due_at(ARGV[at + 2]), version)
        else
            absent_or_flying(key)
        end
        at = at + 3
    else
        if version then
            answer(REMOVED, tonumber(version), take_waiting(version).value)
        else
            absent_or_flying(key)
        end
        at = at + 2
    end
end
finish()
return answers
