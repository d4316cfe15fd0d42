-- Drops the tables of tickwheel-durable, and all timers with them.
--
-- In one transaction: the file has no BEGIN and no COMMIT.

DROP TABLE tickwheel_timers;
DROP TABLE tickwheel_instances;
DROP TABLE tickwheel_namespaces;
DROP TABLE tickwheel_meta;
