-- schema -> the version of the schema, and the oldest version that can use the namespace; nothing if it was not opened. O(1).

local versions = redis.call('HMGET', KEYS[1], 'schema', 'readable_by')
return versions[1] and { tonumber(versions[1]), tonumber(versions[2]) } or {}
