-- prefix: 'w' waiting | 'f' in flight | 'd' dead, limit, prefix, cursor -> the next cursor or '', then rows.
--
-- The names of rows lie in no order by prefix, so each step looks at about STEP of them, wherever the cursor of the server
-- stands: O(STEP + limit * log n). A cursor is that of the server, a space, and the last name of the step that was returned,
-- if the step had more rows than an answer. Then the step is made again, without the names up to that one.

local STEP = 1000
local state, limit, prefix = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local cursor, last = ARGV[4]:match('^(%d+) (.*)$')
if not cursor then
    return redis.error_reply('ERR the cursor is none of this store')
end

-- The names of rows in flight and of dead rows begin with the length of the key, and end with the version.
local LENGTH, VERSION = 5, 16
local literal = prefix:gsub('[%*%?%[%]%^%-\\]', '\\%0')
local found, names = nil, {}
if state == WAITING then
    found = call('HSCAN', keys, cursor, 'MATCH', literal .. '*', 'COUNT', STEP)
else
    local index = state == DEAD and dead_keys or flights
    found = call('ZSCAN', index, cursor, 'MATCH', ('?'):rep(LENGTH) .. literal .. '*', 'COUNT', STEP)
end
local versions = {}
for at = 1, #found[2], 2 do
    local name = found[2][at]
    local key = state == WAITING and name or name:sub(LENGTH + 1, -VERSION - 1)
    -- The name may match only with digits of its version.
    if key:sub(1, #prefix) == prefix and name > last then
        names[#names + 1] = name
        versions[name] = state == WAITING and found[2][at + 1] or name:sub(-VERSION)
    end
end
table.sort(names)

local next_cursor = found[1] == '0' and '' or found[1] .. ' '
local answers, bytes = { next_cursor }, 0
local describe_row = state == DEAD and describe_dead or describe
for number, name in ipairs(names) do
    if number > limit or bytes >= MAX_BYTES then
        answers[1] = cursor .. ' ' .. (names[number - 1] or last)
        break
    end
    bytes = bytes + describe_row(answers, versions[name])
end
return answers
