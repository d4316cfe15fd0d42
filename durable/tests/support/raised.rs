//! Another program raises the schema while an instance runs: it stops, says why, and goes on by
//! itself if the schema is its own again.

use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_durable::store::{Store, StoreError};
use tickwheel_durable::{Error, builder};
use tokio::time::{sleep, timeout};

const LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

/// Adds so much to the version of the schema by `change`, and takes it back.
pub(crate) async fn stops_the_instance(
    namespace: &str,
    store: impl Into<Box<dyn Store>>,
    change: impl AsyncFn(i64),
) {
    let builder = builder::<String, u64>(namespace).poll(POLL);
    let started = builder.start(&TimerWheel::new(), store).await;
    let (timers, mut claims) = started.expect("it starts");
    // Nothing fires before the program asks for it.
    let set = timers.set_timer("near", &1, POLL).await;
    set.expect("it is set");
    change(4).await;
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
    let written = timers.set_timer("far", &2, far).await;
    let Err(Error::Store(
        error @ StoreError::Schema {
            found, supported, ..
        },
    )) = written
    else {
        panic!("{written:?}");
    };
    assert_eq!(found, supported + 4);
    let text = error.to_string();
    assert!(text.contains(&format!("version {found}")), "{text}");
    change(-4).await;
    differs(false).await;
    let claim = timeout(LIMIT, claims.recv()).await;
    let claim = claim.expect("it fires").expect("the stream goes on");
    assert_eq!((claim.key.as_str(), claim.attempt), ("near", 1));
    claim.ack().await.expect("it is held");
    let set = timers.set_timer("far", &2, far).await;
    set.expect("it is set");
}
