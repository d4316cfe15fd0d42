-- write: window, loader, for each write its head, packed as in HEAD, then their keys, then the values of those that set;
-- the op is 's' set | 'a' set if absent | 'm' move | 'r' remove
-- -> ARMED, version, due, loaded, replaced or 0 | REMOVED, version | ABSENT | PRESENT | FLYING, token for each, then the values of
--    those that were removed.
-- O(log n) for each write.

local ARMED, REMOVED, ABSENT, PRESENT, FLYING = '1', '2', '3', '4', '5'

-- Op, '+' if it is due so long from now, due, and period or 0.
local HEAD, HEAD_LENGTH = '<c1c1dd', 18

local heads, FIRST = ARGV[3], 4
local count = #heads / HEAD_LENGTH
local version_of, replaced = read(keys, ARGV, FIRST, FIRST + count - 1), {}
for _, version in pairs(version_of) do
    replaced[#replaced + 1] = version or nil
end
local row_of = read(rows, replaced, 1, #replaced)

local numbers, answers = {}, { '' }
local function answer(what, token)
    local at = #numbers
    -- Nothing is added without a token.
    numbers[at + 1], numbers[at + 2] = what, token
end
local function answer_armed(replaced, version, due, is_loaded)
    local at = #numbers
    numbers[at + 1], numbers[at + 2], numbers[at + 3] = ARMED, version, due
    numbers[at + 4], numbers[at + 5] = is_loaded, replaced or '0'
    return version
end

-- What this call has put in must be there to be taken out.
local function row_under(version)
    if row_of[version] == nil then
        flush()
        row_of[version] = call('HGET', rows, version)
    end
    return row_of[version]
end

local value_at = FIRST + count
for number = 1, count do
    local op, base, due, period = unpack_from(HEAD, heads, (number - 1) * HEAD_LENGTH + 1)
    local key, value = ARGV[FIRST + number - 1], nil
    if op == 's' or op == 'a' then
        value, value_at = ARGV[value_at], value_at + 1
    end
    if base == '+' then
        due = after(due)
    end
    local version = version_of[key]
    local token = not version and op ~= 's' and latest_token(key)
    if token then
        answer(FLYING, token)
    elseif op == 's' or op == 'a' and not version then
        if version and row_under(version) then
            take(version, WAITING, key, true)
        end
        version_of[key] = answer_armed(version, put_waiting(due, 0, period, key, value, due))
    elseif op == 'a' then
        answer(PRESENT)
    elseif not version then
        answer(ABSENT)
    else
        local row = row_under(version)
        local _, _, attempt, its_period, _, its_value_at = unpack_from(UNPACK_ROW, row)
        local its_value = row:sub(its_value_at)
        take(version, WAITING, key, op == 'm')
        if op == 'm' then
            version_of[key] = answer_armed(version, put_waiting(due, attempt, its_period, key, its_value, due))
        else
            version_of[key] = false
            answer(REMOVED, version)
            answers[#answers + 1] = its_value
        end
    end
end
finish()
answers[1] = concat(numbers, ' ')
return answers
