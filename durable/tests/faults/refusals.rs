//! Settings, keys, values and namespaces that an instance refuses, and what its errors say.

use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_durable::{
    BoxError, BuildError, Builder, Codec, Error, Json, MAX_KEY_BYTES, MAX_VALUE_BYTES, Memory,
    builder,
};
use tickwheel_durable_conformance::Faulty;
use tokio::time::sleep;

use super::{HOUR, SECOND, orders, set, start};

/// JSON under another name.
#[derive(Debug)]
struct Other;

impl Codec for Other {
    fn name(&self) -> &'static str {
        "other"
    }
    fn encode<T: serde::Serialize + ?Sized>(&self, data: &T) -> Result<Vec<u8>, BoxError> {
        Json.encode(data)
    }
    fn decode<T: serde::de::DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, BoxError> {
        Json.decode(bytes)
    }
}

async fn refused(builder: Builder<String, String, impl Codec>) -> String {
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
            orders().handler_timeout(Duration::ZERO),
            "the handler timeout is 0ns; it must be from 1ms to",
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
async fn codec_keeps_the_settings_that_were_made_before() {
    let refused = refused(orders().capacity(0).codec(Other)).await;
    assert!(refused.starts_with("the capacity is 0;"), "{refused}");
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
    let what = "key";
    assert_eq!(error, Err(Error::TooLong { what, len, max }));
    let value = "x".repeat(MAX_VALUE_BYTES);
    let error = timers.set_timer(&longest, &value, HOUR).await;
    let (len, max) = (MAX_VALUE_BYTES + 2, MAX_VALUE_BYTES);
    let what = "value";
    assert_eq!(error, Err(Error::TooLong { what, len, max }));
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
    let shortest = timers.set_interval(&longest, &String::new(), min).await;
    assert_eq!(shortest, Ok(()));
}

/// All keys and values are checked before the first timer is set.
#[tokio::test(start_paused = true)]
async fn none_of_many_timers_is_set_if_one_is_refused() {
    let (timers, _claims) = start(Memory::new()).await;
    let (long, value) = ("x".repeat(2_000), String::new());
    let set = timers.set_many([("a", &value, HOUR), (&long, &value, HOUR)]);
    let (len, max) = (2_002, MAX_KEY_BYTES);
    let what = "key";
    assert_eq!(set.await, Err(Error::TooLong { what, len, max }));
    assert_eq!(timers.counts().await.expect("it counts").waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn refuses_a_namespace_of_another_codec() {
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
