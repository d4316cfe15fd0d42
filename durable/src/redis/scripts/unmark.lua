-- unmark: instance, then versions. Those that it has loaded then count as unloaded. O(log n) for each.

local instance, any = ARGV[1], false
even_when_full()
for at = 2, #ARGV do
    local version = ARGV[at]
    for _, state in ipairs({ WAITING, IN_FLIGHT }) do
        local due = call('ZSCORE', index_of(state, instance), version)
        if due then
            call('ZREM', index_of(state, instance), version)
            call('ZADD', index_of(state, nil, version), due, version)
            call('HDEL', loaded, version)
            any = true
        end
    end
end
if any then
    -- Instances that lack rows get a hint, and say so in their next load if they still do.
    call('UNLINK', lacks)
    hint()
end
return { now }
