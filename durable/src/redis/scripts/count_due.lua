-- count_due: limit, times.. -> how many rows wait and are due between each time and the next. O(times * ids * log n).

local limit, all = tonumber(ARGV[1]), indexes(WAITING)
local answers = {}
for at = 2, #ARGV - 1 do
    local rows = 0
    for _, index in ipairs(all) do
        rows = min(rows + call('ZCOUNT', index, ARGV[at], '(' .. ARGV[at + 1]), limit)
    end
    answers[at - 1] = rows
end
return answers
