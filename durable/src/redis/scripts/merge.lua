-- Rows of several indexes, in order. Each index is a source, which reads some rows at a time, so what is not taken is hardly
-- read. A heap has the sources that have a row left, the one with the first row at its top.

local FEW = 16
local heap = {}

local function is_before(source, other)
    return source.due < other.due or source.due == other.due and source.version < other.version
end

-- Moves to the next row that the source answers. Returns whether there is one.
local function next_row(source)
    while true do
        local at = source.at + 2
        if not source.page[at] then
            if source.is_over then
                return false
            end
            source.page, at = source.read(source.from), 1
            local rows = #source.page / 2
            source.from, source.is_over = source.from + rows, rows < FEW
            source.is_known = source.filter and source.filter(source.page)
        end
        source.at, source.version = at, source.page[at]
        if not source.version then
            return false
        elseif not source.is_known or source.is_known[source.version] then
            source.due = tonumber(source.page[at + 1])
            return true
        end
        source.passed = true
    end
end

-- Adds an index of a state. `read` returns its next rows, at most FEW, with their times, after so many; `filter`, if any, the
-- set of those among them that are answered.
local function add_source(index, state, read, filter)
    local source = {
        index = index, state = state, read = read, filter = filter,
        from = 0, page = {}, at = -1, taken = {}, passed = false, is_over = false,
    }
    if not next_row(source) then
        return
    end
    local at = #heap + 1
    while at > 1 do
        local above = math.floor(at / 2)
        if not is_before(source, heap[above]) then
            break
        end
        heap[at] = heap[above]
        at = above
    end
    heap[at] = source
end

-- Takes the first row: its version, when it is due, and its source. Nothing if there is none.
local function take_first()
    local source = heap[1]
    if not source then
        return
    end
    local version, due = source.version, source.page[source.at + 1]
    source.taken[#source.taken + 1] = version
    local moved = source
    if not next_row(source) then
        moved = table.remove(heap)
        if not heap[1] then
            return version, due, source
        end
    end
    local at, size = 1, #heap
    while 2 * at <= size do
        local below = 2 * at
        if below < size and is_before(heap[below + 1], heap[below]) then
            below = below + 1
        end
        if not is_before(heap[below], moved) then
            break
        end
        heap[at] = heap[below]
        at = below
    end
    heap[at] = moved
    return version, due, source
end
