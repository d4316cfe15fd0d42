-- Takes back what version 2 of the schema has added.

ALTER TABLE tickwheel_timers DROP COLUMN origin;
DROP TABLE tickwheel_openings;
UPDATE tickwheel_schema SET version = 1, readable_by = 1;
