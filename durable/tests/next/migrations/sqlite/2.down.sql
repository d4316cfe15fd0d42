-- Takes back what version 2 of the schema has added.

ALTER TABLE tickwheel_timers DROP COLUMN origin;
DROP TABLE tickwheel_openings;
UPDATE tickwheel_meta SET value = 1 WHERE name IN ('schema', 'readable_by');
