-- The next version writes the field 'o' of a timer that is set.
local put_as_before = put_waiting
put_waiting = function(deadline, attempt, period, key, value, due, fields, schedule, left_by)
    fields = fields or pack(PACK_FIELD, 'o', 4, 'next')
    return put_as_before(deadline, attempt, period, key, value, due, fields, schedule, left_by)
end
