-- list: 'w' waiting | 'f' in flight | 'd' dead, limit, then due, version of the last one if it goes on -> rows, fewer if they have enough bytes.
-- O((limit + log n) * ids + limit * log n).

local limit, after_due, after_version = tonumber(ARGV[2]), ARGV[3], ARGV[4]

-- How many in the index are not after that one. Among those due at the same time, their versions are in order.
local function rank_after(index)
    if not after_due then
        return 0
    end
    local low = call('ZCOUNT', index, '-inf', '(' .. after_due)
    local high = low + call('ZCOUNT', index, after_due, after_due)
    while low < high do
        local middle = math.floor((low + high) / 2)
        if call('ZRANGE', index, middle, middle)[1] <= after_version then
            low = middle + 1
        else
            high = middle
        end
    end
    return low
end

local found = {}
for _, index in ipairs(limit > 0 and indexes(ARGV[1]) or {}) do
    local from = rank_after(index)
    local page = call('ZRANGE', index, from, from + limit - 1, 'WITHSCORES')
    for at = 1, #page, 2 do
        found[#found + 1] = { version = page[at], due = tonumber(page[at + 1]) }
    end
end
table.sort(found, function(a, b)
    return a.due < b.due or a.due == b.due and a.version < b.version
end)

local answers, bytes = {}, 0
local describe_row = ARGV[1] == DEAD and describe_dead or describe
for number = 1, min(#found, limit) do
    bytes = bytes + describe_row(answers, found[number].version)
    if bytes >= MAX_BYTES then
        break
    end
end
return answers
