-- fire: window, loader, lease or '', 'all' | 'once' | 'skip', then versions
-- -> now, { token, deadline, attempt, missed, repeats, key, value for each that fired },
--    { version, due, loaded for each that is not due }, { the same for each next occurrence }.
-- O(log n) for each version.

local lease, rule = tonumber(ARGV[3]), ARGV[4]
local fired, later, following = {}, {}, {}
local function answer_armed(answers, version, due, is_loaded)
    local at = #answers
    answers[at + 1], answers[at + 2], answers[at + 3] = version, due, is_loaded
end

-- Whether the occurrence fires, how many after it are missed, and the next deadline. As `Missed::next`.
local function next_occurrence(deadline, period)
    local late = math.max(now - deadline, 0)
    local behind = (late - math.fmod(late, period)) / period
    if rule == 'all' then
        return true, 0, min(deadline + period, NEVER)
    end
    local due = min(deadline + (behind + 1) * period, NEVER)
    if rule == 'once' then
        return true, behind, due
    end
    return behind == 0, 0, due
end

local versions = {}
for at = 5, #ARGV do
    versions[at - 4] = ARGV[at]
end
read_rows(versions)
local found, dues, listed = {}, {}, {}
for _, version in ipairs(versions) do
    local row = find(version)
    if row then
        found[#found + 1] = row
        local list = list_of(listed, row.index)
        list[#list + 1] = version
    end
end
for index, list in pairs(listed) do
    for from = 1, #list, MANY do
        local to = min(from + MANY - 1, #list)
        local scores = call('ZMSCORE', index, unpack(list, from, to))
        for at = from, to do
            dues[list[at]] = tonumber(scores[at - from + 1])
        end
    end
end

even_when_full()
for _, row in ipairs(found) do
    if dues[row.version] > now then
        answer_armed(later, tonumber(row.version), dues[row.version], loader_of(row) and 1 or 0)
    elseif packed_of[row.version] then
        take(row)
        local fires, missed, due, repeats = true, 0, nil, 0
        if row.period > 0 then
            fires, missed, due = next_occurrence(row.deadline, row.period)
            local occurrence = { key = row.key, value = row.value, deadline = due, attempt = 0, period = row.period }
            local is_loaded = arm(occurrence, due)
            answer_armed(fires and following or later, sequence, due, is_loaded)
            repeats = 1
        end
        if fires then
            row.attempt, row.period = row.attempt + 1, 0
            if lease then
                put(row, IN_FLIGHT, after(lease), false)
            else
                next_version()
            end
            local at = #fired
            fired[at + 1], fired[at + 2], fired[at + 3] = sequence, row.deadline, row.attempt
            fired[at + 4], fired[at + 5], fired[at + 6], fired[at + 7] = missed, repeats, row.key, row.value
        end
    end
end
finish()
return { now, fired, later, following }
