//! Fires.

/// From an array of versions, and `$9` rows that no instance has loaded; `$6` is the lease or null,
/// `$7` the number of the rule for missed occurrences ([`Missed`](crate::store::Missed)): 0 fires
/// all, 1 one, 2 none. Once keys and values that are due have `$8` bytes, the rest has no `room`,
/// and stays as it is. To learn the length of a value that lies in another table, the server need
/// not read it.
///
/// A row that no instance has loaded may have been written after the statement began, and is locked
/// as it is then. The statement can neither change it nor see what is in flight under its key, so
/// it stays as it is.
///
/// With `$10` a row with a period `is_held` while its key has a row in flight. It waits until the
/// next time of its schedule.
///
/// A row that holds what no store writes, which the checks of the table refuse, dies without the
/// lock of its key: a set at that moment may not discard it.
///
/// A row that does not repeat goes in flight, or goes. One that does stays as its next occurrence,
/// and a new row goes in flight.
///
/// A row with a schedule repeats by the plan that comes with its version, in the arrays `$11` to
/// `$14`: from when it holds, and until when, the next deadline, and how many it has missed, which
/// is less than zero if it does not fire. If no plan holds, the row stays as it is, and is loaded.
/// `$15` are the schedules that the instance does not know. `$16` is the instance, `$17` the
/// edition of the charter, and `$18` until when its caller waits. `$19` to `$22` are the
/// [place](super::super::place) at which the look for rows that are not loaded begins.
pub(in crate::postgres) const FIRE: &str = concat!(
    "WITH ", clock!(terms!("$17", "$18")), ", ", place!("$19", "$20", "$21", "$22"), ", ", items!(
        "$5::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[]",
        "version, plan_from, plan_until, plan_due, plan_missed"
    ), ", named AS MATERIALIZED (
        SELECT i.number, t.version, t.key, t.value, t.due, t.deadline, t.attempt, t.period, t.schedule, t.loaded_by,
            i.plan_from, i.plan_until, i.plan_due, i.plan_missed
        FROM i, @.tickwheel_timers t
        WHERE t.version = i.version AND t.namespace + 0 = i.namespace
        FOR UPDATE OF t SKIP LOCKED
    ), waiting AS MATERIALIZED (
        SELECT t.version, t.key, t.value, t.due, t.deadline, t.attempt, t.period, t.schedule, t.loaded_by
        FROM @.tickwheel_timers t
        WHERE ", waiting!(), " AND ", known!("$15"), "
        ORDER BY t.due, t.version LIMIT $9::bigint
        FOR UPDATE SKIP LOCKED
    ), lapsed AS MATERIALIZED (
        SELECT t.version, t.key, t.value, t.due, t.deadline, t.attempt, t.period, t.schedule, t.loaded_by
        FROM @.tickwheel_timers t
        WHERE ", lapsed!(), "
        ORDER BY t.due, t.version LIMIT $9
        FOR UPDATE SKIP LOCKED
    ), unloaded AS MATERIALIZED (
        SELECT row_number() OVER (ORDER BY due, version) + cardinality($5::bigint[]) AS number, u.*,
            NULL::bigint AS plan_from, NULL::bigint AS plan_until, NULL::bigint AS plan_due, NULL::bigint AS plan_missed
        FROM (SELECT * FROM waiting UNION ALL SELECT * FROM lapsed ORDER BY due, version LIMIT $9) u
        WHERE NOT EXISTS (SELECT FROM named WHERE named.version = u.version)
            AND (SELECT w.version FROM @.tickwheel_timers w WHERE w.version = u.version) IS NOT NULL
    ), locked AS MATERIALIZED (
        SELECT * FROM named UNION ALL SELECT * FROM unloaded
    ), checked AS (
        SELECT locked.*, CASE
                WHEN due NOT BETWEEN 0 AND ", never!(), " THEN 'its due is ' || due || ', which no store writes'
                WHEN deadline NOT BETWEEN 0 AND ", never!(), " THEN 'its deadline is ' || deadline || ', which no store writes'
                WHEN attempt NOT BETWEEN 0 AND 2147483646 THEN 'its attempt is ' || attempt || ', which no store writes'
                WHEN period NOT BETWEEN 1 AND ", never!(), " THEN 'its period is ' || period || ', which no store writes'
                WHEN period IS NOT NULL AND schedule IS NOT NULL THEN 'it has a period and a schedule'
            END AS damage FROM locked
    ), sized AS (
        SELECT checked.*, coalesce(sum(octet_length(key) + octet_length(value)) FILTER (WHERE due <= clock.now) OVER (
                ORDER BY number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ), 0) < $8::bigint AS room
        FROM checked, clock
    ), late AS (
        SELECT sized.*, sized.due <= clock.now AND room AND damage IS NULL AS is_due,
            CASE WHEN damage IS NULL THEN greatest(clock.now - sized.deadline, 0) / sized.period END AS behind,
            sized.period IS NOT NULL OR sized.schedule IS NOT NULL AS repeats,
            sized.schedule IS NULL OR coalesce(clock.now >= plan_from AND clock.now < plan_until, false) AS is_planned,
            $10::bool AND (sized.period IS NOT NULL OR sized.schedule IS NOT NULL) AND (
                SELECT max(f.version) FROM @.tickwheel_timers f
                WHERE f.namespace = clock.namespace AND f.key = sized.key AND f.in_flight
            ) IS NOT NULL AS is_held
        FROM sized, clock
    ), ruled AS (
        SELECT late.*, is_due AND is_planned AND NOT is_held AND CASE
                WHEN schedule IS NOT NULL THEN plan_missed >= 0
                ELSE period IS NULL OR $7::int <> 2 OR behind = 0
            END AS fires, CASE
                WHEN NOT is_due OR NOT is_planned OR NOT repeats THEN NULL
                WHEN schedule IS NOT NULL THEN CASE WHEN is_held THEN plan_until ELSE plan_due END
                ELSE least(deadline + (CASE WHEN $7 = 0 AND NOT is_held THEN 1 ELSE behind + 1 END) * period, ", never!(), ")
            END AS next_due
        FROM late
    ), step AS MATERIALIZED (
        SELECT ruled.*, clock.soon, CASE WHEN is_held AND $7 <> 2 THEN deadline ELSE next_due END AS next_deadline,
            CASE WHEN fires THEN nextval('@.tickwheel_versions') END AS token,
            CASE WHEN next_due IS NOT NULL THEN nextval('@.tickwheel_versions') END AS next_version,
            CASE WHEN next_due <= clock.soon THEN clock.loader END AS next_loader,
            CASE WHEN is_due AND NOT is_planned AND loaded_by IS NULL THEN clock.loader END AS new_loader,
            CASE WHEN $6::bigint IS NOT NULL THEN least(clock.now + $6, ", never!(), ") END AS lease_until
        FROM ruled, clock
    ), aside AS (
        DELETE FROM @.tickwheel_timers t USING step WHERE t.version = step.version AND step.damage IS NOT NULL AND step.room
    ), buried AS (
        INSERT INTO @.tickwheel_dead (version, namespace, key, value, died, deadline, attempt, error)
        SELECT step.version, $1, step.key, step.value, clock.now, least(greatest(step.deadline, 0), ", never!(), "),
            least(greatest(step.attempt, 0), 2147483646), step.damage
        FROM step, clock WHERE step.damage IS NOT NULL AND step.room
    ), gone AS (
        DELETE FROM @.tickwheel_timers t USING step
        WHERE t.version = step.version AND step.fires AND NOT step.repeats AND step.lease_until IS NULL
    ), claimed AS (
        UPDATE @.tickwheel_timers t SET version = step.token, in_flight = true, due = step.lease_until,
            attempt = least(step.attempt + 1, 2147483646), loaded_by = NULL, claimed_by = $16::bigint, early = NULL
        FROM step
        WHERE t.version = step.version AND step.fires AND NOT step.repeats AND step.lease_until IS NOT NULL
    ), repeated AS (
        UPDATE @.tickwheel_timers t SET version = step.next_version, due = step.next_due, deadline = step.next_deadline,
            attempt = 0, loaded_by = step.next_loader, early = (SELECT xact FROM clock WHERE step.next_due < lately)
        FROM step WHERE t.version = step.version AND step.next_version IS NOT NULL
    ), loaded AS (
        UPDATE @.tickwheel_timers t SET loaded_by = step.new_loader, early = NULL
        FROM step WHERE t.version = step.version AND step.new_loader IS NOT NULL
    ), occurred AS (
        INSERT INTO @.tickwheel_timers (version, namespace, key, value, in_flight, due, deadline, attempt, claimed_by)
        SELECT token, $1, key, value, true, lease_until, deadline, least(attempt + 1, 2147483646), $16
        FROM step WHERE fires AND repeats AND lease_until IS NOT NULL
    ), hint AS MATERIALIZED (
        SELECT @.tickwheel_hint($1::int, $4::text, min(next_due), NULL::bigint) FROM step
        WHERE next_due <= soon AND next_loader IS NULL HAVING count(*) > 0
    )
    SELECT clock.now, s.version, s.key, CASE WHEN s.fires THEN s.value END AS value, s.room, s.due, s.deadline, s.attempt,
        coalesce(s.loaded_by, s.new_loader) IS NOT NULL AS loaded, s.fires,
        s.token, s.next_version, s.next_due, s.next_loader IS NOT NULL AS next_loaded,
        CASE WHEN s.schedule IS NOT NULL THEN s.plan_missed WHEN $7 = 1 THEN coalesce(s.behind, 0) ELSE 0 END AS missed,
        s.schedule, s.next_deadline, (SELECT count(*) FROM hint),
        (SELECT count(*) FROM waiting) + (SELECT count(*) FROM lapsed) >= $9 AS more, s.damage
    FROM clock LEFT JOIN step s ON true ORDER BY s.number"
);

/// Returns those of an array of versions that still exist, and when they are due.
pub(in crate::postgres) const STILL_THERE: &str = concat!(
    "WITH ",
    items!("$2::bigint[]", "version"),
    " SELECT t.version, t.due, t.loaded_by IS NOT NULL, t.schedule, t.deadline FROM i, @.tickwheel_timers t
    WHERE t.version = i.version AND t.namespace + 0 = i.namespace"
);
