-- What all scripts but `open` begin with. The layout of the keys is described in redis/mod.rs.
--
-- Versions and lives are strings here, so that their digits stay as they are. Times are numbers: microseconds below 2^53, which
-- doubles hold exactly.

local SCHEMA = '1'
local NEVER = 9007199254740991
local WAITING, IN_FLIGHT = 'w', 'f'

-- State, deadline, attempt, period, length of the key and the key. The value follows.
local PACKED = '<c1dddHc0'

local call, format, min = redis.call, string.format, math.min
local space = KEYS[1]
local rows, keys, flights = space .. ':rows', space .. ':keys', space .. ':flights'
local loaded, lives = space .. ':loaded', space .. ':lives'

local schema, last = unpack(call('HMGET', space, 'schema', 'sequence'))
if not schema then
    return redis.error_reply('TICKWHEELCLOSED not open')
elseif schema ~= SCHEMA then
    return redis.error_reply('TICKWHEELSCHEMA ' .. schema .. ' ' .. SCHEMA)
end

local time = call('TIME')
local now = time[1] * 1000000 + time[2]

-- The sequence never falls behind the clock. So versions grow also after the server has lost its last writes, and all of them
-- have 16 digits: they sort as strings as they do as numbers.
local sequence = math.max(last, now)
local function next_version()
    sequence = sequence + 1
    return format('%.0f', sequence)
end
local function save_sequence()
    call('HSET', space, 'sequence', format('%.0f', sequence))
end

-- A full server refuses a script's first write if it takes memory, and lets all through after one that does not. Calls that
-- deliver and settle make room in the end, so they begin with this.
local function even_when_full()
    call('HDEL', loaded, '')
end

local function after(delay)
    return min(now + delay, NEVER)
end

-- '+5' is five microseconds from now, '5' is five microseconds after the epoch.
local function due_at(text)
    local micros = tonumber(text)
    if text:byte() == 43 then
        return after(micros)
    end
    return micros
end

-- The sorted set in which rows of that state lie by when they are due: those that nobody has loaded, or those of a life.
local indexes_of_nobody = { [WAITING] = space .. ':waiting', [IN_FLIGHT] = space .. ':in-flight' }
local function index_of(state, life)
    local index = indexes_of_nobody[state]
    if life then
        return index .. ':' .. life
    end
    return index
end

-- The id of an instance, if it counts as living.
local function living(life)
    local alive_until = life ~= '' and call('ZSCORE', lives, life)
    return alive_until and tonumber(alive_until) >= now and life
end

-- The id under which the row is loaded, if it counts as living.
local function loader_of(row)
    return row.life and living(row.life)
end

-- The name of a row in flight in the index by keys. Names of one key lie together, the latest last.
local function flight(key, version)
    return format('%05d', #key) .. key .. version
end

local function latest_token(key)
    local from, to = '[' .. flight(key, '0'), '[' .. flight(key, ':')
    local name = call('ZREVRANGEBYLEX', flights, to, from, 'LIMIT', 0, 1)[1]
    return name and name:sub(-16)
end

-- Commands that take many members cost much less than many commands. So changes are collected, and what is to be read is read
-- ahead. Lua bounds how many arguments a call has.
local MANY = 4000

local function call_with_many(command, key, members)
    for from = 1, #members, MANY do
        call(command, key, unpack(members, from, min(from + MANY - 1, #members)))
    end
end

-- Changes that are not made yet. Removals come first: what this call has put in is only taken out after a flush.
local out_of_rows, out_of_loaded, out_of_keys, out_of_flights, out_of = {}, {}, {}, {}, {}
local into_rows, into_loaded, into_keys, into_flights, into = {}, {}, {}, {}, {}
local put_in = {}

local function list_of(lists, index)
    local list = lists[index] or {}
    lists[index] = list
    return list
end

local function flush()
    for index, versions in pairs(out_of) do
        call_with_many('ZREM', index, versions)
    end
    call_with_many('HDEL', rows, out_of_rows)
    call_with_many('HDEL', loaded, out_of_loaded)
    call_with_many('HDEL', keys, out_of_keys)
    call_with_many('ZREM', flights, out_of_flights)
    call_with_many('HSET', rows, into_rows)
    for index, members in pairs(into) do
        call_with_many('ZADD', index, members)
    end
    call_with_many('HSET', loaded, into_loaded)
    call_with_many('HSET', keys, into_keys)
    call_with_many('ZADD', flights, into_flights)
    out_of_rows, out_of_loaded, out_of_keys, out_of_flights, out_of = {}, {}, {}, {}, {}
    into_rows, into_loaded, into_keys, into_flights, into = {}, {}, {}, {}, {}
    put_in = {}
end

-- What was read ahead, kept up with the changes: rows and their lives by version, versions of waiting rows by key. False is
-- nothing there, nil is not read.
local packed_of, life_of, version_of = {}, {}, {}

local function read_ahead(cache, key, fields)
    for from = 1, #fields, MANY do
        local to = min(from + MANY - 1, #fields)
        local values = call('HMGET', key, unpack(fields, from, to))
        for at = from, to do
            cache[fields[at]] = values[at - from + 1]
        end
    end
end

local function read_rows(versions)
    read_ahead(packed_of, rows, versions)
    read_ahead(life_of, loaded, versions)
end

-- The version of the waiting row under the key.
local function waiting_under(key)
    if version_of[key] == nil then
        version_of[key] = call('HGET', keys, key)
    end
    return version_of[key]
end

local function find(version)
    if put_in[version] then
        flush()
    end
    if packed_of[version] == nil then
        packed_of[version] = call('HGET', rows, version)
        life_of[version] = call('HGET', loaded, version)
    end
    if not packed_of[version] then
        return nil
    end
    local row = { version = version, life = life_of[version] }
    local packed, value_at = packed_of[version], nil
    row.state, row.deadline, row.attempt, row.period, row.key, value_at = struct.unpack(PACKED, packed)
    row.value = packed:sub(value_at)
    row.index = index_of(row.state, row.life)
    return row
end

local function due_of(row)
    return tonumber(call('ZSCORE', row.index, row.version))
end

-- Takes a row out.
local function take(row)
    local version, list = row.version, list_of(out_of, row.index)
    packed_of[version] = false
    list[#list + 1] = version
    out_of_rows[#out_of_rows + 1] = version
    if row.life then
        out_of_loaded[#out_of_loaded + 1] = version
    end
    if row.state == WAITING then
        version_of[row.key] = false
        out_of_keys[#out_of_keys + 1] = row.key
    else
        out_of_flights[#out_of_flights + 1] = flight(row.key, version)
    end
end

-- Puts a row in with a new version, which is `sequence` then, loaded by a life or nobody. Of the row it takes deadline, attempt,
-- period, key and value.
local function put(row, state, due, life)
    local version, list, at = next_version(), list_of(into, index_of(state, life)), #into_rows
    put_in[version] = true
    into_rows[at + 1] = version
    into_rows[at + 2] = struct.pack(PACKED, state, row.deadline, row.attempt, row.period, #row.key, row.key) .. row.value
    at = #list
    list[at + 1], list[at + 2] = due, version
    if life then
        at = #into_loaded
        into_loaded[at + 1], into_loaded[at + 2] = version, life
    end
    if state == WAITING then
        version_of[row.key] = version
        at = #into_keys
        into_keys[at + 1], into_keys[at + 2] = row.key, version
    else
        at = #into_flights
        into_flights[at + 1], into_flights[at + 2] = 0, flight(row.key, version)
    end
end

local function hint()
    call('PUBLISH', space .. ':hints', '')
end
