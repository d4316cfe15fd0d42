-- What all scripts but `open` begin with. The layout of the keys is described in redis/mod.rs.
--
-- Versions and lives are strings here, so that their digits stay as they are. Times are numbers: microseconds below 2^53, which
-- doubles hold exactly.

local SCHEMA = '1'
local NEVER = 9007199254740991
local WAITING, IN_FLIGHT = 'waiting', 'in-flight'

local call, format, min = redis.call, string.format, math.min
local space = KEYS[1]
local rows, keys, flights = space .. ':rows', space .. ':keys', space .. ':flights'
local loaded, lives, instances = space .. ':loaded', space .. ':lives', space .. ':instances'

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
local function index_of(state, life)
    if life then
        return space .. ':' .. state .. ':' .. life
    end
    return space .. ':' .. state
end

-- The life of the instance, if it counts as living.
local function living(instance)
    local life = instance ~= '' and call('HGET', instances, instance)
    if life and tonumber(call('ZSCORE', lives, life)) >= now then
        return life
    end
    return false
end

-- The instance whose life has loaded the row, if it counts as living.
local function loader_of(row)
    local instance = row.life and row.life:sub(1, 16)
    return instance and living(instance) == row.life and instance
end

local function find(version)
    local packed = call('HGET', rows, version)
    if not packed then
        return nil
    end
    local row = { version = version, life = call('HGET', loaded, version) }
    row.state, row.deadline, row.attempt, row.period, row.key, row.value = cmsgpack.unpack(packed)
    row.index = index_of(row.state, row.life)
    row.due = tonumber(call('ZSCORE', row.index, version))
    return row
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

-- Takes a row out. It removes before anything is written, see above.
local function take(row)
    call('ZREM', row.index, row.version)
    call('HDEL', rows, row.version)
    if row.life then
        call('HDEL', loaded, row.version)
    end
    if row.state == WAITING then
        call('HDEL', keys, row.key)
    else
        call('ZREM', flights, flight(row.key, row.version))
    end
end

-- Puts a row in, with another version, state and due, loaded by a life or nobody.
local function put(row, state, due, life)
    local version = next_version()
    row.version, row.state = version, state
    call('HSET', rows, version,
        cmsgpack.pack(state, row.deadline, row.attempt, row.period, row.key, row.value))
    call('ZADD', index_of(state, life), format('%.0f', due), version)
    if life then
        call('HSET', loaded, version, life)
    end
    if state == WAITING then
        call('HSET', keys, row.key, version)
    else
        call('ZADD', flights, 0, flight(row.key, version))
    end
end

local function hint()
    call('PUBLISH', space .. ':hints', '')
end
