-- instances -> for each: id, until when it is live, how many rows it has loaded, how many due rows it lacks, its name or ''.
-- O(ids * log n).

local answers = {}
local ids = call('ZRANGE', instances, 0, -1, 'WITHSCORES')
for number = 1, #ids, 2 do
    local id, at = ids[number], #answers
    if id:sub(1, 1) ~= '-' then
        local loaded_rows = call('ZCARD', index_of(WAITING, id)) + call('ZCARD', index_of(IN_FLIGHT, id))
        answers[at + 1], answers[at + 2] = tonumber(id), tonumber(ids[number + 1])
        answers[at + 3], answers[at + 4] = loaded_rows, tonumber(call('ZSCORE', lacks, id) or 0)
        answers[at + 5] = call('HGET', names, id) or ''
    end
end
return answers
