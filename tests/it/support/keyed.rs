//! Helpers for the tests of keyed timers.

use std::hash::Hash;
use std::time::Duration;

use tickwheel::{Expirations, Expired, TimerWheel};
use tokio::time::{self, Instant};

/// Moves the clock, and lets every timer fire that is due then.
pub(crate) async fn advance(wheel: &TimerWheel, by: Duration) {
    time::advance(by).await;
    wheel.settle().await;
}

/// Receives everything that was delivered, as key and value.
pub(crate) fn received<K, V>(stream: &mut Expirations<K, V>) -> Vec<(K, V)>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    std::iter::from_fn(|| stream.try_recv().ok())
        .map(|Expired { key, value, .. }| (key, value))
        .collect()
}

/// Receives `n` expirations as they come, each with the milliseconds since `start`.
pub(crate) async fn timed<K, V>(
    stream: &mut Expirations<K, V>,
    start: Instant,
    n: usize,
) -> Vec<(K, V, u128)>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    let mut all = Vec::new();
    for _ in 0..n {
        let Expired { key, value, .. } = stream.recv().await.expect("the stream goes on");
        all.push((key, value, start.elapsed().as_millis()));
    }
    all
}

/// Promise P16, for a wheel at rest.
pub(crate) fn assert_balanced(wheel: &TimerWheel) {
    let m = wheel.metrics();
    assert_eq!(
        m.keyed_set,
        m.keyed_pending + m.keyed_fired + m.keyed_removed + m.keyed_replaced + m.keyed_drained,
        "{m:?}"
    );
}
