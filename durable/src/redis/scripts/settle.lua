-- settle: window, loader, 'at how micros ..' for those that are not acknowledged, then tokens; at is where a token is among them
-- and how is 'extend' | 'again' | 'release' | 'unfire'
-- -> DONE | LOST | version, due, loaded of what waits again, for each; fewer, if the last are left for another call.
-- O(log n) for each.

local DONE, LOST, FIRST = '0', '-1', 4
local answers, how_of, delay_of = {}, {}, {}
for at, how, delay in ARGV[3]:gmatch('(%d+) (%a+) (%d+)') do
    how_of[FIRST + at], delay_of[FIRST + at] = how, tonumber(delay)
end

even_when_full()
local waiting_under, row_of, last = {}, read_some(rows, ARGV, FIRST, #ARGV)
for at = FIRST, last do
    local token, how = ARGV[at], how_of[at]
    local row, answer = row_of[token], DONE
    local state, deadline, attempt, period, key, value_at
    if row then
        state, deadline, attempt, period, key, value_at = unpack_from(UNPACK_ROW, row)
    end
    if state ~= IN_FLIGHT then
        answer = LOST
    elseif not how then
        row_of[token] = false
        take(token, IN_FLIGHT, key)
    else
        local due = after(delay_of[at])
        if how == 'unfire' then
            attempt = math.max(attempt - 1, 0)
        end
        if how ~= 'extend' and waiting_under[key] == nil then
            waiting_under[key] = call('HGET', keys, key) and true
        end
        if how == 'extend' or waiting_under[key] then
            -- Beside a newer timer it stays in flight.
            local instance = call('HGET', loaded, token)
            call('ZADD', index_of(IN_FLIGHT, instance), format(DIGITS, due), token)
            unloaded = unloaded or how ~= 'extend' and due == now
            if how == 'unfire' then
                put_row(token, IN_FLIGHT, deadline, attempt, period, key, row:sub(value_at))
            end
        else
            row_of[token], waiting_under[key] = false, true
            take(token, IN_FLIGHT, key)
            local rearmed, value = how == 'again' and due or deadline, row:sub(value_at)
            answer = concat({ put_waiting(rearmed, attempt, period, key, value, due) }, ' ')
        end
    end
    answers[#answers + 1] = answer
end
finish()
return { concat(answers, ' ') }
