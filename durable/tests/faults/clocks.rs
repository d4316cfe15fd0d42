//! The store's clock, which differs from that of the host, or steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use tickwheel::TimerWheel;
use tickwheel_durable::store::{Namespace, PrefixChange, StoreError};
use tickwheel_durable::{Change, Changed, DurableTimers, Error, Memory};
use tickwheel_durable_conformance::Faulty;
use tokio::time::{Instant, timeout};

use super::{HOUR, SECOND, orders, set, start};

#[tokio::test(start_paused = true)]
async fn goes_by_the_clock_of_the_store() {
    for (ahead, behind) in [(HOUR, Duration::ZERO), (Duration::ZERO, HOUR)] {
        let store = Memory::new();
        store.set_clock(SystemTime::now() + ahead - behind);
        let (timers, mut claims) = start(store).await;
        let began = Instant::now();
        set(&timers, "a", SECOND * 90).await.expect("it is set");
        let claim = claims.recv().await.expect("it comes");
        let took = began.elapsed();
        assert!((SECOND * 90..SECOND * 91).contains(&took), "{took:?}");
        claim.ack().await.expect("it is held");
    }
}

#[tokio::test(start_paused = true)]
async fn follows_a_clock_that_steps() {
    let store = Memory::new();
    let (timers, mut claims) = start(store.clone()).await;
    let now = SystemTime::now();
    store.set_clock(now);
    set(&timers, "near", SECOND * 20).await.expect("it is set");
    set(&timers, "far", HOUR * 2).await.expect("it is set");
    tokio::time::sleep(SECOND * 3).await;
    // Back by an hour: it is later by as much.
    store.set_clock(now - HOUR);
    let early = timeout(HOUR, claims.recv()).await;
    assert!(early.is_err(), "{early:?}");
    let claim = claims.recv().await.expect("it comes");
    assert_eq!(claim.key, "near");
    claim.ack().await.expect("it is held");
    // Forward to ten seconds before the other's deadline.
    store.set_clock(now + HOUR * 2 - SECOND * 10);
    let began = Instant::now();
    let claim = claims.recv().await.expect("it comes");
    let took = began.elapsed();
    assert_eq!(claim.key, "far");
    assert!((SECOND * 10..SECOND * 12).contains(&took), "{took:?}");
}

/// Each write carries the store's time after which its caller has given up. An instance that only
/// writes went by the former time for a minute, and the store refused all its writes.
#[tokio::test(start_paused = true)]
async fn writer_learns_of_a_step_by_one_write_that_is_refused() {
    let store = Memory::new();
    let (timers, claims) = start(store.clone()).await;
    let now = SystemTime::now();
    store.set_clock(now);
    claims.shutdown().await;
    set(&timers, "before", HOUR).await.expect("it is set");
    store.set_clock(now + HOUR);
    let refused = set(&timers, "after", HOUR).await;
    assert!(
        matches!(refused, Err(Error::Store(StoreError::Late { .. }))),
        "{refused:?}"
    );
    set(&timers, "after", HOUR).await.expect("it is set");
    let due = timers.deadline("after").await.expect("it reads");
    assert!(due.expect("it waits") >= now + HOUR * 2);
}

/// It hears the time from no load, so it asks for it once a minute: else what its callers gave up
/// before would still take effect an hour later.
#[tokio::test(start_paused = true)]
async fn writer_learns_of_a_step_back_within_a_minute() {
    let memory = Memory::new();
    let store = Faulty::new(memory.clone());
    let (timers, claims) = start(store.clone()).await;
    let now = SystemTime::now();
    memory.set_clock(now);
    claims.shutdown().await;
    set(&timers, "before", HOUR).await.expect("it is set");
    memory.set_clock(now - HOUR);
    tokio::time::sleep(SECOND * 61).await;
    // Its callers wait for five seconds.
    store.set_late(Some(("write", SECOND * 6)));
    let given_up = set(&timers, "given up", HOUR).await;
    assert!(given_up.is_err(), "{given_up:?}");
    store.set_late(None);
    tokio::time::sleep(SECOND * 10).await;
    assert_eq!(timers.deadline("given up").await, Ok(None));
    set(&timers, "after", HOUR).await.expect("it is set");
}

/// Its first write after a minute asks, and the next ones know the time.
#[tokio::test(start_paused = true)]
async fn writer_asks_for_the_time_no_more_than_once_a_minute() {
    let store = Faulty::new(Memory::new());
    let (timers, claims) = start(store.clone()).await;
    claims.shutdown().await;
    tokio::time::sleep(SECOND * 600).await;
    let before = store.calls();
    set_numbered(&timers, 20, HOUR).await;
    let calls = store.calls() - before;
    assert!(calls <= 22, "{calls} calls for 20 writes");
}

/// An operator's change that the store gets to when its caller has given up changes nothing.
#[tokio::test(start_paused = true)]
async fn change_of_an_operator_is_refused_when_it_is_late() {
    let memory = Memory::new();
    let store = Faulty::new(memory.clone());
    let (timers, _claims) = start(store.clone()).await;
    for key in ["a 1", "a 2"] {
        set(&timers, key, HOUR).await.expect("it is set");
    }
    let space = Namespace::new("orders").expect("it is a name");
    for change in [Change::Remove, Change::Run, Change::MoveIn(HOUR * 2)] {
        let mut changes = PrefixChange::new("\"a", change.clone()).within(SECOND * 2);
        // The time that it takes to ask for the store's time counts, too.
        for delay in [SECOND * 3, SECOND * 8 / 5] {
            store.set_delay(delay);
            let late = changes.step(&store, &space).await;
            assert!(matches!(late, Err(StoreError::Late { .. })), "{late:?}");
        }
        assert_eq!(timers.counts().await.map(|counts| counts.waiting), Ok(2));
        store.set_delay(Duration::ZERO);
        let changed = changes.step(&store, &space).await;
        assert_eq!(changed.map(|changed| changed.rows), Ok(2), "{change:?}");
        for key in ["a 1", "a 2"] {
            set(&timers, key, HOUR).await.expect("it is set");
        }
    }
    // One that goes by a clock which has stepped is late once.
    memory.set_clock(SystemTime::now() + HOUR * 24);
    let admin = timers.admin();
    for is_late in [true, false] {
        let changed = admin.change_key("a 1", Change::Remove).await;
        assert_eq!(changed == Ok(Changed::Done), !is_late, "{changed:?}");
    }
}

/// An operator's caller gives up after the call timeout.
#[tokio::test(start_paused = true)]
async fn change_of_a_prefix_has_no_effect_after_it_has_timed_out() {
    let store = Faulty::new(Memory::new());
    let instance = orders().call_timeout(SECOND);
    let started = instance.start(&TimerWheel::new(), store.clone()).await;
    let (timers, _claims) = started.expect("it starts");
    set(&timers, "a 1", HOUR).await.expect("it is set");
    store.set_late(Some(("write", SECOND * 2)));
    let lost = timers.admin().change_prefix("\"a", Change::Remove).await;
    assert!(lost.is_err(), "{lost:?}");
    tokio::time::sleep(SECOND * 3).await;
    assert_eq!(timers.counts().await.map(|counts| counts.waiting), Ok(1));
}

#[tokio::test(start_paused = true)]
async fn run_of_a_prefix_leaves_alone_what_is_due() {
    let (timers, claims) = start(Memory::new()).await;
    claims.shutdown().await;
    for (key, delay) in [("a 1", SECOND), ("a 2", HOUR)] {
        set(&timers, key, delay).await.expect("it is set");
    }
    let overdue = timers.deadline("a 1").await;
    tokio::time::sleep(SECOND * 60).await;
    let changed = timers.admin().change_prefix("\"a", Change::Run).await;
    assert_eq!(changed.map(|changed| changed.rows), Ok(1));
    assert_eq!(timers.deadline("a 1").await, overdue);
}

/// Sets timers with keys that begin with `a `.
async fn set_numbered(timers: &DurableTimers<String, String>, count: usize, delay: Duration) {
    for number in 0..count {
        let key = format!("a {number}");
        set(timers, &key, delay).await.expect("it is set");
    }
}

/// The time limit is that of a step: a change of very many timers takes longer.
#[tokio::test(start_paused = true)]
async fn long_change_of_an_operator_is_not_late() {
    let store = Memory::new();
    let (timers, _claims) = start(store.clone()).await;
    set_numbered(&timers, 300, HOUR).await;
    let space = Namespace::new("orders").expect("it is a name");
    let mut changes = PrefixChange::new("\"a", Change::MoveIn(HOUR * 2)).within(SECOND * 2);
    let mut moved = 0;
    loop {
        let changed = changes.step(&store, &space).await.expect("it is in time");
        moved += changed.rows;
        if !changed.more {
            break;
        }
        tokio::time::sleep(SECOND * 3).await;
    }
    assert_eq!(moved, 300);
}

/// A change of very many timers that goes by a clock which has stepped is late once.
#[tokio::test(start_paused = true)]
async fn long_change_of_an_operator_goes_on_after_a_step_of_the_clock() {
    let store = Memory::new();
    let (timers, _claims) = start(store.clone()).await;
    set_numbered(&timers, 200, HOUR * 48).await;
    let space = Namespace::new("orders").expect("it is a name");
    let mut changes = PrefixChange::new("\"a", Change::Remove);
    let first = changes.step(&store, &space).await.expect("it is in time");
    assert!(first.more, "{first:?}");
    store.set_clock(SystemTime::now() + HOUR * 24);
    let late = changes.step(&store, &space).await;
    assert!(matches!(late, Err(StoreError::Late { .. })), "{late:?}");
    let rest = changes.step(&store, &space).await.expect("it is in time");
    assert_eq!(first.rows + rest.rows, 200);
}

/// How often a timer is handled if that takes half an hour, while the store's clock steps
/// forward by that much, and how many claims are lost. The lease is a minute.
async fn handled_across_a_step(step: Duration) -> (usize, u64) {
    let store = Memory::new();
    let (timers, mut claims) = start(store.clone()).await;
    let now = SystemTime::now();
    store.set_clock(now);
    set(&timers, "slow", Duration::ZERO)
        .await
        .expect("it is set");
    let handled = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&handled);
    let handling = claims.dispatch(4, move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        async {
            tokio::time::sleep(HOUR / 2).await;
            Ok(())
        }
    });
    let stepping = async {
        for minute in 1..30 {
            tokio::time::sleep(SECOND * 60).await;
            if minute == 10 {
                store.set_clock(now + SECOND * 600 + step);
            }
        }
        tokio::time::sleep(HOUR).await;
    };
    tokio::select! {
        () = handling => {}
        () = stepping => {}
    }
    let left = timers.counts().await.expect("it counts");
    assert_eq!((left.waiting, left.in_flight), (0, 0), "it is acknowledged");
    (handled.load(Ordering::Relaxed), timers.metrics().lost)
}

/// A renewed lease has half of its time left at least, so a shorter step ends none.
#[tokio::test(start_paused = true)]
async fn step_of_less_than_half_a_lease_ends_no_lease() {
    for step in [SECOND, SECOND * 15, SECOND * 29] {
        assert_eq!(handled_across_a_step(step).await, (1, 0), "{step:?}");
    }
}

/// A longer step ends leases while their handlers run: the timer is delivered once beside each, and
/// the former claim is lost.
#[tokio::test(start_paused = true)]
async fn step_of_more_than_a_lease_delivers_beside_a_handler() {
    for step in [SECOND * 61, HOUR] {
        assert_eq!(handled_across_a_step(step).await, (2, 1), "{step:?}");
    }
}
