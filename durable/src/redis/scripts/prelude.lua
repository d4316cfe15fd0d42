-- The start of every script but `open`. The layout of the keys is described in redis/mod.rs.
--
-- Versions and ids are strings here, so that their digits stay as they are. Times are numbers: microseconds below 2^53, which
-- doubles hold exactly.
--
-- Rows come and go by the thousand. So commands take many members, loops do little for each row, and
-- numbers are returned as one text of digits between spaces.

local NEVER = 9007199254740991
local WAITING, IN_FLIGHT, DEAD = 'w', 'f', 'd'

-- A row: state, deadline, attempt, period, length of the key, the key and the value. Unpacking ends with where the value begins.
-- The period of a row that does not repeat is 0, and that of one with a schedule is less than 0. A row in flight has none: in
-- its place is the id of the instance that fired it, or 0.
-- A row with further fields has a capital for its state, and their length and the fields before the value: for each a letter,
-- the length, and a text. 'e' is the error. Those that a later version writes stay with a timer until it is set again.
-- No script compares texts by `<`, but for versions: that goes by the language of the server, in which 'W' may come after 'a'.
local PACK_ROW, UNPACK_ROW = '<c1dddHc0c0', '<c1dddHc0'
local PACK_WITH_FIELDS, UNPACK_FIELDS, PACK_FIELD = '<c1dddHc0Hc0c0', '<Hc0', '<c1Hc0'

local call, format, min = redis.call, string.format, math.min
local pack, unpack_from, concat = struct.pack, struct.unpack, table.concat
local space = KEYS[1]
local rows, keys, flights = space .. ':rows', space .. ':keys', space .. ':flights'
local dead, dead_rows, dead_keys = space .. ':dead', space .. ':dead:rows', space .. ':dead:keys'
local schedules = space .. ':schedules'
local loaded, instances, lacks = space .. ':loaded', space .. ':instances', space .. ':lacks'
local names = space .. ':names'

-- `SCHEMA`, the version of the schema that this script knows, and `NEEDS_SCHEMA` stand before this: see redis/scripts.rs.
local schema, readable_by, last, edition = unpack(call('HMGET', space, 'schema', 'readable_by', 'sequence', 'edition'))
if not schema then
    return redis.error_reply('TICKWHEELCLOSED not open')
elseif NEEDS_SCHEMA and (tonumber(schema) < SCHEMA or tonumber(readable_by) > SCHEMA) then
    return redis.error_reply('TICKWHEELSCHEMA ' .. schema .. ' ' .. readable_by)
end

local function pack_row(state, deadline, attempt, period, key, value, fields)
    if not fields then
        return pack(PACK_ROW, state, deadline, attempt, period, #key, key, value)
    end
    return pack(PACK_WITH_FIELDS, state:upper(), deadline, attempt, period, #key, key, #fields, fields, value)
end

-- The fields with another error, or without one.
local function with_error(fields, error)
    local kept, at = error and pack(PACK_FIELD, 'e', #error, error) or '', 1
    while fields and at <= #fields do
        local name, text, next_at = unpack_from(PACK_FIELD, fields, at)
        if name ~= 'e' then
            kept = kept .. pack(PACK_FIELD, name, #text, text)
        end
        at = next_at
    end
    return kept ~= '' and kept or nil
end

-- Whether fields end where they say.
local function are_sound(fields)
    local at, length = 1, #fields
    while at + 2 <= length do
        local low, high = fields:byte(at + 1, at + 2)
        at = at + 3 + low + 256 * high
    end
    return at == length + 1
end

-- State, deadline, attempt, period, key, where the value begins, the further fields, if there are any, and who fired it. Of a
-- row that is damaged, because it holds what no script writes: nil, what is wrong, and the key, as far as it can be read.
local MAX_ATTEMPT, HEAD_BYTES = 2147483646, 27
local function unpack_row(row)
    local length = #row
    if length < HEAD_BYTES or length < HEAD_BYTES + row:byte(26) + 256 * row:byte(27) then
        return nil, 'it is cut off', ''
    end
    local state, deadline, attempt, period, key, value_at = unpack_from(UNPACK_ROW, row)
    local fields = nil
    if not ('wfdWFD'):find(state, 1, true) then
        return nil, 'its state is none that a store writes', key
    elseif not (deadline >= 0 and deadline <= NEVER) then
        return nil, 'its deadline is ' .. deadline .. ', which no store writes', key
    elseif not (attempt >= 0 and attempt <= MAX_ATTEMPT) then
        return nil, 'its attempt is ' .. attempt .. ', which no store writes', key
    elseif not (period < 0 or period <= NEVER and period % 1 == 0) then
        return nil, 'its period is ' .. period .. ', which no store writes', key
    elseif ('WFD'):find(state, 1, true) then
        local first, second = row:byte(value_at, value_at + 1)
        if not second or length < value_at + 1 + first + 256 * second then
            return nil, 'it is cut off', key
        end
        state = state:lower()
        fields, value_at = unpack_from(UNPACK_FIELDS, row, value_at)
        if not are_sound(fields) then
            return nil, 'its fields are cut off', key
        end
    end
    if state == IN_FLIGHT then
        return state, deadline, attempt, 0, key, value_at, fields, period
    end
    return state, deadline, attempt, period, key, value_at, fields, 0
end

local time = call('TIME')
local now = time[1] * 1000000 + time[2]

-- The last two arguments of each script: the name of the store that sends it, and the epoch of its connection: see
-- redis/connection.rs. Stores that have connected once only, with epoch 0, are not in the set; others leave it long after
-- whatever they could have sent before.
local EPOCHS_KEPT = 30 * 24 * 3600 * 1000000
local epoch, sender, epochs = tonumber(table.remove(ARGV)), table.remove(ARGV), space .. ':epochs'
local latest_epoch = tonumber(call('ZSCORE', epochs, sender) or 0)
if epoch < latest_epoch then
    return redis.error_reply('TICKWHEELSUPERSEDED it comes after calls of a later connection')
elseif epoch > latest_epoch then
    -- A full server lets this through after a removal.
    call('HDEL', loaded, '')
    call('ZREMRANGEBYSCORE', epochs, '-inf', string.format('%.0f', now - EPOCHS_KEPT))
    call('ZADD', epochs, string.format('%.0f', epoch), sender)
end

-- Before these two: the edition of the charter that the sender agrees with, or '', and until when its caller waits.
local deadline_of_call, asked_edition = tonumber(table.remove(ARGV)), table.remove(ARGV)
if asked_edition ~= '' and asked_edition ~= edition then
    return redis.error_reply('TICKWHEELAMENDED it was amended')
elseif now > deadline_of_call then
    return redis.error_reply('TICKWHEELLATE ' .. string.format('%.0f', now))
end

-- Whole numbers as digits: '%d' takes a third of the time of '%.0f', where it has room for them.
local DIGITS = format('%d', NEVER) == '9007199254740991' and '%d' or '%.0f'

-- The sequence never falls behind the clock. So versions grow also after the server has lost its last writes, and all of them
-- have 16 digits: they sort as strings as they do as numbers.
local sequence = math.max(last, now)
local function next_version()
    sequence = sequence + 1
    return format(DIGITS, sequence)
end
local function save_sequence()
    call('HSET', space, 'sequence', format(DIGITS, sequence))
end

-- A full server refuses a script's first write if it takes memory, and lets all through after one that does not. Calls that
-- deliver and settle make room in the end, so they start with this.
local function even_when_full()
    call('HDEL', loaded, '')
end

local function after(delay)
    return min(now + delay, NEVER)
end

-- What grows with the number of timers lies in buckets, which a cluster can move, one after the other, however many timers
-- there are: rows by the last two digits of their versions, schedules and waiting rows that no instance has loaded by the last
-- one, keys by the first digit of a hash.
local DIGITS_OF_BUCKETS = '0123456789abcdef'
local function row_bucket(version)
    return rows .. ':' .. version:sub(-2)
end
local function schedule_bucket(version)
    return schedules .. ':' .. version:sub(-1)
end
local key_buckets = {}
local function key_bucket(key)
    local bucket = key_buckets[key]
    if not bucket then
        bucket = keys .. ':' .. redis.sha1hex(key):sub(1, 1)
        key_buckets[key] = bucket
    end
    return bucket
end

-- The first `count` buckets that are named by one digit.
local function buckets(name, count)
    local all = {}
    for at = 1, count do
        all[at] = name .. ':' .. DIGITS_OF_BUCKETS:sub(at, at)
    end
    return all
end
local SCHEDULE_BUCKETS, WAITING_BUCKETS, KEY_BUCKETS = 10, 10, 16

-- The sorted set in which a row of that state lies by when it is due: the unloaded ones, or those of an id.
local indexes_of_nobody = { [WAITING] = space .. ':waiting', [IN_FLIGHT] = space .. ':in-flight' }
local function index_of(state, instance, version)
    local index = indexes_of_nobody[state]
    if instance then
        return index .. ':' .. instance
    elseif state == WAITING then
        return index .. ':' .. version:sub(-1)
    end
    return index
end
local function waiting_bucket(version)
    return index_of(WAITING, nil, version)
end

-- The sorted sets of the unloaded rows of a state, or the one of an id.
local function indexes_of(state, instance)
    if state == WAITING and not instance then
        return buckets(indexes_of_nobody[state], WAITING_BUCKETS)
    end
    return { index_of(state, instance) }
end

-- The id of an instance, if it is live.
local function living(instance)
    local alive_until = instance ~= '' and call('ZSCORE', instances, instance)
    return alive_until and tonumber(alive_until) >= now and instance
end

-- The ids that have ended. Rows that were loaded under them count as unloaded. Of very many, each call gets some others.
local MAX_ENDED = 128
local function ended_instances()
    local most = '(' .. format(DIGITS, now)
    local all = call('ZCOUNT', instances, '-inf', most)
    local from = all > MAX_ENDED and math.fmod(now, all) or 0
    local ended = call('ZRANGEBYSCORE', instances, '-inf', most, 'LIMIT', from, MAX_ENDED)
    if from > 0 and #ended < MAX_ENDED then
        for _, instance in ipairs(call('ZRANGEBYSCORE', instances, '-inf', most, 'LIMIT', 0, MAX_ENDED - #ended)) do
            ended[#ended + 1] = instance
        end
    end
    return ended
end

-- The id under which the row is loaded, if any, and when it is due. One whose entry in the index was lost is due.
local function loader_and_due(version, state)
    local instance = call('HGET', loaded, version)
    return instance, tonumber(call('ZSCORE', index_of(state, instance, version), version)) or 0
end

-- The name of a row in flight in the index by keys. Names of one key lie together, the latest last.
local lengths = {}
local function flight(key, version)
    local length = lengths[#key]
    if not length then
        length = format('%05d', #key)
        lengths[#key] = length
    end
    return length .. key .. version
end

-- The names of a key in that index, from the latest version on, after the first so many.
local function names_of(index, key, from, limit)
    return call('ZREVRANGEBYLEX', index, '[' .. flight(key, ':'), '[' .. flight(key, '0'), 'LIMIT', from, limit)
end
local function latest_token(key)
    local name = names_of(flights, key, 0, 1)[1]
    return name and name:sub(-16)
end

-- Lua bounds how many arguments a call has.
local MANY = 4000

-- Calls with all members, as often as that takes. Returns the sum of the results.
local function call_with_many(command, key, members)
    local sum = 0
    for from = 1, #members, MANY do
        sum = sum + call(command, key, unpack(members, from, min(from + MANY - 1, #members)))
    end
    return sum
end

-- Calls with members that lie in buckets. Each has `length` arguments, and the one at `at` names its bucket. Returns the sum of
-- the results.
local function call_in_buckets(command, bucket_of, members, length, at)
    local lists, sum = {}, 0
    for first = 1, #members, length do
        local bucket = bucket_of(members[first + at - 1])
        local list = lists[bucket] or {}
        lists[bucket] = list
        for member = first, first + length - 1 do
            list[#list + 1] = members[member]
        end
    end
    for bucket, list in pairs(lists) do
        sum = sum + call_with_many(command, bucket, list)
    end
    return sum
end

-- The values of fields of a hash, by field: false where there is none.
local function read(key, fields, from, to)
    local values = {}
    for from = from, to, MANY do
        local last = min(from + MANY - 1, to)
        local answers = call('HMGET', key, unpack(fields, from, last))
        for at = from, last do
            values[fields[at]] = answers[at - from + 1]
        end
    end
    return values
end

-- The same of a hash that lies in buckets.
local function read_in_buckets(bucket_of, fields, from, to)
    local lists, values = {}, {}
    for at = from, to do
        local bucket = bucket_of(fields[at])
        local list = lists[bucket] or {}
        lists[bucket] = list
        list[#list + 1] = fields[at]
    end
    for bucket, list in pairs(lists) do
        for field, value in pairs(read(bucket, list, 1, #list)) do
            values[field] = value
        end
    end
    return values
end

-- A script reads no more rows of a batch once they have this many bytes, because it blocks the server.
-- Another call takes the rest of the batch. `ANSWER_BYTES` is the same.
local MAX_BYTES = 1048576

-- The first rows, by version, and where the last of them is.
local function read_rows(versions, from, to)
    local values, bytes = {}, 0
    for at = from, to do
        local version = versions[at]
        local value = call('HGET', row_bucket(version), version)
        values[version] = value
        bytes = bytes + (value and #value or 0)
        if bytes >= MAX_BYTES then
            return values, at
        end
    end
    return values, to
end

-- Whether any row has a schedule.
local has_any_schedule
local function any_schedule()
    if has_any_schedule == nil then
        has_any_schedule = call('EXISTS', unpack(buckets(schedules, SCHEDULE_BUCKETS))) > 0
    end
    return has_any_schedule
end

-- Deadline and schedule of a row, as they are kept: in one text.
local function pack_schedule(deadline, schedule)
    return format(DIGITS, deadline) .. ' ' .. schedule
end
local function unpack_schedule(text)
    local deadline, schedule = text:match('^(%d+) (.*)$')
    return tonumber(deadline), schedule
end

local function hint()
    call('PUBLISH', space .. ':hints', '')
end
