-- The next version notes who has opened the namespace.
redis.call('SADD', KEYS[1] .. ':openings', redis.call('TIME')[1])
