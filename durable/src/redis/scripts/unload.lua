-- unload: instance -> another id for it. Ends the id; its rows then count as unloaded. O(log n).

local life = ARGV[1]
even_when_full()
call('ZREM', lacks, life)
if call('EXISTS', index_of(WAITING, life), index_of(IN_FLIGHT, life)) == 0 then
    call('ZREM', lives, life)
else
    call('ZADD', lives, 0, life)
    hint()
end
next_version()
save_sequence()
return { sequence }
