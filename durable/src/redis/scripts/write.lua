-- write: window, loader, then for each write
--   's', key, value, due, period or 0, '1' if only when absent | 'm', key, due | 'r', key
-- -> for each: ARMED, version, due, loaded, replaced or 0 | REMOVED, version, value | ABSENT | PRESENT | FLYING, token
-- O(log n) for each write.

local ARMED, REMOVED, ABSENT, PRESENT, FLYING = 1, 2, 3, 4, 5
local ARGUMENTS = { s = 6, m = 3, r = 2 }

local all_keys, at = {}, 3
while ARGV[at] do
    all_keys[#all_keys + 1] = ARGV[at + 1]
    at = at + ARGUMENTS[ARGV[at]]
end
read_ahead(version_of, keys, all_keys)
local replaced = {}
for _, key in ipairs(all_keys) do
    replaced[#replaced + 1] = version_of[key] or nil
end
read_rows(replaced)

local answers = {}
local function absent_or_flying(key)
    local token = latest_token(key)
    answers[#answers + 1] = token and FLYING or ABSENT
    -- Nothing is added without a token.
    answers[#answers + 1] = token and tonumber(token) or nil
end

local function take_waiting(version)
    local row = find(version)
    take(row)
    return row
end

local function arm_anew(row, due, version)
    row.deadline = due
    local is_loaded, last = arm(row, due), #answers
    answers[last + 1], answers[last + 2], answers[last + 3] = ARMED, sequence, due
    answers[last + 4], answers[last + 5] = is_loaded, tonumber(version or 0)
end

at = 3
while ARGV[at] do
    local op, key = ARGV[at], ARGV[at + 1]
    local version = waiting_under(key)
    if op == 's' then
        local only_absent = ARGV[at + 5] == '1'
        if only_absent and version then
            answers[#answers + 1] = PRESENT
        elseif only_absent and latest_token(key) then
            absent_or_flying(key)
        else
            if version then
                take_waiting(version)
            end
            local row = { key = key, value = ARGV[at + 2], period = tonumber(ARGV[at + 4]), attempt = 0 }
            arm_anew(row, due_at(ARGV[at + 3]), version)
        end
    elseif not version then
        absent_or_flying(key)
    elseif op == 'm' then
        arm_anew(take_waiting(version), due_at(ARGV[at + 2]), version)
    else
        local last = #answers
        answers[last + 1], answers[last + 2] = REMOVED, tonumber(version)
        answers[last + 3] = take_waiting(version).value
    end
    at = at + ARGUMENTS[op]
end
finish()
return answers
