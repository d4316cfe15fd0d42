-- count -> now, waiting, in flight, when the earliest waiting row is due or -1, dead. O(ids).

local earliest = -1
for _, index in ipairs(indexes(WAITING)) do
    local due = tonumber(call('ZRANGE', index, 0, 0, 'WITHSCORES')[2])
    if due and (earliest < 0 or due < earliest) then
        earliest = due
    end
end
return { now, call('HLEN', keys), call('ZCARD', flights), earliest, call('ZCARD', dead) }
