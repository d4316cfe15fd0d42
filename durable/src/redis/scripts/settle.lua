-- settle: window, loader, 'at how micros error ..' for those that are not acknowledged, how many tokens, the tokens, errors; at is
-- where a token is among them, how is 'extend' | 'again' | 'release' | 'unfire' | 'die', error is where its error is, or 0
-- -> DONE | LOST | version, due, loaded of what waits again, for each; fewer, if the last are left for another call.
-- O(log n) for each.

local DONE, LOST, FIRST = '0', '-1', 5
local LAST = FIRST + ARGV[4] - 1
local answers, how_of, delay_of, error_of = {}, {}, {}, {}
for at, how, delay, error in ARGV[3]:gmatch('(%d+) (%a+) (%d+) (%d+)') do
    how_of[FIRST + at], delay_of[FIRST + at] = how, tonumber(delay)
    error_of[FIRST + at] = tonumber(error) > 0 and ARGV[LAST + error] or nil
end

even_when_full()
local waiting_under, row_of, last = {}, read_some(rows, ARGV, FIRST, LAST)
for at = FIRST, last do
    local token, how = ARGV[at], how_of[at]
    local row, answer = row_of[token], DONE
    local state, deadline, attempt, _, key, value_at, error, by
    if row then
        state, deadline, attempt, _, key, value_at, error, by = unpack_row(row)
        error = error_of[at] or error
    end
    if state ~= IN_FLIGHT then
        answer = LOST
    elseif not how then
        row_of[token] = false
        take(token, IN_FLIGHT, key)
    elseif how == 'die' then
        row_of[token] = false
        take(token, IN_FLIGHT, key)
        put_dead(token, deadline, attempt, key, row:sub(value_at), error)
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
            if how == 'unfire' or error_of[at] then
                put_row(token, IN_FLIGHT, deadline, attempt, by, key, row:sub(value_at), error)
            end
        else
            row_of[token], waiting_under[key] = false, true
            take(token, IN_FLIGHT, key)
            local rearmed, value = how == 'again' and due or deadline, row:sub(value_at)
            answer = concat({ put_waiting(rearmed, attempt, 0, key, value, due, error) }, ' ')
        end
    end
    answers[#answers + 1] = answer
end
finish()
return { concat(answers, ' ') }
