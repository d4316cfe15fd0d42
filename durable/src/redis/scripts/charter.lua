-- charter -> codec, no_overlap, at_most_once, parts; nothing if the namespace was not opened. O(1).

local charter = redis.call('HMGET', KEYS[1], 'codec', 'no_overlap', 'at_most_once', 'parts')
if not charter[1] then
    return {}
end
return { charter[1], charter[2] or '', charter[3] or '', charter[4] or '' }
