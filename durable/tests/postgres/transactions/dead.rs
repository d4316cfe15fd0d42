//! Functions on keys that have dead timers, and removals while such a key fires.

use std::time::Duration;

use tickwheel_durable::store::StoreError;
use tickwheel_durable::{Claim, Claims, DurableTimers, Error, Moved, Removed, Retry};
use tokio_postgres::error::SqlState;

use super::super::server::{client, database, missing, until_waits_for_lock};
use super::{HOUR, SECOND, one, run, start, text};

type Timers = DurableTimers<String, u64>;

/// Sets a timer that is due, and receives it.
async fn fire(
    timers: &Timers,
    claims: &mut Claims<String, u64>,
    key: &str,
    value: u64,
) -> Claim<String, u64> {
    let set = timers.set_timer(key, &value, Duration::ZERO).await;
    set.expect("it is set");
    let claim = claims.recv().await.expect("it goes on");
    assert_eq!((claim.key.as_str(), claim.value), (key, value));
    claim
}

async fn die(claim: &Claim<String, u64>) {
    let died = claim.fail(Retry::never("why")).await;
    died.expect("it is held");
}

/// The numbers of waiting, flying and dead timers.
async fn counts(timers: &Timers) -> (u64, u64, u64) {
    let counts = timers.counts().await.expect("it counts");
    (counts.waiting, counts.in_flight, counts.dead)
}

const SET: &str = "SELECT tickwheel_set('orders', 'a', '7', now() + interval '1 h')";
const SET_IF_ABSENT: &str =
    "SELECT tickwheel_set_if_absent('orders', 'a', '8', now() + interval '1 h')";
const MOVE: &str = "SELECT tickwheel_move('orders', 'a', now() + interval '1 h')";
const REMOVE: &str =
    "SELECT result || coalesce(' ' || value::text, '') FROM tickwheel_remove('orders', 'a')";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_outdate_dead_timers() {
    let Some(url) = database("functions_dead").await else {
        return missing();
    };
    let (timers, mut claims) = start(&url).await;
    let user = client(&url).await;

    // Neither absent nor set aside: a set replaces what is dead, a move has nothing to move.
    for (call, says) in [(SET, "set"), (SET_IF_ABSENT, "set")] {
        die(&fire(&timers, &mut claims, "a", 1).await).await;
        assert_eq!(text(&user, MOVE).await, "absent");
        assert_eq!(counts(&timers).await, (0, 0, 1));
        assert_eq!(text(&user, call).await, says, "{call}");
        assert_eq!(counts(&timers).await, (1, 0, 0), "{call}");
        assert_ne!(timers.remove_timer("a").await, Ok(Removed::Absent));
    }

    // A remove returns the latest, in whichever order they died.
    let older = fire(&timers, &mut claims, "a", 1).await;
    let newer = fire(&timers, &mut claims, "a", 2).await;
    die(&newer).await;
    for call in [SET_IF_ABSENT, MOVE, REMOVE] {
        assert_eq!(text(&user, call).await, "in_flight", "{call}");
        assert_eq!(counts(&timers).await, (0, 1, 1), "{call}");
    }
    die(&older).await;
    assert_eq!(counts(&timers).await, (0, 0, 2));
    assert_eq!(text(&user, REMOVE).await, "removed 2");
    assert_eq!(counts(&timers).await, (0, 0, 0));
    assert_eq!(text(&user, REMOVE).await, "absent");

    // With a waiting timer the dead ones stay until it is removed.
    let claim = fire(&timers, &mut claims, "a", 1).await;
    assert_eq!(text(&user, SET).await, "set");
    die(&claim).await;
    assert_eq!(text(&user, SET_IF_ABSENT).await, "present");
    assert_eq!(text(&user, MOVE).await, "moved");
    assert_eq!(counts(&timers).await, (1, 0, 1));
    assert_eq!(text(&user, REMOVE).await, "removed 7");
    assert_eq!(counts(&timers).await, (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moved_timer_keeps_its_error_and_set_one_does_not() {
    let Some(url) = database("functions_errors").await else {
        return missing();
    };
    let (timers, mut claims) = start(&url).await;
    let user = client(&url).await;
    let claim = fire(&timers, &mut claims, "a", 1).await;
    let retry = Retry::after(HOUR).because("why");
    claim.fail(retry).await.expect("it is held");
    for (call, error) in [(MOVE, Some("why")), (SET, None)] {
        run(&user, call).await;
        let entry = timers.admin().get("a").await.expect("it reads");
        let entry = entry.expect("it waits");
        assert_eq!(entry.error.as_deref(), error, "{call}");
    }
}

/// A timer that a transaction has removed is neither retried nor discarded before it ends, and
/// other keys are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_timers_of_locked_keys_are_left_out() {
    let Some(url) = database("dead_locked").await else {
        return missing();
    };
    let (timers, mut claims) = start(&url).await;
    let admin = timers.admin();
    for key in ["a", "b", "c"] {
        die(&fire(&timers, &mut claims, key, 1).await).await;
    }
    let user = client(&url).await;
    run(&user, &format!("BEGIN; {REMOVE}")).await;
    let locked = |outcome: Result<u64, Error>| {
        let is_locked = matches!(outcome, Err(Error::Store(StoreError::Unavailable { .. })));
        assert!(is_locked, "{outcome:?}");
    };
    locked(admin.retry_dead_key("a").await);
    locked(admin.discard_dead_key("a").await);
    assert_eq!(admin.retry_dead_key("b").await, Ok(1));
    claims
        .recv()
        .await
        .expect("it goes on")
        .ack()
        .await
        .expect("it is held");
    // All but the locked one.
    locked(admin.discard_all_dead().await);
    assert_eq!(counts(&timers).await, (0, 0, 1));
    run(&user, "ROLLBACK").await;
    assert_eq!(admin.discard_dead_key("a").await, Ok(1));
    assert_eq!(admin.discard_dead_key("a").await, Ok(0));
}

/// The 300 keys that died first are locked. They share their locks with all others, which stayed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_timers_behind_locked_keys_are_discarded() {
    let Some(url) = database("dead_behind").await else {
        return missing();
    };
    let (timers, _claims) = start(&url).await;
    let user = client(&url).await;
    let dead = r#"INSERT INTO tickwheel_dead (version, namespace, key, value, died, deadline, attempt)
        SELECT nextval('tickwheel_versions'), id, convert_to('"' || n || '"', 'UTF8'), '1', n, 0, 1
        FROM tickwheel_namespaces, generate_series(1, 2300) n"#;
    run(&user, dead).await;
    let set = "SELECT tickwheel_set('orders', n::text, '7', now() + interval '1 h') FROM generate_series(1, 300) n";
    run(&user, &format!("BEGIN; {set}")).await;
    let outcome = timers.admin().discard_all_dead().await;
    let is_locked = matches!(outcome, Err(Error::Store(StoreError::Unavailable { .. })));
    assert!(is_locked, "{outcome:?}");
    assert_eq!(counts(&timers).await, (0, 0, 300));
    run(&user, "ROLLBACK").await;
    assert_eq!(timers.admin().discard_all_dead().await, Ok(300));
}

/// A claim dies after the transaction that has set its key, and so beside what that has set.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claim_of_a_locked_key_dies_after_the_transaction() {
    let Some(url) = database("dies_locked").await else {
        return missing();
    };
    let (timers, mut claims) = start(&url).await;
    let claim = fire(&timers, &mut claims, "a", 1).await;
    let user = client(&url).await;
    run(&user, &format!("BEGIN; {SET}")).await;
    let dies = tokio::spawn(async move { claim.fail(Retry::never("why")).await });
    let other = fire(&timers, &mut claims, "b", 2).await;
    die(&other).await;
    tokio::time::sleep(SECOND / 2).await;
    assert!(!dies.is_finished());
    assert_eq!(counts(&timers).await, (0, 1, 1));
    run(&user, "COMMIT").await;
    dies.await.expect("it ends").expect("it is held");
    assert_eq!(counts(&timers).await, (1, 0, 2));
    assert_eq!(timers.move_timer("a", HOUR).await, Ok(Moved::Done));
}

/// A caller needs no right on the table of dead timers, and sees no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn caller_without_rights_removes_a_dead_timer() {
    let Some(url) = database("dead_callers").await else {
        return missing();
    };
    let (timers, mut claims) = start(&url).await;
    die(&fire(&timers, &mut claims, "a", 1).await).await;
    let admin = client(&url).await;
    let role = format!("remover_{}", std::process::id());
    let create = format!(
        "CREATE ROLE {role}; GRANT EXECUTE ON FUNCTION tickwheel_remove(text, text) TO {role}"
    );
    run(&admin, &create).await;
    let user = client(&url).await;
    let becomes = format!("SET ROLE {role}; CREATE TEMP TABLE tickwheel_dead (version int)");
    run(&user, &becomes).await;
    let denied = user.query("SELECT * FROM public.tickwheel_dead", &[]).await;
    let denied = denied.expect_err("it has no right");
    assert_eq!(denied.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE));
    run(&user, "SET search_path = pg_temp, public").await;
    let removed = one(
        &user,
        &REMOVE.replace("tickwheel_remove", "public.tickwheel_remove"),
    )
    .await;
    assert_eq!(removed.get::<_, &str>(0), "removed 1");
    assert_eq!(counts(&timers).await, (0, 0, 0));
}

/// Removes `a` by a call, or by a function, while another transaction that has made a change to the
/// key is about to commit. Returns the result and the value.
async fn remove_while(url: &str, timers: &Timers, change: &str, calls: bool) -> String {
    let (other, user, watcher) = (client(url).await, client(url).await, client(url).await);
    run(&other, &format!("BEGIN; {change}")).await;
    let timers = timers.clone();
    let removes = tokio::spawn(async move {
        if !calls {
            return text(&user, REMOVE).await;
        }
        match timers.remove_timer("a").await.expect("it is answered") {
            Removed::Done(value) => format!("removed {value}"),
            Removed::Absent => "absent".to_owned(),
            _ => "in_flight".to_owned(),
        }
    });
    until_waits_for_lock(&watcher).await;
    run(&other, "COMMIT").await;
    removes.await.expect("it ends")
}

/// Its statement had begun before the timer fired, and took the dead timer for all that was left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removal_while_the_timer_fires_keeps_the_dead_one() {
    let Some(url) = database("fires_beside_dead").await else {
        return missing();
    };
    let (timers, mut claims) = start(&url).await;
    for calls in [true, false] {
        let claim = fire(&timers, &mut claims, "a", 1).await;
        timers.set_timer("a", &7, HOUR).await.expect("it is set");
        die(&claim).await;
        let fires = "UPDATE tickwheel_timers
            SET version = nextval('tickwheel_versions'), in_flight = true, attempt = 1, loaded_by = NULL
            WHERE NOT in_flight";
        let says = remove_while(&url, &timers, fires, calls).await;
        assert_eq!(says, "in_flight", "by a call: {calls}");
        assert_eq!(counts(&timers).await, (0, 1, 1), "by a call: {calls}");
        timers.admin().purge().await.expect("it purges");
    }
}

/// It saw a claim, so that the dead timer stayed; and then it saw none, so that it said `absent`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removal_while_all_but_the_dead_timer_goes_returns_it() {
    let Some(url) = database("goes_beside_dead").await else {
        return missing();
    };
    let (timers, mut claims) = start(&url).await;
    for calls in [true, false] {
        let claim = fire(&timers, &mut claims, "a", 1).await;
        let _held = fire(&timers, &mut claims, "a", 2).await;
        timers.set_timer("a", &7, HOUR).await.expect("it is set");
        die(&claim).await;
        assert_eq!(counts(&timers).await, (1, 1, 1), "by a call: {calls}");
        // A fire of a namespace that delivers at most once, and an acknowledgement.
        let go = "DELETE FROM tickwheel_timers";
        let says = remove_while(&url, &timers, go, calls).await;
        assert_eq!(says, "removed 1", "by a call: {calls}");
        assert_eq!(counts(&timers).await, (0, 0, 0), "by a call: {calls}");
    }
}
