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
local version_of = read(keys, ARGV, FIRST, FIRST + count - 1)
local row_of
do
    local replaced = {}
    for _, version in pairs(version_of) do
        replaced[#replaced + 1] = version or nil
    end
    row_of = read(rows, replaced, 1, #replaced)
end

local numbers, answers = {}, { '' }

local function answer(...)
    local at = #numbers
    for number = 1, select('#', ...) do
        numbers[at + number] = select(number, ...)
    end
end

local function row_under(version)
    if row_of[version] == nil then
        -- This call has put it in.
        flush()
        row_of[version] = call('HGET', rows, version)
    end
    return unpack_from(UNPACK_ROW, row_of[version])
end

local value_at = FIRST + count
for number = 1, count do
    local op, base, due, period = unpack_from(HEAD, heads, (number - 1) * HEAD_LENGTH + 1)
    local key = ARGV[FIRST + number - 1]
    local version, value = version_of[key], nil
    due = base == '+' and after(due) or due
    if op == 's' or op == 'a' then
        value = ARGV[value_at]
        value_at = value_at + 1
    end
    local token = not version and op ~= 's' and latest_token(key)
    if token then
        answer(FLYING, token)
    elseif op == 's' or op == 'a' and not version then
        if version then
            -- One that this call has put in must be there to be taken out.
            if row_of[version] == nil then flush() end
            take(version, WAITING, key, true)
        end
        local new, at, is_loaded = put_waiting(due, 0, period, key, value, due)
        local n = #numbers
        numbers[n + 1], numbers[n + 2], numbers[n + 3], numbers[n + 4], numbers[n + 5] = ARMED, new, at, is_loaded, version or '0'
        version_of[key] = new
    elseif op == 'a' then
        answer(PRESENT)
    elseif not version then
        answer(ABSENT)
    else
        local _, _, attempt, period, _, value_at = row_under(version)
        local value = row_of[version]:sub(value_at)
        take(version, WAITING, key, op == 'm')
        if op == 'm' then
            local new, at, is_loaded = put_waiting(due, attempt, period, key, value, due)
            answer(ARMED, new, at, is_loaded, version)
            version_of[key] = new
        else
            answer(REMOVED, version)
            answers[#answers + 1] = value
            version_of[key] = false
        end
    end
end
finish()
answers[1] = concat(numbers, ' ')
return answers
