-- amend: codec, no_overlap, at_most_once, parts -> whether there are rows, and the charter as it was in these four. Nothing
-- happens to one that has other parts, or another codec while there are rows. O(1).

local charter = call('HMGET', space, 'codec', 'no_overlap', 'at_most_once', 'parts')
local has_rows, differs = call('EXISTS', rows, dead_rows), false
for field = 1, 4 do
    charter[field] = charter[field] or ARGV[field]
    differs = differs or charter[field] ~= ARGV[field]
end
local is_allowed = charter[4] == ARGV[4] and (charter[1] == ARGV[1] or has_rows == 0)
if differs and is_allowed then
    even_when_full()
    call('HSET', space, 'codec', ARGV[1], 'no_overlap', ARGV[2], 'at_most_once', ARGV[3], 'parts', ARGV[4],
        'edition', next_version())
    save_sequence()
end
return { has_rows, unpack(charter) }
