-- settle: window, loader, then token, 'ack' | 'extend' | 'again' | 'release', micros for each
-- -> for each: DONE, 0, 0 | LOST, 0, 0 | version, due, loaded of what waits again.
-- O(log n) for each.

local DONE, LOST = 0, -1
local answers = {}
local function answer(first, second, third)
    local at = #answers
    answers[at + 1], answers[at + 2], answers[at + 3] = first, second, third
end

local tokens = {}
for at = 3, #ARGV, 3 do
    tokens[#tokens + 1] = ARGV[at]
end
read_rows(tokens)

even_when_full()
for at = 3, #ARGV, 3 do
    local row, how, delay = find(ARGV[at]), ARGV[at + 1], tonumber(ARGV[at + 2])
    if not row or row.state ~= IN_FLIGHT then
        answer(LOST, 0, 0)
    elseif how == 'ack' then
        take(row)
        answer(DONE, 0, 0)
    elseif how == 'extend' or waiting_under(row.key) then
        -- Beside a newer timer it stays in flight.
        call('ZADD', row.index, after(delay), row.version)
        unloaded = unloaded or how ~= 'extend' and delay == 0
        answer(DONE, 0, 0)
    else
        take(row)
        local due = after(delay)
        if how == 'again' then
            row.deadline = due
        end
        local is_loaded = arm(row, due)
        answer(sequence, due, is_loaded)
    end
end
finish()
return answers
