-- load: instance, window, limit, alive, wanted, unknown schedules, name -> now, whether there is more, what other instances
-- lack, version, due for each row, version, deadline and schedule for each that has a schedule.
-- O((limit + ids that have ended, MAX_ENDED at most, + rows passed by) * log n).

local instance, limit = ARGV[1], tonumber(ARGV[3])
even_when_full()
call('ZADD', instances, format(DIGITS, after(tonumber(ARGV[4]))), instance)
if ARGV[7] ~= '' then
    call('HSET', names, instance, ARGV[7])
end

local filter = known_filter(ARGV[6])
local ended = add_unloaded(after(tonumber(ARGV[2])), filter)
-- Those that other instances have left.
for _, owner in ipairs(call('ZRANGEBYSCORE', instances, format(DIGITS, now), '+inf')) do
    if owner:sub(1, 1) == '-' and owner ~= '-' .. instance then
        add_due(WAITING, owner, now, filter)
        add_due(IN_FLIGHT, owner, now, filter)
    end
end

local found, into, into_loaded = {}, { [WAITING] = {}, [IN_FLIGHT] = {} }, {}
local lacking, sources = tonumber(ARGV[5]), {}
for at = 1, 2 * limit, 2 do
    local version, due, source = take_first()
    if not version then
        break
    end
    sources[source] = true
    found[at], found[at + 1] = version, due
    into_loaded[at], into_loaded[at + 1] = version, instance
    local list = into[source.state]
    local into_at = #list
    list[into_at + 1], list[into_at + 2] = due, version
    if tonumber(due) <= now then
        lacking = lacking - 1
    end
end
for source in pairs(sources) do
    if source.passed then
        call_with_many('ZREM', source.index, source.taken)
    else
        -- They are the first.
        call('ZREMRANGEBYRANK', source.index, 0, #source.taken - 1)
    end
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

-- Of very many, those that lack most.
local MAX_LACKING = 128
local others_lack, noted = 0, call('ZRANGE', lacks, 0, MAX_LACKING - 1, 'REV', 'WITHSCORES')
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
    local schedule_of = read_in_buckets(schedule_bucket, versions, 1, #versions)
    for _, version in ipairs(versions) do
        if schedule_of[version] then
            local at = #scheduled
            scheduled[at + 1], scheduled[at + 2] = version, schedule_of[version]
        end
    end
end
return { now, heap[1] and 1 or 0, others_lack, concat(found, ' '), scheduled }
