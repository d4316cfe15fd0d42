-- count -> now, waiting, in flight, when the earliest waiting row is due or -1, dead. O(ids).

local earliest = -1
for _, index in ipairs(indexes(WAITING)) do
    local due = tonumber(call('ZRANGE', index, 0, 0, 'WITHSCORES')[2])
    if due and (earliest < 0 or due < earliest) then
        earliest = due
    end
end
local waiting = 0
for _, bucket in ipairs(buckets(keys, KEY_BUCKETS)) do
    waiting = waiting + call('HLEN', bucket)
end
return { now, waiting, call('ZCARD', flights), earliest, call('ZCARD', dead) }
