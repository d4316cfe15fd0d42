-- open: codec -> now, instance, the codec of the namespace. If that is another one, nothing happens. O(1).

local SCHEMA = '2'
local space = KEYS[1]
local schema, codec, last = unpack(redis.call('HMGET', space, 'schema', 'codec', 'sequence'))
-- What the first schema has is part of the second, which adds errors, dead rows and schedules.
if schema and schema ~= SCHEMA and schema ~= '1' then
    return redis.error_reply('TICKWHEELSCHEMA ' .. schema .. ' ' .. SCHEMA)
elseif codec and codec ~= ARGV[1] then
    return { 0, 0, codec }
end
if schema then
    -- A full server lets writes through after a removal: the caller may be about to make room.
    redis.call('HDEL', space, '')
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local instance = math.max(last or 0, now) + 1
redis.call('HSET', space, 'schema', SCHEMA, 'codec', ARGV[1], 'sequence', string.format('%.0f', instance))
return { now, instance, ARGV[1] }
