//! Handlers that end while the store is unreachable run once, on a real store.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::join;
use tickwheel_durable::store::Store;
use tickwheel_durable::{Claim, builder};
use tickwheel_durable_conformance::Faulty;
use tokio::time::{sleep, timeout};

use crate::started::started;

const TIMERS: u64 = 200;

/// Runs handlers, of which many end during the outage. It takes a second or more, and the lease a
/// minute.
pub(crate) async fn is_survived(namespace: &str, store: impl Store, outage: impl AsyncFnOnce()) {
    let short = Duration::from_secs(1);
    let build = || builder::<String, u64>(namespace).call_timeout(short);
    let store = Faulty::new(store);
    let (timers, mut claims) = started(build, store.clone()).await;
    // A timer that is set again after a failed set may have fired in between. A set with so long a
    // time limit does not fail, however busy the machine is.
    let patient = || builder(namespace).call_timeout(Duration::from_secs(60));
    let (setting, unused) = started(patient, store).await;
    drop(unused);
    for number in 0..TIMERS {
        let (key, delay) = (number.to_string(), 4 * short);
        let set = setting.set_timer(&key, &number, delay).await;
        set.expect("it is set");
    }
    let handled = Mutex::new(BTreeMap::<u64, u32>::new());
    let handler = |claim: Claim<String, u64>| {
        *handled
            .lock()
            .expect("it is free")
            .entry(claim.value)
            .or_default() += 1;
        async move {
            sleep(Duration::from_millis(200 + 5 * (claim.value % 40))).await;
            Ok(())
        }
    };
    let len = || handled.lock().expect("it is free").len();
    let course = async {
        while len() < 40 {
            sleep(Duration::from_millis(10)).await;
        }
        outage().await;
        let all_are_settled = async {
            loop {
                let counts = timers.counts().await;
                let left = counts.map(|counts| counts.in_flight + counts.waiting);
                if left == Ok(0) {
                    break;
                }
                sleep(short).await;
            }
        };
        let settled = timeout(Duration::from_secs(40), all_are_settled).await;
        assert!(settled.is_ok(), "before the leases end, {}", len());
        timers.shutdown().await;
    };
    join(claims.dispatch(40, handler), course).await;
    let handled = handled.into_inner().expect("it is free");
    assert_eq!(handled.len() as u64, TIMERS);
    let twice = handled.values().filter(|&&times| times > 1).count();
    assert_eq!(twice, 0, "were handled twice");
    assert_eq!(timers.metrics().lost, 0);
}
