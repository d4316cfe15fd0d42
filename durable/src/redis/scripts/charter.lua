-- charter -> codec, no_overlap, at_most_once, parts; nothing if the namespace was not opened. O(1).

local charter = redis.call('HMGET', KEYS[1], 'codec', 'no_overlap', 'at_most_once', 'parts')
return charter[1] and charter or {}
