//! One instance: rows on its wheel, leases, hints, retries.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use futures_util::future::join_all;
use tickwheel_durable::{Backoff, Claim, Error, Memory, Moved, Removed, Retry};
use tickwheel_durable_conformance::Faulty;
use tokio::time::{Instant, sleep, timeout};

use support::{HOUR, SECOND, next, set, start};

mod support;

/// Rows that went stayed on the wheel until their old deadlines, and took up the room for others.
#[tokio::test(start_paused = true)]
async fn rows_that_go_leave_the_wheel_at_once() {
    let (timers, _claims) = start(Memory::new(), |b| b).await;
    for key in ["removed", "moved", "set again"] {
        set(&timers, key, SECOND * 20).await;
    }
    assert_eq!(timers.metrics().on_wheel, 3);
    let removed = timers.remove_timer("removed").await;
    assert_eq!(removed, Ok(Removed::Done(0)));
    let moved = timers.move_timer("moved", HOUR).await;
    assert_eq!(moved, Ok(Moved::Done));
    set(&timers, "set again", HOUR).await;
    assert_eq!(timers.metrics().on_wheel, 0);
}

/// Hints were not heard, and a near timer waited for the next poll.
#[tokio::test(start_paused = true)]
async fn near_deadline_of_another_instance_needs_no_poll() {
    let store = Memory::new();
    let (_claimant, mut claims) = start(store.clone(), |b| b.poll(SECOND * 10)).await;
    let (writer, writers) = start(store, |b| b).await;
    writers.shutdown().await;
    for number in 0..5 {
        // The hint of the one before must not be the one that is heard.
        let quiet = timeout(SECOND * 3, claims.recv()).await;
        assert!(quiet.is_err());
        let began = Instant::now();
        set(&writer, &number.to_string(), SECOND).await;
        next(&mut claims).await.ack().await.expect("it is held");
        let took = began.elapsed();
        assert!(took < SECOND + SECOND / 50, "{took:?}");
    }
}

/// Each load of an instance is its sign of life, and the next one is up to a tenth later than a
/// poll.
#[tokio::test(start_paused = true)]
async fn rows_of_a_living_instance_are_not_loaded_by_another() {
    let store = Memory::new();
    let (timers, _claims) = start(store.clone(), |b| b).await;
    let (other, mut others) = start(store, |b| b).await;
    for number in 0..10 {
        set(&timers, &number.to_string(), SECOND * 25).await;
    }
    assert!(timeout(SECOND * 23, others.recv()).await.is_err());
    assert_eq!(
        (timers.metrics().on_wheel, other.metrics().on_wheel),
        (10, 0)
    );
    assert_eq!(other.metrics().loaded, 0);
}

/// A program that takes claims quickly has some ahead of it; one call of the store for each would
/// be 10 s.
#[tokio::test(start_paused = true)]
async fn quick_program_does_not_wait_for_the_store_each_time() {
    let store = Faulty::new(Memory::new());
    let (timers, mut claims) = start(store.clone(), |b| b).await;
    for number in 0..1_000 {
        set(&timers, &number.to_string(), SECOND * 5).await;
    }
    sleep(SECOND * 5).await;
    store.set_delay(SECOND / 100);
    let began = Instant::now();
    let mut held = Vec::new();
    for _ in 0..1_000 {
        held.push(next(&mut claims).await);
    }
    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
}

/// The lease is counted from before the store was asked: the program never believes in more than it
/// has.
#[tokio::test(start_paused = true)]
async fn lease_remaining_is_no_more_than_the_store_grants() {
    let store = Faulty::new(Memory::new());
    let (timers, mut claims) = start(store.clone(), |b| b.lease(SECOND * 12)).await;
    set(&timers, "a", SECOND).await;
    store.set_delay(SECOND * 2);
    let claim = next(&mut claims).await;
    for how in ["fired", "extended", "renewed"] {
        store.set_delay(SECOND * 2);
        match how {
            "extended" => claim.extend(SECOND * 12).await.expect("it is held"),
            "renewed" => {
                let _renewing = claim.auto_renew();
                while timers.metrics().renewed == 0 {
                    sleep(SECOND / 10).await;
                }
            }
            _ => {}
        }
        let remaining = claim.lease_remaining();
        store.set_delay(Duration::ZERO);
        let in_flight = timers.admin().in_flight(None, 1).await.expect("it lists");
        let until = in_flight[0]
            .in_flight
            .as_ref()
            .expect("it is in flight")
            .lease_until;
        let now: SystemTime = timers.counts().await.expect("it counts").now.into();
        let granted = until.expect("it ends").duration_since(now);
        let granted = granted.expect("it has not ended");
        assert!(remaining <= granted, "{how}: {remaining:?} of {granted:?}");
        assert!(remaining >= SECOND * 9, "{how}: {remaining:?}");
    }
    claim.ack().await.expect("it is held");
}

/// A claim that its renewal and its acknowledgement find lost is lost once.
#[tokio::test(start_paused = true)]
async fn claim_is_counted_as_lost_once() {
    let memory = Memory::new();
    let store = Faulty::new(memory.clone());
    let (timers, mut claims) = start(store.clone(), |b| {
        b.lease(SECOND * 8).call_timeout(SECOND * 20)
    })
    .await;
    let (_other, mut others) = start(memory, |b| b).await;
    set(&timers, "a", SECOND).await;
    let claim = next(&mut claims).await;
    let again = next(&mut others).await;
    assert_eq!(again.attempt, 2, "its lease has ended");
    store.set_delay(SECOND * 4);
    let _renewing = claim.auto_renew();
    // A renewal is under way.
    sleep(SECOND * 2).await;
    let token = claim.token();
    assert_eq!(claim.ack().await, Err(Error::Lost { token }));
    let metrics = timers.metrics();
    assert_eq!((metrics.lost, metrics.unsettled), (1, 0));
    again.ack().await.expect("it is held");
}

/// After an acknowledgement that failed the claim is held, and so it is renewed.
#[tokio::test(start_paused = true)]
async fn claim_is_renewed_after_an_acknowledgement_that_failed() {
    let store = Faulty::new(Memory::new());
    let (timers, mut claims) = start(store.clone(), |b| b.lease(SECOND * 2)).await;
    set(&timers, "a", SECOND).await;
    let claim = next(&mut claims).await;
    let _renewing = claim.auto_renew();
    store.set_failing(Some("settle"));
    assert!(matches!(claim.ack().await, Err(Error::Store(_))));
    store.set_failing(None);
    assert!(timeout(SECOND * 20, claims.recv()).await.is_err());
    assert!(claim.lease_remaining() >= SECOND);
    assert_eq!(timers.metrics().store_errors, 1);
    assert_eq!(timers.metrics().slow_handlers, 0, "a guard is no handler");
    claim.ack().await.expect("it is held");
    assert_eq!(timers.metrics().lost, 0);
}

/// Once the lease is over, a claim that is gone was not ended by a try without a response:
/// another instance may have had it since.
#[tokio::test(start_paused = true)]
async fn claim_that_another_instance_has_ended_is_lost() {
    let memory = Memory::new();
    let store = Faulty::new(memory.clone());
    let (timers, mut claims) = start(store.clone(), |b| b.lease(SECOND * 2)).await;
    set(&timers, "a", SECOND).await;
    let claim = next(&mut claims).await;
    store.set_failing(Some("settle"));
    assert!(matches!(claim.ack().await, Err(Error::Store(_))));
    claims.shutdown().await;
    let (_other, mut others) = start(memory, |b| b).await;
    let again = next(&mut others).await;
    assert_eq!(again.attempt, 2);
    again.ack().await.expect("it is held");
    store.set_failing(None);
    let token = claim.token();
    assert_eq!(claim.ack().await, Err(Error::Lost { token }));
    assert_eq!(timers.metrics().lost, 1);
}

/// One that is dropped before it was sent is not sent. Its claim makes up for it.
#[tokio::test(start_paused = true)]
async fn acknowledgement_that_is_given_up_is_made_when_the_claim_is_dropped() {
    let (timers, mut claims) = start(Memory::new(), |b| b).await;
    set(&timers, "a", SECOND).await;
    let claim = next(&mut claims).await;
    assert!(claim.ack().now_or_never().is_none());
    drop(claim);
    let again = timeout(HOUR, claims.recv()).await;
    assert!(again.is_err(), "{again:?}");
    let counts = timers.counts().await.expect("it counts");
    assert_eq!((counts.waiting, counts.in_flight), (0, 0));
}

/// A claim that is settled holds no place, though the program has not dropped it yet.
#[tokio::test(start_paused = true)]
async fn settled_claim_makes_room_before_it_is_dropped() {
    let (timers, mut claims) = start(Memory::new(), |b| b.capacity(1)).await;
    set(&timers, "a", SECOND).await;
    set(&timers, "b", SECOND * 2).await;
    let first = next(&mut claims).await;
    first.ack().await.expect("it is held");
    let second = timeout(SECOND * 10, claims.recv()).await;
    let second = second.expect("it comes").expect("the stream goes on");
    assert_eq!((&*first.key, &*second.key), ("a", "b"));
    second.ack().await.expect("it is held");
}

/// A renewal may fail some times before the lease ends.
#[tokio::test(start_paused = true)]
async fn lease_outlives_renewals_that_fail_for_a_third_of_it() {
    let store = Faulty::new(Memory::new());
    let (timers, mut claims) = start(store.clone(), |b| b.lease(SECOND * 9)).await;
    let outages = async {
        for _ in 0..1_000 {
            sleep(SECOND * 5).await;
            store.set_failing(Some("settle"));
            sleep(SECOND * 3).await;
            store.set_failing(None);
        }
    };
    set(&timers, "a", SECOND).await;
    let handled = Mutex::new(0);
    let handle = |_| async {
        *handled.lock().expect("it is free") += 1;
        sleep(SECOND * 120).await;
        Ok(())
    };
    tokio::select! {
        () = claims.dispatch(4, handle) => panic!("the stream goes on"),
        () = outages => {}
        () = sleep(SECOND * 200) => {}
    }
    assert_eq!(*handled.lock().expect("it is free"), 1);
    assert_eq!(timers.metrics().lost, 0);
}

/// An instance tried again half an hour after it was back, or ten
/// times in each poll.
#[tokio::test(start_paused = true)]
async fn asks_about_once_for_each_poll_while_the_store_is_away() {
    let store = Faulty::new(Memory::new());
    let (timers, mut claims) = start(store.clone(), |b| b).await;
    set(&timers, "a", SECOND * 5).await;
    store.set_away(true);
    assert!(timeout(HOUR, claims.recv()).await.is_err());
    let before = store.calls();
    assert!(timeout(HOUR, claims.recv()).await.is_err());
    let calls = store.calls() - before;
    // A fire, and what was loaded to be given back.
    assert!((3_000..=7_300).contains(&calls), "{calls} calls in an hour");
    store.set_away(false);
    let began = Instant::now();
    next(&mut claims).await.ack().await.expect("it is held");
    assert!(began.elapsed() < SECOND * 3, "{:?}", began.elapsed());
}

/// A call of the store that fails is not repeated forever once the claims have ended.
#[tokio::test(start_paused = true)]
async fn shuts_down_while_fires_fail() {
    let store = Faulty::new(Memory::new());
    let (timers, mut claims) = start(store.clone(), |b| b).await;
    set(&timers, "a", SECOND).await;
    store.set_failing(Some("fire"));
    assert!(timeout(SECOND * 10, claims.recv()).await.is_err());
    let fires = timers.metrics().fire_batches.count;
    assert!((5..=20).contains(&fires), "{fires} in ten polls");
    let shutdown = timeout(SECOND * 10, timers.shutdown()).await;
    assert!(shutdown.is_ok(), "it still fires");
    assert!(claims.recv().await.is_none());
    assert!(!timers.admin().pending(None, 1).await.expect("it lists")[0].loaded);
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_the_wait_for_a_claim() {
    let (timers, mut claims) = start(Memory::new(), |b| b).await;
    let waiting = tokio::spawn(async move { claims.recv().await.is_none() });
    sleep(SECOND).await;
    timers.shutdown().await;
    let ended = timeout(SECOND, waiting).await.expect("it is told");
    assert!(ended.expect("it does not panic"));
}

/// `lateness` is about deliveries, not about how long handlers take to succeed.
#[tokio::test(start_paused = true)]
async fn only_first_deliveries_count_as_late() {
    let (timers, mut claims) = start(Memory::new(), |b| b).await;
    set(&timers, "a", SECOND).await;
    for attempt in 1..4 {
        let claim = next(&mut claims).await;
        assert_eq!(claim.attempt, attempt);
        sleep(SECOND).await;
        drop(claim);
    }
    next(&mut claims).await.ack().await.expect("it is held");
    let metrics = timers.metrics();
    assert_eq!((metrics.lateness.count(), metrics.redelivered), (1, 3));
    assert!(
        metrics.lateness.max() < Duration::from_millis(10),
        "{metrics:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn panics_are_a_backoff_apart() {
    let backoff = Backoff::from_fn(|attempt| SECOND * attempt.min(20));
    let (timers, mut claims) = start(Memory::new(), |b| b.backoff(backoff)).await;
    set(&timers, "a", Duration::ZERO).await;
    let began = Instant::now();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let handle = |_| {
        let seconds = began.elapsed().as_secs();
        seen.lock().expect("it is free").push(seconds);
        async { panic!("the handler panics, as the test wants") }
    };
    let ended = timeout(SECOND * 200, claims.dispatch(4, handle)).await;
    assert!(ended.is_err());
    let expected = [
        0, 1, 3, 6, 10, 15, 21, 28, 36, 45, 55, 66, 78, 91, 105, 120, 136, 153, 171, 190,
    ];
    assert_eq!(*seen.lock().expect("it is free"), expected);
}

/// Timers that an instance sets are marked as its own only while it has room for them.
#[tokio::test(start_paused = true)]
async fn near_timers_beyond_the_room_are_left_to_others() {
    let (timers, _claims) = start(Memory::new(), |b| b.capacity(1)).await;
    for number in 0..1_100 {
        set(&timers, &number.to_string(), SECOND * 25).await;
    }
    assert_eq!(timers.metrics().on_wheel, 1_024);
    let pending = timers.admin().pending(None, 2_000).await;
    let pending = pending.expect("it lists").into_iter();
    assert_eq!(pending.filter(|entry| !entry.loaded).count(), 76);
}

/// A timer that falls due within the window is on the wheel before that, though the program asks
/// for one claim at a time.
#[tokio::test(start_paused = true)]
async fn near_rows_are_loaded_before_they_are_due() {
    let store = Memory::new();
    let (writer, writers) = start(store.clone(), |b| b).await;
    writers.shutdown().await;
    set(&writer, "due", Duration::ZERO).await;
    for number in 0..100 {
        set(&writer, &number.to_string(), SECOND * 20).await;
    }
    let (timers, mut claims) = start(store, |b| b).await;
    let claim = next(&mut claims).await;
    assert!(timeout(SECOND * 3, claims.recv()).await.is_err());
    assert_eq!(timers.metrics().on_wheel, 100);
    claim.ack().await.expect("it is held");
}

/// A row that is due when it is set or put back is fired at once, not at the next poll.
#[tokio::test(start_paused = true)]
async fn what_is_due_at_once_needs_no_poll() {
    let (timers, mut claims) = start(Memory::new(), |b| b.poll(SECOND * 10)).await;
    for key in ["a", "b", "c"] {
        assert!(timeout(SECOND * 3, claims.recv()).await.is_err());
        let began = Instant::now();
        set(&timers, key, Duration::ZERO).await;
        let claim = next(&mut claims).await;
        claim.retry_after(Duration::ZERO).await.expect("it is held");
        next(&mut claims).await.ack().await.expect("it is held");
        assert!(began.elapsed() < SECOND / 20, "{:?}", began.elapsed());
    }
}

/// However quick its handlers have been, no more claims wait for them than run at once.
#[tokio::test(start_paused = true)]
async fn few_claims_are_ahead_of_quick_handlers() {
    let (timers, mut claims) = start(Memory::new(), |b| b).await;
    for number in 0..1_000 {
        set(&timers, &number.to_string(), SECOND).await;
    }
    let mut handled = 0;
    let handle = |_| {
        handled += 1;
        let hangs = handled > 200;
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    };
    let ended = timeout(SECOND * 5, claims.dispatch(4, handle)).await;
    assert!(ended.is_err());
    let claimed = timers.metrics().claimed;
    assert!((204..=208).contains(&claimed), "{claimed}");
}

#[tokio::test(start_paused = true)]
async fn extended_lease_is_what_remains() {
    let (timers, mut claims) = start(Memory::new(), |b| b.lease(SECOND * 10)).await;
    set(&timers, "a", SECOND).await;
    let claim = next(&mut claims).await;
    claim.extend(HOUR).await.expect("it is held");
    assert!(claim.lease_remaining() > SECOND * 3_500);
    claim.extend(Duration::MAX).await.expect("it is held");
    let endless = timers.admin().get("a").await.expect("it reads");
    let endless = endless.and_then(|entry| entry.in_flight);
    assert_eq!(endless.expect("it is in flight").lease_until, None);
    claim.extend(SECOND).await.expect("it is held");
    assert!(claim.lease_remaining() <= SECOND);
    // It ends then, and an acknowledgement that comes too late is counted.
    let again = next(&mut claims).await;
    let token = claim.token();
    assert_eq!(claim.ack().await, Err(Error::Lost { token }));
    assert_eq!(timers.metrics().lost, 1);
    again.ack().await.expect("it is held");
}

#[tokio::test(start_paused = true)]
async fn retries_come_after_the_delay_that_the_handler_asks_for() {
    let (timers, mut claims) = start(Memory::new(), |b| b).await;
    set(&timers, "a", SECOND).await;
    let began = Instant::now();
    let seen = Mutex::new(Vec::new());
    let handle = |claim: Claim<String, u32>| {
        let seconds = began.elapsed().as_secs();
        seen.lock().expect("it is free").push(seconds);
        async move {
            match claim.attempt {
                1 => Err(Retry::after(SECOND * 7)),
                2 => Err(Retry::after(Duration::ZERO)),
                3 => Err(Retry::after(SECOND * 30)),
                _ => Ok(()),
            }
        }
    };
    let ended = timeout(SECOND * 100, claims.dispatch(4, handle)).await;
    assert!(ended.is_err());
    assert_eq!(*seen.lock().expect("it is free"), [1, 8, 8, 38]);
}

/// Calls made at once share a batch, and each is told of its own key.
#[tokio::test(start_paused = true)]
async fn each_of_many_callers_gets_its_own_answer() {
    let (timers, _claims) = start(Memory::new(), |b| b).await;
    let keys: Vec<_> = (0..100_u32).map(|number| number.to_string()).collect();
    for (key, number) in keys.iter().zip(0..).step_by(2) {
        let set = timers.set_timer(key, &number, HOUR).await;
        set.expect("it is set");
    }
    let removals = join_all(keys.iter().map(|key| timers.remove_timer(key))).await;
    for (removed, number) in removals.into_iter().zip(0..) {
        let expected = match number % 2 {
            0 => Removed::Done(number),
            _ => Removed::Absent,
        };
        assert_eq!(removed, Ok(expected));
    }
    assert!(timers.metrics().write_batches.max >= 100, "they share one");
}

/// A load that marked rows and was answered too late left them to no instance.
#[tokio::test(start_paused = true)]
async fn rows_of_a_load_that_timed_out_are_delivered() {
    let memory = Memory::new();
    let store = Faulty::new(memory.clone());
    let (_timers, mut claims) = start(store.clone(), |b| b.call_timeout(SECOND * 2)).await;
    let (writer, writers) = start(memory, |b| b).await;
    writers.shutdown().await;
    // A call takes effect after a second and a half, and is given up after two.
    store.set_delay(SECOND * 3);
    for number in 0..20 {
        set(&writer, &number.to_string(), SECOND).await;
    }
    assert!(timeout(SECOND * 10, claims.recv()).await.is_err());
    store.set_delay(Duration::ZERO);
    for _ in 0..20 {
        let claim = timeout(SECOND * 10, claims.recv()).await;
        let claim = claim.expect("it comes").expect("the stream goes on");
        claim.ack().await.expect("it is held");
    }
}

#[tokio::test(start_paused = true)]
async fn purge_goes_on_until_nothing_is_left() {
    let (timers, _claims) = start(Memory::new(), |b| b).await;
    let keys: Vec<_> = (0..1_200).map(|number| number.to_string()).collect();
    let set = keys.iter().map(|key| (key, &0, HOUR));
    timers.set_many(set).await.expect("they are set");
    assert_eq!(timers.admin().purge().await, Ok(1_200));
    assert_eq!(timers.counts().await.expect("it counts").waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn no_more_claims_are_received_than_asked_for() {
    let (timers, mut claims) = start(Memory::new(), |b| b).await;
    for number in 0..10 {
        set(&timers, &number.to_string(), Duration::ZERO).await;
    }
    let mut received = Vec::new();
    while received.len() < 10 {
        let before = received.len();
        let count = claims.recv_many(&mut received, 3).await;
        assert!((1..=3).contains(&count), "{count}");
        assert_eq!(received.len(), before + count);
    }
}

/// A compiler cannot tell of every future that is `Send` that it is.
#[tokio::test(start_paused = true)]
async fn calls_of_operators_can_be_spawned() {
    let (timers, _claims) = start(Memory::new(), |b| b).await;
    let calls = tokio::spawn(async move {
        let admin = timers.admin();
        for key in ["a", "b"].map(str::to_owned) {
            admin.retry_dead_key(&key).await?;
            admin.discard_dead_key(&key).await?;
        }
        for entry in admin.dead(None, 1).await? {
            let token = entry.dead.expect("it is dead").token;
            admin.retry_dead(token).await?;
            admin.discard_dead(token).await?;
        }
        admin.retry_all_dead().await?;
        admin.discard_all_dead().await?;
        admin.instances().await?;
        admin.purge().await
    });
    assert_eq!(calls.await.expect("it does not panic"), Ok(0));
}
