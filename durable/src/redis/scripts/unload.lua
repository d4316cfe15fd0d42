-- unload: instance -> another id for it. Ends the id; its rows then count as unloaded. O(log n).

local instance = ARGV[1]
even_when_full()
call('ZREM', lacks, instance)
call('HDEL', names, instance)
if call('EXISTS', index_of(WAITING, instance), index_of(IN_FLIGHT, instance)) == 0 then
    call('ZREM', instances, instance)
else
    call('ZADD', instances, 0, instance)
    hint()
end
next_version()
save_sequence()
return { sequence }
