-- write: window, loader, for each write its head, packed as in HEAD, then their keys, then the values of those that set, each
-- with its schedule if its period is less than 0;
-- the op is 's' set | 'a' set if absent | 'm' move | 'r' remove
-- -> ARMED, version, due, loaded, replaced or 0 | REMOVED, version | ABSENT | PRESENT | FLYING, token for each, then the values of
--    those that were removed; for fewer, if the last are left for another call.
-- O(log n) for each write.

local ARMED, REMOVED, ABSENT, PRESENT, FLYING = '1', '2', '3', '4', '5'

-- Op, '+' if due is relative to now, due, and period or 0.
local HEAD, HEAD_LENGTH = '<c1c1dd', 18

local heads, FIRST = ARGV[3], 4
local count = #heads / HEAD_LENGTH
local version_of = read_in_buckets(key_bucket, ARGV, FIRST, FIRST + count - 1)

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

-- A row that this call has put in must be flushed before it can be read or taken out.
local put_in = {}
local function flush_if_put_in(version)
    if put_in[version] then
        flush()
        put_in = {}
    end
end
local function put(deadline, attempt, period, key, value, replaced, fields, due, schedule)
    local waiting = { put_waiting(deadline, attempt, period, key, value, due, fields, schedule) }
    local version = answer_armed(replaced, unpack(waiting))
    version_of[key], put_in[version] = version, true
end

-- Deadline and schedule of a waiting row, if it has a schedule.
local function schedule_of(version)
    flush_if_put_in(version)
    local text = any_schedule() and call('HGET', schedule_bucket(version), version)
    if text then
        return unpack_schedule(text)
    end
end

-- Another call takes the rest of a batch that discards many dead rows.
local MAX_DISCARDED = 512
local value_at, bytes = FIRST + count, 0
for number = 1, count do
    if bytes >= MAX_BYTES or discarded >= MAX_DISCARDED then
        break
    end
    local op, base, due, period = unpack_from(HEAD, heads, (number - 1) * HEAD_LENGTH + 1)
    local key, value, schedule = ARGV[FIRST + number - 1], nil, nil
    if op == 's' or op == 'a' then
        value, value_at = ARGV[value_at], value_at + 1
    end
    if period < 0 then
        schedule, value_at = ARGV[value_at], value_at + 1
    end
    if base == '+' then
        due = after(due)
    end
    local version = version_of[key]
    local token = not version and op ~= 's' and latest_token(key)
    if token then
        answer(FLYING, token)
    elseif op == 's' or op == 'a' and not version then
        local deadline = due
        if version and schedule then
            -- With the schedule that it has, it keeps its time.
            local its_deadline, its_schedule = schedule_of(version)
            local _, its_due = loader_and_due(version, WAITING)
            if its_schedule == schedule and its_due < NEVER then
                deadline, due = its_deadline, its_due
            end
        end
        if version then
            flush_if_put_in(version)
            take(version, WAITING, key, true)
        end
        discard_dead_of(key)
        put(deadline, 0, period, key, value, version, nil, due, schedule)
    elseif op == 'a' then
        answer(PRESENT)
    elseif not version then
        local dead_version, dead_value
        if op == 'r' then
            dead_version, dead_value = discard_dead_of(key)
        end
        if dead_version then
            answer(REMOVED, dead_version)
            answers[#answers + 1] = dead_value
            bytes = bytes + #dead_value
        else
            answer(ABSENT)
        end
    else
        flush_if_put_in(version)
        take(version, WAITING, key, op == 'm')
        local row = call('HGET', row_bucket(version), version) or ''
        bytes = bytes + #row
        local state, reason, attempt, its_period, _, its_value_at, fields = unpack_row(row)
        local its_value = row:sub(state and its_value_at or 1)
        if not state then
            out_of_keys[#out_of_keys + 1], version_of[key] = key, false
            put_damaged(version, row, reason, key)
            answer(ABSENT)
        elseif op == 'm' then
            local its_schedule = its_period < 0 and select(2, schedule_of(version)) or nil
            put(due, attempt, its_period, key, its_value, version, fields, due, its_schedule)
        else
            version_of[key] = false
            discard_dead_of(key)
            answer(REMOVED, version)
            answers[#answers + 1] = its_value
        end
    end
end
finish()
answers[1] = concat(numbers, ' ')
return answers
