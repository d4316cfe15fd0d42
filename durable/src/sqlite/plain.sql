-- :key is a text, :value the value as JSON, :due are microseconds since 1970: three days from now is
-- CAST(unixepoch('now', 'subsec') * 1e6 AS INTEGER) + 3 * 86400 * 1000000.

-- Set: four statements.
UPDATE tickwheel_meta SET value = value + 1 WHERE name = 'sequence';
DELETE FROM tickwheel_timers WHERE state = 0 AND key = CAST(json_quote(:key) AS BLOB)
    AND namespace = (SELECT id FROM tickwheel_namespaces WHERE name = :namespace);
UPDATE tickwheel_namespaces SET waiting = waiting + 1 - changes() WHERE name = :namespace;
INSERT INTO tickwheel_timers (version, namespace, state, key, value, due, deadline, attempt)
    SELECT m.value, n.id, 0, CAST(json_quote(:key) AS BLOB), CAST(:value AS BLOB), :due, :due, 0
    FROM tickwheel_meta m, tickwheel_namespaces n WHERE m.name = 'sequence' AND n.name = :namespace;

-- Move: two statements. The second changes a row, or the key has no timer that waits.
UPDATE tickwheel_meta SET value = value + 1 WHERE name = 'sequence';
UPDATE tickwheel_timers SET due = :due, deadline = :due, loaded_by = NULL,
        version = (SELECT value FROM tickwheel_meta WHERE name = 'sequence')
    WHERE state = 0 AND key = CAST(json_quote(:key) AS BLOB)
    AND namespace = (SELECT id FROM tickwheel_namespaces WHERE name = :namespace);

-- Remove: two statements. The first deletes a row, or the key has no timer that waits.
DELETE FROM tickwheel_timers WHERE state = 0 AND key = CAST(json_quote(:key) AS BLOB)
    AND namespace = (SELECT id FROM tickwheel_namespaces WHERE name = :namespace);
UPDATE tickwheel_namespaces SET waiting = waiting - changes() WHERE name = :namespace;

-- Whether the key has a timer, waiting (state 0) or in flight (1): set if absent is set where this finds none.
SELECT state FROM tickwheel_timers WHERE key = CAST(json_quote(:key) AS BLOB)
    AND namespace = (SELECT id FROM tickwheel_namespaces WHERE name = :namespace) ORDER BY state LIMIT 1;
