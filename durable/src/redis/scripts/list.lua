-- list: 'w' waiting | 'f' in flight | 'd' dead, limit, then due, version of the last one if it goes on -> rows, fewer if they have enough bytes.
-- O((ids + limit) * log n).

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

for _, index in ipairs(limit > 0 and indexes(ARGV[1]) or {}) do
    local after_last = rank_after(index)
    add_source(index, ARGV[1], function(from)
        return call('ZRANGE', index, after_last + from, after_last + from + FEW - 1, 'WITHSCORES')
    end)
end

local answers, bytes = {}, 0
local describe_row = ARGV[1] == DEAD and describe_dead or describe
for _ = 1, limit do
    local version = take_first()
    if not version then
        break
    end
    bytes = bytes + describe_row(answers, version)
    if bytes >= MAX_BYTES then
        break
    end
end
return answers
