-- Takes back what version 2 of the schema has added. The fields of rows go with the rows.

if redis.call('HGET', KEYS[1], 'schema') == '2' then
    redis.call('DEL', KEYS[1] .. ':openings')
    redis.call('HSET', KEYS[1], 'schema', 1, 'readable_by', 1)
end
return {}
