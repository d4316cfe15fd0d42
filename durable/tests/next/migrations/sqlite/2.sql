-- Adds a column and a table: version 2 of the schema. Version 1 can use it.

ALTER TABLE tickwheel_timers ADD COLUMN origin TEXT;
CREATE TABLE tickwheel_openings (instance INTEGER PRIMARY KEY) STRICT;
UPDATE tickwheel_meta SET value = 2 WHERE name = 'schema';
