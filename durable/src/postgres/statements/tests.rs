use super::locks::key_hash;
use super::*;
use crate::postgres::migrations::{MIGRATIONS, SCHEMA};

#[test]
fn loads_and_fires_need_the_schema_and_settles_do_not() {
    let needs = format!("s.version >= {SCHEMA} AND s.readable_by <= {SCHEMA})");
    for sql in [TERMS, ALIVE, FIRE, SET_ALONE] {
        assert!(sql.contains(&needs), "{sql}");
    }
    for sql in [ACK, DIE, EXTEND, LEAVERS, PUT_BACK, UNLOAD, UNMARK] {
        assert!(!sql.contains("tickwheel_schema"), "{sql}");
    }
}

/// A text without white space, with variables of `tickwheel_write` for the parameters. A
/// transaction of a user waits for the lock of its key, so it leaves no key out.
fn with(variables: &[&str], sql: &str) -> String {
    let mut sql = sql.replace(unless_locked!("encode(u.key, 'hex')"), "");
    for (number, variable) in variables.iter().enumerate().rev() {
        sql = sql.replace(&format!("${}", number + 1), variable);
    }
    sql.split_whitespace().collect()
}

/// A migration stands still once it is released, so it repeats the statements of its time.
#[test]
fn functions_for_users_run_the_statements_of_calls() {
    let functions = with(&[], MIGRATIONS[0].up);
    let arms = "its_space its_window NULL::bigint its_channel its_keys";
    let key = "its_space its_keys";
    let set = &format!("{arms} ARRAY[its_value] its_due ARRAY[false] ARRAY[NULL] '{{}}'");
    let moved = &format!("{arms} its_due ARRAY[false]");
    for (sql, variables) in [
        (FIND, "its_name"),
        (SET, set),
        (LOCK, key),
        (SET_IF_ABSENT, set),
        (MOVE, moved),
        (REMOVE, key),
        (REMOVE_DEAD, key),
        (STANDING, key),
    ] {
        let variables: Vec<_> = variables.split(' ').collect();
        let repeated = with(&variables, sql);
        assert!(functions.contains(&repeated), "{sql}");
    }
}

#[test]
fn transactions_of_users_lock_what_batches_try_to_lock() {
    let functions = with(&[], MIGRATIONS[0].up);
    let hash = with(&[], key_hash!("its_key"));
    let batch = with(&["its_space"], HOLD).replace("i.key", "its_key");
    let batch = batch.replace("o.bucket", &hash);
    let locks = batch.split("pg_try_advisory_xact_lock(").skip(1);
    for (lock, (end, waits)) in locks.zip([
        (")ELSEfalse", "pg_advisory_xact_lock_shared("),
        (")ASis_free", "pg_advisory_xact_lock_shared("),
        (")ELSEfalse", "pg_advisory_xact_lock("),
    ]) {
        let (number, _) = lock.split_once(end).expect("a batch tries to take it");
        assert!(functions.contains(&format!("{waits}{number})")), "{number}");
    }
}
