//! The tasks of the soak test that each keep a share of the timers, and change some of them again
//! and again.

use std::future::{Pending, pending};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};
use std::time::Duration;

use tickwheel::{BusyGuard, IdleTimer, Interval, Sleep, Timeout};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use super::keyed::{Keyed, Repeating, Watches};
use super::{World, consumers};
use crate::support::{Numbers, Wakes, ms, poll_with, reset};

/// How many operations a driver makes before it lets other tasks run.
const BATCH: usize = 256;

const PAUSE: Duration = Duration::from_millis(4);

/// A sleeping task's longest sleep.
const LONGEST_NAP_MS: u64 = 3000;

/// Starts everything; the shares add up to `timers`.
pub(crate) fn start(
    world: &Arc<World>,
    timers: usize,
    numbers: &mut Numbers,
    tasks: &mut JoinSet<()>,
) {
    let mut seed = || Numbers(numbers.below(u64::MAX));
    let percent = timers / 100;
    let half = percent / 2;
    for _ in 0..percent * 5 {
        tasks.spawn(nap(Arc::clone(world), seed()));
    }
    for _ in 0..2 {
        tasks.spawn(drive(Sleeps::new(world, half * 25), seed()));
        tasks.spawn(drive(Timeouts::new(world, half * 15), seed()));
        tasks.spawn(drive(Intervals::new(world, half * 5), seed()));
        tasks.spawn(drive(Idlers::new(world, half * 10), seed()));
    }

    let (timers, stream) = world.wheel.keyed();
    tasks.spawn(consumers::read(Arc::clone(world), stream));
    let keys = (percent * 25) as u64;
    for keys in [0..keys * 6 / 10, keys * 4 / 10..keys] {
        // The keys in the middle belong to both.
        tasks.spawn(drive(Keyed::new(world, timers.clone(), keys), seed()));
    }
    let (timers, stream) = world.wheel.keyed();
    tasks.spawn(consumers::read_repeating(Arc::clone(world), stream));
    tasks.spawn(drive(Repeating::new(world, timers, percent * 5), seed()));
    let (reaper, stream) = world.wheel.reaper(Duration::from_secs(5));
    tasks.spawn(consumers::read(Arc::clone(world), stream));
    tasks.spawn(drive(Watches::new(world, reaper, percent * 10), seed()));
}

/// A share of the timers of one kind.
pub(crate) trait Share: Send + 'static {
    fn world(&self) -> &Arc<World>;
    /// How many timers it should have.
    fn size(&self) -> usize;
    /// Adds the next timer.
    fn fill(&mut self, numbers: &mut Numbers);
    /// Changes the timer `at`.
    fn act(&mut self, at: usize, numbers: &mut Numbers);
}

async fn drive(mut share: impl Share, mut numbers: Numbers) {
    let world = Arc::clone(share.world());
    let mut filled = 0;
    while !world.is_over() {
        for _ in 0..BATCH {
            if filled < share.size() {
                share.fill(&mut numbers);
                filled += 1;
            } else if let Some(at) = below(&mut numbers, filled) {
                share.act(at, &mut numbers);
            }
        }
        world.operations.fetch_add(BATCH as u64, Ordering::Relaxed);
        if filled < share.size() {
            tokio::task::yield_now().await;
        } else {
            world.wheel.sleep(PAUSE).await;
        }
    }
}

fn below(numbers: &mut Numbers, end: usize) -> Option<usize> {
    let end = u64::try_from(end).ok().filter(|&end| end > 0)?;
    usize::try_from(numbers.below(end)).ok()
}

/// Mostly long, some short, few forever.
pub(crate) fn delay(numbers: &mut Numbers) -> Duration {
    match numbers.below(256) {
        0 => Duration::MAX,
        1 => Duration::ZERO,
        2..=16 => ms(numbers.below(50)),
        17..=80 => ms(50 + numbers.below(5_000)),
        _ => ms(5_000 + numbers.below(600_000)),
    }
}

/// A task that sleeps, in one way or another.
async fn nap(world: Arc<World>, mut numbers: Numbers) {
    while !world.is_over() {
        let length = ms(1 + numbers.below(LONGEST_NAP_MS));
        let start = Instant::now();
        match numbers.below(8) {
            0 => {
                let never = pending::<()>();
                let timeout = world.wheel.timeout(length, never).await;
                assert!(timeout.is_err(), "what never completes has completed");
            }
            1 => {
                let mut interval = world.wheel.interval_at(start + length, length);
                assert_eq!(interval.tick().await, start + length);
            }
            2 => world.wheel.idle_timer(length).await,
            3 => {
                // Moved while it waits, to earlier.
                let mut sleep = world.wheel.sleep(length + Duration::from_secs(1));
                assert!(futures::poll!(&mut sleep).is_pending());
                reset(&mut sleep, start + length);
                sleep.await;
            }
            _ => world.wheel.sleep(length).await,
        }
        world.saw(start + length);
        world.late.record(start.elapsed().saturating_sub(length));
        world.operations.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sleeps that are armed, and polled now and then.
struct Sleeps {
    world: Arc<World>,
    size: usize,
    waker: Waker,
    all: Vec<Sleep>,
}

impl Sleeps {
    fn new(world: &Arc<World>, size: usize) -> Self {
        Sleeps {
            world: Arc::clone(world),
            size,
            waker: Wakes::new().1,
            all: Vec::new(),
        }
    }

    fn armed(&self, numbers: &mut Numbers) -> Sleep {
        let mut sleep = self.world.wheel.sleep(delay(numbers));
        if poll_with(&mut sleep, &self.waker).is_ready() {
            self.world.saw(sleep.deadline());
        }
        sleep
    }
}

impl Share for Sleeps {
    fn world(&self) -> &Arc<World> {
        &self.world
    }

    fn size(&self) -> usize {
        self.size
    }

    fn fill(&mut self, numbers: &mut Numbers) {
        let sleep = self.armed(numbers);
        self.all.push(sleep);
    }

    fn act(&mut self, at: usize, numbers: &mut Numbers) {
        match numbers.below(8) {
            0..=1 => self.all[at] = self.armed(numbers),
            2..=3 => {
                let to = Instant::now().checked_add(delay(numbers));
                if let Some(to) = to {
                    reset(&mut self.all[at], to);
                }
            }
            _ => {}
        }
        if poll_with(&mut self.all[at], &self.waker).is_ready() {
            self.world.saw(self.all[at].deadline());
            self.all[at] = self.armed(numbers);
        }
    }
}

/// Timeouts of what never completes, most of which are dropped.
struct Timeouts {
    world: Arc<World>,
    size: usize,
    all: Vec<(Instant, Timeout<Pending<()>>)>,
}

impl Timeouts {
    fn new(world: &Arc<World>, size: usize) -> Self {
        Timeouts {
            world: Arc::clone(world),
            size,
            all: Vec::new(),
        }
    }

    fn armed(&self, numbers: &mut Numbers) -> (Instant, Timeout<Pending<()>>) {
        // The constant length that services have, and some others.
        let length = match numbers.below(4) {
            0 => ms(numbers.below(3_000)),
            _ => Duration::from_secs(30),
        };
        let due = Instant::now() + length;
        let mut timeout = self.world.wheel.timeout(length, pending());
        if poll_with(&mut timeout, Waker::noop()).is_ready() {
            self.world.saw(due);
        }
        (due, timeout)
    }
}

impl Share for Timeouts {
    fn world(&self) -> &Arc<World> {
        &self.world
    }

    fn size(&self) -> usize {
        self.size
    }

    fn fill(&mut self, numbers: &mut Numbers) {
        let timeout = self.armed(numbers);
        self.all.push(timeout);
    }

    fn act(&mut self, at: usize, numbers: &mut Numbers) {
        let (due, timeout) = &mut self.all[at];
        let due = *due;
        let is_over = poll_with(timeout, Waker::noop()).is_ready();
        if is_over {
            self.world.saw(due);
        }
        if is_over || numbers.below(2) == 0 {
            self.all[at] = self.armed(numbers);
        }
    }
}

struct Intervals {
    world: Arc<World>,
    size: usize,
    waker: Waker,
    all: Vec<Interval>,
}

impl Intervals {
    fn new(world: &Arc<World>, size: usize) -> Self {
        Intervals {
            world: Arc::clone(world),
            size,
            waker: Wakes::new().1,
            all: Vec::new(),
        }
    }
}

impl Share for Intervals {
    fn world(&self) -> &Arc<World> {
        &self.world
    }

    fn size(&self) -> usize {
        self.size
    }

    fn fill(&mut self, numbers: &mut Numbers) {
        let period = ms(100 + numbers.below(60_000));
        let mut interval = self.world.wheel.interval(period);
        interval.set_missed_tick_behavior(match numbers.below(3) {
            0 => MissedTickBehavior::Burst,
            1 => MissedTickBehavior::Delay,
            _ => MissedTickBehavior::Skip,
        });
        self.all.push(interval);
    }

    fn act(&mut self, at: usize, numbers: &mut Numbers) {
        let interval = &mut self.all[at];
        match numbers.below(32) {
            0 => interval.reset(),
            1 => interval.reset_immediately(),
            2 => interval.reset_after(ms(numbers.below(10_000))),
            _ => {}
        }
        let mut cx = std::task::Context::from_waker(&self.waker);
        for _ in 0..3 {
            let Poll::Ready(due) = interval.poll_tick(&mut cx) else {
                break;
            };
            self.world.saw(due);
        }
    }
}

/// One idle timer, and when it was active at the latest.
struct Idler {
    timer: IdleTimer,
    touched: Instant,
    busy: Option<BusyGuard>,
}

struct Idlers {
    world: Arc<World>,
    size: usize,
    waker: Waker,
    all: Vec<Idler>,
}

impl Idlers {
    fn new(world: &Arc<World>, size: usize) -> Self {
        Idlers {
            world: Arc::clone(world),
            size,
            waker: Wakes::new().1,
            all: Vec::new(),
        }
    }
}

impl Share for Idlers {
    fn world(&self) -> &Arc<World> {
        &self.world
    }

    fn size(&self) -> usize {
        self.size
    }

    fn fill(&mut self, numbers: &mut Numbers) {
        let touched = Instant::now();
        let idle = ms(500 + numbers.below(20_000));
        let mut timer = self.world.wheel.idle_timer(idle);
        assert!(poll_with(&mut timer, &self.waker).is_pending());
        self.all.push(Idler {
            timer,
            touched,
            busy: None,
        });
    }

    fn act(&mut self, at: usize, numbers: &mut Numbers) {
        let idler = &mut self.all[at];
        let before = Instant::now();
        match numbers.below(16) {
            0..=9 if idler.timer.touch() => idler.touched = before,
            10 => idler.busy = Some(idler.timer.busy()),
            11..=12 if idler.busy.take().is_some() => idler.touched = before,
            _ => {}
        }
        if poll_with(&mut idler.timer, &self.waker).is_ready() {
            assert!(idler.busy.is_none(), "idle, though busy");
            self.world.saw(idler.touched + idler.timer.idle_duration());
            idler.touched = Instant::now();
            idler.timer.touch();
            let _ = poll_with(&mut idler.timer, &self.waker);
        }
    }
}
