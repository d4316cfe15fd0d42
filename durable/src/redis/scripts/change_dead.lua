-- change_dead: window, loader, 'retry' | 'discard', limit, 'token' | 'key' | 'until', then a token, a key, or a time -> how many rows,
-- whether there are more. O(log n) for each.

local op, limit, choice, value = ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]
local versions = { value }
if choice == 'key' then
    versions = dead_of(value, limit + 1)
elseif choice == 'until' then
    versions = call('ZRANGEBYSCORE', dead, '-inf', value, 'LIMIT', 0, limit + 1)
end

even_when_full()
local done, bytes, at, waiting_under = 0, 0, 1, {}
while at <= #versions and at <= limit and bytes < MAX_BYTES do
    local row = take_dead(versions[at])
    at = at + 1
    if row then
        done, bytes = done + 1, bytes + #row
    end
    local state, deadline, _, _, key, value_at, fields
    if row then
        state, deadline, _, _, key, value_at, fields = unpack_row(row)
    end
    if state and op == 'retry' then
        if waiting_under[key] == nil then
            waiting_under[key] = call('HGET', key_bucket(key), key) and true
        end
        if waiting_under[key] then
            -- Beside the newer one.
            put_in_flight(next_version(), deadline, 0, 0, key, row:sub(value_at), format(DIGITS, now), fields)
        else
            waiting_under[key] = true
            put_waiting(deadline, 0, 0, key, row:sub(value_at), now, fields)
        end
        needs_hint = true
    end
end
finish()
return { done, at <= #versions and 1 or 0 }
