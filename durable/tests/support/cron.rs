//! A timer that repeats by a cron expression, on a store with a clock that cannot be moved.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use tickwheel::TimerWheel;
use tickwheel_durable::store::Store;
use tickwheel_durable::{Claim, Claims, DurableTimers, Moved, Removed, builder};
use tokio::time::{sleep, timeout};

/// Two instances deliver each second of it once, and one goes on alone.
pub(crate) async fn repeats_each_second(stores: [impl Store; 2]) {
    let namespace = format!("cron-{}", std::process::id());
    let wheel = TimerWheel::new();
    let [one, two] = stores;
    let (timers, mut claims) = start(&namespace, &wheel, one).await;
    let (others, mut theirs) = start(&namespace, &wheel, two).await;
    let mut seen = BTreeMap::new();
    let set = timers
        .set_cron("a", &7, "* * * * * *", "Europe/Berlin")
        .await;
    set.expect("it is set");
    for number in 0..6 {
        if number == 3 {
            others.shutdown().await;
        }
        let claim = timeout(Duration::from_secs(20), async {
            tokio::select! {
                Some(claim) = claims.recv() => claim,
                Some(claim) = theirs.recv() => claim,
            }
        });
        see(claim.await.expect("it comes"), &mut seen).await;
    }
    let missed: u64 = seen.values().sum();
    let (first, last) = (seen.keys().min(), seen.keys().max());
    let seconds = last.expect("some came") - first.expect("some came");
    // Each second was delivered, or is counted with the one before.
    let last_missed = seen.values().next_back().expect("some came");
    assert_eq!(
        seconds + 1 + last_missed,
        seen.len() as u64 + missed,
        "{seen:?}"
    );

    let entry = timers.admin().get("a").await.expect("it reads");
    let entry = entry.expect("it waits");
    assert_eq!(entry.schedule.as_deref(), Some("* * * * * * Europe/Berlin"));
    // Moved near by this instance, which has to learn its schedule from the fire.
    let moved = timers.move_timer("a", Duration::from_millis(1_500)).await;
    assert_eq!(moved, Ok(Moved::Done));
    let claim = timeout(Duration::from_secs(20), claims.recv()).await;
    let claim = claim.expect("it comes").expect("the stream goes on");
    claim.ack().await.expect("it is held");
    let removed = timers.remove_timer("a").await;
    assert_eq!(removed, Ok(Removed::Done(7)));
    sleep(Duration::from_millis(1_500)).await;
    let left = timers.counts().await.expect("it counts");
    assert_eq!(left.waiting, 0, "nothing puts it back");
}

async fn start(
    namespace: &str,
    wheel: &TimerWheel,
    store: impl Store,
) -> (DurableTimers<String, u32>, Claims<String, u32>) {
    let started = builder(namespace).start(wheel, store).await;
    started.expect("it starts")
}

/// Adds a delivery, by the second that it was for, with how many it stands for besides.
async fn see(claim: Claim<String, u32>, seen: &mut BTreeMap<u64, u64>) {
    let since = claim.deadline.duration_since(UNIX_EPOCH);
    let since = since.expect("it is now");
    assert_eq!((since.subsec_micros(), claim.value), (0, 7), "{claim:?}");
    let twice = seen.insert(since.as_secs(), claim.missed);
    assert_eq!(twice, None, "{claim:?}");
    claim.ack().await.expect("it is held");
}
