-- Shared by the scripts that change rows. Their first two arguments are the window, and the id of the
-- instance that loads the rows that they make due in it.
--
-- Changes are collected, and made by `flush`: removals first. A script takes out a row that it has put in
-- only after a flush.

local horizon, loader, needs_hint = after(tonumber(ARGV[1])), living(ARGV[2]), false

-- Versions of rows to remove, by state, and keys and flights that name them.
local out_of = { [WAITING] = {}, [IN_FLIGHT] = {} }
local out_of_keys, out_of_flights = {}, {}
-- Members of the indexes of unloaded rows, and of the loader's.
local into_waiting, into_in_flight, into_mine = {}, {}, {}
local into_rows, into_keys, into_flights, into_loaded, into_schedules = {}, {}, {}, {}, {}

-- Takes rows out of the indexes. Most of them lie in the index of the `likely` id, or are unloaded.
local function leave_index(state, versions, likely)
    local left = #versions - call_in_buckets('ZREM', function(version)
        return index_of(state, likely, version)
    end, versions, 1, 1)
    if left > 0 then
        local loader_of = read(loaded, versions, 1, #versions)
        call_in_buckets('ZREM', function(version)
            return index_of(state, loader_of[version], version)
        end, versions, 1, 1)
    end
    if likely or left > 0 then
        call_with_many('HDEL', loaded, versions)
    end
end

-- The id that has probably loaded the rows to remove.
local likely_loader = false

local function flush()
    for state, versions in pairs(out_of) do
        leave_index(state, versions, likely_loader)
        call_in_buckets('HDEL', row_bucket, versions, 1, 1)
    end
    if out_of[WAITING][1] and any_schedule() then
        call_in_buckets('HDEL', schedule_bucket, out_of[WAITING], 1, 1)
    end
    call_in_buckets('HDEL', key_bucket, out_of_keys, 1, 1)
    call_with_many('ZREM', flights, out_of_flights)
    call_in_buckets('HSET', row_bucket, into_rows, 2, 1)
    call_in_buckets('ZADD', waiting_bucket, into_waiting, 2, 2)
    if loader then
        call_with_many('ZADD', index_of(WAITING, loader), into_mine)
    end
    call_with_many('ZADD', index_of(IN_FLIGHT), into_in_flight)
    call_with_many('HSET', loaded, into_loaded)
    call_in_buckets('HSET', key_bucket, into_keys, 2, 1)
    call_with_many('ZADD', flights, into_flights)
    call_in_buckets('HSET', schedule_bucket, into_schedules, 2, 1)
    out_of = { [WAITING] = {}, [IN_FLIGHT] = {} }
    out_of_keys, out_of_flights = {}, {}
    into_waiting, into_in_flight, into_mine = {}, {}, {}
    into_rows, into_keys, into_flights, into_loaded, into_schedules = {}, {}, {}, {}, {}
end

local function finish()
    flush()
    save_sequence()
    if needs_hint then
        hint()
    end
end

-- Takes a row out. The key of a waiting row stays among the keys if another row is put in under it.
local function take(version, state, key, stays_in_keys)
    local list = out_of[state]
    list[#list + 1] = version
    if state == IN_FLIGHT then
        out_of_flights[#out_of_flights + 1] = flight(key, version)
    elseif not stays_in_keys then
        out_of_keys[#out_of_keys + 1] = key
    end
end

-- In flight it has the id of an instance in place of a period.
local function put_row(version, state, deadline, attempt, period, key, value, fields)
    local at = #into_rows
    into_rows[at + 1] = version
    into_rows[at + 2] = pack_row(state, deadline, attempt, period, key, value, fields)
end

-- Puts a row into the index of an id that has left it to others. They get a hint.
local function mark_left(state, version, due, left_by)
    call('ZADD', index_of(state, left_by), due, version)
    call('HSET', loaded, version, left_by)
    needs_hint = true
end

-- Puts a row in flight in, with the id that has fired it, or 0. Nothing has loaded it, but an instance may have left it.
local function put_in_flight(version, deadline, attempt, by, key, value, due, fields, left_by)
    put_row(version, IN_FLIGHT, deadline, attempt, by, key, value, fields)
    local at = #into_flights
    into_flights[at + 1], into_flights[at + 2] = '0', flight(key, version)
    if left_by then
        return mark_left(IN_FLIGHT, version, due, left_by)
    end
    at = #into_in_flight
    into_in_flight[at + 1], into_in_flight[at + 2] = due, version
end

-- Puts a waiting row in, loaded if it is near, unless an instance has left it. Returns its version, when it is due, and '1' if
-- it is loaded.
local function put_waiting(deadline, attempt, period, key, value, due, fields, schedule, left_by)
    local version, due_digits, near = next_version(), format(DIGITS, due), due <= horizon
    put_row(version, WAITING, deadline, attempt, period, key, value, fields)
    if schedule then
        has_any_schedule = true
        local at = #into_schedules
        into_schedules[at + 1], into_schedules[at + 2] = version, pack_schedule(deadline, schedule)
    end
    local at = #into_keys
    into_keys[at + 1], into_keys[at + 2] = key, version
    if left_by then
        mark_left(WAITING, version, due_digits, left_by)
        return version, due_digits, '0'
    elseif near and loader then
        at = #into_mine
        into_mine[at + 1], into_mine[at + 2] = due_digits, version
        into_loaded[at + 1], into_loaded[at + 2] = version, loader
        return version, due_digits, '1'
    end
    needs_hint = needs_hint or near
    at = #into_waiting
    into_waiting[at + 1], into_waiting[at + 2] = due_digits, version
    return version, due_digits, '0'
end
