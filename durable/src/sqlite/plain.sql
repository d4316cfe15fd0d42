-- :key is a text, :value the value as JSON, :due are microseconds since 1970: three days from now is
-- CAST(unixepoch('now', 'subsec') * 1e6 AS INTEGER) + 3 * 86400 * 1000000.

-- Set: six statements. The first two discard the dead timers of the key.
DELETE FROM tickwheel_timers WHERE state = 2 AND key = CAST(json_quote(:key) AS BLOB)
    AND namespace = (SELECT id FROM tickwheel_namespaces WHERE name = :namespace);
UPDATE tickwheel_namespaces SET dead = dead - changes() WHERE name = :namespace;
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

-- Remove: four statements. The first discards the dead timers of the key, unless it has one in flight and none that waits.
-- The third deletes a row, or the key has no timer that waits.
DELETE FROM tickwheel_timers AS d WHERE state = 2 AND key = CAST(json_quote(:key) AS BLOB)
    AND namespace = (SELECT id FROM tickwheel_namespaces WHERE name = :namespace)
    AND ((SELECT max(t.version) FROM tickwheel_timers t
            WHERE t.state = 1 AND t.key = d.key AND t.namespace = d.namespace) IS NULL
        OR (SELECT t.version FROM tickwheel_timers t
            WHERE t.state = 0 AND t.key = d.key AND t.namespace = d.namespace) IS NOT NULL);
UPDATE tickwheel_namespaces SET dead = dead - changes() WHERE name = :namespace;
DELETE FROM tickwheel_timers WHERE state = 0 AND key = CAST(json_quote(:key) AS BLOB)
    AND namespace = (SELECT id FROM tickwheel_namespaces WHERE name = :namespace);
UPDATE tickwheel_namespaces SET waiting = waiting - changes() WHERE name = :namespace;

-- Whether the key has a timer, waiting (state 0) or in flight (1): set if absent is set where this finds none.
SELECT 0 AS state FROM tickwheel_timers WHERE state = 0 AND key = CAST(json_quote(:key) AS BLOB)
    AND namespace = (SELECT id FROM tickwheel_namespaces WHERE name = :namespace)
UNION ALL SELECT * FROM (SELECT 1 FROM tickwheel_timers WHERE state = 1 AND key = CAST(json_quote(:key) AS BLOB)
    AND namespace = (SELECT id FROM tickwheel_namespaces WHERE name = :namespace) ORDER BY version DESC LIMIT 1)
LIMIT 1;
