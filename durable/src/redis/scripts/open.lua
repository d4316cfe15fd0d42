-- open: codec, no_overlap, at_most_once, parts -> now, instance, edition, first edition, and its charter
-- in these four. If
-- that is another one, nothing happens. O(1).

-- Before 7.0 what goes wrong in a script has no code, so a read-only replica would look like an error of the script.
if not redis.REDIS_VERSION then
    return redis.error_reply('ERR Redis 7.0 or later is needed')
end

local space, charter = KEYS[1], ARGV
local schema, readable_by, last, edition, made =
    unpack(redis.call('HMGET', space, 'schema', 'readable_by', 'sequence', 'edition', 'made'))
if schema and (tonumber(schema) < SCHEMA or tonumber(readable_by) > SCHEMA) then
    return redis.error_reply('TICKWHEELSCHEMA ' .. schema .. ' ' .. readable_by)
elseif schema then
    charter = redis.call('HMGET', space, 'codec', 'no_overlap', 'at_most_once', 'parts')
    for field = 1, 4 do
        if charter[field] ~= ARGV[field] then
            return { 0, 0, 0, 0, unpack(charter) }
        end
    end
    -- A full server lets writes through after a removal: the caller may be about to make room.
    redis.call('HDEL', space, '')
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local instance = string.format('%.0f', math.max(last or 0, now) + 1)
edition, made = edition or instance, made or instance
redis.call('HSET', space, 'schema', schema or SCHEMA, 'readable_by', readable_by or READABLE_BY, 'sequence', instance,
    'made', made, 'edition', edition, 'codec', ARGV[1], 'no_overlap', ARGV[2], 'at_most_once', ARGV[3], 'parts', ARGV[4])
return { now, tonumber(instance), tonumber(edition), tonumber(made), unpack(charter, 1, 4) }
