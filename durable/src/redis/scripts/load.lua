-- load: instance, window, limit, alive, wanted, unknown schedules, name -> now, until when the instance was to live before, or
-- 0, until when it lives now, whether there is more, what other instances lack, version, due for each row, version, deadline and schedule for each that has a schedule.
-- O((limit + ids that have ended + rows passed by) * log n).

local instance, limit = ARGV[1], tonumber(ARGV[3])
even_when_full()
local lived_until, alive_until = call('ZSCORE', instances, instance), after(tonumber(ARGV[4]))
call('ZADD', instances, format(DIGITS, alive_until), instance)
if ARGV[7] ~= '' then
    call('HSET', names, instance, ARGV[7])
end

-- The first rows of each index that has any, in order.
local pages = {}
local function open_page(state, owner, horizon)
    local index = index_of(state, owner)
    local page, passed = known_page(index, horizon, limit + 1, ARGV[6])
    if page[1] then
        page.passed = passed
        page.index, page.state, page.at, page.due = index, state, 1, tonumber(page[2])
        pages[#pages + 1] = page
    end
end
local function open_pages(owner)
    open_page(WAITING, owner, after(tonumber(ARGV[2])))
    open_page(IN_FLIGHT, owner, now)
end
open_pages(nil)
-- Those that other instances have left.
for _, owner in ipairs(call('ZRANGE', instances, 0, -1)) do
    if owner:sub(1, 1) == '-' and owner ~= '-' .. instance and living(owner) then
        open_page(WAITING, owner, now)
        open_page(IN_FLIGHT, owner, now)
    end
end
local ended = ended_instances()
for _, dead in ipairs(ended) do
    open_pages(dead)
end

-- The page with the row that comes first.
local function first_page()
    local first = pages[1]
    for at = 2, #pages do
        local page = pages[at]
        if page.due < first.due or page.due == first.due and page[page.at] < first[first.at] then
            first = page
        end
    end
    return first
end

-- Nothing is left of the page.
local function leave(page)
    for number = 1, #pages do
        if pages[number] == page then
            return table.remove(pages, number)
        end
    end
end

-- Takes the rows that were read of a page out of its index.
local function shut(page)
    if page.at > 1 and page.passed then
        local taken = {}
        for at = 1, page.at - 2, 2 do
            taken[#taken + 1] = page[at]
        end
        call_with_many('ZREM', page.index, taken)
    elseif page.at > 1 then
        call('ZREMRANGEBYRANK', page.index, 0, (page.at - 1) / 2 - 1)
    end
end

local found, into, into_loaded = {}, { [WAITING] = {}, [IN_FLIGHT] = {} }, {}
local lacking = tonumber(ARGV[5])
for at = 1, 2 * limit, 2 do
    local page = first_page()
    if not page then
        break
    end
    local version, due, list = page[page.at], page[page.at + 1], into[page.state]
    found[at], found[at + 1] = version, due
    into_loaded[at], into_loaded[at + 1] = version, instance
    local into_at = #list
    list[into_at + 1], list[into_at + 2] = due, version
    if page.due <= now then
        lacking = lacking - 1
    end
    page.at = page.at + 2
    page.due = tonumber(page[page.at + 1])
    if not page.due then
        shut(page)
        leave(page)
    end
end
for _, page in ipairs(pages) do
    shut(page)
end
for state, list in pairs(into) do
    call_with_many('ZADD', index_of(state, instance), list)
end
call_with_many('HSET', loaded, into_loaded)

for _, dead in ipairs(ended) do
    if call('EXISTS', index_of(WAITING, dead), index_of(IN_FLIGHT, dead)) == 0 then
        call('ZREM', instances, dead)
        call('HDEL', names, dead)
    end
end

local others_lack, noted = 0, call('ZRANGE', lacks, 0, -1, 'WITHSCORES')
for at = 1, #noted, 2 do
    local other = noted[at]
    if not living(other) then
        call('ZREM', lacks, other)
    elseif other ~= instance then
        others_lack = others_lack + tonumber(noted[at + 1])
    end
end
if lacking > 0 then
    call('ZADD', lacks, lacking, instance)
else
    call('ZREM', lacks, instance)
end

local scheduled = {}
if found[1] and any_schedule() then
    local versions = {}
    for at = 1, #found, 2 do
        versions[#versions + 1] = found[at]
    end
    local schedule_of = read(schedules, versions, 1, #versions)
    for _, version in ipairs(versions) do
        if schedule_of[version] then
            local at = #scheduled
            scheduled[at + 1], scheduled[at + 2] = version, schedule_of[version]
        end
    end
end
return { now, tonumber(lived_until or 0), alive_until, pages[1] and 1 or 0, others_lack, concat(found, ' '), scheduled }
