//! S6 and S7: timers with keys, next to a `DelayQueue` behind a mutex.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use fastrand::Rng;
use tickwheel::{KeyedTimers, TimerWheel};
use tokio::runtime::Runtime;
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

use crate::measure::{Meter, Scale, Spent, alternate, emit_cost};
use crate::sides::{runtime, wheel_on};

/// A `DelayQueue` with timers that any task sets, moves and removes by key.
#[derive(Debug, Default)]
pub struct Queue {
    queue: DelayQueue<u64>,
    timers: HashMap<u64, (u64, Key)>,
}

impl Queue {
    pub fn set(&mut self, key: u64, value: u64, delay: Duration) {
        let place = self.queue.insert(key, delay);
        if let Some((_, old)) = self.timers.insert(key, (value, place)) {
            self.queue.remove(&old);
        }
    }

    fn reset(&mut self, key: u64, delay: Duration) {
        if let Some((_, place)) = self.timers.get(&key) {
            self.queue.reset(place, delay);
        }
    }

    fn remove(&mut self, key: u64) -> Option<u64> {
        let (value, place) = self.timers.remove(&key)?;
        self.queue.remove(&place);
        Some(value)
    }

    pub(crate) fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<(u64, u64)> {
        let expired = ready!(self.queue.poll_expired(cx));
        // An empty queue has kept the waker too.
        let key = match expired {
            Some(expired) => expired.into_inner(),
            None => return Poll::Pending,
        };
        let (value, _) = self.timers.remove(&key).expect("what is queued has a key");
        Poll::Ready((key, value))
    }
}

/// Timers by key, as one of the sides has them.
trait Keyed: Clone + Send + 'static {
    fn set(&self, key: u64, value: u64, delay: Duration);
    fn reset(&self, key: u64, delay: Duration);
    fn remove(&self, key: u64);
    /// Waits until all calls are applied.
    fn settle(&self) -> impl Future<Output = ()> + Send;
}

#[derive(Clone)]
struct OnWheel {
    wheel: TimerWheel,
    timers: KeyedTimers<u64, u64>,
}

impl OnWheel {
    fn new(wheel: &TimerWheel, runtime: &Runtime) -> Self {
        let (timers, mut expirations) = wheel.keyed();
        runtime.spawn(async move { while expirations.recv().await.is_some() {} });
        OnWheel {
            wheel: wheel.clone(),
            timers,
        }
    }
}

impl Keyed for OnWheel {
    fn set(&self, key: u64, value: u64, delay: Duration) {
        (self.timers.set_timer(key, value, delay)).expect("there is room");
    }

    fn reset(&self, key: u64, delay: Duration) {
        self.timers.move_timer(&key, delay).expect("it is open");
    }

    fn remove(&self, key: u64) {
        self.timers.remove_timer(&key).expect("it is open");
    }

    async fn settle(&self) {
        self.wheel.settle().await;
    }
}

#[derive(Clone)]
struct OnQueue(Arc<Mutex<Queue>>);

impl OnQueue {
    fn new(runtime: &Runtime) -> Self {
        let queue = Arc::new(Mutex::new(Queue::default()));
        let weak = Arc::downgrade(&queue);
        runtime.spawn(poll_fn(move |cx| {
            while let Some(queue) = weak.upgrade() {
                let expired = lock(&queue).poll_expired(cx);
                let _ = ready!(expired);
            }
            Poll::Ready(())
        }));
        OnQueue(queue)
    }
}

pub(crate) fn lock(queue: &Mutex<Queue>) -> std::sync::MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Keyed for OnQueue {
    fn set(&self, key: u64, value: u64, delay: Duration) {
        lock(&self.0).set(key, value, delay);
    }

    fn reset(&self, key: u64, delay: Duration) {
        lock(&self.0).reset(key, delay);
    }

    fn remove(&self, key: u64) {
        lock(&self.0).remove(key);
    }

    async fn settle(&self) {}
}

/// The first keys of those that are set for the time of the whole run.
const RESIDENT: u64 = 1 << 48;

/// How many operations a producer makes before it lets other tasks run.
const AT_A_TIME: u64 = 64;

/// S6: each producer sets, moves and removes its own timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Triples {
    producers: u64,
    /// How many other timers are pending.
    resident: u64,
    /// Each producer has its own set or queue. Otherwise they share one.
    apart: bool,
}

impl Triples {
    pub fn of(producers: u64) -> Self {
        Triples {
            producers,
            resident: 0,
            apart: false,
        }
    }

    #[must_use]
    pub fn among(self, resident: u64) -> Self {
        Triples { resident, ..self }
    }

    #[must_use]
    pub fn apart(self) -> Self {
        Triples {
            apart: true,
            ..self
        }
    }
}

/// Producers on as many workers, two at least.
pub fn triples(scale: Scale, triples: Triples) {
    let workers = usize::try_from(triples.producers).expect("there are a few");
    let runtime = runtime(workers.max(2));
    let wheel = wheel_on(&runtime);
    let sets = if triples.apart { triples.producers } else { 1 };
    let (queues, sets): (Vec<_>, Vec<_>) = runtime.block_on(async {
        let new = |_| (OnQueue::new(&runtime), OnWheel::new(&wheel, &runtime));
        (0..sets).map(new).unzip()
    });
    runtime.block_on(async {
        for key in 0..triples.resident {
            let delay = Duration::from_secs(3600 + key % 1000);
            queues[0].set(RESIDENT + key, key, delay);
            sets[0].set(RESIDENT + key, key, delay);
        }
        wheel.settle().await;
    });
    let costs = alternate(scale, 2, |side, rounds| {
        if side == 0 {
            produce(&runtime, &queues, triples.producers, rounds)
        } else {
            produce(&runtime, &sets, triples.producers, rounds)
        }
    });
    for costs in costs {
        emit_cost("DelayQueue", costs[0]);
        emit_cost("tickwheel", costs[1]);
    }
}

fn produce<T: Keyed>(runtime: &Runtime, sets: &[T], producers: u64, rounds: u64) -> Spent {
    let each = rounds.div_ceil(producers);
    runtime.block_on(async {
        let meter = Meter::start();
        let tasks: Vec<_> = (0..producers)
            .zip(sets.iter().cycle())
            .map(|(producer, timers)| {
                let timers = timers.clone();
                tokio::spawn(async move {
                    for n in 0..each {
                        let key = producer << 32 | n;
                        timers.set(key, n, Duration::from_secs(30));
                        timers.reset(key, Duration::from_mins(1));
                        timers.remove(key);
                        if n % AT_A_TIME == 0 {
                            tokio::task::yield_now().await;
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no producer panics");
        }
        sets[0].settle().await;
        meter.stop()
    })
}

/// Where a timer is moved to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// As far ahead as every other: the timeout of a connection on which something came in.
    Later,
    /// Anywhere within a minute: as often earlier as later.
    Anywhere,
}

/// S7: one of very many timers, chosen at random, is moved.
pub fn moves(scale: Scale, to: To) {
    let resident = scale.pick(100_000, 1_000_000);
    let runtime = runtime(2);
    let wheel = wheel_on(&runtime);
    for repetition in 0..scale.pick(2, 5) {
        for turn in 0..2 {
            if (turn + repetition) % 2 == 0 {
                let queue = runtime.block_on(async { OnQueue::new(&runtime) });
                let (spent, moved) = move_at_random(scale, &runtime, &queue, resident, to);
                emit_cost("DelayQueue", spent.per(moved));
            } else {
                let timers = OnWheel::new(&wheel, &runtime);
                let (spent, moved) = move_at_random(scale, &runtime, &timers, resident, to);
                emit_cost("tickwheel", spent.per(moved));
            }
        }
    }
}

/// A minute, in steps finer than a tick.
fn up_to_a_minute(rng: &mut Rng) -> Duration {
    Duration::from_micros(rng.u64(1_000_000..=60_000_000))
}

fn move_at_random<T: Keyed>(
    scale: Scale,
    runtime: &Runtime,
    timers: &T,
    resident: u64,
    to: To,
) -> (Spent, u64) {
    let timers = timers.clone();
    let most = scale.pick(50_000, 1_000_000);
    // Nothing that was moved fires within the run, which would make it a run with fewer timers.
    let longest = Duration::from_millis(700);
    let task = async move {
        let mut rng = Rng::with_seed(7);
        let begun = Instant::now();
        for key in 0..resident {
            // Due as if each had been moved some time ago, and after this is over.
            let head_start = begun.elapsed() + Duration::from_secs(2);
            timers.set(key, key, up_to_a_minute(&mut rng) + head_start);
            if key % AT_A_TIME == 0 {
                tokio::task::yield_now().await;
            }
        }
        timers.settle().await;
        let meter = Meter::start();
        let start = Instant::now();
        let mut moved = 0;
        while moved < most && start.elapsed() < longest {
            for _ in 0..AT_A_TIME {
                let key = rng.u64(0..resident);
                let delay = up_to_a_minute(&mut rng);
                timers.reset(
                    key,
                    match to {
                        To::Later => Duration::from_mins(2),
                        To::Anywhere => delay,
                    },
                );
            }
            moved += AT_A_TIME;
            tokio::task::yield_now().await;
        }
        timers.settle().await;
        (meter.stop(), moved)
    };
    runtime.block_on(async { tokio::spawn(task).await.expect("it does not panic") })
}
