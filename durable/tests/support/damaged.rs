//! Rows that other programs have written do not stop the others.

use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_durable::store::Store;
use tickwheel_durable::{Claims, DurableTimers, SetIfAbsent, builder};
use tokio::time::{Instant, timeout};

const LIMIT: Duration = Duration::from_secs(60);

/// An instance that claims nothing before [`check`](Started::check).
pub(crate) struct Started {
    timers: DurableTimers<String, u32>,
    claims: Claims<String, u32>,
}

pub(crate) async fn start(store: impl Into<Box<dyn Store>>, space: &str) -> Started {
    let builder = builder(space).poll(Duration::from_millis(50));
    let started = builder.start(&TimerWheel::new(), store).await;
    let (timers, claims) = started.expect("it starts");
    for number in 0..20 {
        let key = format!("sound {number}");
        let set = timers.set_timer(&key, &number, Duration::from_millis(300));
        set.await.expect("it is set");
    }
    Started { timers, claims }
}

impl Started {
    /// Sees that all sound timers fire, and that these keys are dead for these reasons.
    pub(crate) async fn check(mut self, damaged: &[(&str, &str)]) {
        let mut delivered = Vec::new();
        for _ in 0..20 {
            let claim = timeout(LIMIT, self.claims.recv()).await;
            let claim = claim.expect("it comes").expect("the stream goes on");
            claim.ack().await.expect("it is held");
            delivered.push(claim.value);
        }
        delivered.sort_unstable();
        assert_eq!(delivered, (0..20).collect::<Vec<_>>());
        let admin = self.timers.admin();
        let began = Instant::now();
        // Not by what the instance counts: on a busy machine the answer to a fire may be lost.
        let dead = loop {
            let more = timeout(Duration::from_millis(50), self.claims.recv()).await;
            assert!(more.is_err(), "{more:?}");
            let dead = admin.dead(None, 100).await.expect("it lists");
            if dead.len() == damaged.len() {
                break dead;
            }
            assert!(began.elapsed() < LIMIT, "{dead:?}");
        };
        for (key, reason) in damaged {
            let mut named = dead.iter();
            let named = named.find(|entry| entry.key.as_deref().unwrap_or("") == *key);
            let error = named.and_then(|entry| entry.error.as_deref());
            let error = error.unwrap_or_else(|| panic!("no {key:?} in {dead:?}"));
            assert!(error.contains(reason), "{key:?}: {error}");
        }
        // A set revives the key, which has no timer.
        let revived: Vec<_> = damaged.iter().filter(|(key, _)| !key.is_empty()).collect();
        for (key, _) in &revived {
            let set = self.timers.set_if_absent(*key, &99, Duration::ZERO).await;
            assert_eq!(set, Ok(SetIfAbsent::Done), "{key}");
            let claim = timeout(LIMIT, self.claims.recv()).await;
            let claim = claim.expect("it comes").expect("the stream goes on");
            assert_eq!((&*claim.key, claim.value), (*key, 99));
            claim.ack().await.expect("it is held");
        }
        let metrics = self.timers.metrics();
        assert!(metrics.dead > 0 || metrics.store_errors > 0, "{metrics:?}");
        let counts = self.timers.counts().await.expect("it counts");
        let left = (damaged.len() - revived.len()) as u64;
        assert_eq!(
            (counts.waiting, counts.in_flight, counts.dead),
            (0, 0, left)
        );
    }
}

/// Sees that a timer with as many attempts as a row can count, which is written now, is delivered
/// and acknowledged, and one behind it, too.
pub(crate) async fn check_most_attempts(
    store: impl Into<Box<dyn Store>>,
    space: &str,
    write: impl AsyncFnOnce(),
) {
    let builder = builder::<String, u32>(space).max_attempts(None);
    let builder = builder.poll(Duration::from_millis(50));
    let started = builder.start(&TimerWheel::new(), store).await;
    let (timers, mut claims) = started.expect("it starts");
    write().await;
    let plain = timers.set_timer("plain", &2, Duration::ZERO).await;
    plain.expect("it is set");
    let mut delivered = Vec::new();
    for _ in 0..2 {
        let claim = timeout(LIMIT, claims.recv()).await;
        let claim = claim.expect("it comes").expect("the stream goes on");
        delivered.push((claim.key.clone(), claim.attempt));
        claim.ack().await.expect("it is held");
    }
    delivered.sort_unstable();
    let expected = [("most", 2_147_483_646), ("plain", 1)];
    assert_eq!(
        delivered,
        expected.map(|(key, attempt)| (key.into(), attempt))
    );
}
