//! Loads and unloads, and which instances live.

use super::locks::space_seed;

/// Whether transactions commit near rows without a hint, because another one gives it: see the
/// function `tickwheel_hint`. The lock is kept for no longer than it takes to see that.
macro_rules! unhinted {
    () => {
        concat!(
            "CASE WHEN pg_try_advisory_lock(hashtextextended('tickwheel unhinted', ",
            space_seed!(),
            ")) THEN NOT pg_advisory_unlock(hashtextextended('tickwheel unhinted', ",
            space_seed!(),
            ")) ELSE true END"
        )
    };
}

/// Makes `$2`, whose name is `$6`, live for `$3` microseconds, under the edition `$5` of the
/// charter. Unloads the rows that are marked by ids that have ended.
///
/// One index look-up finds the rows of each id that has just ended. With `$7` it looks for those of
/// all ids that mark rows, so that no row stays marked that no instance is going to fire. Among
/// them are ids that were unloaded while another transaction had locked a row, or while a statement
/// ran that had begun before. [`Place`](super::super::place::Place) says when. With `$8` it also
/// says how old the oldest snapshot in the database is, in microseconds. It unloads at most `$9`
/// rows, and says whether that were so many: the next load goes on.
///
/// An id lives for three polls, so two thirds of that are near. Returns whether to load
/// [again](crate::store::Loaded::again) soon, and whether the server's queue of hints is full.
/// Before that, until when the id was to live before, if it is there, and until when it lives now.
pub(in crate::postgres) const ALIVE: &str = concat!(
    "WITH RECURSIVE clock AS MATERIALIZED (SELECT ", terms!("$5", "NULL"), " AS namespace, ", now!(), " AS now), stored AS MATERIALIZED (
        SELECT i.alive_until FROM @.tickwheel_instances i WHERE i.id = $2::bigint
    ), alive AS (
        INSERT INTO @.tickwheel_instances (id, namespace, alive_until, lacks, near, name)
        SELECT $2::bigint, namespace, least(now + $3::bigint, ", never!(), "), 0, $3 / 3 * 2, $6::text FROM clock
        ON CONFLICT (id) DO UPDATE SET alive_until = excluded.alive_until, near = excluded.near
        RETURNING id, alive_until
    ), ended AS (
        DELETE FROM @.tickwheel_instances WHERE id IN (
            SELECT i.id FROM alive, @.tickwheel_instances i, clock
            WHERE i.namespace = clock.namespace AND i.alive_until < clock.now AND i.id <> alive.id
            FOR UPDATE OF i SKIP LOCKED
        )
    ), loader AS (
        (SELECT t.loaded_by FROM @.tickwheel_timers t
            WHERE $7::bool AND t.namespace = $1 AND t.loaded_by IS NOT NULL ORDER BY t.loaded_by LIMIT 1)
        UNION ALL
        SELECT (SELECT t.loaded_by FROM @.tickwheel_timers t
            WHERE t.namespace = $1 AND t.loaded_by > loader.loaded_by ORDER BY t.loaded_by LIMIT 1)
        FROM loader WHERE loader.loaded_by IS NOT NULL
    ), dead AS MATERIALIZED (
        SELECT clock.namespace, loader.loaded_by FROM loader, clock
        WHERE loader.loaded_by <> $2 AND NOT EXISTS (
            SELECT FROM @.tickwheel_instances i WHERE i.id = loader.loaded_by AND i.alive_until >= clock.now
        )
        UNION
        SELECT clock.namespace, i.id FROM @.tickwheel_instances i, clock
        WHERE i.namespace = clock.namespace AND i.alive_until < clock.now AND i.id <> $2
    ), left_behind AS MATERIALIZED (
        SELECT t.version FROM dead, @.tickwheel_timers t
        WHERE t.namespace = dead.namespace AND t.loaded_by = dead.loaded_by
        LIMIT $9::bigint
        FOR UPDATE OF t SKIP LOCKED
    ), unloaded AS (
        UPDATE @.tickwheel_timers t SET loaded_by = NULL, early = pg_current_xact_id()
        FROM left_behind l WHERE t.version = l.version
        RETURNING 1
    )
    SELECT (SELECT alive_until FROM stored) AS stored, (SELECT alive_until FROM alive) AS alive_until,
        CASE WHEN EXISTS (SELECT FROM unloaded) THEN @.tickwheel_hint($1::int, $4::text, 0::bigint, $2::bigint) END,
        ", unhinted!(), " AS again, pg_notification_queue_usage() > 0.9 AS is_deaf, current_setting('tickwheel.backend', true) AS backend,
        pg_snapshot_xmin(pg_current_snapshot())::text AS oldest, pg_snapshot_xmax(pg_current_snapshot())::text AS next,
        CASE WHEN $8::bool THEN (
            SELECT (extract(epoch FROM clock_timestamp() - least(
                (SELECT min(a.xact_start) FROM pg_stat_activity a
                    WHERE a.datname = current_database() AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)),
                (SELECT min(p.prepared) FROM pg_prepared_xacts p WHERE p.database = current_database())
            )) * 1000000)::bigint
        ) END AS snapshot,
        (SELECT count(*) FROM dead) AS ended, (SELECT count(*) FROM left_behind) = $9 AS is_step,
        (SELECT coalesce(sum(hashint8(i.id)), 0)::bigint FROM @.tickwheel_instances i WHERE i.namespace = $1) AS ids"
);

/// Whether a row that is due is left to others than those by whom `$2` is.
macro_rules! left_by_others {
    () => {
        "t.namespace = $1 AND t.loaded_by < 0 AND t.loaded_by <> -$2::bigint AND t.due <= (SELECT now FROM clock)"
    };
}

/// Loads for `$2` what falls due within `$3` microseconds, at most `$4` rows, and notes what it
/// lacks of `$5` that are due. Each row has the time, and what other living instances lack; the
/// last has no version. `$6` are the schedules that the instance does not know. It begins at a
/// [place](super::super::place), `$8` to `$11`, if it is on the connection `$7`.
///
/// It locks no row that it does not load: a fire at the same moment would take a later row first.
pub(in crate::postgres) const LOAD: &str = concat!(
    "WITH clock AS MATERIALIZED (SELECT ", now!(), " AS now), ",
    place!("$8", "$9", "$10", "$11", "current_setting('tickwheel.backend', true) = $7::text"), ", waiting AS MATERIALIZED (
        SELECT t.version, t.due, t.deadline, t.schedule FROM @.tickwheel_timers t
        WHERE ", waiting!(), " + $3::bigint AND ", known!("$6"), "
        ORDER BY t.due, t.version LIMIT $4::bigint
        FOR UPDATE SKIP LOCKED
    ), lapsed AS MATERIALIZED (
        SELECT t.version, t.due, t.deadline, t.schedule FROM @.tickwheel_timers t
        WHERE ", lapsed!(), "
        ORDER BY t.due, t.version LIMIT $4::bigint
        FOR UPDATE SKIP LOCKED
    ), left_here AS MATERIALIZED (
        SELECT t.version, t.due, t.deadline, t.schedule FROM @.tickwheel_timers t
        WHERE ", left_by_others!(), "
        LIMIT $4::bigint
        FOR UPDATE SKIP LOCKED
    ), locked AS (
        SELECT (SELECT count(*) FROM waiting) + (SELECT count(*) FROM lapsed) + (SELECT count(*) FROM left_here) AS rows
    ), near AS MATERIALIZED (
        SELECT * FROM waiting UNION ALL SELECT * FROM lapsed UNION ALL SELECT * FROM left_here
        ORDER BY due, version LIMIT $4::bigint
    ), loaded AS (
        UPDATE @.tickwheel_timers t SET loaded_by = $2::bigint, early = NULL FROM near WHERE t.version = near.version
    ), lacking AS (
        SELECT greatest($5::bigint - count(*), 0) AS rows FROM near, clock WHERE near.due <= clock.now
    ), noted AS (
        UPDATE @.tickwheel_instances i SET lacks = lacking.rows FROM lacking WHERE i.id = $2 AND i.lacks <> lacking.rows
    )
    SELECT clock.now, CASE WHEN locked.rows <> $4 THEN locked.rows > $4 ELSE (
                SELECT count(*) FROM (
                    SELECT FROM @.tickwheel_timers t
                    WHERE ", waiting!(), " + $3 AND ", known!("$6"), "
                    LIMIT $4 + 1
                ) seen
            ) + (
                SELECT count(*) FROM (
                    SELECT FROM @.tickwheel_timers t
                    WHERE ", lapsed!(), "
                    LIMIT $4 + 1
                ) seen
            ) + (
                SELECT count(*) FROM (
                    SELECT FROM @.tickwheel_timers t
                    WHERE ", left_by_others!(), "
                    LIMIT $4 + 1
                ) seen
            ) > $4
        END AS more, (
            SELECT coalesce(sum(i.lacks), 0)::bigint FROM @.tickwheel_instances i
            WHERE i.namespace = $1 AND i.id <> $2 AND i.alive_until >= (SELECT now FROM clock)
        ) AS others_lack, near.version, near.due,
        near.schedule, CASE WHEN near.schedule IS NOT NULL THEN near.deadline END AS deadline
    FROM clock, locked LEFT JOIN near ON true ORDER BY near.due, near.version"
);

/// After [`LOAD`], in the same transaction: the first rows that are due and not loaded, after the
/// place `$3` to `$6` on the connection `$2`.
pub(in crate::postgres) const PLACE: &str = concat!(
    "WITH clock AS MATERIALIZED (SELECT ",
    now!(),
    " AS now), ",
    place!(
        "$3",
        "$4",
        "$5",
        "$6",
        "current_setting('tickwheel.backend', true) = $2::text"
    ),
    "
    SELECT (SELECT t.due FROM @.tickwheel_timers t WHERE ",
    waiting!(),
    " ORDER BY t.due, t.version LIMIT 1),
        (SELECT t.due FROM @.tickwheel_timers t WHERE ",
    lapsed!(),
    " ORDER BY t.due, t.version LIMIT 1)"
);

/// Ends the id `$2`, and unloads what it has loaded but for rows that are locked, at most `$4`
/// rows. Loads find the others. Returns another id.
pub(in crate::postgres) const UNLOAD: &str = "
    WITH ended AS (
        DELETE FROM @.tickwheel_instances WHERE id = $2::bigint
    ), mine AS MATERIALIZED (
        SELECT t.version FROM @.tickwheel_timers t WHERE t.namespace = $1::int AND t.loaded_by = $2
        LIMIT $4::bigint
        FOR UPDATE OF t SKIP LOCKED
    ), unloaded AS (
        UPDATE @.tickwheel_timers t SET loaded_by = NULL, early = pg_current_xact_id()
        FROM mine WHERE t.version = mine.version RETURNING 1
    )
    SELECT nextval('@.tickwheel_versions'), CASE WHEN EXISTS (SELECT FROM unloaded) THEN @.tickwheel_hint($1::int, $3::text, 0::bigint, $2::bigint) END";

/// Takes the mark of `$2` off an array of versions, but for rows that are locked. Then no instance
/// counts as lacking rows, but for those that load just now.
pub(in crate::postgres) const UNMARK: &str = concat!(
    "WITH ",
    items!("$4::bigint[]", "version"),
    ", mine AS MATERIALIZED (
        SELECT t.version FROM i, @.tickwheel_timers t
        WHERE t.version = i.version AND t.namespace + 0 = i.namespace AND t.loaded_by + 0 = $2::bigint
        FOR UPDATE OF t SKIP LOCKED
    ), unloaded AS (
        UPDATE @.tickwheel_timers t SET loaded_by = NULL, early = pg_current_xact_id()
        FROM mine WHERE t.version = mine.version RETURNING 1
    ), lacking AS MATERIALIZED (
        SELECT o.id FROM @.tickwheel_instances o
        WHERE o.namespace = $1 AND o.lacks > 0 AND EXISTS (SELECT FROM unloaded)
        FOR UPDATE OF o SKIP LOCKED
    ), given AS (
        UPDATE @.tickwheel_instances o SET lacks = 0 FROM lacking l WHERE o.id = l.id
    )
    SELECT CASE WHEN EXISTS (SELECT FROM unloaded) THEN @.tickwheel_hint($1::int, $3::text, 0::bigint, $2::bigint) END"
);

/// Those of an array of versions that `$2` has still marked.
pub(in crate::postgres) const STILL_MARKED: &str = concat!(
    "WITH ",
    items!("$3::bigint[]", "version"),
    " SELECT t.version FROM i, @.tickwheel_timers t
    WHERE t.version = i.version AND t.namespace + 0 = i.namespace AND t.loaded_by + 0 = $2::bigint"
);
