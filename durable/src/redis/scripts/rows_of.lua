-- rows_of: key, limit -> the rows under the key: the waiting one, those in flight, the dead ones, the latest first.
-- O(limit * log n).

local key, limit = ARGV[1], tonumber(ARGV[2])
local answers, bytes = {}, 0
local function add(describe_row, version)
    if bytes < MAX_BYTES then
        bytes = bytes + describe_row(answers, version)
    end
end
local waiting = call('HGET', key_bucket(key), key)
if waiting then
    add(describe, waiting)
end
for _, name in ipairs(names_of(flights, key, 0, limit)) do
    add(describe, name:sub(-16))
end
for _, version in ipairs(dead_of(key, limit, true)) do
    add(describe_dead, version)
end
return answers
