//! A store that returns to an earlier state, or loses its data, under two instances that run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tickwheel_durable::store::Store;
use tickwheel_durable::{Claims, DurableTimers, Failing, builder};
use tokio::time::sleep;

use super::log::Log;
use super::started::started;

const SECOND: Duration = Duration::from_secs(1);

/// A machine that is busy has done everything by then.
const LIMIT: Duration = Duration::from_secs(40);

/// How many timers are set, besides the one that repeats.
const TIMERS: u64 = 20;

type Timers = DurableTimers<String, u64>;

/// How often each value was delivered.
type Counts = Arc<Mutex<BTreeMap<u64, u32>>>;

async fn start(store: impl Store, poll: Duration, counts: &Counts) -> Timers {
    let build = || {
        let instance = builder("returned").poll(poll).lease(10 * SECOND);
        instance.call_timeout(5 * SECOND)
    };
    let (timers, claims) = started(build, store).await;
    drop(tokio::spawn(handle(claims, Arc::clone(counts))));
    timers
}

/// Acknowledges what is delivered.
async fn handle(mut claims: Claims<String, u64>, counts: Counts) {
    while let Some(claim) = claims.recv().await {
        *lock(&counts).entry(claim.value).or_default() += 1;
        // It may be undone by then.
        let _ = claim.ack().await;
    }
}

fn lock(counts: &Counts) -> std::sync::MutexGuard<'_, BTreeMap<u64, u32>> {
    counts.lock().expect("no test panics with it")
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < LIMIT, "{what} does not come about");
        sleep(SECOND / 50).await;
    }
}

/// Waits until each timer has been delivered so often.
async fn until_delivered(counts: &Counts, times: u32) {
    until(&format!("delivery {times} of each"), async || {
        let counts = lock(counts);
        (1..=TIMERS).all(|value| counts.get(&value).is_some_and(|&count| count >= times))
    })
    .await;
}

/// Timers are set, the store's state is kept, they are handled, and the store returns to that state
/// while no call fails: all of them are delivered again, and one that repeats goes on. Returns how
/// many instances have noticed it for certain. These have said so once.
///
/// With a poll of some seconds all of it happens between two loads.
pub(crate) async fn is_survived<S: Store>(
    [first, second]: [S; 2],
    poll: Duration,
    keep: impl AsyncFnOnce(),
    go_back: impl AsyncFnOnce(),
) -> usize {
    let log = Log::default();
    let _capturing = log.capture();
    let counts = Counts::default();
    let instances = [
        start(first, poll, &counts).await,
        start(second, poll, &counts).await,
    ];
    let repeats = instances[0].set_interval("repeats", &0, SECOND / 2).await;
    repeats.expect("it is set");
    for value in 1..=TIMERS {
        let timers = &instances[usize::from(value % 2 == 0)];
        let set = timers.set_timer(&value.to_string(), &value, SECOND).await;
        set.expect("it is set");
    }
    keep().await;
    until_delivered(&counts, 1).await;
    if poll < SECOND {
        sleep(3 * poll).await;
    }
    go_back().await;
    until_delivered(&counts, 2).await;
    let repeated = || lock(&counts).get(&0).copied().unwrap_or(0);
    let before = repeated();
    until("further occurrences", async || repeated() >= before + 3).await;
    let noticed: Vec<u64> = instances
        .iter()
        .map(|timers| timers.metrics().store_returned)
        .collect();
    assert!(noticed.iter().all(|&times| times <= 1), "{noticed:?}");
    let noticed = noticed.into_iter().filter(|&times| times > 0).count();
    let said = log.with(&["ERROR", "returned to an earlier state"]);
    assert_eq!(said, noticed, "each says so once");
    assert_eq!(log.with(&["ERROR", "lost its data"]), 0);
    noticed
}

/// The store loses its data: both instances go on by themselves, and each says so once.
pub(crate) async fn loss_is_survived<S: Store>([first, second]: [S; 2], lose: impl AsyncFnOnce()) {
    let log = Log::default();
    let _capturing = log.capture();
    let (counts, poll) = (Counts::default(), SECOND / 5);
    let instances = [
        start(first, poll, &counts).await,
        start(second, poll, &counts).await,
    ];
    let far = instances[0].set_timer("gone", &99, 3_600 * SECOND).await;
    far.expect("it is set");
    sleep(2 * poll).await;
    lose().await;
    for value in 1..=TIMERS {
        let timers = &instances[usize::from(value % 2 == 0)];
        until("a set", async || {
            let key = value.to_string();
            timers.set_timer(&key, &value, poll).await.is_ok()
        })
        .await;
    }
    until_delivered(&counts, 1).await;
    for timers in &instances {
        until("an instance that notices", async || {
            timers.metrics().store_emptied == 1
        })
        .await;
    }
    sleep(3 * poll).await;
    for timers in &instances {
        let metrics = timers.metrics();
        assert_eq!((metrics.store_emptied, metrics.store_returned), (1, 0));
        assert_eq!(metrics.failing, Failing::default());
    }
    assert_eq!(
        log.with(&["ERROR", "lost its data"]),
        2,
        "each says so once"
    );
    assert_eq!(log.with(&["ERROR", "earlier state"]), 0);
}
