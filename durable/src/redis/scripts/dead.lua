-- Dead rows: their versions by when they died, the rows, and names that find those of a key, as those of rows in flight do.

local function put_dead(version, deadline, attempt, key, value, error)
    call('ZADD', dead, format(DIGITS, now), version)
    call('HSET', dead_rows, version, pack_row(DEAD, deadline, attempt, 0, key, value, error))
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
    put_dead(version, 0, 0, key, row, reason)
end

-- The versions of the dead rows of a key, those that died first before others.
local function dead_of(key)
    local names = call('ZREVRANGEBYLEX', dead_keys, '[' .. flight(key, ':'), '[' .. flight(key, '0'))
    local found = {}
    for at, name in ipairs(names) do
        local version = name:sub(-16)
        found[at] = { version = version, died = tonumber(call('ZSCORE', dead, version)) }
    end
    table.sort(found, function(a, b)
        return a.died < b.died or a.died == b.died and a.version < b.version
    end)
    local versions = {}
    for at, row in ipairs(found) do
        versions[at] = row.version
    end
    return versions
end

local any_dead = call('ZCARD', dead) > 0

-- Discards the dead rows of a key. Returns version and value of the one that died last.
local function discard_dead_of(key)
    local version, row
    for _, each in ipairs(any_dead and dead_of(key) or {}) do
        version, row = each, take_dead(each)
    end
    if row then
        local state, _, _, _, _, value_at = unpack_row(row)
        return version, row:sub(state and value_at or 1)
    end
end
