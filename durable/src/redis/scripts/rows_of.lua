-- rows_of: key, limit -> the rows under the key: the waiting one, those in flight, the dead ones, the latest first.
-- O(limit * log n), and log n for each dead row of the key.

local key, limit = ARGV[1], tonumber(ARGV[2])
local answers, bytes = {}, 0
local function add(describe_row, version)
    if bytes < MAX_BYTES then
        bytes = bytes + describe_row(answers, version)
    end
end
local waiting = call('HGET', keys, key)
if waiting then
    add(describe, waiting)
end
local from, to = '[' .. flight(key, '0'), '[' .. flight(key, ':')
for _, name in ipairs(call('ZREVRANGEBYLEX', flights, to, from, 'LIMIT', 0, limit)) do
    add(describe, name:sub(-16))
end
local versions = any_dead and dead_of(key) or {}
for at = #versions, math.max(#versions - limit, 0) + 1, -1 do
    add(describe_dead, versions[at])
end
return answers
