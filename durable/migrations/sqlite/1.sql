-- Makes the tables of tickwheel-durable: version 1 of its schema.
--
-- In one transaction: the file has no BEGIN and no COMMIT. It also makes those tables again that were dropped, or emptied, in
-- a file that is open.
--
-- | column | |
-- |---|---|
-- | `state` | 0 waiting, 1 in flight, 2 dead |
-- | `due`, `deadline` | microseconds since the epoch |
-- | `period` | microseconds, or null |
-- | `schedule` | the text of a row that repeats by one, or null |
-- | `loaded_by` | the id of an instance, or null |
-- | `claimed_by` | the id of the instance that fired a row in flight, or null |
-- | `error` | the last error of a row, or null |
-- | `lacks` | how many due rows an instance wanted and was not given |
-- | `codec` to `parts` | the charter of a namespace, `edition` its number, and `made` its first number |
--
-- `waiting`, `in_flight` and `dead` say how many rows a namespace has. Each call that changes that
-- keeps them, since to count millions of rows takes seconds. The check of a row is that of
-- `damage` in src/sqlite/reading.rs.
--
-- Rows are found by state and key, and by state, by who has loaded them and by when they are due,
-- or have died. Only living instances have rows loaded, and these are in `tickwheel_instances`.
-- `tickwheel_meta` has the version of the schema, the oldest version that can use it, the last number of the sequence, and
-- its `base`: see src/sqlite/lineage.rs.
CREATE TABLE IF NOT EXISTS tickwheel_meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID, STRICT;
INSERT OR IGNORE INTO tickwheel_meta (name, value) VALUES ('schema', 1), ('readable_by', 1), ('sequence', 0);
CREATE TABLE IF NOT EXISTS tickwheel_namespaces (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, codec TEXT NOT NULL,
    no_overlap INTEGER NOT NULL CHECK (no_overlap IN (0, 1)), at_most_once INTEGER NOT NULL CHECK (at_most_once IN (0, 1)),
    parts INTEGER NOT NULL CHECK (parts > 0), made INTEGER NOT NULL, edition INTEGER NOT NULL,
    waiting INTEGER NOT NULL DEFAULT 0, in_flight INTEGER NOT NULL DEFAULT 0, dead INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE IF NOT EXISTS tickwheel_instances (
    id INTEGER PRIMARY KEY, namespace INTEGER NOT NULL, alive_until INTEGER NOT NULL, lacks INTEGER NOT NULL,
    name TEXT
) STRICT;
CREATE TABLE IF NOT EXISTS tickwheel_timers (
    version INTEGER PRIMARY KEY,
    namespace INTEGER NOT NULL,
    state INTEGER NOT NULL,
    key BLOB NOT NULL,
    value BLOB NOT NULL,
    due INTEGER NOT NULL,
    deadline INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    period INTEGER,
    loaded_by INTEGER,
    error TEXT,
    schedule TEXT,
    claimed_by INTEGER,
    CHECK (state IN (0, 1, 2) AND due BETWEEN 0 AND 9007199254740991 AND deadline BETWEEN 0 AND 9007199254740991
        AND attempt BETWEEN 0 AND 2147483646 AND (period IS NULL OR period BETWEEN 1 AND 9007199254740991)
        AND (period IS NULL OR schedule IS NULL))
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS tickwheel_waiting ON tickwheel_timers (namespace, key) WHERE state = 0;
CREATE INDEX IF NOT EXISTS tickwheel_in_flight ON tickwheel_timers (namespace, key) WHERE state = 1;
CREATE INDEX IF NOT EXISTS tickwheel_dead ON tickwheel_timers (namespace, key) WHERE state = 2;
CREATE INDEX IF NOT EXISTS tickwheel_due ON tickwheel_timers (namespace, state, loaded_by, due);
