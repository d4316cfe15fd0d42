//! What goes wrong around an instance, and what it says: settings, keys, clocks, a store that is slow, away, or another's.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use tickwheel::TimerWheel;
use tickwheel_durable::{
    BuildError, Builder, Claim, Claims, Codec, DurableTimers, Error, Json, MAX_KEY_BYTES,
    MAX_VALUE_BYTES, Memory, Retry, builder,
};
use tickwheel_durable_conformance::{FaultPoint, Faulty};
use tokio::time::{Instant, sleep, timeout};

const HOUR: Duration = Duration::from_secs(3_600);
const SECOND: Duration = Duration::from_secs(1);

type Instance = (DurableTimers<String, String>, Claims<String, String>);

fn orders() -> Builder<String, String> {
    builder("orders")
}

async fn start(store: impl tickwheel_durable::store::Store) -> Instance {
    let started = orders().start(&TimerWheel::new(), store).await;
    started.expect("it starts")
}

async fn set(
    timers: &DurableTimers<String, String>,
    key: &str,
    delay: Duration,
) -> Result<(), Error> {
    timers
        .set_timer(&key.to_owned(), &String::new(), delay)
        .await
}

async fn refused(builder: Builder<String, String>) -> String {
    let started = builder.start(&TimerWheel::new(), Memory::new()).await;
    started.expect_err("it is out of bounds").to_string()
}

#[tokio::test(start_paused = true)]
async fn names_the_setting_its_value_and_its_bounds() {
    for (setting, error) in [
        (
            orders().capacity(0),
            "the capacity is 0; it must be from 1 to 1000000",
        ),
        (
            orders().lease(Duration::ZERO),
            "the lease is 0ns; it must be from 10ms to",
        ),
        (
            orders().poll(Duration::ZERO),
            "the poll interval is 0ns; it must be from 10ms to",
        ),
        (
            orders().poll(SECOND * 20),
            "the window is 30s; it must be from 40s to",
        ),
        (
            orders().call_timeout(Duration::ZERO),
            "the call timeout is 0ns; it must be from 1ms to",
        ),
        (
            builder("two words"),
            "the namespace is \"two words\"; it must be 1 to 64 ASCII",
        ),
    ] {
        let refused = refused(setting).await;
        assert!(refused.starts_with(error), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn refuses_a_lease_shorter_than_the_round_trip() {
    let store = Faulty::new(Memory::new());
    store.set_delay(SECOND);
    let brief = orders()
        .lease(SECOND)
        .start(&TimerWheel::new(), store.clone())
        .await;
    let error = brief.expect_err("it would end before it begins");
    let expected = BuildError::Lease {
        value: SECOND,
        min: 2 * SECOND,
    };
    assert_eq!(error, expected);
    assert!(error.to_string().contains("1s") && error.to_string().contains("2s"));
    let longer = orders()
        .lease(3 * SECOND)
        .start(&TimerWheel::new(), store)
        .await;
    assert!(longer.is_ok());
}

#[tokio::test(start_paused = true)]
async fn starts_though_one_round_trip_was_slow() {
    let store = Faulty::new(Memory::new());
    store.set_delay(SECOND);
    let wheel = TimerWheel::new();
    let started = orders().lease(SECOND).start(&wheel, store.clone());
    // Opening takes the first second, and the first round trip the next.
    let recover = async {
        sleep(SECOND * 3 / 2).await;
        store.set_delay(SECOND / 100);
    };
    let (started, ()) = tokio::join!(started, recover);
    assert!(started.is_ok());
}

#[tokio::test(start_paused = true)]
async fn refuses_keys_and_values_that_are_too_long() {
    let (timers, _claims) = start(Memory::new()).await;
    // JSON has two quotes around them.
    let longest = "x".repeat(MAX_KEY_BYTES - 2);
    assert_eq!(set(&timers, &longest, HOUR).await, Ok(()));
    let error = set(&timers, &format!("{longest}x"), HOUR).await;
    let (len, max) = (MAX_KEY_BYTES + 1, MAX_KEY_BYTES);
    assert_eq!(error, Err(Error::KeyTooLong { len, max }));
    let value = "x".repeat(MAX_VALUE_BYTES);
    let error = timers.set_timer(&longest, &value, HOUR).await;
    let (len, max) = (MAX_VALUE_BYTES + 2, MAX_VALUE_BYTES);
    assert_eq!(error, Err(Error::ValueTooLong { len, max }));
    let error = timers
        .set_interval(&longest, &String::new(), Duration::ZERO)
        .await;
    let min = Duration::from_millis(1);
    assert_eq!(
        error,
        Err(Error::Period {
            value: Duration::ZERO,
            min
        })
    );
}

#[tokio::test(start_paused = true)]
async fn refuses_a_namespace_of_another_codec() {
    #[derive(Debug)]
    struct Other;
    impl Codec for Other {
        fn name(&self) -> &'static str {
            "other"
        }
        fn encode<T: serde::Serialize + ?Sized>(
            &self,
            data: &T,
        ) -> Result<Vec<u8>, tickwheel_durable::BoxError> {
            Json.encode(data)
        }
        fn decode<T: serde::de::DeserializeOwned>(
            &self,
            bytes: &[u8],
        ) -> Result<T, tickwheel_durable::BoxError> {
            Json.decode(bytes)
        }
    }
    let store = Memory::new();
    let _first = start(store.clone()).await;
    let second = orders().codec(Other).start(&TimerWheel::new(), store).await;
    let error = second.expect_err("it has another codec");
    let cause = std::error::Error::source(&error).expect("it says why");
    let error = cause.to_string();
    for name in ["orders", "json", "other"] {
        assert!(error.contains(name), "{error}");
    }
}

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
        ("get", timers.deadline(&key).await.err()),
        ("count", timers.counts().await.err()),
        ("list", timers.admin().pending(None, 1).await.err()),
        ("purge", timers.admin().purge().await.err()),
    ] {
        assert_eq!(outcome, Some(Error::Timeout { call, after }));
    }
    assert!(began.elapsed() < after * 8);
    let began = Instant::now();
    claims.shutdown().await;
    assert!(began.elapsed() <= after * 3, "{:?}", began.elapsed());
    let opening = orders().start(&TimerWheel::new(), store).await;
    let error = opening.expect_err("nobody answers");
    assert_eq!(
        error,
        BuildError::Open(Error::Timeout {
            call: "open",
            after
        })
    );
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
async fn loads_no_backlog_beyond_its_bound() {
    let memory = Memory::new();
    let (writer, claims) = start(memory.clone()).await;
    claims.shutdown().await;
    for number in 0..10_000 {
        let key = number.to_string();
        let set = set(&writer, &key, Duration::ZERO).await;
        set.expect("it is set");
    }
    let wheel = TimerWheel::new();
    let started = orders().capacity(128).start(&wheel, memory).await;
    let (timers, mut claims) = started.expect("it starts");
    for _ in 0..2_100 {
        let claim = claims.recv().await.expect("the stream goes on");
        claim.ack().await.expect("it is held");
    }
    // Besides those received: 2,048 that are not fired, a batch that is being fired, and the capacity.
    let loaded = timers.metrics().loaded;
    assert!(loaded <= 2_100 + 2_048 + 1_024 + 128, "{loaded} are loaded");
}

#[tokio::test(start_paused = true)]
async fn delivers_all_though_the_wheel_is_small() {
    let wheel = TimerWheel::builder()
        .max_keyed(5)
        .start()
        .expect("it starts");
    let (timers, mut claims) = orders()
        .start(&wheel, Memory::new())
        .await
        .expect("it starts");
    for number in 0..40 {
        set(&timers, &number.to_string(), SECOND * 5)
            .await
            .expect("it is set");
    }
    for _ in 0..40 {
        let claim = timeout(SECOND * 120, claims.recv()).await;
        let claim = claim.expect("it comes").expect("the stream goes on");
        assert_eq!(claim.attempt, 1);
        claim.ack().await.expect("it is held");
    }
}

#[tokio::test(start_paused = true)]
async fn ends_with_the_wheel_and_goes_on_writing() {
    let wheel = TimerWheel::new();
    let store = Memory::new();
    let (timers, mut claims) = orders()
        .start(&wheel, store.clone())
        .await
        .expect("it starts");
    set(&timers, "a", SECOND).await.expect("it is set");
    wheel.shutdown().await;
    assert!(claims.recv().await.is_none());
    set(&timers, "b", SECOND).await.expect("it is set");
    let start_again = orders().start(&wheel, store.clone()).await;
    assert_eq!(
        start_again.expect_err("it is shut down"),
        BuildError::WheelShutDown
    );
    let (_timers, mut claims) = start(store).await;
    assert!(claims.recv().await.is_some() && claims.recv().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn dispatches_acknowledges_and_tries_again() {
    let (timers, mut claims) = start(Memory::new()).await;
    for key in ["fine", "failing", "panicking"] {
        set(&timers, key, SECOND).await.expect("it is set");
    }
    let mut seen = Vec::new();
    let handle = |claim: Claim<String, String>| {
        seen.push((claim.key.clone(), claim.attempt));
        async move {
            let first = claim.attempt == 1;
            assert!(
                !(first && claim.key == "panicking"),
                "the handler panics, as the test wants"
            );
            if first && claim.key == "failing" {
                return Err(Retry::after(SECOND * 3));
            }
            Ok(())
        }
    };
    // The stream never ends.
    let ended = timeout(SECOND * 60, claims.dispatch(4, handle)).await;
    assert!(ended.is_err());
    seen.sort();
    let expected = [
        ("failing", 1),
        ("failing", 2),
        ("fine", 1),
        ("panicking", 1),
        ("panicking", 2),
    ];
    assert_eq!(
        seen,
        expected.map(|(key, attempt)| (key.to_owned(), attempt))
    );
    let counts = timers.counts().await.expect("it counts");
    assert_eq!((counts.waiting, counts.in_flight), (0, 0));
    let metrics = timers.metrics();
    assert_eq!(
        (metrics.delivered, metrics.redelivered, metrics.unsettled),
        (5, 2, 0)
    );
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
    // Most of the time a load is under way. The store panics if one reaches it after the unload of its id.
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

#[tokio::test(start_paused = true)]
async fn hands_out_at_shutdown_what_the_store_has_no_more() {
    let builder = orders().at_most_once();
    let started = builder.start(&TimerWheel::new(), Memory::new()).await;
    let (timers, mut claims) = started.expect("it starts");
    // It asks for one, and does not come for it.
    assert!(timeout(SECOND, claims.recv()).await.is_err());
    set(&timers, "a", SECOND).await.expect("it is set");
    tokio::time::sleep(SECOND * 2).await;
    timers.shutdown().await;
    let claim = claims.recv().await.expect("it was claimed");
    assert_eq!(claim.key, "a");
    assert!(claims.recv().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn dispatches_in_a_task_of_its_own() {
    let (timers, mut claims) = start(Memory::new()).await;
    set(&timers, "a", SECOND).await.expect("it is set");
    let handling = tokio::spawn(async move {
        let handle = |claim: Claim<String, String>| async move {
            tokio::time::sleep(SECOND).await;
            assert_eq!(claim.key, "a");
            Ok(())
        };
        claims.dispatch(4, handle).await;
    });
    tokio::time::sleep(SECOND * 3).await;
    timers.shutdown().await;
    handling.await.expect("it ends with the stream");
    let counts = timers.counts().await.expect("it counts");
    assert_eq!((counts.waiting, counts.in_flight), (0, 0));
}

/// The next claim, which comes before long.
async fn next(claims: &mut Claims<String, String>) -> Claim<String, String> {
    let claim = timeout(HOUR * 2, claims.recv()).await;
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
    claim.ack().await.expect("nobody else can have it so soon");
}

/// The wait between two tries had no bound: after an hour without store a timer came half an hour late.
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

/// Errors printed their cause, which printed itself again.
#[tokio::test(start_paused = true)]
async fn no_error_prints_its_cause() {
    let store = Faulty::new(Memory::new());
    store.set_away(true);
    let started = orders().start(&TimerWheel::new(), store).await;
    let error = started.expect_err("the store is away");
    let cause = std::error::Error::source(&error).expect("it says why");
    assert!(!error.to_string().contains(&cause.to_string()), "{error}");
    assert!(
        cause.to_string().contains("taken away by the test"),
        "{cause}"
    );
    assert!(cause.source().is_none());
    let cause = cause.downcast_ref::<Error>();
    assert!(matches!(cause, Some(Error::Store(_))));
}

/// What a store leaves out of an answer, as it has enough bytes, is fired next, in its order.
#[tokio::test(start_paused = true)]
async fn large_values_are_delivered_in_their_order() {
    const TIMERS: usize = 12;
    let (timers, mut claims) = start(Memory::new()).await;
    let value = "v".repeat(MAX_VALUE_BYTES - 2);
    let now = SystemTime::from(timers.counts().await.expect("counts").now);
    for number in 0..TIMERS {
        let key = format!("{number:02}");
        let set = timers.set_timer_at(&key, &value, now + 20 * SECOND);
        set.await.expect("it is set");
    }
    let mut received = Vec::new();
    while received.len() < TIMERS {
        let more = claims.recv_many(&mut received, TIMERS);
        timeout(21 * SECOND, more).await.expect("it goes on");
    }
    for (number, claim) in received.into_iter().enumerate() {
        assert_eq!(claim.key, format!("{number:02}"));
        assert_eq!(claim.value.len(), value.len());
        claim.ack().await.expect("it is held");
    }
    let admin = timers.admin();
    for number in 0..5 {
        let key = number.to_string();
        timers.set_timer(&key, &value, HOUR).await.expect("set");
    }
    let listed = admin.pending(None, 4).await.expect("it lists");
    assert_eq!(listed.len(), 4, "pages of the store are put together");
    let listed = admin.pending(None, 9).await.expect("it lists");
    assert_eq!(listed.len(), 5);
}
