//! Transactions that stay open: they hold up their own keys, and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tickwheel::TimerWheel;
use tickwheel_durable::store::StoreError;
use tickwheel_durable::{
    Change, Claim, Error, Moved, Postgres, Removed, Retry, SetIfAbsent, builder,
};
use tokio::time::timeout;

use super::super::faults::call_limit;
use super::super::server::{client, database, missing, until};
use super::{HOUR, SECOND, run, start, text};

/// More keys than there are locks of transactions or of batches.
const OTHERS: u32 = 2_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_transaction_holds_up_no_other_key() {
    let Some(url) = database("open_transaction").await else {
        return missing();
    };
    let (timers, mut claims) = start(&url).await;
    timers.set_timer("kept", &1, HOUR).await.expect("it is set");
    let user = client(&url).await;
    let open = "BEGIN; SELECT tickwheel_set('orders', 'new', '1', now() + interval '1 h');
        SELECT tickwheel_move('orders', 'kept', now() + interval '2 h')";
    run(&user, open).await;
    let waits = |key: &'static str| {
        let timers = timers.clone();
        tokio::spawn(async move { timers.set_timer(key, &2, HOUR).await })
    };
    let same = [waits("new"), waits("kept")];
    let keys: Vec<_> = (0..OTHERS).map(|n| format!("other {n}")).collect();
    // Each kind of batch: sets alone, all mixed, put-backs.
    let set = keys.iter().map(|key| timers.set_timer(key, &3, HOUR));
    let others = async {
        for set in join_all(set).await {
            set.expect("it is set");
        }
        let mixed = keys.iter().zip(0..).map(async |(key, n)| match n % 3 {
            0 => assert_eq!(timers.move_timer(key, 2 * HOUR).await, Ok(Moved::Done)),
            1 => {
                let present = timers.set_if_absent(key, &1, HOUR).await;
                assert_eq!(present, Ok(SetIfAbsent::Present));
            }
            _ => assert_eq!(timers.remove_timer(key).await, Ok(Removed::Done(3))),
        });
        join_all(mixed).await;
        for key in &keys[..200] {
            timers
                .set_timer(key, &4, Duration::ZERO)
                .await
                .expect("it is set");
        }
        let mut held = Vec::new();
        for _ in 0..200 {
            held.push(claims.recv().await.expect("it goes on"));
        }
        for put_back in join_all(held.iter().map(|claim| claim.retry_after(HOUR))).await {
            put_back.expect("it is held");
        }
    };
    timeout(60 * SECOND, others)
        .await
        .expect("long before the transaction ends");
    assert!(same.iter().all(|waits| !waits.is_finished()));
    let read = "SELECT value::text FROM tickwheel_remove('orders', 'new')";
    assert_eq!(text(&user, read).await, "1");
    run(&user, "COMMIT").await;
    for waits in same {
        waits.await.expect("it ends").expect("it is set");
    }
    assert_eq!(timers.remove_timer("new").await, Ok(Removed::Done(2)));
    assert_eq!(timers.remove_timer("kept").await, Ok(Removed::Done(2)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_on_a_locked_key_fails_in_time() {
    let Some(url) = database("locked_key").await else {
        return missing();
    };
    let store = Postgres::connect(&url).await.expect("it connects");
    let limit = call_limit(&url).await;
    let builder = builder::<String, u64>("orders").call_timeout(limit);
    let started = builder.start(&TimerWheel::new(), store).await;
    let (timers, mut claims) = started.expect("it starts");
    let mut held = Vec::new();
    for key in ["claimed", "released"] {
        timers
            .set_timer(key, &1, Duration::ZERO)
            .await
            .expect("it is set");
        held.push(claims.recv().await.expect("it goes on"));
    }
    let user = client(&url).await;
    let open = "BEGIN; SELECT tickwheel_set('orders', 'claimed', '2', now() + interval '1 h'),
        tickwheel_set('orders', 'released', '2', now() + interval '1 h')";
    run(&user, open).await;
    let after = limit;
    let late = |call| Err(Error::Timeout { call, after });
    let set = timers.set_timer("claimed", &3, HOUR).await;
    assert_eq!(set, late("write"));
    let changed = timers.admin().change_key("claimed", Change::Remove).await;
    let is_locked = matches!(changed, Err(Error::Store(StoreError::Unavailable { .. })));
    assert!(is_locked, "{changed:?}");
    let released = held.remove(1);
    assert_eq!(released.retry_after(HOUR).await, late("settle"));
    // An acknowledgement changes no waiting timer.
    held.remove(0).ack().await.expect("it is held");
    timers
        .set_timer("other", &3, HOUR)
        .await
        .expect("it is set");
    run(&user, "COMMIT").await;
    assert_eq!(timers.remove_timer("claimed").await, Ok(Removed::Done(2)));
    assert_eq!(timers.remove_timer("released").await, Ok(Removed::Done(2)));
}

/// A timer that a transaction has locked stays loaded where it was, and fires when it is rolled
/// back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn due_timer_waits_for_the_transaction() {
    let Some(url) = database("due_in_transaction").await else {
        return missing();
    };
    let (timers, mut claims) = start(&url).await;
    let user = client(&url).await;
    // The transaction has begun before the timer is due, as busy as the machine is.
    let began = Instant::now();
    for key in ["x", "y", "z"] {
        let set = format!("SELECT tickwheel_set('orders', '{key}', '2', now() + interval '1 h')");
        run(&user, &set).await;
    }
    let soon = SECOND.max(10 * began.elapsed());
    for (end, comes) in [("ROLLBACK", 1), ("COMMIT", 2)] {
        timers.set_timer("a", &1, soon).await.expect("it is set");
        run(
            &user,
            "BEGIN; SELECT tickwheel_set('orders', 'a', '2', now())",
        )
        .await;
        let early = timeout(2 * soon, claims.recv()).await;
        assert!(early.is_err(), "neither the old nor the new one");
        timers
            .set_timer("b", &5, Duration::ZERO)
            .await
            .expect("it is set");
        let other = timeout(20 * SECOND, claims.recv())
            .await
            .expect("others come");
        let other = other.expect("it goes on");
        assert_eq!(other.value, 5);
        other.ack().await.expect("it is held");
        run(&user, end).await;
        let claim = timeout(20 * SECOND, claims.recv()).await;
        let claim = claim.expect("it comes").expect("it goes on");
        assert_eq!((claim.key.as_str(), claim.value), ("a", comes), "{end}");
        claim.ack().await.expect("it is held");
    }
}

/// An instance asked for each of them every ten milliseconds: 260 statements a second, for as long
/// as the transaction is open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn due_timers_of_an_open_transaction_are_seldom_asked_for() {
    const KEYS: u64 = 50;
    let Some(url) = database("held_due").await else {
        return missing();
    };
    let (timers, mut claims) = start(&url).await;
    let keys: Vec<_> = (0..KEYS).map(|number| format!("held {number}")).collect();
    for (key, number) in keys.iter().zip(0..) {
        let delay = SECOND + Duration::from_millis(7 * number);
        timers.set_timer(key, &1, delay).await.expect("it is set");
    }
    let user = client(&url).await;
    let hold = format!(
        "BEGIN; SELECT tickwheel_set('orders', 'held ' || n, '2', now()) FROM generate_series(0, {}) n",
        KEYS - 1
    );
    run(&user, &hold).await;
    // Nothing fires unless a program has room for it.
    let delivered = Arc::<AtomicU64>::default();
    let count = Arc::clone(&delivered);
    let handle = move |claim: Claim<String, u64>| {
        assert_eq!(claim.value, 2);
        count.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok(()))
    };
    drop(tokio::spawn(
        async move { claims.dispatch(64, handle).await },
    ));
    tokio::time::sleep(5 * SECOND).await;
    let admin = client(&url).await;
    let commits = async || {
        let sql =
            "SELECT xact_commit::text FROM pg_stat_database WHERE datname = current_database()";
        text(&admin, sql).await.parse::<u64>().expect("a number")
    };
    let before = commits().await;
    tokio::time::sleep(5 * SECOND).await;
    let each_second = (commits().await - before) / 5;
    assert!(each_second < 30, "{each_second} transactions a second");
    run(&user, "COMMIT").await;
    until("each delivery", async || {
        delivered.load(Ordering::Relaxed) == KEYS
    })
    .await;
}

/// Transactions lock b and then a, while batches set a and b.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_and_batches_never_deadlock() {
    let Some(url) = database("opposite_orders").await else {
        return missing();
    };
    let (timers, _claims) = start(&url).await;
    let user = client(&url).await;
    let transactions = async {
        for _ in 0..60 {
            let both = "BEGIN; SELECT tickwheel_set('orders', 'b', '1', now() + interval '1 h');
                SELECT pg_sleep(0.01); SELECT tickwheel_move('orders', 'a', now() + interval '1 h'); COMMIT";
            run(&user, both).await;
        }
    };
    let calls = async {
        loop {
            let set = ["a", "b"].map(|key| timers.set_timer(key, &2, HOUR));
            for set in join_all(set).await {
                set.expect("it is set");
            }
            let moved = ["b", "a"].map(|key| timers.move_timer(key, HOUR));
            for moved in join_all(moved).await {
                assert_eq!(moved, Ok(Moved::Done));
            }
        }
    };
    tokio::select! {
        () = transactions => {}
        () = calls => {}
    }
    drop(user);
    let admin = client(&url).await;
    let deadlocks =
        "SELECT deadlocks::text FROM pg_stat_database WHERE datname = current_database()";
    tokio::time::sleep(SECOND).await;
    assert_eq!(text(&admin, deadlocks).await, "0");
}

/// The renewals of the lease waited for the lock as well, and the handler ran again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn put_back_that_waits_for_a_transaction_keeps_its_lease() {
    let Some(url) = database("waiting_put_back").await else {
        return missing();
    };
    let unit = call_limit(&url).await;
    let store = Postgres::connect(&url).await.expect("it connects");
    let builder = builder::<String, u64>("orders")
        .lease(4 * unit)
        .poll(SECOND / 5)
        .call_timeout(unit);
    let started = builder.start(&TimerWheel::new(), store).await;
    let (timers, mut claims) = started.expect("it starts");
    let set = timers.set_timer("a", &1, Duration::ZERO).await;
    set.expect("it is set");
    let (user, handled) = (client(&url).await, AtomicU64::new(0));
    let handle = async |_| {
        handled.fetch_add(1, Ordering::Relaxed);
        let open = "BEGIN; SELECT tickwheel_move('orders', 'a', now() + interval '2 h')";
        run(&user, open).await;
        Err(Retry::after(HOUR).because("why"))
    };
    let course = async {
        tokio::time::sleep(8 * unit).await;
        run(&user, "ROLLBACK").await;
        until("the timer waits", async || {
            timers.counts().await.expect("it counts").in_flight == 0
        })
        .await;
    };
    tokio::select! {
        () = claims.dispatch(4, handle) => panic!("the stream goes on"),
        () = course => {}
    }
    assert_eq!(handled.load(Ordering::Relaxed), 1);
    let entry = timers.admin().get("a").await.expect("it reads");
    let entry = entry.expect("it waits");
    assert_eq!((entry.error.as_deref(), entry.attempt), (Some("why"), 1));
    assert_eq!(timers.metrics().lost, 0);
}
