//! Functions with which users set, move and remove timers in their own transactions.
//!
//! The last migration has their text, which a test of [`schema`](super::schema) writes there. So
//! this is no part of what runs.
//!
//! They run the statements of the store's own calls, for one key: `$1` and so on become the names
//! of variables. So each rule is written once. [`statements`](super::statements) says how their
//! locks keep transactions and batches apart.

use std::time::Duration;

use super::statements as sql;

/// The functions for users, with the types of their parameters. Each exists for a key of each type
/// in [`KEYS`].
const PUBLIC: [(&str, &str, Returns, &str); 4] = [
    (
        "tickwheel_set",
        "value jsonb, due timestamptz",
        Returns::Result,
        "set",
    ),
    (
        "tickwheel_set_if_absent",
        "value jsonb, due timestamptz",
        Returns::Result,
        "set_if_absent",
    ),
    ("tickwheel_move", "due timestamptz", Returns::Result, "move"),
    ("tickwheel_remove", "", Returns::Removed, "remove"),
];

/// Key types, and how the codec `json` encodes a key.
const KEYS: [(&str, &str); 2] = [
    ("text", "convert_to(to_json(key)::text, 'UTF8')"),
    ("jsonb", "convert_to(@.tickwheel_compact(key), 'UTF8')"),
];

/// A timer that is due within this time of the call gets a hint, which leaves with the commit. It
/// may be due by then, however far it is. But transactions with hints commit one after the other,
/// which those that set the very far ones are spared.
const HINTED: Duration = Duration::from_secs(3_600);

#[derive(Clone, Copy)]
enum Returns {
    /// A text.
    Result,
    /// A text, and the value that was removed.
    Removed,
}

/// Encodes a key as `serde_json` does, without spaces. The order of an object's fields is lost in
/// `jsonb`.
const COMPACT: &str = "
    CREATE OR REPLACE FUNCTION @.tickwheel_compact(key jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $body$
    BEGIN
        CASE jsonb_typeof(key)
        WHEN 'object' THEN
            RAISE 'tickwheel: an object cannot be a key, since jsonb does not keep the order of its fields: %', key
                USING ERRCODE = 'invalid_parameter_value';
        WHEN 'array' THEN
            RETURN '[' || coalesce((
                SELECT string_agg(@.tickwheel_compact(e.item), ',' ORDER BY e.number)
                FROM jsonb_array_elements(key) WITH ORDINALITY AS e(item, number)
            ), '') || ']';
        ELSE
            RETURN key::text;
        END CASE;
    END $body$";

/// Replaces `$1` and so on by names. What batches leave out is no matter here: a transaction waits
/// for the locks of its key.
fn named(text: &str, names: &[&str]) -> String {
    let mut named = text.replace(sql::UNLESS_LOCKED, "");
    // The last first: the text of `$1` is part of `$10`.
    let numbered: Vec<_> = (1..).zip(names).collect();
    for (number, name) in numbered.into_iter().rev() {
        named = named.replace(&format!("${number}"), name);
    }
    named
}

/// Refuses arguments that are null or too long.
fn checks() -> String {
    format!(
        "
        IF its_name IS NULL OR its_key IS NULL OR (its_value IS NULL AND its_action LIKE 'set%')
            OR (its_time IS NULL AND its_action <> 'remove') THEN
            RAISE 'tickwheel: %: an argument is null (namespace %, key %)', its_action, its_name, convert_from(its_key, 'UTF8')
                USING ERRCODE = 'null_value_not_allowed';
        END IF;
        IF length(its_key) > {max_key} THEN
            RAISE 'tickwheel: the encoded key has % bytes; at most {max_key} are allowed', length(its_key)
                USING ERRCODE = 'program_limit_exceeded';
        END IF;
        IF length(its_value) > {max_value} THEN
            RAISE 'tickwheel: the encoded value has % bytes; at most {max_value} are allowed', length(its_value)
                USING ERRCODE = 'program_limit_exceeded';
        END IF;",
        max_key = crate::codec::MAX_KEY_BYTES,
        max_value = crate::codec::MAX_VALUE_BYTES,
    )
}

/// Does all that the functions for users do. It runs with the rights of its caller.
///
/// A transaction that looks at a snapshot, by REPEATABLE READ or SERIALIZABLE, may not decide by
/// rows that were changed since. What the snapshot has of a key is locked, which the server refuses
/// for such rows by a serialization failure. It does not have a row that waits under the key since:
/// an insert that stands back for it fails likewise. Both are undone at once, since the locks would
/// delay acknowledgements. What the snapshot does not have, and does not wait now, is not seen: a
/// timer that was set since and has fired.
fn write() -> String {
    let arms = [
        "its_space",
        "its_window",
        "NULL::bigint",
        "its_channel",
        "its_keys",
    ];
    let set = [
        "ARRAY[its_value]",
        "its_due",
        "ARRAY[false]",
        "ARRAY[NULL]",
        "'{}'",
    ];
    let set = [&arms[..], &set[..]].concat();
    let moved = [&arms[..], &["its_due", "ARRAY[false]"]].concat();
    let keyed = ["its_space", "its_keys"];
    format!(
        "
    CREATE OR REPLACE FUNCTION @.tickwheel_write(its_name text, its_key bytea, its_value bytea, its_time timestamptz,
        its_action text, OUT its_result text, OUT its_removed bytea)
    LANGUAGE plpgsql AS $body$
    DECLARE
        its_keys bytea[] := ARRAY[its_key];
        its_due bigint[] := ARRAY[least(greatest(extract(epoch FROM its_time) * 1000000, 0), {never})::bigint];
        its_space int;
        its_codec text;
        its_channel text;
        its_window bigint;
        its_row record;
    BEGIN
        {checks}
        FOR its_space, its_codec, its_channel IN {find} LOOP END LOOP;
        IF its_space IS NULL THEN
            RAISE 'tickwheel: namespace \"%\" was not opened', its_name
                USING ERRCODE = 'undefined_object', HINT = 'An instance opens it when it starts for the first time.';
        END IF;
        IF its_codec <> 'json' THEN
            RAISE 'tickwheel: the timers of namespace \"%\" are encoded as \"%\", not as \"json\"', its_name, its_codec
                USING ERRCODE = 'object_not_in_prerequisite_state';
        END IF;
        its_window := CASE WHEN current_setting('tickwheel.hints', true) = 'off' THEN -{never}
            ELSE {hinted} + (extract(epoch FROM clock_timestamp() - now()) * 1000000)::bigint END;
        FOR its_row IN {share} LOOP END LOOP;
        FOR its_row IN {take} LOOP END LOOP;
        IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
            BEGIN
                FOR its_row IN {lock_all} LOOP END LOOP;
                INSERT INTO @.tickwheel_timers (version, namespace, key, value, in_flight, due, deadline, attempt)
                VALUES (nextval('@.tickwheel_versions'), its_space, its_key, '', false, 0, 0, 0)
                ON CONFLICT (namespace, key) WHERE NOT in_flight DO NOTHING;
                RAISE 'undone' USING ERRCODE = 'TWNDO';
            EXCEPTION WHEN SQLSTATE 'TWNDO' THEN NULL;
            END;
        END IF;
        CASE its_action
        WHEN 'set' THEN
            FOR its_row IN {set} LOOP
                its_result := CASE WHEN its_row.replaces IS NULL THEN 'set' ELSE 'replaced' END;
            END LOOP;
        WHEN 'set_if_absent' THEN
            FOR its_row IN {lock} LOOP END LOOP;
            FOR its_row IN {set_if_absent} LOOP
                its_result := 'set';
            END LOOP;
        WHEN 'move' THEN
            FOR its_row IN {moved} LOOP
                its_result := 'moved';
            END LOOP;
        WHEN 'remove' THEN
            FOR its_row IN {remove} LOOP
                its_result := 'removed';
                its_removed := its_row.value;
            END LOOP;
        END CASE;
        IF its_result IS NULL THEN
            FOR its_row IN {standing} LOOP
                its_result := CASE
                    WHEN its_action = 'set_if_absent' AND (its_row.waits OR its_row.token IS NULL) THEN 'present'
                    WHEN its_row.token IS NULL THEN 'absent'
                    ELSE 'in_flight'
                END;
            END LOOP;
        END IF;
    END $body$",
        never = sql::NEVER,
        hinted = HINTED.as_micros(),
        checks = checks(),
        find = named(sql::FIND, &["its_name"]),
        share = named(sql::SHARE, &["its_space", "its_key"]),
        take = named(sql::TAKE, &["its_space", "its_key"]),
        set = named(sql::SET, &set),
        lock = named(sql::LOCK, &keyed),
        lock_all = named(sql::LOCK_ALL, &keyed),
        set_if_absent = named(sql::SET_IF_ABSENT, &set),
        moved = named(sql::MOVE, &moved),
        remove = named(sql::REMOVE, &keyed),
        standing = named(sql::STANDING, &keyed),
    )
}

/// One function for users. It has its owner's rights, so its callers need no other right. Its
/// path has the built-in functions, operators and types alone: no caller, and no role that may
/// create in a schema, chooses what it runs. Where it calls another of ours, the arguments have the
/// exact types, so that no overload fits better.
///
/// The settings have rows looked up by indices, as those of the store's own connections do.
fn public(function: usize, key: usize) -> String {
    let (name, parameters, returns, action) = PUBLIC[function];
    let (key_type, encoded) = KEYS[key];
    let value = if parameters.contains("value") {
        "convert_to(value::text, 'UTF8')"
    } else {
        "NULL::bytea"
    };
    let due = if parameters.contains("due") {
        "due"
    } else {
        "NULL::timestamptz"
    };
    let separator = if parameters.is_empty() { "" } else { ", " };
    let (out, answers) = match returns {
        Returns::Result => ("", "RETURN its.its_result"),
        Returns::Removed => (
            ", OUT result text, OUT value json",
            "result := its.its_result; value := convert_from(its.its_removed, 'UTF8')::json",
        ),
    };
    let returning = match returns {
        Returns::Result => "RETURNS text",
        Returns::Removed => "",
    };
    let types: Vec<_> = parameters
        .split(", ")
        .filter_map(|parameter| parameter.split_once(' '))
        .map(|(_, kind)| kind)
        .collect();
    let types = [&["text", key_type], &types[..]].concat().join(", ");
    format!(
        "
    CREATE OR REPLACE FUNCTION @.{name}(namespace text, key {key_type}{separator}{parameters}{out}) {returning}
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan SET jit = off
    AS $body$
    DECLARE
        its record;
    BEGIN
        its := @.tickwheel_write(namespace, {encoded}, {value}, {due}, '{action}'::text);
        {answers};
    END $body$;
    REVOKE ALL ON FUNCTION @.{name}({types}) FROM PUBLIC"
    )
}

/// The SQL that makes all functions, or replaces them.
pub(super) fn install() -> String {
    let mut sql = vec![COMPACT.to_owned(), write()];
    for function in 0..PUBLIC.len() {
        for key in 0..KEYS.len() {
            sql.push(public(function, key));
        }
    }
    let internal = "REVOKE ALL ON FUNCTION @.tickwheel_compact(jsonb), @.tickwheel_write(text, bytea, bytea, timestamptz, text) FROM PUBLIC";
    sql.push(internal.to_owned());
    sql.join(";\n")
}
