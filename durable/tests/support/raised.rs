//! Another program raises the schema while an instance runs. While the instance can read it, it
//! goes on. When it cannot, it does no new work, says why, settles what its handlers have, and goes
//! on by itself if the schema is taken back.

use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_durable::store::{Store, StoreError};
use tickwheel_durable::{BuildError, Claim, Claims, Error, Retry, builder};
use tokio::time::{sleep, timeout};

use crate::log::Log;

const LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

async fn next(claims: &mut Claims<String, u64>) -> Claim<String, u64> {
    let claim = timeout(LIMIT, claims.recv()).await;
    claim.expect("it fires").expect("the stream goes on")
}

/// Writes the version of the schema, and the oldest that can read it, by `change`. Runs on one
/// thread, whose log is read.
pub(crate) async fn d17_stops_new_work_alone(
    namespace: &str,
    store: impl AsyncFn() -> Box<dyn Store>,
    change: impl AsyncFn(u32, u32),
) {
    let log = Log::default();
    let _capturing = log.capture();
    let builder = || builder::<String, u64>(namespace).poll(POLL);
    let started = builder().start(&TimerWheel::new(), store().await).await;
    let (timers, mut claims) = started.expect("it starts");
    let mut held = Vec::new();
    for number in 0..4 {
        let key = format!("held {number}");
        let set = timers.set_timer(&key, &number, Duration::ZERO);
        set.await.expect("it is set");
        held.push(next(&mut claims).await);
    }
    // A later version has added to it.
    change(9, 1).await;
    let set = timers.set_timer("readable", &7, POLL).await;
    set.expect("it is set");
    next(&mut claims).await.ack().await.expect("it is held");
    let again = builder().start(&TimerWheel::new(), store().await).await;
    let (other, its_claims) = again.expect("one more starts");
    its_claims.shutdown().await;
    drop(other);
    assert!(!timers.metrics().differs);
    assert_eq!(log.with(&["ERROR"]), 0);
    // Nothing fires before the program asks for it.
    let set = timers.set_timer("near", &1, POLL).await;
    set.expect("it is set");
    // A later one has taken away what this one needs.
    change(9, 2).await;
    let differs = async |differs| {
        let known = async {
            while timers.metrics().differs != differs {
                sleep(POLL / 4).await;
            }
        };
        timeout(LIMIT, known).await.expect("it finds out");
    };
    differs(true).await;
    let received = timeout(10 * POLL, claims.recv()).await;
    assert!(received.is_err(), "nothing fires: {received:?}");
    let far = Duration::from_secs(3_600);
    let error = StoreError::schema(9, 2, 1);
    let written = timers.set_timer("far", &2, far).await;
    assert_eq!(written, Err(Error::Store(error.clone())));
    assert_eq!(log.with(&["ERROR", namespace, &error.to_string()]), 1);
    let again = builder().start(&TimerWheel::new(), store().await).await;
    let refused = again.expect_err("another one does not start");
    assert_eq!(refused, BuildError::Open(Error::Store(error.clone())));
    assert!(
        error.to_string().contains("take the schema back"),
        "{error}"
    );
    let [acked, extended, put_back, failed] = &held[..] else {
        unreachable!("they are four");
    };
    extended.extend(LIMIT).await.expect("it is held");
    acked.ack().await.expect("it is held");
    put_back.retry_after(far).await.expect("it is held");
    failed.fail(Retry::never("no")).await.expect("it is held");
    drop(held);
    change(1, 1).await;
    differs(false).await;
    // In this order, since the one was due before the other was released.
    let mut keys = vec![];
    for _ in 0..2 {
        let claim = next(&mut claims).await;
        keys.push((claim.key.clone(), claim.attempt));
        claim.ack().await.expect("it is held");
    }
    keys.sort();
    assert_eq!(keys, [("held 1".to_owned(), 2), ("near".to_owned(), 1)]);
    let set = timers.set_timer("far", &2, far).await;
    set.expect("it is set");
    let counts = timers.counts().await.expect("it counts");
    assert_eq!((counts.waiting, counts.in_flight, counts.dead), (2, 0, 1));
}
