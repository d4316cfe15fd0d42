-- Adds a column and a table: version 2 of the schema. Version 1 can use it.

ALTER TABLE tickwheel_timers ADD COLUMN origin text;
CREATE TABLE tickwheel_openings (instance bigint PRIMARY KEY, opened timestamptz NOT NULL DEFAULT now());
UPDATE tickwheel_schema SET version = 2;
