-- fire: window, loader, lease or '', 'all' | 'once' | 'skip', then versions
-- -> now, token, missed for each that fired, version, due, loaded for each that is not due, the same for each next occurrence,
--    then, of each that fired, the row as it was.
-- O(log n) for each version.

local lease, rule, FIRST = tonumber(ARGV[3]), ARGV[4], 5
local fired, later, following, answers = {}, {}, {}, { now, '', '', '' }

local function answer_armed(list, version, due, is_loaded)
    local at = #list
    list[at + 1], list[at + 2], list[at + 3] = version, due, is_loaded
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
local row_of = read(rows, ARGV, FIRST, #ARGV)
likely_life = call('HGET', loaded, ARGV[FIRST] or '')
local lease_ends = lease and format(DIGITS, after(lease))
for at = FIRST, #ARGV do
    local version = ARGV[at]
    local row = row_of[version]
    if row then
        local state, deadline, attempt, period, key, value_at = unpack_from(UNPACK_ROW, row)
        -- What has not fired yet is due at its deadline, which is quicker to tell.
        local life, due = nil, deadline
        if attempt > 0 or due > now then
            life, due = life_and_due(version, state)
        end
        if due > now then
            answer_armed(later, version, format(DIGITS, due), life and living(life) and '1' or '0')
        else
            row_of[version] = false
            take(version, state, key, period > 0)
            local value, fires, missed = row:sub(value_at), true, 0
            if period > 0 then
                fires, missed, due = next_occurrence(deadline, period)
                answer_armed(fires and following or later, put_waiting(due, 0, period, key, value, due))
            end
            if fires then
                local token = next_version()
                if lease then
                    put_row(token, IN_FLIGHT, deadline, attempt + 1, 0, key, value)
                    local at = #into_in_flight
                    into_in_flight[at + 1], into_in_flight[at + 2] = lease_ends, token
                    into_flights[at + 1], into_flights[at + 2] = '0', flight(key, token)
                end
                local at = #fired
                fired[at + 1], fired[at + 2] = token, missed
                answers[#answers + 1] = row
            end
        end
    end
end
finish()
answers[2], answers[3], answers[4] = concat(fired, ' '), concat(later, ' '), concat(following, ' ')
return answers
