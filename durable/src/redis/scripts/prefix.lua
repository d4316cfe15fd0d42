-- prefix: 'w' waiting | 'f' in flight | 'd' dead, limit, prefix, cursor -> the next cursor or '', then rows.
--
-- The names of rows lie in no order by prefix, so each step looks at about STEP of them, wherever the cursor of the server
-- stands, in portions of PORTION or somewhat more: O(STEP + limit * log n). An answer ends between two portions, unless one
-- has more rows than a whole answer, or large ones. Such a portion is divided, and read again for the next answer. If it has
-- lost rows meanwhile it may reach further than before, with new names among those that were answered: hence its end.
--
-- A cursor is the number of a bucket, that of the server in it, where a divided portion ended, and the last name of it that was
-- answered, with spaces between them.

local STEP, PORTION = 1000, 10
local state, limit, prefix = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local bucket, cursor, ended, last = ARGV[4]:match('^(%d+) (%d+) (%d*) (.*)$')
local command, found_in = 'HSCAN', buckets(keys, KEY_BUCKETS)
if state ~= WAITING then
    command, found_in = 'ZSCAN', { state == DEAD and dead_keys or flights }
end
bucket = tonumber(bucket)
if not found_in[bucket] then
    return redis.error_reply('ERR the cursor is none of this store')
end

-- The names of rows in flight and of dead rows begin with the length of the key, and end with the version.
local LENGTH, VERSION = 5, 16
local literal = prefix:gsub('[%*%?%[%]%^%-\\]', '\\%0')
local pattern = literal .. '*'
if state ~= WAITING then
    pattern = ('?'):rep(LENGTH) .. pattern
end

-- Whether a name comes before another one by its bytes.
local function is_before(name, other)
    for at = 1, min(#name, #other) do
        local byte, its_byte = name:byte(at), other:byte(at)
        if byte ~= its_byte then
            return byte < its_byte
        end
    end
    return #name < #other
end

-- The end of the portion at the cursor, its names with that prefix, and their versions.
local function portion()
    local found = call(command, found_in[bucket], cursor, 'MATCH', pattern, 'COUNT', PORTION)
    local names, versions = {}, {}
    for at = 1, #found[2], 2 do
        local name = found[2][at]
        local key = state == WAITING and name or name:sub(LENGTH + 1, -VERSION - 1)
        local is_answered = found[1] == ended and not is_before(last, name)
        -- The name may match only with digits of its version.
        if key:sub(1, #prefix) == prefix and not is_answered then
            names[#names + 1] = name
            versions[name] = state == WAITING and found[2][at + 1] or name:sub(-VERSION)
        end
    end
    table.sort(names, is_before)
    return found[1], names, versions
end

local answers, rows, bytes = { '' }, 0, 0
local describe_row = state == DEAD and describe_dead or describe
for _ = 1, STEP / PORTION do
    local stop, names, versions = portion()
    if rows > 0 and (rows + #names > limit or bytes >= MAX_BYTES) then
        break
    end
    for number, name in ipairs(names) do
        if rows >= limit or bytes >= MAX_BYTES then
            answers[1] = concat({ bucket, cursor, stop, names[number - 1] }, ' ')
            return answers
        end
        bytes = bytes + describe_row(answers, versions[name])
        rows = rows + 1
    end
    cursor, ended = stop, ''
    if cursor == '0' then
        bucket = bucket + 1
        if not found_in[bucket] then
            return answers
        end
    end
end
answers[1] = bucket .. ' ' .. cursor .. '  '
return answers
