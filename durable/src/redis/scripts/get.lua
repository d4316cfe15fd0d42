-- get: key -> the row, or nothing. O(log n).

local answers = {}
local version = call('HGET', keys, ARGV[1]) or latest_token(ARGV[1])
if version then
    describe(answers, version)
end
return answers
