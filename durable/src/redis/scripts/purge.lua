-- purge -> how many rows there were. O(ids); the server frees the memory in the background.

local purged = call('HLEN', rows) + call('ZCARD', dead)
call('UNLINK', rows, keys, flights, loaded, schedules, dead, dead_rows, dead_keys)
for _, state in ipairs({ WAITING, IN_FLIGHT }) do
    call('UNLINK', unpack(indexes(state)))
end
return { purged }
