-- get: key -> the row, or nothing. O(log n).

local answers = {}
local version = call('HGET', keys, ARGV[1]) or latest_token(ARGV[1])
if version then
    describe(answers, version)
else
    local versions = any_dead and dead_of(ARGV[1]) or {}
    if versions[1] then
        describe_dead(answers, versions[#versions])
    end
end
return answers
