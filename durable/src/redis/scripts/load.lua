-- load: instance, window, limit, alive -> now, whether there is more, then version, due for each row.
-- O((limit + lives that ended) * log n).

local life, limit = ARGV[1], tonumber(ARGV[3])
even_when_full()
call('ZADD', lives, format('%.0f', after(tonumber(ARGV[4]))), life)

-- The first rows of each index that has any, in order.
local pages = {}
local function open_page(state, owner, horizon)
    local index = index_of(state, owner)
    local page = call('ZRANGEBYSCORE', index, '-inf', horizon, 'WITHSCORES', 'LIMIT', 0, limit + 1)
    if page[1] then
        page.index, page.mine, page.at, page.due = index, index_of(state, life), 1, tonumber(page[2])
        pages[#pages + 1] = page
    end
end
local function open_pages(owner)
    open_page(WAITING, owner, after(tonumber(ARGV[2])))
    open_page(IN_FLIGHT, owner, now)
end
open_pages(nil)
-- What lives that have ended had loaded, nobody has.
local ended = call('ZRANGEBYSCORE', lives, '-inf', '(' .. format('%.0f', now))
for _, dead in ipairs(ended) do
    open_pages(dead)
end

-- The page whose next row comes first.
local function first_page()
    local first
    for _, page in ipairs(pages) do
        local version = page[page.at]
        if version and (not first or page.due < first.due
            or page.due == first.due and version < first[first.at]) then
            first = page
        end
    end
    return first
end

local answers = { now, 0 }
local page = first_page()
while page and limit > 0 do
    local version, due, at = page[page.at], page.due, #answers
    answers[at + 1], answers[at + 2] = tonumber(version), due
    local list = list_of(into, page.mine)
    at = #list
    list[at + 1], list[at + 2] = due, version
    at = #into_loaded
    into_loaded[at + 1], into_loaded[at + 2] = version, life
    page.at = page.at + 2
    page.due = tonumber(page[page.at + 1])
    limit = limit - 1
    page = first_page()
end
answers[2] = page and 1 or 0

for _, opened in ipairs(pages) do
    if opened.at > 1 then
        call('ZREMRANGEBYRANK', opened.index, 0, (opened.at - 1) / 2 - 1)
    end
end
flush()

for _, dead in ipairs(ended) do
    if call('EXISTS', index_of(WAITING, dead), index_of(IN_FLIGHT, dead)) == 0 then
        call('ZREM', lives, dead)
    end
end
return answers
