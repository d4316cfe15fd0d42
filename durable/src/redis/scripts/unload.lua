-- unload: instance. Ends its life; what it had loaded then counts as loaded by nobody. O(log n).

local life = call('HGET', instances, ARGV[1])
if life then
    call('HDEL', instances, ARGV[1])
    if call('EXISTS', index_of(WAITING, life), index_of(IN_FLIGHT, life)) == 0 then
        call('ZREM', lives, life)
    else
        call('ZADD', lives, 0, life)
        hint()
    end
end
return {}
