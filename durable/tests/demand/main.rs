//! An instance claims what its program can take, keeps what it has claimed, and says what goes
//! wrong.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, SystemTime};

use tickwheel_durable::{Claim, Error, Memory, Retry, SetIfAbsent};
use tickwheel_durable_conformance::Faulty;
use tokio::time::{Instant, sleep, timeout};

use log::Log;
use support::{HOUR, SECOND, next, set, start};

#[path = "../support/log.rs"]
mod log;
mod renewal;
#[path = "../support/mod.rs"]
mod support;

/// A claim that waited for its program lost its lease, was fired again, and counted as an attempt.
#[tokio::test(start_paused = true)]
async fn gives_back_what_waits_for_half_a_lease() {
    let store = Memory::new();
    let (timers, mut claims) = start(store.clone(), |b| b.lease(SECOND * 10)).await;
    // It asks for two, and does not come for them.
    let mut received = Vec::new();
    assert!(
        timeout(SECOND, claims.recv_many(&mut received, 2))
            .await
            .is_err()
    );
    set(&timers, "a", SECOND).await;
    set(&timers, "b", SECOND).await;
    let (_timers, mut others) = start(store, |b| b).await;
    assert!(timeout(SECOND * 5, others.recv()).await.is_err());
    assert_eq!(timers.metrics().claimed, 2);
    for _ in 0..2 {
        let claim = timeout(SECOND * 4, others.recv()).await;
        let claim = claim
            .expect("half the lease is over")
            .expect("the stream goes on");
        assert_eq!(claim.attempt, 1, "no program has seen it before");
        claim.ack().await.expect("it is held");
    }
    let metrics = timers.metrics();
    assert_eq!(
        (metrics.lapsed, metrics.unsettled, metrics.delivered),
        (2, 0, 0)
    );
    assert!(timeout(SECOND * 100, claims.recv()).await.is_err());
}

/// A thousand claims waited for sixteen handlers.
#[tokio::test(start_paused = true)]
async fn claims_no_more_than_the_program_can_take() {
    let (timers, mut claims) = start(Memory::new(), |b| b).await;
    for number in 0..500 {
        set(&timers, &number.to_string(), SECOND).await;
    }
    sleep(SECOND * 3).await;
    assert_eq!(timers.metrics().claimed, 0, "it has not asked");
    let slow = |_| async {
        sleep(SECOND * 10).await;
        Ok(())
    };
    assert!(
        timeout(SECOND * 25, claims.dispatch(16, slow))
            .await
            .is_err()
    );
    let claimed = timers.metrics().claimed;
    assert_eq!(claimed, 48, "three rounds, and none ahead of slow handlers");
    let quick = |_| async {
        sleep(SECOND / 100).await;
        Ok(())
    };
    assert!(
        timeout(SECOND * 10, claims.dispatch(16, quick))
            .await
            .is_err()
    );
    let counts = timers.counts().await.expect("it counts");
    assert_eq!((counts.waiting, counts.in_flight), (0, 0));
}

/// Fifteen more were in flight beside idle instances while the program worked on one.
#[tokio::test(start_paused = true)]
async fn program_that_has_received_some_wants_no_more() {
    let (timers, mut claims) = start(Memory::new(), |b| b).await;
    set(&timers, "a", SECOND).await;
    for number in 0..15 {
        set(&timers, &number.to_string(), SECOND * 2).await;
    }
    let mut received = Vec::new();
    assert_eq!(claims.recv_many(&mut received, 16).await, 1);
    sleep(SECOND * 3).await;
    let claimed = timers.metrics().claimed;
    assert!(claimed <= 2, "{claimed} are claimed");
    assert!(claims.recv_many(&mut received, 16).await > 0);
}

#[tokio::test(start_paused = true)]
async fn cancels_a_handler_after_its_time_limit() {
    let log = Log::default();
    let _logging = log.capture();
    let (timers, mut claims) = start(Memory::new(), |b| b.handler_timeout(SECOND * 3)).await;
    set(&timers, "poison", SECOND).await;
    let began = Instant::now();
    let seen = Mutex::new(Vec::new());
    let handle = |claim: Claim<String, u32>| {
        seen.lock()
            .expect("it is free")
            .push((claim.attempt, began.elapsed().as_secs()));
        async move {
            if claim.attempt < 3 {
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    };
    assert!(
        timeout(SECOND * 100, claims.dispatch(4, handle))
            .await
            .is_err()
    );
    // Three seconds each, and one and two until it is tried again.
    assert_eq!(*seen.lock().expect("it is free"), [(1, 1), (2, 5), (3, 10)]);
    assert_eq!(timers.metrics().timed_out, 2);
    assert_eq!(log.with(&["ERROR", "took too long", "poison"]), 2);
    let counts = timers.counts().await.expect("it counts");
    assert_eq!((counts.waiting, counts.in_flight), (0, 0));
}

/// One timer with a handler that never returned took a place after another, on one instance after
/// another.
#[tokio::test(start_paused = true)]
async fn a_handler_that_never_returns_takes_one_place() {
    let (timers, mut claims) = start(Memory::new(), |b| b.lease(SECOND * 2)).await;
    set(&timers, "poison", SECOND).await;
    for number in 0..50 {
        set(&timers, &number.to_string(), SECOND * 2 * number).await;
    }
    let handle = |claim: Claim<String, u32>| async move {
        if claim.key == "poison" {
            std::future::pending::<()>().await;
        }
        Ok(())
    };
    assert!(
        timeout(SECOND * 110, claims.dispatch(4, handle))
            .await
            .is_err()
    );
    let metrics = timers.metrics();
    assert_eq!(
        (metrics.delivered, metrics.redelivered),
        (51, 0),
        "{metrics:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn panics_are_a_second_then_two_apart() {
    let (timers, mut claims) = start(Memory::new(), |b| b).await;
    set(&timers, "a", SECOND).await;
    let began = Instant::now();
    let seen = Mutex::new(Vec::new());
    let handle = |claim: Claim<String, u32>| {
        seen.lock()
            .expect("it is free")
            .push(began.elapsed().as_secs());
        async move {
            assert!(claim.attempt > 3, "the handler panics, as the test wants");
            Ok::<_, Retry>(())
        }
    };
    assert!(
        timeout(SECOND * 100, claims.dispatch(4, handle))
            .await
            .is_err()
    );
    assert_eq!(*seen.lock().expect("it is free"), [1, 2, 4, 8]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn spawned_handlers_run_on_several_threads() {
    let (timers, mut claims) = start(Memory::new(), |b| b).await;
    for key in ["a", "b"] {
        set(&timers, key, Duration::ZERO).await;
    }
    let meet = Arc::new(Barrier::new(2));
    let met = Arc::new(AtomicU32::new(0));
    let handle = |_| {
        let (meet, met) = (Arc::clone(&meet), Arc::clone(&met));
        async move {
            // Both block their threads until the other is there.
            meet.wait();
            met.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    };
    let done = async {
        while met.load(Ordering::Relaxed) < 2 || timers.metrics().unsettled > 0 {
            sleep(SECOND / 100).await;
        }
    };
    tokio::select! {
        () = claims.dispatch_spawned(2, handle) => panic!("the stream goes on"),
        () = done => {}
    }
    assert_eq!(timers.counts().await.expect("it counts").in_flight, 0);
}

/// Dropping the future of `dispatch_spawned` ends its handlers.
#[tokio::test(start_paused = true)]
async fn dropping_the_dispatch_releases_spawned_claims() {
    let (timers, mut claims) = start(Memory::new(), |b| b).await;
    set(&timers, "a", SECOND).await;
    let handle = |_| std::future::pending::<Result<(), Retry>>();
    assert!(
        timeout(SECOND * 5, claims.dispatch_spawned(2, handle))
            .await
            .is_err()
    );
    let claim = timeout(SECOND * 5, claims.recv()).await;
    assert_eq!(
        claim
            .expect("it is released")
            .expect("the stream goes on")
            .attempt,
        2
    );
}

#[tokio::test(start_paused = true)]
async fn dropping_the_claims_ends_them() {
    let store = Memory::new();
    let (timers, mut claims) = start(store.clone(), |b| b).await;
    assert!(timeout(SECOND, claims.recv()).await.is_err());
    set(&timers, "loaded", SECOND * 20).await;
    drop(claims);
    sleep(SECOND).await;
    for entry in timers.admin().pending(None, 10).await.expect("it lists") {
        assert!(!entry.loaded, "{entry:?}");
    }
    set(&timers, "later", SECOND * 20).await;
    let (_timers, mut others) = start(store, |b| b).await;
    for key in ["loaded", "later"] {
        let claim = next(&mut others).await;
        assert_eq!((claim.key.as_str(), claim.attempt), (key, 1));
        claim.ack().await.expect("it is held");
    }
    assert_eq!(timers.metrics().claimed, 0);
}

/// The store's clock steps while the timer is on the wheel: forward it comes sooner, back the
/// instance makes no wasted query.
#[tokio::test(start_paused = true)]
async fn a_step_of_the_clock_arms_the_wheel_again() {
    let store = Memory::new();
    let now = SystemTime::now();
    store.set_clock(now);
    let (timers, mut claims) = start(store.clone(), |b| b).await;
    set(&timers, "a", SECOND * 20).await;
    let early = timeout(SECOND * 3, claims.recv()).await;
    assert!(early.is_err());
    assert_eq!(timers.metrics().on_wheel, 1);
    store.set_clock(now + SECOND * 18);
    let began = Instant::now();
    let claim = next(&mut claims).await;
    let took = began.elapsed();
    assert!((SECOND * 2..SECOND * 3).contains(&took), "{took:?}");
    claim.ack().await.expect("it is held");

    set(&timers, "b", SECOND * 20).await;
    store.set_clock(now);
    let fired = timers.metrics().fire_batches.count;
    let early = timeout(SECOND * 35, claims.recv()).await;
    assert!(early.is_err(), "{early:?}");
    assert_eq!(
        timers.metrics().fire_batches.count,
        fired,
        "it is asked for too early"
    );
    assert_eq!(next(&mut claims).await.key, "b");
}

/// Rows that left the wheel were not counted as gone, and an instance that had seen a thousand
/// loaded nothing any more; or it loaded one page for each poll.
#[tokio::test(start_paused = true)]
async fn a_long_backlog_comes_without_waiting_for_polls() {
    let store = Memory::new();
    let (writer, claims) = start(store.clone(), |b| b).await;
    claims.shutdown().await;
    for number in 0..5_000 {
        set(&writer, &number.to_string(), Duration::ZERO).await;
    }
    let (timers, mut claims) = start(store, |b| b.capacity(16).poll(SECOND * 10)).await;
    let began = Instant::now();
    for _ in 0..5_000 {
        next(&mut claims).await.ack().await.expect("it is held");
    }
    assert!(began.elapsed() < SECOND * 10, "{:?}", began.elapsed());
    let metrics = timers.metrics();
    assert_eq!(metrics.claimed, 5_000);
    assert!(metrics.loaded < 100, "{} were loaded first", metrics.loaded);
    // Those count that were fired without being loaded.
    let fired = metrics.fire_batches;
    assert!((5_000..6_000).contains(&fired.sum), "{fired:?}");
    assert_eq!(
        (metrics.on_wheel, metrics.due, metrics.left_to_others),
        (0, 0, 0)
    );
}

/// A load took rows out of a backlog while later ones were fired, and delivered them after these.
#[tokio::test(start_paused = true)]
async fn a_long_backlog_comes_by_deadline_while_loads_are_slow() {
    let store = Faulty::new(Memory::new());
    let (writer, claims) = start(store.clone(), |b| b).await;
    claims.shutdown().await;
    for number in 0..5_000 {
        set(&writer, &number.to_string(), Duration::ZERO).await;
    }
    store.set_slow("load", SECOND / 2);
    let (timers, mut claims) = start(store.clone(), |b| b.poll(SECOND)).await;
    for number in 0..5_000 {
        let claim = next(&mut claims).await;
        assert_eq!(claim.key, number.to_string());
        claim.ack().await.expect("it is held");
        sleep(SECOND / 1_000).await;
    }
    assert!(timers.metrics().loaded < 1_000, "{:?}", timers.metrics());
}

#[tokio::test(start_paused = true)]
async fn a_timer_in_flight_has_no_deadline_and_is_not_set_again() {
    let (timers, mut claims) = start(Memory::new(), |b| b).await;
    let key = "a".to_owned();
    set(&timers, &key, SECOND).await;
    let set = timers.set_if_absent(&key, &1, HOUR).await;
    assert_eq!(set, Ok(SetIfAbsent::Present));
    assert!(timers.deadline(&key).await.expect("it reads").is_some());
    let claim = next(&mut claims).await;
    assert_eq!(timers.deadline(&key).await, Ok(None));
    let set = timers.set_if_absent(&key, &1, HOUR).await;
    assert_eq!(set, Ok(SetIfAbsent::InFlight(claim.token())));
    claim.ack().await.expect("it is held");
    let set = timers.set_if_absent(&key, &1, HOUR).await;
    assert_eq!(set, Ok(SetIfAbsent::Done));
}

// A program that sets its timers each time it starts would delay them forever.
#[tokio::test(start_paused = true)]
async fn interval_that_is_present_is_not_delayed() {
    let (timers, mut claims) = start(Memory::new(), |b| b).await;
    for (after, outcome) in [(0, SetIfAbsent::Done), (20, SetIfAbsent::Present)] {
        sleep(after * SECOND).await;
        let set = timers.set_interval_if_absent("a", &1, 30 * SECOND).await;
        assert_eq!(set, Ok(outcome));
    }
    for bound in [10, 30] {
        let began = Instant::now();
        let claim = next(&mut claims).await;
        assert!(began.elapsed() <= bound * SECOND + SECOND / 10);
        claim.ack().await.expect("it is held");
    }
    let flying = timers.set_interval_if_absent("a", &1, SECOND / 10_000);
    assert!(matches!(flying.await, Err(Error::Period { .. })));
}

/// The store has deleted their timers already. What a program holds takes up capacity all the same.
#[tokio::test(start_paused = true)]
async fn claims_of_at_most_once_count_until_they_are_dropped() {
    let (timers, mut claims) = start(Memory::new(), |b| b.at_most_once().capacity(2)).await;
    for key in ["a", "b", "c"] {
        set(&timers, key, SECOND).await;
    }
    let held = [next(&mut claims).await, next(&mut claims).await];
    let third = timeout(SECOND * 10, claims.recv()).await;
    assert!(third.is_err(), "{third:?}");
    assert_eq!(timers.metrics().unsettled, 2);
    drop(held);
    assert_eq!(next(&mut claims).await.key, "c");
}

#[tokio::test(start_paused = true)]
async fn d12_day_without_work_is_a_call_a_poll_and_one_an_hour() {
    let store = Faulty::new(Memory::new());
    let (timers, mut claims) = start(store.clone(), |b| b.poll(SECOND * 10)).await;
    set(&timers, "far", HOUR * 48).await;
    timeout(HOUR, claims.recv()).await.expect_err("it is far");
    let before = store.calls();
    timeout(HOUR * 24, claims.recv())
        .await
        .expect_err("it is far");
    let calls = store.calls() - before;
    assert!(
        // Each pause is up to a tenth longer, so that instances spread.
        (7_800..=8_450).contains(&calls),
        "{calls} calls in 8,640 polls"
    );
}

/// A timer that was released is due from then on, not at its old deadline.
#[tokio::test(start_paused = true)]
async fn a_released_timer_is_due_when_it_was_released() {
    let store = Memory::new();
    let (timers, mut claims) = start(store.clone(), |b| b).await;
    set(&timers, "a", SECOND).await;
    let claim = next(&mut claims).await;
    sleep(SECOND * 10).await;
    let (deadline, token) = (claim.deadline, claim.token());
    claims.shutdown().await;
    timers.admin().release(token).await.expect("it is held");
    let due = timers.deadline("a").await.expect("it reads");
    let due = due.expect("it waits");
    let late = due.duration_since(deadline).expect("it is after it");
    assert!((SECOND * 10..SECOND * 11).contains(&late), "{late:?}");
    let (_other, mut others) = start(store, |b| b).await;
    let again = next(&mut others).await;
    assert_eq!(again.deadline, deadline, "it is as late as it was");
}

/// An instance was silent while its fires failed.
#[tokio::test(start_paused = true)]
async fn warns_once_for_each_kind_of_call_that_fails() {
    let log = Log::default();
    let _logging = log.capture();
    let store = Faulty::new(Memory::new());
    let (timers, mut claims) = start(store.clone(), |b| b).await;
    for (number, call) in ["load", "fire", "write", "settle"].into_iter().enumerate() {
        set(&timers, "a", SECOND * 2).await;
        store.set_failing(Some(call));
        for _ in 0..3 {
            let set = timers.set_timer("b", &0, HOUR).await;
            assert_eq!(set.is_err(), call == "write");
            let claim = timeout(SECOND * 3, claims.recv()).await;
            if let Ok(Some(claim)) = claim {
                assert_eq!(claim.ack().await.is_err(), call == "settle");
            }
        }
        let quoted = format!("call={call:?}");
        let warned = log.with(&["WARN", "fail", "taken away by the test", &quoted]);
        assert_eq!(warned, 1, "{call}");
        assert_eq!(log.with(&["INFO", "work again"]), number);
        store.set_failing(None);
        set(&timers, "a", SECOND).await;
        let claim = next(&mut claims).await;
        claim.ack().await.expect("it is held");
        sleep(SECOND * 3).await;
        assert_eq!(log.with(&["INFO", "work again", &quoted]), 1, "{call}");
    }
    assert_eq!(log.with(&["WARN"]), 4);
}

#[tokio::test(start_paused = true)]
async fn warns_of_an_amendment_that_cannot_be_taken_back() {
    let log = Log::default();
    let _logging = log.capture();
    let store = Faulty::new(Memory::new());
    let (timers, _claims) = start(store.clone(), |b| b).await;
    let admin = timers.admin();
    let mut charter = admin.charter().await.expect("it reads");
    charter.no_overlap = true;
    store.set_failing(Some("amend"));
    admin.amend(&charter).await.expect_err("it fails");
    assert_eq!(log.with(&["WARN", "taken back", "taken away"]), 1);
}

/// The age of overdue timers was logged, and counted by the wheel, as if the runtime were late.
#[tokio::test(start_paused = true)]
async fn overdue_timers_do_not_make_the_wheel_late() {
    let log = Log::default();
    let _logging = log.capture();
    let store = Memory::new();
    let (writer, claims) = start(store.clone(), |b| b).await;
    claims.shutdown().await;
    for number in 0..20 {
        let key = number.to_string();
        let passed = SystemTime::UNIX_EPOCH + SECOND;
        writer
            .set_timer_at(&key, &0, passed)
            .await
            .expect("it is set");
    }
    let (timers, mut claims) = start(store, |b| b).await;
    for _ in 0..20 {
        next(&mut claims).await.ack().await.expect("it is held");
    }
    assert_eq!(timers.metrics().delivered, 20);
    assert_eq!(log.with(&["WARN"]), 0);
}

/// Opening the namespace for a write worked, the write failed again, and each was logged.
#[tokio::test(start_paused = true)]
async fn write_that_fails_for_long_is_logged_once() {
    let log = Log::default();
    let _logging = log.capture();
    let store = Faulty::new(Memory::new());
    let (timers, claims) = start(store.clone(), |b| b).await;
    claims.shutdown().await;
    store.set_failing(Some("write"));
    for _ in 0..3 {
        let set = timers.set_timer("a", &0, HOUR).await;
        set.expect_err("it fails");
        assert!(timers.metrics().failing.write);
        // The store's time is asked for again.
        sleep(SECOND * 61).await;
    }
    let call = "call=\"write\"";
    assert_eq!(log.with(&["WARN", call]), 1);
    assert_eq!(log.with(&["INFO", "work again"]), 0);
}

/// The hint of a timer that a load came too early for was lost, and the timer waited for the next
/// one.
#[tokio::test(start_paused = true)]
async fn hint_is_heard_while_a_load_is_under_way() {
    let memory = Memory::new();
    let store = Faulty::new(memory.clone());
    let (_claimant, mut claims) = start(store.clone(), |b| b.poll(SECOND * 10)).await;
    let (writer, writers) = start(memory, |b| b).await;
    writers.shutdown().await;
    store.set_slow("load", SECOND);
    let receiving = tokio::spawn(async move { next(&mut claims).await.ack().await });
    sleep(SECOND * 5).await;
    let calls = store.calls();
    while store.calls() == calls {
        sleep(SECOND / 100).await;
    }
    sleep(SECOND / 10).await;
    let began = Instant::now();
    set(&writer, "a", SECOND * 3).await;
    receiving.await.expect("it ends").expect("it is held");
    let took = began.elapsed();
    assert!(took < SECOND * 4, "{took:?}");
}
