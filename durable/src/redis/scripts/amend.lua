-- amend: codec, no_overlap, at_most_once, parts -> the charter as it was in these four. Nothing happens to one that has
-- another codec or other parts. O(1).

local charter = call('HMGET', space, 'codec', 'no_overlap', 'at_most_once', 'parts')
local differs = charter[2] ~= ARGV[2] or charter[3] ~= ARGV[3]
if differs and charter[1] == ARGV[1] and charter[4] == ARGV[4] then
    even_when_full()
    call('HSET', space, 'no_overlap', ARGV[2], 'at_most_once', ARGV[3], 'edition', next_version())
    save_sequence()
end
return charter
