-- Adds a field of rows, 'o', and a set of the instances that have opened the namespace: version 2 of the schema. Version 1 can
-- use it.

if redis.call('HGET', KEYS[1], 'schema') == '1' then
    redis.call('SADD', KEYS[1] .. ':openings', 'migrated')
    redis.call('HSET', KEYS[1], 'schema', 2)
end
return {}
