-- fire: window, loader, lease or '', 'all' | 'once' | 'skip', then versions
-- -> now, { token, deadline, attempt, missed, repeats, key, value for each that fired },
--    { version, due, loaded for each that is not due }, { the same for each next occurrence }.
-- O(log n) for each version.

local lease, rule = tonumber(ARGV[3]), ARGV[4]
local fired, later, following = {}, {}, {}
local function answer(answers, ...)
    for _, value in ipairs({ ... }) do
        answers[#answers + 1] = value
    end
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

even_when_full()
for at = 5, #ARGV do
    local row = find(ARGV[at])
    if row and row.due > now then
        answer(later, tonumber(row.version), row.due, loader_of(row) and 1 or 0)
    elseif row then
        take(row)
        local fires, missed, due, repeats = true, 0, nil, 0
        if row.period > 0 then
            fires, missed, due = next_occurrence(row.deadline, row.period)
            local occurrence = { key = row.key, value = row.value, deadline = due, attempt = 0, period = row.period }
            local is_loaded = arm(occurrence, due)
            answer(fires and following or later, tonumber(occurrence.version), due, is_loaded)
            repeats = 1
        end
        if fires then
            row.attempt, row.period = row.attempt + 1, 0
            if lease then
                put(row, IN_FLIGHT, after(lease), false)
            else
                row.version = next_version()
            end
            answer(fired, tonumber(row.version), row.deadline, row.attempt, missed, repeats, row.key, row.value)
        end
    end
end
finish()
return { now, fired, later, following }
