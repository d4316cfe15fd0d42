//! The answers and errors of the functions, and their effect at the end of the transaction.

use std::time::{Duration, SystemTime};

use tickwheel::TimerWheel;
use tickwheel_durable::{Moved, Postgres, Removed, SetIfAbsent, builder};
use tokio::time::{Instant, timeout};
use tokio_postgres::error::SqlState;

use super::super::server::{client, database, missing};
use super::{HOUR, SECOND, one, run, start, text};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_answer_as_calls_do() {
    let Some(url) = database("answers").await else {
        return missing();
    };
    let (timers, mut claims) = start(&url).await;
    let user = client(&url).await;
    let far = "now() + interval '1 hour'";
    let set = format!("SELECT tickwheel_set('orders', 'a', '1', {far})");
    assert_eq!(text(&user, &set).await, "set");
    assert_eq!(text(&user, &set).await, "replaced");
    let set_b = format!("SELECT tickwheel_set_if_absent('orders', 'b', '2', {far})");
    assert_eq!(text(&user, &set_b).await, "set");
    assert_eq!(text(&user, &set_b).await, "present");
    let present = timers.set_if_absent("a", &3, HOUR).await;
    assert_eq!(present, Ok(SetIfAbsent::Present));
    let moves = "SELECT tickwheel_move('orders', 'b', now() + interval '2 hours')";
    assert_eq!(text(&user, moves).await, "moved");
    let deadline = timers.deadline("b").await.expect("it reads");
    let left = deadline
        .expect("it waits")
        .duration_since(SystemTime::now());
    let left = left.expect("it is far");
    assert!(left > HOUR * 3 / 2 && left < HOUR * 5 / 2, "{left:?}");
    let absent = "SELECT tickwheel_move('orders', 'c', now())";
    assert_eq!(text(&user, absent).await, "absent");
    assert_eq!(timers.remove_timer("b").await, Ok(Removed::Done(2)));
    let remove = "SELECT result, value::text FROM tickwheel_remove('orders', 'a')";
    let removed = one(&user, remove).await;
    assert_eq!(
        (removed.get(0), removed.get(1)),
        ("removed", Some("1")),
        "{removed:?}"
    );
    let removed = one(&user, remove).await;
    assert_eq!((removed.get(0), removed.get(1)), ("absent", None::<&str>));

    let now = "SELECT tickwheel_set('orders', 'a', '5', '-infinity')";
    assert_eq!(text(&user, now).await, "set");
    let claim = claims.recv().await.expect("it is delivered");
    assert_eq!((claim.key.as_str(), claim.value), ("a", 5));
    for query in [
        format!("SELECT tickwheel_set_if_absent('orders', 'a', '1', {far})"),
        format!("SELECT tickwheel_move('orders', 'a', {far})"),
        "SELECT result FROM tickwheel_remove('orders', 'a')".into(),
    ] {
        assert_eq!(text(&user, &query).await, "in_flight", "{query}");
    }
    claim.ack().await.expect("it is held");
    let never = "SELECT tickwheel_set('orders', 'a', '5', 'infinity')";
    assert_eq!(text(&user, never).await, "set");
    assert_eq!(timers.move_timer("a", HOUR).await, Ok(Moved::Done));
}

#[cfg(feature = "cron")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_change_cron_timers() {
    let Some(url) = database("cron").await else {
        return missing();
    };
    let (timers, _claims) = start(&url).await;
    let user = client(&url).await;
    for key in ["a", "b"] {
        let set = timers.set_cron(key, &1, "@yearly", "UTC").await;
        set.expect("it is set");
    }
    let schedule = async |key: &str| {
        let entry = timers.admin().get(key).await.expect("it reads");
        entry.expect("it waits").schedule
    };
    let moves = "SELECT tickwheel_move('orders', 'a', now() + interval '2 hours')";
    assert_eq!(text(&user, moves).await, "moved");
    assert_eq!(schedule("a").await.as_deref(), Some("@yearly UTC"));
    let absent = "SELECT tickwheel_set_if_absent('orders', 'a', '2', now())";
    assert_eq!(text(&user, absent).await, "present");
    let set = "SELECT tickwheel_set('orders', 'a', '2', now() + interval '1 hour')";
    assert_eq!(text(&user, set).await, "replaced");
    assert_eq!(schedule("a").await, None, "it has stopped repeating");
    let removed = one(&user, "SELECT result FROM tickwheel_remove('orders', 'b')").await;
    assert_eq!(removed.get::<_, &str>(0), "removed");
    assert_eq!(timers.deadline("b").await, Ok(None));
}

/// A key that is no string.
type Key = (String, Vec<i64>, Option<bool>);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_encoded_as_the_codec_does() {
    let Some(url) = database("keys").await else {
        return missing();
    };
    let (timers, _claims) = start(&url).await;
    let user = client(&url).await;
    let all: String = (1..=0x2ff).filter_map(char::from_u32).collect();
    for key in ["plain", "", "a \"quoted\\ one\"/", "日本 🕰", &all] {
        let set = "SELECT tickwheel_set('orders', $1, '7', now() + interval '1 h')";
        // A key of 1,024 bytes is the longest.
        if key.len() < 900 {
            user.query(set, &[&key]).await.expect("it is set");
            let removed = timers.remove_timer(key).await;
            assert_eq!(removed, Ok(Removed::Done(7)), "{key}");
        }
    }
    for from in (1..=0x2ff).step_by(64) {
        let key: String = (from..from + 64).filter_map(char::from_u32).collect();
        let set = "SELECT tickwheel_set('orders', $1, '7', now() + interval '1 h')";
        user.query(set, &[&key]).await.expect("it is set");
        assert_eq!(timers.remove_timer(&key).await, Ok(Removed::Done(7)));
    }
    let store = Postgres::connect(&url).await.expect("it connects");
    let started = builder::<Key, String>("tuples")
        .start(&TimerWheel::new(), store)
        .await;
    let (tuples, _claims) = started.expect("it starts");
    let at = "now() + interval '1 h'";
    let call = async |function: &str, rest: &str| {
        let key = "jsonb_build_array('a \"b', '[1, -2]'::jsonb, null)";
        let call = format!("SELECT * FROM tickwheel_{function}('tuples', {key}{rest})");
        text(&user, &call).await
    };
    let set = format!(", to_jsonb('v'::text), {at}");
    assert_eq!(call("set", &set).await, "set");
    let key = ("a \"b".to_owned(), vec![1, -2], None);
    let removed = tuples.remove_timer(&key).await;
    assert_eq!(removed, Ok(Removed::Done("v".to_owned())));
    // Each function finds what the handle and the others have set.
    assert_eq!(call("set_if_absent", &set).await, "set");
    let deadline = tuples.deadline(&key).await.expect("it reads");
    assert!(deadline.is_some(), "it waits");
    assert_eq!(call("set_if_absent", &set).await, "present");
    assert_eq!(call("move", ", 'infinity'").await, "moved");
    let moved = tuples.deadline(&key).await.expect("it reads");
    assert!(moved > deadline, "{moved:?}");
    assert_eq!(call("remove", "").await, "removed");
    assert_eq!(tuples.deadline(&key).await, Ok(None));
    assert_eq!(call("remove", "").await, "absent");
    assert_eq!(call("move", &format!(", {at}")).await, "absent");
    let set = tuples.set_timer(&key, &"w".to_owned(), HOUR).await;
    set.expect("it is set");
    assert_eq!(call("remove", "").await, "removed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_refuse_bad_arguments_by_name() {
    let Some(url) = database("refusals").await else {
        return missing();
    };
    let _instance = start(&url).await;
    let user = client(&url).await;
    run(
        &user,
        "INSERT INTO tickwheel_namespaces (name, codec, no_overlap, at_most_once, parts, made, edition) VALUES ('binary', 'postcard', false, false, 1, 1, 1)",
    )
    .await;
    for (call, code, says) in [
        (
            "tickwheel_set('orders', repeat('k', 1023), '1', now())",
            SqlState::PROGRAM_LIMIT_EXCEEDED,
            "the encoded key has 1025 bytes; at most 1024 are allowed",
        ),
        (
            "tickwheel_set('orders', 'k', to_jsonb(repeat('v', 1048576)), now())",
            SqlState::PROGRAM_LIMIT_EXCEEDED,
            "the encoded value has 1048578 bytes; at most 1048576 are allowed",
        ),
        (
            "tickwheel_set('orders', 'k', NULL, now())",
            SqlState::NULL_VALUE_NOT_ALLOWED,
            "an argument is null",
        ),
        (
            "tickwheel_move('orders', 'k', NULL)",
            SqlState::NULL_VALUE_NOT_ALLOWED,
            "an argument is null",
        ),
        (
            "tickwheel_remove('orders', NULL::text)",
            SqlState::NULL_VALUE_NOT_ALLOWED,
            "an argument is null",
        ),
        (
            "tickwheel_set('order', 'k', '1', now())",
            SqlState::UNDEFINED_OBJECT,
            "namespace \"order\" was not opened",
        ),
        (
            "tickwheel_set('binary', 'k', '1', now())",
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            "encoded as \"postcard\", not as \"json\"",
        ),
        (
            "tickwheel_set('orders', '{\"a\": 1}'::jsonb, '1', now())",
            SqlState::INVALID_PARAMETER_VALUE,
            "an object cannot be a key",
        ),
    ] {
        let error = user.query(&format!("SELECT {call}"), &[]).await;
        let error = error.expect_err(call);
        assert_eq!(error.code(), Some(&code), "{call}: {error:?}");
        let message = error.as_db_error().expect("it is the server's").message();
        assert!(message.contains(says), "{call}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timer_shares_the_fate_of_its_transaction() {
    let Some(url) = database("fates").await else {
        return missing();
    };
    let (timers, mut claims) = start(&url).await;
    let user = client(&url).await;
    let set = |key: &str| format!("SELECT tickwheel_set('orders', '{key}', '1', now())");
    run(&user, &format!("BEGIN; {}; ROLLBACK", set("rolled back"))).await;
    let savepoint = format!(
        "BEGIN; SAVEPOINT s; {}; ROLLBACK TO s; {}; COMMIT",
        set("in a savepoint"),
        set("committed")
    );
    run(&user, &savepoint).await;
    timers
        .set_timer("control", &2, Duration::ZERO)
        .await
        .expect("it is set");
    let mut keys = Vec::new();
    for _ in 0..2 {
        let claim = timeout(20 * SECOND, claims.recv()).await;
        let claim = claim.expect("it is delivered").expect("it goes on");
        keys.push(claim.key.clone());
        claim.ack().await.expect("it is held");
    }
    keys.sort();
    assert_eq!(keys, ["committed", "control"]);
    let counts = timers.counts().await.expect("it counts");
    assert_eq!((counts.waiting, counts.in_flight), (0, 0));

    // A timer that was removed in a transaction that is rolled back is still there.
    timers.set_timer("kept", &3, HOUR).await.expect("it is set");
    let undone = "BEGIN; SELECT tickwheel_remove('orders', 'kept'); ROLLBACK;
        BEGIN; SELECT tickwheel_move('orders', 'kept', now()); ROLLBACK;
        BEGIN; SELECT tickwheel_set('orders', 'kept', '4', now()); ROLLBACK";
    run(&user, undone).await;
    assert_eq!(timers.remove_timer("kept").await, Ok(Removed::Done(3)));
}

/// Delivered long before a poll, and not before the commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hint_goes_out_at_the_commit() {
    let Some(url) = database("hint_at_commit").await else {
        return missing();
    };
    let start = async || {
        let store = Postgres::connect(&url).await.expect("it connects");
        let builder = builder::<String, u64>("orders")
            .poll(600 * SECOND)
            .window(HOUR);
        let started = builder.start(&TimerWheel::new(), store).await;
        started.expect("it starts")
    };
    let (_timers, mut claims) = start().await;
    let (control, controls_claims) = start().await;
    controls_claims.shutdown().await;
    let user = client(&url).await;
    let mut took = [Vec::new(), Vec::new()];
    for round in 0..15 {
        for by_function in [false, true] {
            let key = format!("{round}");
            let began;
            if by_function {
                let set = format!(
                    "BEGIN; SELECT tickwheel_set('orders', '{key}', '1', clock_timestamp())"
                );
                run(&user, &set).await;
                let early = timeout(Duration::from_millis(50), claims.recv()).await;
                assert!(early.is_err(), "it is not committed");
                began = Instant::now();
                run(&user, "COMMIT").await;
            } else {
                began = Instant::now();
                control
                    .set_timer(&key, &1, Duration::ZERO)
                    .await
                    .expect("it is set");
            }
            let claim = timeout(60 * SECOND, claims.recv()).await;
            let claim = claim.expect("long before a poll").expect("it goes on");
            took[usize::from(by_function)].push(began.elapsed());
            claim.ack().await.expect("it is held");
        }
    }
    for took in &mut took {
        took.sort();
    }
    let [of_control, of_function] = took.map(|took| took[took.len() / 2]);
    assert!(
        of_function < 3 * of_control + Duration::from_millis(50),
        "{of_function:?}, and {of_control:?} for a set by a call"
    );
}
