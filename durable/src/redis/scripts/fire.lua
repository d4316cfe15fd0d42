-- fire: window, loader, lease or '', 'all' | 'once' | 'skip', how many unloaded rows, '1' for no overlap, unknown schedules,
-- 'version from until due missed ..' for each row with a plan, where missed is less than 0 if it does not fire, who fires
--   or 0, then versions
-- -> now, how many of the last are left for another call, whether there may be more unloaded rows, token, missed
--    for each that fired, version, due, loaded for each that has not, the same for each next occurrence, version, deadline and
--    schedule for each of these that is loaded and has a schedule, version, key and reason for each that is damaged, then, of
--    each that fired, the row as it was.
-- O(log n) for each row.

local lease, rule, at_most, FIRST = tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5]), 10
local no_overlap, by = ARGV[6] == '1', tonumber(ARGV[9])
local fired, later, following, scheduled = {}, {}, {}, {}
local damaged = {}
local answers = { now, 0, 0, '', '', '', scheduled, damaged }

local plan_of = {}
for version, from, till, due, missed in ARGV[8]:gmatch('(%d+) (%d+) (%d+) (%d+) (-?%d+)') do
    -- It has to hold now.
    if tonumber(from) <= now and now < tonumber(till) then
        plan_of[version] = { till = tonumber(till), due = tonumber(due), missed = tonumber(missed) }
    end
end

local function answer_armed(list, version, due, is_loaded)
    local at = #list
    list[at + 1], list[at + 2], list[at + 3] = version, due, is_loaded
    return version, is_loaded
end
local function answer_schedule(text, version, is_loaded)
    if text and is_loaded == '1' then
        local at = #scheduled
        scheduled[at + 1], scheduled[at + 2] = version, text
    end
end

-- A row that no instance has loaded is loaded, if it has a schedule. Returns whether it is loaded then.
local function load_scheduled(version, due, instance)
    if instance and living(instance) then
        return '1'
    elseif not loader then
        return '0'
    end
    call('ZREM', index_of(WAITING, instance, version), version)
    call('ZADD', index_of(WAITING, loader), format(DIGITS, due), version)
    call('HSET', loaded, version, loader)
    return '1'
end

-- The next time of a schedule, and how many have passed since the deadline.
local function next_time(deadline, period)
    local late = math.max(now - deadline, 0)
    local behind = (late - math.fmod(late, period)) / period
    return min(deadline + (behind + 1) * period, NEVER), behind
end

-- Whether the occurrence fires, how many after it are missed, and the next deadline. As `Missed::next`.
local function next_occurrence(deadline, period)
    if rule == 'all' then
        return true, 0, min(deadline + period, NEVER)
    end
    local due, behind = next_time(deadline, period)
    if rule == 'once' then
        return true, behind, due
    end
    return behind == 0, 0, due
end

-- Adds versions that no instance has loaded to those in the call.
local named, more = #ARGV, false
if at_most > 0 then
    add_unloaded(now, known_filter(ARGV[7]))
    for _ = 1, at_most do
        ARGV[#ARGV + 1] = take_first()
    end
    more = #ARGV == named + at_most
end

-- Makes a row dead that no script would have written.
local function set_aside(version, row, reason, key)
    local waits = call('ZSCORE', index_of(WAITING, call('HGET', loaded, version), version), version)
    take(version, waits and WAITING or IN_FLIGHT, key, call('HGET', key_bucket(key), key) ~= version)
    put_damaged(version, row, reason, key)
    local at = #damaged
    damaged[at + 1], damaged[at + 2], damaged[at + 3] = version, key, reason
end

-- A version that names no row is not loaded again.
local function forget(version)
    local instance = call('HGET', loaded, version)
    call('ZREM', index_of(WAITING, instance, version), version)
    call('ZREM', index_of(IN_FLIGHT, instance), version)
    call('HDEL', loaded, version)
end

even_when_full()
local row_of, last = read_rows(ARGV, FIRST, #ARGV)
likely_loader = named >= FIRST and call('HGET', loaded, ARGV[FIRST])
local lease_ends = lease and format(DIGITS, after(lease))
for at = FIRST, last do
    local version = ARGV[at]
    local row = row_of[version]
    local state, deadline, attempt, period, key, value_at, fields, text
    if row then
        state, deadline, attempt, period, key, value_at, fields = unpack_row(row)
        text = state and period < 0 and call('HGET', schedule_bucket(version), version)
    end
    if not row then
        forget(version)
    elseif not state then
        -- What `unpack_row` returns then.
        local reason, its_key = deadline, attempt
        set_aside(version, row, reason, its_key)
        row_of[version] = false
    elseif period < 0 and not (text and text:match('^%d+ ')) then
        set_aside(version, row, 'its schedule is gone', key)
        row_of[version] = false
    else
        -- A row that has not fired yet is due at its deadline, which is quicker to read. If it was dead, both have passed.
        local instance, due = nil, deadline
        if attempt > 0 or due > now or period ~= 0 or state == IN_FLIGHT then
            instance, due = loader_and_due(version, state)
        end
        local plan = period < 0 and plan_of[version]
        if due > now or period < 0 and not plan then
            local is_loaded = instance and living(instance) and '1' or '0'
            if due <= now then
                is_loaded = load_scheduled(version, due, instance)
            end
            answer_schedule(text, answer_armed(later, version, format(DIGITS, due), is_loaded))
        else
            row_of[version] = false
            take(version, state, key, period ~= 0)
            local value, fires, missed, list, kept = row:sub(value_at), true, 0, following, nil
            if period ~= 0 and no_overlap and latest_token(key) then
                -- It waits until the next time of its schedule, as `Fire::occurrence` says.
                fires, list, due = false, later, plan and plan.till or next_time(deadline, period)
                kept = rule == 'skip' and due or deadline
            elseif plan then
                fires, missed, due = plan.missed >= 0, plan.missed, plan.due
                list, kept = fires and following or later, due
            elseif period ~= 0 then
                fires, missed, due = next_occurrence(deadline, period)
                list, kept = fires and following or later, due
            end
            if kept then
                local schedule = text and select(2, unpack_schedule(text))
                local next_text = text and pack_schedule(kept, schedule)
                local next_row = { put_waiting(kept, 0, period, key, value, due, with_error(fields, nil), schedule) }
                answer_schedule(next_text, answer_armed(list, unpack(next_row)))
            end
            if fires then
                local token = next_version()
                if lease then
                    put_in_flight(token, deadline, min(attempt + 1, MAX_ATTEMPT), by, key, value, lease_ends, fields)
                end
                local at = #fired
                fired[at + 1], fired[at + 2] = token, missed
                answers[#answers + 1] = row
            end
        end
    end
end
finish()
answers[2] = math.max(named - last, 0)
answers[3] = (more or at_most > 0 and last < #ARGV) and 1 or 0
answers[4], answers[5], answers[6] = concat(fired, ' '), concat(later, ' '), concat(following, ' ')
return answers
