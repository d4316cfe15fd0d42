-- Dead rows: their versions by when they died, the rows, and names that find those of a key, as those of rows in flight do.

local any_dead = call('ZCARD', dead) > 0

-- The versions of the first dead rows of a key, or of the last ones from the latest on.
local function dead_of(key, limit, is_from_last)
    local names = {}
    if any_dead and is_from_last then
        names = names_of(dead_keys, key, 0, limit)
    elseif any_dead then
        local from, to = '[' .. flight(key, '0'), '[' .. flight(key, ':')
        names = call('ZRANGE', dead_keys, from, to, 'BYLEX', 'LIMIT', 0, limit)
    end
    local versions = {}
    for at, name in ipairs(names) do
        versions[at] = name:sub(-16)
    end
    return versions
end

-- Of a key so many dead rows are kept, those with the greatest versions. As `MAX_DEAD_OF_KEY` of the stores.
local MAX_DEAD_OF_KEY, discarded = 100, 0
local function keep_dead(key, most)
    local names = any_dead and names_of(dead_keys, key, most, -1) or {}
    local versions = {}
    for at, name in ipairs(names) do
        versions[at] = name:sub(-16)
    end
    call_with_many('ZREM', dead, versions)
    call_with_many('HDEL', dead_rows, versions)
    call_with_many('ZREM', dead_keys, names)
    discarded = discarded + #names
end

local function put_dead(version, deadline, attempt, key, value, fields)
    keep_dead(key, MAX_DEAD_OF_KEY - 1)
    any_dead = true
    call('ZADD', dead, format(DIGITS, now), version)
    call('HSET', dead_rows, version, pack_row(DEAD, deadline, attempt, 0, key, value, fields))
    call('ZADD', dead_keys, 0, flight(key, version))
end

-- Takes a dead row out. Returns it, or false.
local function take_dead(version)
    local row = call('HGET', dead_rows, version)
    if row then
        local state, _, its_key, _, key = unpack_row(row)
        key = state and key or its_key
        call('ZREM', dead, version)
        call('HDEL', dead_rows, version)
        call('ZREM', dead_keys, flight(key, version))
    end
    return row
end

-- Makes a row dead that no script would have written. What is kept of it is sound.
local function put_damaged(version, row, reason, key)
    put_dead(version, 0, 0, key, row, with_error(nil, reason))
end

-- Discards the dead rows of a key. Returns version and value of the latest.
local function discard_dead_of(key)
    local latest = dead_of(key, 1, true)[1]
    local row = latest and call('HGET', dead_rows, latest)
    if latest then
        keep_dead(key, 0)
    end
    if row then
        local state, _, _, _, _, value_at = unpack_row(row)
        return latest, row:sub(state and value_at or 1)
    end
end
