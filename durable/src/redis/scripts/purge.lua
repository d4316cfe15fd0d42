-- purge -> how many rows there were. O(ids + buckets); the server frees the memory in the background.

local purged = call('ZCARD', dead)
for number = 0, 99 do
    local bucket = row_bucket(format('%02d', number))
    purged = purged + call('HLEN', bucket)
    call('UNLINK', bucket)
end
call('UNLINK', unpack(buckets(keys, KEY_BUCKETS)))
call('UNLINK', unpack(buckets(schedules, SCHEDULE_BUCKETS)))
call('UNLINK', flights, loaded, dead, dead_rows, dead_keys)
for _, state in ipairs({ WAITING, IN_FLIGHT }) do
    for _, index in ipairs(indexes(state)) do
        call('UNLINK', index)
    end
end
return { purged }
