//! A store that is slow or away, or loses its answers.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_durable::{BuildError, Claim, Claims, DurableTimers, Error, Memory};
use tickwheel_durable_conformance::{FaultPoint, Faulty};
use tokio::time::{Instant, timeout};

use super::{HOUR, Instance, SECOND, orders, set, start};

#[tokio::test(start_paused = true)]
async fn limits_the_time_of_every_call() {
    let store = Faulty::new(Memory::new());
    let (timers, claims) = start(store.clone()).await;
    store.kill();
    let (key, value) = ("a".to_owned(), String::new());
    let after = SECOND * 5;
    let began = Instant::now();
    for (call, outcome) in [
        ("write", timers.set_timer(&key, &value, HOUR).await.err()),
        ("write", timers.move_timer(&key, HOUR).await.err()),
        ("write", timers.remove_timer(&key).await.err()),
        ("rows_of", timers.deadline(&key).await.err()),
        ("count", timers.counts().await.err()),
        ("list", timers.admin().pending(None, 1).await.err()),
        ("purge", timers.admin().purge().await.err()),
    ] {
        assert_eq!(outcome, Some(Error::Timeout { call, after }));
        assert!(outcome.is_some_and(|error| error.may_pass()), "{call}");
    }
    assert!(began.elapsed() < after * 8);
    let began = Instant::now();
    claims.shutdown().await;
    assert!(began.elapsed() <= after * 3, "{:?}", began.elapsed());
    let opening = orders().start(&TimerWheel::new(), store).await;
    let error = opening.expect_err("no server answers");
    assert_eq!(
        error,
        BuildError::Open(Error::Timeout {
            call: "open",
            after
        })
    );
}

/// A call that needs the store's time asks for it first. They waited for each other, each had a
/// whole limit after that, and another one for its write: the fifth failed after 25 seconds.
#[tokio::test(start_paused = true)]
async fn calls_that_ask_for_the_time_keep_the_limit() {
    const LIMIT: Duration = Duration::from_secs(5);
    let store = Faulty::new(Memory::new());
    let (timers, claims) = start(store.clone()).await;
    claims.shutdown().await;
    let set_interval = async |key: String| {
        let began = Instant::now();
        let first = std::time::SystemTime::UNIX_EPOCH;
        let value = String::new();
        let set = timers.set_interval_at(&key, &value, first, HOUR).await;
        (set, began.elapsed())
    };
    // No load has told the store's time for long.
    tokio::time::sleep(SECOND * 120).await;
    store.set_delay(HOUR);
    let sets = (0..5).map(|number| set_interval(number.to_string()));
    for (set, took) in futures_util::future::join_all(sets).await {
        assert!(matches!(set, Err(Error::Timeout { after: LIMIT, .. })));
        assert_eq!(took, LIMIT);
    }
    // Its two calls take longer than the limit.
    store.set_delay(SECOND * 4);
    let (set, took) = set_interval("slow".to_owned()).await;
    assert!(matches!(set, Err(Error::Timeout { after: LIMIT, .. })));
    assert_eq!(took, LIMIT);
    store.set_delay(Duration::ZERO);
    tokio::time::sleep(LIMIT).await;
    assert_eq!(timers.deadline("slow").await, Ok(None));
    let (set, _) = set_interval("quick".to_owned()).await;
    assert_eq!(set, Ok(()));
}

/// They stayed so for as long as the process ran, and hid alerts.
#[tokio::test(start_paused = true)]
async fn loads_do_not_fail_any_more_once_the_claims_have_ended() {
    let store = Faulty::new(Memory::new());
    let (timers, claims) = start(store.clone()).await;
    store.set_away(true);
    tokio::time::sleep(SECOND * 9).await;
    assert!(timers.metrics().failing.load);
    claims.shutdown().await;
    assert!(!timers.metrics().failing.load);
}

#[tokio::test(start_paused = true)]
async fn set_of_many_timers_fails_with_its_writes() {
    let store = Faulty::new(Memory::new());
    let (timers, _claims) = start(store.clone()).await;
    store.set_failing(Some("write"));
    let set = timers.set_many([("a", &String::new(), HOUR)]).await;
    assert!(matches!(set, Err(Error::Store(_))), "{set:?}");
}

/// An operator sees by the figures that the store is slow.
#[tokio::test(start_paused = true)]
async fn time_of_a_slow_call_is_counted() {
    let store = Faulty::new(Memory::new());
    let (timers, mut claims) = start(store.clone()).await;
    set_many(&timers, 1).await;
    let claim = next(&mut claims).await;
    let quick = timers.metrics().store_latency.max();
    assert!(quick < SECOND / 2, "{quick:?}");
    store.set_delay(SECOND / 2);
    claim.ack().await.expect("it is held");
    let metrics = timers.metrics();
    assert!(metrics.store_latency.max() >= SECOND / 2, "{metrics:?}");
    let settles = metrics.settle_batches;
    assert_eq!((settles.count, settles.sum, settles.max), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn does_not_write_what_was_given_up_while_the_store_was_slow() {
    let memory = Memory::new();
    let store = Faulty::new(memory.clone());
    let (timers, _claims) = start(store.clone()).await;
    store.set_delay(SECOND * 4);
    let first = set(&timers, "first", HOUR);
    let given_up = async {
        tokio::time::sleep(SECOND).await;
        let set = timeout(SECOND, set(&timers, "given up", HOUR)).await;
        assert!(set.is_err());
    };
    let (first, ()) = tokio::join!(first, given_up);
    first.expect("it is set");
    store.set_delay(Duration::ZERO);
    tokio::time::sleep(SECOND * 5).await;
    assert_eq!(timers.deadline("given up").await, Ok(None));
    assert!(timers.deadline("first").await.expect("it reads").is_some());
}

#[tokio::test(start_paused = true)]
async fn gives_nothing_back_in_the_middle_of_a_load() {
    let poll = SECOND / 10;
    let memory = Memory::new();
    let store = Faulty::new(memory.clone());
    let builder = orders().capacity(1).poll(poll);
    let started = builder.start(&TimerWheel::new(), store.clone()).await;
    let (timers, mut claims) = started.expect("it starts");
    let builder = orders().capacity(1).poll(poll);
    let started = builder.start(&TimerWheel::new(), memory).await;
    let (_others_timers, mut others_claims) = started.expect("it starts");
    for number in 0..20 {
        set(&timers, &number.to_string(), SECOND)
            .await
            .expect("it is set");
    }
    // Most of the time a load is under way. The store panics if one reaches it after the unload of
    // its id.
    store.set_delay(poll * 3 / 4);
    let handled = AtomicU32::new(0);
    let handle = |claim: Claim<String, String>| {
        let handled = &handled;
        async move {
            assert_eq!(claim.attempt, 1);
            tokio::time::sleep(SECOND).await;
            handled.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    };
    let both = async {
        tokio::join!(
            claims.dispatch(1, handle),
            others_claims.dispatch(1, handle)
        )
    };
    assert!(timeout(SECOND * 20, both).await.is_err());
    assert_eq!(handled.into_inner(), 20);
    let left_to_others = timers.metrics().left_to_others;
    assert!((7..=13).contains(&left_to_others), "{left_to_others}");
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_answer_was_lost_can_be_made_again() {
    let store = Faulty::new(Memory::new());
    let (timers, mut claims) = start(store.clone()).await;
    store.fail_at(store.calls(), FaultPoint::After);
    let failed = set(&timers, "a", SECOND).await;
    assert!(matches!(failed, Err(Error::Store(_))), "{failed:?}");
    set(&timers, "a", SECOND).await.expect("it is set");
    let claim = claims.recv().await.expect("it comes");
    store.fail_at(store.calls(), FaultPoint::Before);
    assert!(matches!(claim.ack().await, Err(Error::Store(_))));
    claim.ack().await.expect("the second one reaches the store");
    claim.ack().await.expect("another one does nothing");
    assert!(timeout(SECOND * 100, claims.recv()).await.is_err());
}

/// The second try has another delay, since a backoff is jittered.
#[tokio::test(start_paused = true)]
async fn failure_whose_answer_was_lost_can_be_said_again() {
    let store = Faulty::new(Memory::new());
    let (timers, mut claims) = start(store.clone()).await;
    set(&timers, "a", SECOND).await.expect("it is set");
    let claim = claims.recv().await.expect("it comes");
    store.fail_at(store.calls(), FaultPoint::After);
    claim.fail("busy").await.expect_err("its answer is lost");
    claim.fail("busy").await.expect("it has failed already");
    assert_eq!(timers.metrics().lost, 0);
}

/// The first look for its claims finds nothing. The second one comes when the store can no longer
/// be executing it, and finds the claim locked: it was in flight for a whole lease.
#[tokio::test(start_paused = true)]
async fn lost_fire_that_takes_effect_late_is_undone() {
    let (call, lease) = (SECOND * 5, HOUR);
    let store = Faulty::new(Memory::new());
    let builder = orders().call_timeout(call).lease(lease).max_attempts(1);
    let started = builder.start(&TimerWheel::new(), store.clone()).await;
    let (timers, mut claims) = started.expect("it starts");
    set(&timers, "a", SECOND).await.expect("it is set");
    store.set_late(Some(("fire", call / 2)));
    let fired = timeout(SECOND + SECOND / 100, claims.recv()).await;
    assert!(fired.is_err(), "{fired:?}");
    store.set_late(None);
    // A transaction holds the row, so no other fire comes first.
    store.set_locked(true);
    assert!(timeout(call / 2, claims.recv()).await.is_err());
    let counts = timers.counts().await.expect("it counts");
    assert_eq!((counts.in_flight, counts.waiting), (1, 0));
    assert!(timeout(call, claims.recv()).await.is_err());
    store.set_locked(false);
    let claim = next_within(&mut claims, call * 2).await;
    assert_eq!((&*claim.key, claim.attempt), ("a", 1));
    claim.ack().await.expect("it is held");
}

/// The next claim, which comes before long.
async fn next(claims: &mut Claims<String, String>) -> Claim<String, String> {
    next_within(claims, HOUR * 2).await
}

/// The next claim, which comes within this time.
async fn next_within(
    claims: &mut Claims<String, String>,
    limit: Duration,
) -> Claim<String, String> {
    let claim = timeout(limit, claims.recv()).await;
    claim.expect("it comes").expect("the stream goes on")
}

/// Sets so many timers that are due after a second.
async fn set_many(timers: &DurableTimers<String, String>, number: usize) {
    for number in 0..number {
        let set = set(timers, &number.to_string(), SECOND).await;
        set.expect("it is set");
    }
}

#[tokio::test(start_paused = true)]
async fn delivers_to_a_program_that_waits_though_the_store_is_slower_than_the_lease() {
    let store = Faulty::new(Memory::new());
    let builder = orders().lease(SECOND);
    let started = builder.start(&TimerWheel::new(), store.clone()).await;
    let (timers, mut claims) = started.expect("it starts");
    store.set_delay(SECOND * 3);
    set_many(&timers, 1).await;
    let claim = next(&mut claims).await;
    assert_eq!((claim.attempt, timers.metrics().lapsed), (1, 0));
    claim.ack().await.expect("no other instance has it yet");
}

/// An instance that has a timer `mine`, whose first fire has lost its answer.
async fn after_a_lost_fire(memory: Memory) -> Instance {
    let store = Faulty::new(memory);
    let (timers, mut claims) = start(store.clone()).await;
    set(&timers, "mine", SECOND).await.expect("it is set");
    store.set_losing(Some("fire"));
    assert!(timeout(SECOND * 2, claims.recv()).await.is_err());
    store.set_losing(None);
    (timers, claims)
}

/// What is in flight under the id of another instance is that one's.
#[tokio::test(start_paused = true)]
async fn lost_fire_leaves_claims_of_others_alone() {
    let memory = Memory::new();
    let (others, mut others_claims) = start(memory.clone()).await;
    let theirs = set(&others, "theirs", Duration::ZERO).await;
    theirs.expect("it is set");
    let theirs = next(&mut others_claims).await;
    let (_timers, mut claims) = after_a_lost_fire(memory).await;
    let mine = next(&mut claims).await;
    assert_eq!((&*mine.key, mine.attempt), ("mine", 1));
    theirs.ack().await.expect("it is held");
    mine.ack().await.expect("it is held");
}

/// A look reads a thousand claims at once, and those of others may come first.
#[tokio::test(start_paused = true)]
async fn lost_fire_is_undone_behind_many_claims_of_others() {
    const THEIRS: usize = 1_100;
    let memory = Memory::new();
    let wheel = TimerWheel::new();
    let started = orders().capacity(THEIRS).start(&wheel, memory.clone());
    let (others, mut others_claims) = started.await.expect("it starts");
    for number in 0..THEIRS {
        let set = set(&others, &number.to_string(), Duration::ZERO).await;
        set.expect("it is set");
    }
    let mut theirs = Vec::new();
    while theirs.len() < THEIRS {
        let limit = THEIRS - theirs.len();
        others_claims.recv_many(&mut theirs, limit).await;
    }
    let (_timers, mut claims) = after_a_lost_fire(memory).await;
    let mine = next_within(&mut claims, SECOND * 8).await;
    assert_eq!((&*mine.key, mine.attempt), ("mine", 1));
    mine.ack().await.expect("it is held");
}

/// A look that fails comes again, and meanwhile the id has changed.
#[tokio::test(start_paused = true)]
async fn lost_fires_under_two_ids_are_both_undone() {
    let store = Faulty::new(Memory::new());
    let (timers, mut claims) = start(store.clone()).await;
    set(&timers, "a", SECOND).await.expect("it is set");
    set(&timers, "b", SECOND * 4).await.expect("it is set");
    store.set_losing(Some("fire"));
    store.set_failing(Some("list"));
    assert!(timeout(SECOND * 6, claims.recv()).await.is_err());
    store.set_losing(None);
    store.set_failing(None);
    for key in ["a", "b"] {
        let claim = next_within(&mut claims, SECOND * 8).await;
        assert_eq!((&*claim.key, claim.attempt), (key, 1));
        claim.ack().await.expect("it is held");
    }
}

/// The shutdown waits for the fire, and unfires what it has claimed.
#[tokio::test(start_paused = true)]
async fn lost_fire_under_way_at_the_shutdown_is_undone() {
    let store = Faulty::new(Memory::new());
    let (timers, mut claims) = start(store.clone()).await;
    set_many(&timers, 1).await;
    store.set_losing(Some("fire"));
    store.set_delay(SECOND);
    let fired = timeout(SECOND * 5 / 4, claims.recv()).await;
    assert!(fired.is_err(), "{fired:?}");
    timers.shutdown().await;
    store.set_delay(Duration::ZERO);
    let counts = timers.counts().await.expect("it counts");
    assert_eq!((counts.waiting, counts.in_flight), (1, 0));
    let left = timers.admin().get("0").await.expect("it reads");
    assert_eq!(left.expect("it waits").attempt, 0);
}

/// Until the instance has unloaded it, what a lost answer has marked is on no wheel.
#[tokio::test(start_paused = true)]
async fn unload_that_failed_is_made_again() {
    let store = Faulty::new(Memory::new());
    let (timers, mut claims) = start(store.clone()).await;
    store.set_losing(Some("write"));
    let set = set(&timers, "a", SECOND * 5).await;
    set.expect_err("its answer is lost");
    store.set_losing(None);
    store.set_failing(Some("unload"));
    assert!(timeout(SECOND * 3, claims.recv()).await.is_err());
    store.set_failing(None);
    let claim = next_within(&mut claims, SECOND * 5).await;
    claim.ack().await.expect("it is held");
}

/// The first load says the name, and so does the first one under another id.
#[tokio::test(start_paused = true)]
async fn instance_has_its_name_under_each_of_its_ids() {
    let store = Faulty::new(Memory::new());
    let builder = orders().name("mailer");
    let started = builder.start(&TimerWheel::new(), store.clone()).await;
    let (timers, _claims) = started.expect("it starts");
    let own = async || {
        let members = timers.admin().instances().await.expect("it looks");
        let own = members.into_iter().find(|member| member.is_own);
        own.expect("it is there").instance
    };
    let first = own().await;
    store.set_failing(Some("load"));
    tokio::time::sleep(SECOND * 3).await;
    store.set_failing(None);
    tokio::time::sleep(SECOND * 3).await;
    let later = own().await;
    assert_ne!(first.id, later.id);
    for instance in [first, later] {
        assert_eq!(instance.name.as_deref(), Some("mailer"));
    }
}

#[tokio::test(start_paused = true)]
async fn empty_name_is_none_and_a_long_one_is_cut() {
    let long = "ä".repeat(300);
    for (name, shown) in [("", None), (&*long, Some("ä".repeat(200)))] {
        let builder = orders().name(name);
        let started = builder.start(&TimerWheel::new(), Memory::new()).await;
        let (timers, _claims) = started.expect("it starts");
        let members = timers.admin().instances().await.expect("it looks");
        assert_eq!(members[0].instance.name, shown);
    }
}

/// Rule 5 of ends. The store may never let go of the key.
#[tokio::test(start_paused = true)]
async fn release_of_a_locked_timer_is_given_up_with_its_lease() {
    let store = Faulty::new(Memory::new());
    let lease = SECOND * 10;
    let started = orders()
        .lease(lease)
        .start(&TimerWheel::new(), store.clone())
        .await;
    let (timers, mut claims) = started.expect("it starts");
    set_many(&timers, 1).await;
    let claim = next(&mut claims).await;
    store.set_locked(true);
    drop(claim);
    timers.shutdown().await;
    let calls_in = async |time| {
        let before = store.calls();
        tokio::time::sleep(time).await;
        store.calls() - before
    };
    assert!(calls_in(lease / 2).await > 0, "it is tried again");
    tokio::time::sleep(lease).await;
    assert_eq!(calls_in(HOUR).await, 0, "the lease has ended");
}

/// The wait between two tries had no bound: after an hour without store a timer came half an hour
/// late.
#[tokio::test(start_paused = true)]
async fn fires_soon_after_a_long_outage() {
    let store = Faulty::new(Memory::new());
    let (timers, mut claims) = start(store.clone()).await;
    set(&timers, "a", SECOND * 5).await.expect("it is set");
    let away = async {
        tokio::time::sleep(SECOND * 4).await;
        store.set_away(true);
        tokio::time::sleep(HOUR).await;
        store.set_away(false);
        Instant::now()
    };
    let (back, claim) = tokio::join!(away, next(&mut claims));
    let late = back.elapsed();
    assert!(late <= SECOND * 2, "{late:?}");
    claim.ack().await.expect("it is held");
}

/// A call for another end than the claim has had says that the claim is lost.
#[tokio::test(start_paused = true)]
async fn claim_that_has_ended_otherwise_is_lost() {
    let store = Faulty::new(Memory::new());
    let (timers, mut claims) = start(store.clone()).await;
    for acked_first in [true, false] {
        set_many(&timers, 1).await;
        let claim = next(&mut claims).await;
        store.set_losing(Some("settle"));
        let first = if acked_first {
            claim.ack().await
        } else {
            claim.retry_after(HOUR).await
        };
        assert!(first.is_err_and(|error| error.may_pass()));
        store.set_losing(None);
        let second = if acked_first {
            claim.retry_after(HOUR).await
        } else {
            claim.ack().await
        };
        assert!(matches!(second, Err(Error::Lost { .. })), "{second:?}");
        let waits = timers.deadline("0").await.expect("it reads").is_some();
        assert_eq!(waits, !acked_first);
    }
}

/// The same while the first call is under way, whether it is answered late or not at all.
#[tokio::test(start_paused = true)]
async fn claim_that_ends_otherwise_meanwhile_is_lost() {
    for slow in [SECOND * 4, SECOND * 20] {
        for acked_first in [true, false] {
            let store = Faulty::new(Memory::new());
            let (timers, mut claims) = start(store.clone()).await;
            set_many(&timers, 2).await;
            let (other, claim) = (next(&mut claims).await, next(&mut claims).await);
            let end = async |acks| {
                if acks {
                    claim.ack().await
                } else {
                    claim.retry_after(HOUR).await
                }
            };
            store.set_slow("settle", slow);
            let both = async {
                tokio::time::sleep(SECOND).await;
                let first = end(acked_first).await;
                assert!(matches!(first, Err(Error::Timeout { .. })), "{first:?}");
                store.set_slow("settle", Duration::ZERO);
                end(!acked_first).await
            };
            let (_, second) = tokio::join!(other.ack(), both);
            assert!(matches!(second, Err(Error::Lost { .. })), "{second:?}");
            let waits = timers.deadline(&claim.key).await.expect("it reads");
            assert_eq!(waits.is_some(), !acked_first);
        }
    }
}
