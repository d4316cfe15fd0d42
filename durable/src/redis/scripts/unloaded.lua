-- The unloaded rows, in order: those that no instance has loaded, and those of ids that have ended.

-- The rows of a page whose schedules are known, as a set. `unknown` are those that are not: '' for none, '*' for all, or some in
-- lines.
local function known_filter(unknown)
    if unknown == '' or not any_schedule() then
        return nil
    end
    local is_unknown = {}
    for schedule in unknown:gmatch('[^\n]+') do
        is_unknown[schedule] = true
    end
    return function(page)
        local versions, known = {}, {}
        for at = 1, #page, 2 do
            versions[#versions + 1] = page[at]
        end
        local schedule_of = read_in_buckets(schedule_bucket, versions, 1, #versions)
        for _, version in ipairs(versions) do
            local schedule = schedule_of[version]
            known[version] = not (schedule and (is_unknown['*'] or is_unknown[select(2, unpack_schedule(schedule))]))
        end
        return known
    end
end

-- Adds the unloaded rows of a state that are due by a time, or those of an id. O(log n) for each, those passed by included.
local function add_due(state, instance, horizon, filter)
    local digits = format(DIGITS, horizon)
    for _, index in ipairs(indexes_of(state, instance)) do
        add_source(index, state, function(from)
            return call('ZRANGEBYSCORE', index, '-inf', digits, 'WITHSCORES', 'LIMIT', from, FEW)
        end, filter)
    end
end

-- Adds all of them. Returns the ids that have ended.
local function add_unloaded(horizon, filter)
    local ended = ended_instances()
    for at = 0, #ended do
        local instance = at > 0 and ended[at] or nil
        add_due(WAITING, instance, horizon, filter)
        add_due(IN_FLIGHT, instance, now, filter)
    end
    return ended
end
