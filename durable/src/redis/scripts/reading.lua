-- How rows are read.

-- version, whether it is in flight, due, deadline, attempt, period or 0, loader or 0, key, value
local function describe(answers, row)
    local fields = {
        tonumber(row.version), row.state == IN_FLIGHT and 1 or 0, due_of(row), row.deadline, row.attempt,
        row.period, tonumber(loader_of(row) or 0), row.key, row.value,
    }
    for _, field in ipairs(fields) do
        answers[#answers + 1] = field
    end
end

-- The indexes in which rows of that state lie, with the lives that they belong to.
local function indexes(state)
    local all = { index_of(state) }
    for _, life in ipairs(call('ZRANGE', lives, 0, -1)) do
        all[#all + 1] = index_of(state, life)
    end
    return all
end
