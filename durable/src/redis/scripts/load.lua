-- load: instance, window, limit, alive -> now, whether there is more, then version, due for each row.
-- O((limit + lives that ended) * log n).

local instance, limit = ARGV[1], tonumber(ARGV[3])
even_when_full()
local life = call('HGET', instances, instance)
if not life then
    life = instance .. next_version()
    call('HSET', instances, instance, life)
    save_sequence()
end
call('ZADD', lives, format('%.0f', after(tonumber(ARGV[4]))), life)

local found, pages = {}, 0
local function collect(state, owner, horizon)
    local index = index_of(state, owner)
    local page = call('ZRANGEBYSCORE', index, '-inf', format('%.0f', horizon), 'WITHSCORES', 'LIMIT', 0, limit + 1)
    if #page > 0 then
        pages = pages + 1
    end
    for at = 1, #page, 2 do
        found[#found + 1] = { version = page[at], due = tonumber(page[at + 1]), state = state, index = index }
    end
end
local function collect_of(owner)
    collect(WAITING, owner, after(tonumber(ARGV[2])))
    collect(IN_FLIGHT, owner, now)
end

collect_of(nil)
-- What lives that have ended had loaded, nobody has.
local ended = call('ZRANGEBYSCORE', lives, '-inf', '(' .. format('%.0f', now))
for _, dead in ipairs(ended) do
    collect_of(dead)
end
if pages > 1 then
    table.sort(found, function(a, b)
        return a.due < b.due or a.due == b.due and a.version < b.version
    end)
end

local answers = { now, #found > limit and 1 or 0 }
-- Commands take many members at once; Lua bounds how many.
local removed, added, marked = {}, {}, {}
local function flush()
    for index, members in pairs(removed) do
        call('ZREM', index, unpack(members))
    end
    for index, members in pairs(added) do
        call('ZADD', index, unpack(members))
    end
    if #marked > 0 then
        call('HSET', loaded, unpack(marked))
    end
    removed, added, marked = {}, {}, {}
end
local function push(lists, name, ...)
    local list = lists[name] or {}
    lists[name] = list
    for _, value in ipairs({ ... }) do
        list[#list + 1] = value
    end
end
for number = 1, min(#found, limit) do
    local row = found[number]
    push(removed, row.index, row.version)
    push(added, index_of(row.state, life), format('%.0f', row.due), row.version)
    marked[#marked + 1] = row.version
    marked[#marked + 1] = life
    answers[#answers + 1] = tonumber(row.version)
    answers[#answers + 1] = row.due
    if number % 1000 == 0 then
        flush()
    end
end
flush()

for _, dead in ipairs(ended) do
    if call('EXISTS', index_of(WAITING, dead), index_of(IN_FLIGHT, dead)) == 0 then
        call('ZREM', lives, dead)
        local owner = dead:sub(1, 16)
        if call('HGET', instances, owner) == dead then
            call('HDEL', instances, owner)
        end
    end
end
return answers
