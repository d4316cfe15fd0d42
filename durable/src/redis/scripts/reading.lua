-- How rows are read.

-- Adds version, due, loader or 0, the row, and deadline and schedule or ''. Returns how many bytes the row has.
local function describe(answers, version)
    local row, at = call('HGET', row_bucket(version), version), #answers
    if not row then
        return 0
    end
    local state, _, _, period = unpack_row(row)
    local instance, due = loader_and_due(version, state or WAITING)
    answers[at + 1], answers[at + 2] = tonumber(version), due or 0
    answers[at + 3], answers[at + 4] = tonumber(instance and living(instance) or 0), row
    answers[at + 5] = state and period < 0 and call('HGET', schedule_bucket(version), version) or ''
    return #row
end

-- The same of a dead row.
local function describe_dead(answers, version)
    local row, at = call('HGET', dead_rows, version), #answers
    answers[at + 1], answers[at + 2] = tonumber(version), tonumber(call('ZSCORE', dead, version))
    answers[at + 3], answers[at + 4], answers[at + 5] = 0, row, ''
    return #row
end

-- The indexes in which rows of that state lie, with the ids that they belong to.
local function indexes(state)
    if state == DEAD then
        return { dead }
    end
    local all = indexes_of(state)
    for _, instance in ipairs(call('ZRANGE', instances, 0, -1)) do
        all[#all + 1] = index_of(state, instance)
    end
    return all
end
