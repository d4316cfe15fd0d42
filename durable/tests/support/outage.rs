//! Handlers that end while the store is unreachable run once, on a real store.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use futures_util::future::join;
use tickwheel_durable::store::Store;
use tickwheel_durable::{Claim, Error, builder};
use tickwheel_durable_conformance::Faulty;
use tokio::time::{sleep, timeout};

use crate::started::started;

const TIMERS: u64 = 200;

/// A server of a busy machine responds within that time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Calls until that works: on a busy machine replicas may have a change too late.
async fn at_last<T>(call: impl AsyncFn() -> Result<T, Error>) {
    let began = Instant::now();
    while let Err(error) = call().await {
        let may_pass = error.may_pass() && began.elapsed() < PATIENCE;
        assert!(may_pass, "{error:#}");
    }
}

/// Runs handlers, of which many end during the outage. It takes a second or more, and the lease a
/// minute.
pub(crate) async fn is_survived(namespace: &str, store: impl Store, outage: impl AsyncFnOnce()) {
    let short = Duration::from_secs(1);
    let build = || builder::<String, u64>(namespace).call_timeout(short);
    let store = Faulty::new(store);
    let (timers, mut claims) = started(build, store.clone()).await;
    let patient = || builder(namespace).call_timeout(PATIENCE);
    let (setting, unused) = started(patient, store).await;
    drop(unused);
    // A timer that is set again after a failed set would come twice if it had fired in between. One
    // that is moved again would not.
    for number in 0..TIMERS {
        let far = 60 * PATIENCE;
        at_last(async || setting.set_timer(&number.to_string(), &number, far).await).await;
    }
    for number in 0..TIMERS {
        let soon = 4 * short;
        at_last(async || setting.move_timer(&number.to_string(), soon).await).await;
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
