-- settle: window, loader, 'at how micros error ..' for those that are not acknowledged, how many tokens, the tokens, errors; at is
-- where a token is among them, how is 'extend' | 'retry_after' | 'release' | 'unfire' | 'leave' | 'die', error is where its error is,
-- or 0. One that leaves a row is followed by ':', the id and for how long.
-- -> DONE | LOST | version, due, loaded of what waits again, for each; fewer, if the last are left for another call.
-- O(log n) for each.

local DONE, LOST, FIRST = '0', '-1', 5
local LAST = FIRST + ARGV[4] - 1
local answers, how_of, delay_of, error_of, left_of = {}, {}, {}, {}, {}
even_when_full()
for at, how, delay, error, left_by, left_for in ARGV[3]:gmatch('(%d+) ([%a_]+) (%d+) (%d+):?(-?%d*):?(%d*)') do
    how_of[FIRST + at], delay_of[FIRST + at] = how, tonumber(delay)
    if how == 'leave' then
        left_of[FIRST + at] = left_by
        if not living(left_by) then
            call('ZADD', instances, format(DIGITS, after(tonumber(left_for))), left_by)
        end
    end
    error_of[FIRST + at] = tonumber(error) > 0 and ARGV[LAST + error] or nil
end

local waiting_under, row_of, last = {}, read_rows(ARGV, FIRST, LAST)
for at = FIRST, last do
    local token, how = ARGV[at], how_of[at]
    local row, answer = row_of[token], DONE
    local state, deadline, attempt, _, key, value_at, fields, by
    if row then
        state, deadline, attempt, _, key, value_at, fields, by = unpack_row(row)
        if error_of[at] then
            fields = with_error(fields, error_of[at])
        end
    end
    if state ~= IN_FLIGHT then
        answer = LOST
    elseif not how then
        row_of[token] = false
        take(token, IN_FLIGHT, key)
    elseif how == 'die' then
        row_of[token] = false
        take(token, IN_FLIGHT, key)
        put_dead(token, deadline, attempt, key, row:sub(value_at), fields)
    else
        local due = after(delay_of[at])
        if how == 'unfire' or how == 'leave' then
            attempt = math.max(attempt - 1, 0)
        end
        if how ~= 'extend' and waiting_under[key] == nil then
            waiting_under[key] = call('HGET', key_bucket(key), key) and true
        end
        if how == 'extend' then
            call('ZADD', index_of(IN_FLIGHT, call('HGET', loaded, token)), format(DIGITS, due), token)
            if error_of[at] then
                -- At once: what follows in the batch may take the row out.
                call('HSET', row_bucket(token), token, pack_row(IN_FLIGHT, deadline, attempt, by, key, row:sub(value_at), fields))
            end
        else
            row_of[token] = false
            take(token, IN_FLIGHT, key)
            local value = row:sub(value_at)
            if waiting_under[key] then
                -- Beside a newer timer it stays in flight, and no claim holds it any more.
                put_in_flight(next_version(), deadline, attempt, 0, key, value, format(DIGITS, due), fields, left_of[at])
                needs_hint = needs_hint or due == now
            else
                waiting_under[key] = true
                local rearmed = how == 'retry_after' and due or deadline
                answer = concat({ put_waiting(rearmed, attempt, 0, key, value, due, fields, nil, left_of[at]) }, ' ')
            end
        end
    end
    answers[#answers + 1] = answer
end
finish()
return { concat(answers, ' ') }
