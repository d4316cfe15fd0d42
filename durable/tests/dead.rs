//! Timers that fail: attempts, backoff, errors, dead timers, and the spans of handlers.

use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use tickwheel::TimerWheel;
use tickwheel_durable::{Backoff, Builder, Claim, Entry, Error, Memory, Retry, builder};
use tickwheel_durable_conformance::Faulty;
use tokio::time::{Instant, sleep, timeout};

use log::Log;
use support::{HOUR, SECOND, Timers, next, set, start};

#[path = "support/log.rs"]
mod log;
mod support;

async fn dead(timers: &Timers) -> Vec<Entry<String, u32>> {
    let dead = timers.admin().dead(None, 100).await;
    dead.expect("it lists")
}

/// The numbers of waiting, flying and dead timers.
async fn counts(timers: &Timers) -> (u64, u64, u64) {
    let counts = timers.counts().await.expect("it counts");
    (counts.waiting, counts.in_flight, counts.dead)
}

/// Sets a timer of another program, whose values are texts.
async fn set_text(builder: Builder<String, String>, store: &Memory) {
    let started = builder.start(&TimerWheel::new(), store.clone()).await;
    let (timers, claims) = started.expect("it starts");
    claims.shutdown().await;
    let set = timers.set_timer("a", &"a text".to_owned(), SECOND).await;
    set.expect("it is set");
}

async fn die(claim: Claim<String, u32>) {
    let failed = claim.fail(Retry::never("why")).await;
    failed.expect("it is held");
}

#[tokio::test(start_paused = true)]
async fn handlers_wait_for_the_backoff_and_die() {
    let log = Log::default();
    let _logging = log.capture();
    let backoff = Backoff::from_fn(|attempt| SECOND * 10 * attempt);
    let (timers, mut claims) = start(Memory::new(), |b| b.backoff(backoff).max_attempts(3)).await;
    set(&timers, "a", SECOND).await;
    let began = Instant::now();
    let seen = Mutex::new(Vec::new());
    let handle = |_: Claim<String, u32>| {
        seen.lock()
            .expect("it is free")
            .push(began.elapsed().as_secs());
        async {
            std::fs::read("/no/such/file")?;
            Ok(())
        }
    };
    assert!(timeout(HOUR, claims.dispatch(4, handle)).await.is_err());
    assert_eq!(*seen.lock().expect("it is free"), [1, 11, 31]);
    let dead = dead(&timers).await;
    assert_eq!((dead.len(), dead[0].attempt), (1, 3));
    let error = dead[0].error.as_deref().expect("it is kept");
    assert!(error.contains("No such file"), "{error}");
    assert_eq!(log.with(&["WARN", "a timer is dead", "\"a\"", error]), 1);
    assert_eq!(timers.metrics().dead, 1);
}

/// What another program has written is left to it for a time, and then dies.
#[tokio::test(start_paused = true)]
async fn timer_that_does_not_decode_shows_why() {
    let store = Memory::new();
    set_text(builder("orders"), &store).await;
    let (timers, mut claims) = start(store, |b| b.lease(SECOND * 10)).await;
    let reason = "invalid type: string";
    let shows = |entry: &Entry<String, u32>| {
        let error = entry.error.as_deref().unwrap_or_default();
        assert!(error.contains(reason), "{entry:?}");
    };
    assert!(timeout(SECOND * 5, claims.recv()).await.is_err());
    let left = timers.admin().get("a").await.expect("it reads");
    let left = left.expect("it waits");
    shows(&left);
    assert!(!left.loaded, "it is for others: {left:?}");
    assert!(timeout(SECOND * 30, claims.recv()).await.is_err());
    let dead = dead(&timers).await;
    assert_eq!(dead.len(), 1, "{dead:?}");
    shows(&dead[0]);
}

/// It is gone once it has fired, so the log is not to say that others get it.
#[tokio::test(start_paused = true)]
async fn timer_of_at_most_once_that_does_not_decode_is_logged_as_lost() {
    let log = Log::default();
    let _logging = log.capture();
    let store = Memory::new();
    set_text(builder("orders").at_most_once(), &store).await;
    let (timers, mut claims) = start(store, Builder::at_most_once).await;
    assert!(timeout(SECOND * 5, claims.recv()).await.is_err());
    assert_eq!(log.with(&["ERROR", "does not decode", "\"a\""]), 1);
    assert_eq!(log.with(&["left to other instances"]), 0);
    assert_eq!(timers.metrics().undecoded, 1);
    assert_eq!(counts(&timers).await, (0, 0, 0));
}

/// It was dead when a short lease was over, before other instances had polled.
#[tokio::test(start_paused = true)]
async fn timer_that_does_not_decode_is_left_for_three_polls() {
    let store = Memory::new();
    set_text(builder("orders"), &store).await;
    let poll = SECOND * 10;
    let (timers, mut claims) = start(store, |b| b.poll(poll).lease(SECOND)).await;
    let dispatch = claims.dispatch(1, |_| async { Ok(()) });
    let looking = async {
        while timers.metrics().undecoded == 0 {
            sleep(SECOND / 10).await;
        }
        sleep(SECOND * 29).await;
        assert_eq!(counts(&timers).await.2, 0, "others may know it");
        sleep(poll * 3).await;
        assert_eq!(counts(&timers).await, (0, 0, 1));
    };
    tokio::select! {
        () = dispatch => panic!("the stream goes on"),
        () = looking => {}
    }
}

/// With this setting the later sweeps are an hour apart.
#[tokio::test(start_paused = true)]
async fn first_sweep_comes_a_minute_after_the_start() {
    let store = Memory::new();
    let (timers, mut claims) = start(store.clone(), |b| b).await;
    set(&timers, "a", Duration::ZERO).await;
    die(next(&mut claims).await).await;
    claims.shutdown().await;
    store.set_clock(SystemTime::now() + HOUR * 9);
    let (timers, _claims) = start(store, |b| b.keep_dead(HOUR * 8)).await;
    sleep(SECOND * 50).await;
    assert_eq!(counts(&timers).await, (0, 0, 1));
    // A pause is up to a tenth longer.
    sleep(SECOND * 20).await;
    assert_eq!(counts(&timers).await, (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn claim_that_an_operator_discards_is_gone() {
    let (timers, mut claims) = start(Memory::new(), |b| b).await;
    set(&timers, "a", SECOND).await;
    let claim = next(&mut claims).await;
    let (admin, token) = (timers.admin(), claim.token());
    assert_eq!(admin.discard(token).await, Ok(()));
    assert_eq!(counts(&timers).await, (0, 0, 0));
    assert_eq!(admin.discard(token).await, Err(Error::Lost { token }));
    assert_eq!(admin.release(token).await, Err(Error::Lost { token }));
    assert_eq!(claim.ack().await, Err(Error::Lost { token }));
}

#[tokio::test(start_paused = true)]
async fn dead_timer_shows_when_it_died_and_is_discarded() {
    for by_token in [true, false] {
        let (timers, mut claims) = start(Memory::new(), |b| b).await;
        set(&timers, "a", SECOND).await;
        let claim = next(&mut claims).await;
        sleep(SECOND * 10).await;
        die(claim).await;
        let dead = dead(&timers).await;
        let death = dead[0].dead.as_ref().expect("it is dead");
        let lived = death.since.duration_since(dead[0].deadline);
        let lived = lived.expect("it was due before");
        assert!((SECOND * 10..SECOND * 11).contains(&lived), "{lived:?}");
        let admin = timers.admin();
        for rows in [1, 0] {
            if by_token {
                assert_eq!(admin.discard_dead(death.token).await, Ok(rows > 0));
            } else {
                assert_eq!(admin.discard_dead_key("a").await, Ok(rows));
            }
            assert_eq!(counts(&timers).await, (0, 0, 0));
        }
    }
}

/// Not those alone that died before the instance started.
#[tokio::test(start_paused = true)]
async fn dead_timers_are_discarded_again_and_again() {
    let keep = HOUR * 4;
    let (timers, mut claims) = start(Memory::new(), |b| b.keep_dead(keep)).await;
    for number in 0..3 {
        set(&timers, &number.to_string(), Duration::ZERO).await;
        die(next(&mut claims).await).await;
        sleep(HOUR * 3).await;
        assert_eq!(counts(&timers).await, (0, 0, 1), "it is kept");
        sleep(HOUR * 2).await;
        assert_eq!(counts(&timers).await, (0, 0, 0), "it is old");
    }
}

/// A store discards some hundreds at once, and half an hour passes between two sweeps.
#[tokio::test(start_paused = true)]
async fn sweep_discards_all_that_are_old() {
    const TIMERS: u64 = 600;
    let keep = HOUR * 4;
    let (timers, mut claims) = start(Memory::new(), |b| b.keep_dead(keep)).await;
    for number in 0..TIMERS {
        set(&timers, &number.to_string(), Duration::ZERO).await;
        die(next(&mut claims).await).await;
    }
    assert_eq!(counts(&timers).await, (0, 0, TIMERS));
    while counts(&timers).await == (0, 0, TIMERS) {
        sleep(SECOND * 60).await;
    }
    sleep(SECOND * 60).await;
    assert_eq!(counts(&timers).await, (0, 0, 0));
}

/// A handler's own delay counts between attempts, and not after the last one.
#[tokio::test(start_paused = true)]
async fn delay_of_the_handler_comes_before_the_backoff() {
    let (timers, mut claims) = start(Memory::new(), |b| b.max_attempts(2)).await;
    set(&timers, "a", SECOND).await;
    let began = Instant::now();
    let handle = |_: Claim<String, u32>| async { Err(Retry::after(SECOND * 30).because("busy")) };
    assert!(
        timeout(SECOND * 20, claims.dispatch(4, handle))
            .await
            .is_err()
    );
    let waiting = timers.admin().get("a").await.expect("it reads");
    let waiting = waiting.expect("it waits");
    assert_eq!(
        (waiting.attempt, waiting.error.as_deref()),
        (1, Some("busy"))
    );
    let is_dead = async {
        while timers.metrics().dead == 0 {
            sleep(SECOND / 10).await;
        }
    };
    tokio::select! {
        () = claims.dispatch(4, handle) => panic!("the stream goes on"),
        () = is_dead => {}
    }
    assert_eq!(began.elapsed().as_secs(), 31);
    assert_eq!(counts(&timers).await, (0, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn panics_and_timeouts_are_kept_as_errors() {
    let limit = SECOND * 5;
    let (timers, mut claims) =
        start(Memory::new(), |b| b.max_attempts(1).handler_timeout(limit)).await;
    set(&timers, "hangs", SECOND).await;
    set(&timers, "panics", SECOND * 2).await;
    let handle = |claim: Claim<String, u32>| async move {
        assert!(claim.key != "panics", "this one {}", claim.key);
        std::future::pending().await
    };
    assert!(timeout(HOUR, claims.dispatch(4, handle)).await.is_err());
    let errors: Vec<_> = dead(&timers)
        .await
        .into_iter()
        .map(|entry| (entry.key, entry.error))
        .collect();
    let error = |key: &str, text: &str| (Ok(key.to_owned()), Some(text.to_owned()));
    let panics = error("panics", "panicked: this one panics");
    assert_eq!(
        errors,
        [panics, error("hangs", "the handler took longer than 5s")]
    );
}

/// A limit counts for claims that are received, and for those that were dropped.
#[tokio::test(start_paused = true)]
async fn dropped_claims_count_as_attempts() {
    let log = Log::default();
    let _logging = log.capture();
    let (timers, mut claims) = start(Memory::new(), |b| b.max_attempts(2)).await;
    set(&timers, "a", SECOND).await;
    for attempt in 1..=2 {
        assert_eq!(next(&mut claims).await.attempt, attempt);
    }
    assert!(timeout(SECOND * 90, claims.recv()).await.is_err());
    assert_eq!(counts(&timers).await, (0, 0, 1));
    assert_eq!(log.with(&["WARN", "a timer is dead", "\"a\""]), 1);
    let retried = timers.admin().retry_all_dead().await;
    assert_eq!(retried, Ok(1));
    let claim = next(&mut claims).await;
    assert_eq!(claim.attempt, 1);
    claim.ack().await.expect("it is held");
}

/// Without a limit a timer that fails comes again until it succeeds.
#[tokio::test(start_paused = true)]
async fn attempts_are_limited_unless_told_otherwise() {
    for (is_limited, delivered, dead) in [(true, 25, 1), (false, 40, 0)] {
        let set_up = |b: Builder<_, _>| {
            let b = b.backoff(Backoff::fixed(SECOND));
            if is_limited { b } else { b.max_attempts(None) }
        };
        let (timers, mut claims) = start(Memory::new(), set_up).await;
        set(&timers, "a", SECOND).await;
        let handle = |claim: Claim<String, u32>| async move {
            match claim.attempt {
                40.. => Ok(()),
                _ => Err(Retry::backoff("not yet")),
            }
        };
        let ended = timeout(SECOND * 60, claims.dispatch(4, handle)).await;
        assert!(ended.is_err());
        assert_eq!(counts(&timers).await, (0, 0, dead));
        assert_eq!(timers.metrics().delivered, delivered);
    }
}

/// A lost claim cannot kill the timer that another instance has by now.
#[tokio::test(start_paused = true)]
async fn lost_claim_does_not_die() {
    let (timers, mut claims) = start(Memory::new(), |b| b.max_attempts(5).lease(SECOND * 2)).await;
    set(&timers, "a", SECOND).await;
    let lost = next(&mut claims).await;
    let again = next(&mut claims).await;
    let token = lost.token();
    let never = Retry::never("why");
    assert_eq!(lost.fail(never.clone()).await, Err(Error::Lost { token }));
    assert_eq!(counts(&timers).await, (0, 1, 0));
    again.fail(never.clone()).await.expect("it is held");
    assert_eq!(
        again.fail(never).await,
        Err(Error::Settled {
            token: again.token()
        })
    );
    assert_eq!(counts(&timers).await, (0, 0, 1));
    assert_eq!(timers.metrics().dead, 1);
}

/// Retries of all are those that are dead at the start: what dies again between two steps is not
/// retried without end.
#[tokio::test(start_paused = true)]
async fn retry_of_all_ends_though_they_die_again() {
    let store = Faulty::new(Memory::new());
    store.set_slow("change_dead", SECOND);
    let (timers, mut claims) = start(store, |b| b.max_attempts(1).capacity(2_000)).await;
    let keys: Vec<_> = (0..1_300).map(|number| number.to_string()).collect();
    let all = keys.iter().map(|key| (key, &0, SECOND));
    timers.set_many(all).await.expect("they are set");
    let handle = |_: Claim<String, u32>| async { Err(Retry::backoff("again")) };
    let work = async {
        while timers.metrics().dead < 1_300 {
            sleep(SECOND).await;
        }
        assert_eq!(timers.admin().retry_all_dead().await, Ok(1_300));
        while timers.metrics().dead < 2_600 {
            sleep(SECOND).await;
        }
        assert_eq!(timers.admin().discard_all_dead().await, Ok(1_300));
    };
    tokio::select! {
        () = claims.dispatch(64, handle) => panic!("the stream goes on"),
        done = timeout(HOUR, work) => done.expect("it ends"),
    }
    assert_eq!(counts(&timers).await, (0, 0, 0));
}

/// A store deletes some hundreds at once.
#[tokio::test(start_paused = true)]
async fn purge_deletes_all_that_are_dead() {
    let (timers, mut claims) = start(Memory::new(), |b| b).await;
    let keys: Vec<_> = (0..1_300).map(|number| number.to_string()).collect();
    let all = keys.iter().map(|key| (key, &0, SECOND));
    timers.set_many(all).await.expect("they are set");
    let handle = |_: Claim<String, u32>| async { Err(Retry::never("no")) };
    let ended = timeout(SECOND * 10, claims.dispatch(64, handle)).await;
    assert!(ended.is_err(), "the stream goes on");
    assert_eq!(counts(&timers).await, (0, 0, 1_300));
    assert_eq!(timers.admin().purge().await, Ok(1_300));
    assert_eq!(counts(&timers).await, (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn settings_out_of_bounds_are_named() {
    let wheel = TimerWheel::new();
    let start = async |b: tickwheel_durable::Builder<String, u32>| {
        let error = b.start(&wheel, Memory::new()).await;
        error.expect_err("it is out of bounds").to_string()
    };
    let error = start(builder("orders").max_attempts(0)).await;
    assert_eq!(
        error,
        "the number of attempts is 0; it must be from 1 to 1000000"
    );
    let error = start(builder("orders").keep_dead(Duration::ZERO)).await;
    assert!(error.contains("is 0ns; it must be from 1s to"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn handlers_run_in_a_span() {
    let log = Log::default();
    let _logging = log.capture();
    let (timers, mut claims) = start(Memory::new(), |b| b.backoff(Backoff::fixed(SECOND))).await;
    set(&timers, "a", SECOND).await;
    sleep(SECOND * 4).await;
    let handle = |claim: Claim<String, u32>| {
        tracing::info!("called");
        async move {
            sleep(SECOND).await;
            tracing::info!("awaited");
            match claim.attempt {
                1 => Err(Retry::backoff("no")),
                _ => Ok(()),
            }
        }
    };
    assert!(
        timeout(SECOND * 60, claims.dispatch(4, handle))
            .await
            .is_err()
    );
    for line in ["called", "awaited"] {
        for attempt in ["attempt=1", "attempt=2"] {
            let span = ["in handle namespace=orders", "key=\"a\"", attempt];
            let words = [&[line], &span[..]].concat();
            assert_eq!(log.with(&words), 1, "{words:?}");
        }
    }
    // Nothing was asked for when it came due. The second attempt is on time.
    assert_eq!(log.with(&["called", "attempt=1", "lateness=3"]), 1);
    assert_eq!(log.with(&["called", "attempt=2", "lateness=3"]), 0);
}
