//! The measurements of each side.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::time::sleep;

use crate::places::Place;

/// A durable queue with 64 handlers, which call [`handled`] and return.
pub(crate) trait Queue: Send + Sync + Sized + 'static {
    /// Counts what is not acknowledged.
    const LEFT: &str;

    /// Removes all that it has.
    const EMPTY: &str;

    /// Starts it, with the defaults of its documentation or tuned.
    async fn start(url: &str, is_tuned: bool) -> Self;

    /// Sets a timer with its deadline as value.
    fn set(&self, number: u64, deadline: SystemTime) -> impl Future<Output = ()> + Send;

    /// Sets timers of these numbers, as fast as it can.
    fn fill(
        &self,
        numbers: std::ops::Range<u64>,
        deadline: impl Fn(u64) -> SystemTime + Send + Sync,
    ) -> impl Future<Output = ()> + Send;
}

/// So many handlers run at once.
pub(crate) const HANDLERS: usize = 64;

const SETTERS: u64 = 64;
const SET_FOR: Duration = Duration::from_secs(4);
const IDLE_FOR: Duration = Duration::from_secs(5);
const STORM_LIMIT: Duration = Duration::from_mins(1);
const PER_SECOND: u64 = 200;
const RATED: u64 = 2_000;
const RATE_LIMIT: Duration = Duration::from_secs(15);
/// How long before they are due timers are set that are due at once.
const AHEAD: Duration = Duration::from_secs(5);
const DAY: Duration = Duration::from_hours(24);

pub(crate) const METRICS: [&str; 12] = [
    "idle: statements a second",
    "idle: transactions a second",
    "sets a second, 64 tasks",
    "due at once: handled after, s",
    "due at once: acknowledged after, s",
    "due at once: not acknowledged in a minute",
    "due at once: CPU time of each, us",
    "200 a second: late, p50, ms",
    "200 a second: late, p99, ms",
    "200 a second: early, of 2,000",
    "200 a second: CPU time of each, us",
    "200 a second: not acknowledged after 15 s",
];

pub(crate) struct Figure {
    /// An index of [`METRICS`].
    pub(crate) metric: usize,
    pub(crate) value: f64,
}

/// How late each timer was handled, in microseconds. One side is measured at a time.
static HANDLED: Mutex<Vec<i64>> = Mutex::new(Vec::new());

/// The value of a timer.
pub(crate) fn micros(time: SystemTime) -> u64 {
    let since = time
        .duration_since(UNIX_EPOCH)
        .expect("it is after the epoch");
    u64::try_from(since.as_micros()).expect("it is in this age")
}

/// Called by a handler with the value of its timer.
pub(crate) fn handled(deadline: u64) {
    let late = micros(SystemTime::now()).cast_signed() - deadline.cast_signed();
    HANDLED.lock().expect("no handler panics").push(late);
}

fn handled_so_far() -> u64 {
    HANDLED.lock().expect("no handler panics").len() as u64
}

fn take_handled() -> Vec<i64> {
    let mut late = std::mem::take(&mut *HANDLED.lock().expect("no handler panics"));
    late.sort_unstable();
    late
}

/// Measures a queue in a place. So many timers of the storm are due at once. What was measured is
/// kept if it fails.
pub(crate) async fn run<P: Place, Q: Queue>(
    place: &P,
    is_tuned: bool,
    storm: u64,
    figures: &mut Vec<Figure>,
) {
    take_handled();
    let queue = Arc::new(Q::start(&place.url(), is_tuned).await);
    let mut figure = |metric, value| figures.push(Figure { metric, value });

    sleep(Duration::from_secs(2)).await;
    if let Some(before) = place.work().await {
        sleep(IDLE_FOR).await;
        let after = place.work().await.expect("it was counted before");
        for metric in 0..2 {
            let work = (after[metric] - before[metric] - P::OWN[metric]).max(0);
            figure(metric, work as f64 / IDLE_FOR.as_secs_f64());
        }
    }

    let (sets, took) = set(&queue).await;
    figure(2, sets as f64 / took.as_secs_f64());
    empty::<P, Q>(place).await;

    let due = whole_second(AHEAD);
    queue.fill(0..storm, |_| due).await;
    wait_before(due).await;
    let cpu = place.cpu();
    let ended = until_acknowledged::<P, Q>(place, storm, due, STORM_LIMIT).await;
    let cpu = place.cpu().saturating_sub(cpu);
    figure(3, ended.handled.unwrap_or(STORM_LIMIT).as_secs_f64());
    figure(4, ended.acknowledged.unwrap_or(STORM_LIMIT).as_secs_f64());
    figure(5, ended.left as f64);
    figure(6, cpu.as_secs_f64() * 1e6 / storm as f64);
    empty::<P, Q>(place).await;

    let due = whole_second(AHEAD);
    let deadline = |number| {
        due + Duration::from_secs(1) * u32::try_from(number).expect("it is small")
            / u32::try_from(PER_SECOND).expect("it is small")
    };
    queue
        .fill(storm..storm + RATED, |number| deadline(number - storm))
        .await;
    wait_before(due).await;
    take_handled();
    let cpu = place.cpu();
    let limit = Duration::from_secs(RATED / PER_SECOND) + RATE_LIMIT;
    let rated = until_acknowledged::<P, Q>(place, RATED, due, limit).await;
    let cpu = place.cpu().saturating_sub(cpu);
    let late = take_handled();
    for (metric, percent) in [(7, 50), (8, 99)] {
        if let Some(last) = late.len().checked_sub(1) {
            figure(metric, late[last * percent / 100] as f64 / 1e3);
        }
    }
    figure(9, late.iter().filter(|&&late| late < 0).count() as f64);
    figure(10, cpu.as_secs_f64() * 1e6 / RATED as f64);
    figure(11, rated.left as f64);
}

/// The calls of 64 tasks, each the next one after an answer.
async fn set<Q: Queue>(queue: &Arc<Q>) -> (u64, Duration) {
    let began = Instant::now();
    let tasks: Vec<_> = (0..SETTERS)
        .map(|task| {
            let queue = Arc::clone(queue);
            tokio::spawn(async move {
                let mut sets = 0;
                while began.elapsed() < SET_FOR {
                    queue
                        .set(1_000_000 + task + SETTERS * sets, SystemTime::now() + DAY)
                        .await;
                    sets += 1;
                }
                sets
            })
        })
        .collect();
    let mut sets = 0;
    for task in tasks {
        sets += task.await.expect("it is set");
    }
    (sets, began.elapsed())
}

async fn empty<P: Place, Q: Queue>(place: &P) {
    place.empty(Q::EMPTY).await;
    take_handled();
}

/// A second so long from now, or up to one later: some know only whole seconds.
fn whole_second(ahead: Duration) -> SystemTime {
    let since = (SystemTime::now() + ahead).duration_since(UNIX_EPOCH);
    UNIX_EPOCH + Duration::from_secs(since.expect("it is after the epoch").as_secs() + 1)
}

async fn wait_before(due: SystemTime) {
    let ahead = due
        .duration_since(SystemTime::now())
        .expect("setting took too long");
    sleep(ahead.saturating_sub(Duration::from_millis(200))).await;
}

#[derive(Default)]
struct Ended {
    handled: Option<Duration>,
    acknowledged: Option<Duration>,
    left: u64,
}

async fn until_acknowledged<P: Place, Q: Queue>(
    place: &P,
    timers: u64,
    due: SystemTime,
    limit: Duration,
) -> Ended {
    let mut ended = Ended::default();
    loop {
        sleep(Duration::from_millis(10)).await;
        let elapsed = due.elapsed().unwrap_or_default();
        if ended.handled.is_none() && handled_so_far() >= timers {
            ended.handled = Some(elapsed);
        }
        if ended.handled.is_some() || elapsed > limit {
            ended.left = u64::try_from(place.count(Q::LEFT).await).expect("it is a count");
            if ended.left == 0 {
                ended.acknowledged = Some(due.elapsed().unwrap_or_default());
                return ended;
            }
            if elapsed > limit {
                return ended;
            }
            sleep(Duration::from_millis(90)).await;
        }
    }
}
