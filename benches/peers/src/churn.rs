//! S1, S2, S2b, S2c, S2d: timeouts that are armed and cancelled.

use std::time::Duration;

use tokio::runtime::Runtime;

use crate::measure::{Meter, Scale, Spent, alternate, emit, emit_cost, round_trip_of_a_line};
use crate::sides::{PendingOnce, Side, Timer, runtime, wheel_on, with_side};

const TASKS: u64 = 64;

/// A deadline that lies beyond every run.
pub const LONG: Duration = Duration::from_secs(30);

const CONSTANT: [Duration; 1] = [LONG];
const MIXED: [Duration; 3] = [LONG, Duration::from_secs(5), Duration::from_millis(50)];

/// The peers of the wheel in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Against {
    /// Timers on the same runtime.
    Peers,
    /// Timers that bring a thread of their own, which would disturb the rest.
    OwnThreads,
    /// `tickwheel::time`, which finds its wheel itself.
    Ambient,
}

/// A cache line that goes to the other core and back. It decides how expensive a lock is that both
/// take.
pub const CORES: &str = "a cache line";

/// The cost of `tickwheel::time` above the wheel held by hand.
pub const ABOVE_BY_HAND: &str = "tickwheel::time, above the wheel by hand";

/// Many tasks, each arming one timeout after the other. The figure is the cost above that of the
/// same loop without a timeout, in the same repetition.
pub fn run(scale: Scale, workers: usize, mixed: bool, against: Against) {
    let lengths: &'static [Duration] = if mixed { &MIXED } else { &CONSTANT };
    let sides: &[Side] = match against {
        Against::Peers => &[Side::Floor, Side::Tokio, Side::Tickwheel, Side::Pingora],
        Against::OwnThreads => &[Side::Floor, Side::FuturesTimer, Side::AsyncIo],
        Against::Ambient => &[Side::Floor, Side::Tickwheel, Side::Ambient],
    };
    let runtime = runtime(workers);
    let wheel = wheel_on(&runtime);
    let cores = || {
        if workers > 1 {
            emit(CORES, "wall", round_trip_of_a_line());
        }
    };
    cores();
    let costs = alternate(scale, sides.len(), |side, rounds| {
        with_side!(sides[side], wheel, |timer| churn(
            &runtime, &timer, lengths, rounds
        ))
    });
    for costs in costs {
        emit_cost(sides[0].name(), costs[0]);
        for (side, cost) in sides.iter().zip(&costs).skip(1) {
            emit_cost(side.name(), cost.above(costs[0]));
        }
        if against == Against::Ambient {
            emit_cost(ABOVE_BY_HAND, costs[2].above(costs[1]));
        }
    }
    cores();
}

fn churn<T: Timer>(
    runtime: &Runtime,
    timer: &T,
    lengths: &'static [Duration],
    rounds: u64,
) -> Spent {
    let each = rounds.div_ceil(TASKS);
    runtime.block_on(async {
        let meter = Meter::start();
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let timer = timer.clone();
                tokio::spawn(async move {
                    let mut lengths = lengths.iter().cycle();
                    for _ in 0..each {
                        let length = *lengths.next().expect("it goes round");
                        timer.timeout(length, PendingOnce::default()).await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no round panics");
        }
        meter.stop()
    })
}

/// S2d: tasks that arm three timeouts, one within the other, around a future that is pending twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nested {
    pub workers: usize,
    pub tasks: u64,
    pub lengths: Lengths,
}

/// The lengths of nested timeouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lengths {
    /// 30 s.
    One,
    /// 5 s and 30 s in turn.
    Two,
    /// Random, of 1 to 30 s.
    Random,
}

impl Lengths {
    fn next(self, random: &mut fastrand::Rng, turn: &mut u64) -> Duration {
        *turn += 1;
        match self {
            Lengths::Two if turn.is_multiple_of(2) => Duration::from_secs(5),
            Lengths::One | Lengths::Two => LONG,
            Lengths::Random => Duration::from_millis(random.u64(1_000..30_000)),
        }
    }
}

/// Reports the cost of one timeout, as [`run`] does.
pub fn nested(scale: Scale, nested: Nested) {
    let sides = [Side::Floor, Side::Tokio, Side::Tickwheel];
    let runtime = runtime(nested.workers);
    let wheel = wheel_on(&runtime);
    let costs = alternate(scale, sides.len(), |side, rounds| {
        with_side!(sides[side], wheel, |timer| churn_nested(
            &runtime, &timer, nested, rounds
        ))
    });
    for costs in costs {
        emit_cost(sides[0].name(), costs[0]);
        for (side, cost) in sides.iter().zip(&costs).skip(1) {
            emit_cost(side.name(), cost.above(costs[0]));
        }
    }
}

/// Arms and cancels so many timeouts in all.
fn churn_nested<T: Timer>(runtime: &Runtime, timer: &T, nested: Nested, timeouts: u64) -> Spent {
    let each = timeouts.div_ceil(3 * nested.tasks);
    runtime.block_on(async {
        let meter = Meter::start();
        let tasks: Vec<_> = (0..nested.tasks)
            .map(|task| {
                let timer = timer.clone();
                tokio::spawn(async move {
                    let mut random = fastrand::Rng::with_seed(task);
                    let mut turn = task;
                    for _ in 0..each {
                        let [outer, middle, inner] =
                            [(); 3].map(|()| nested.lengths.next(&mut random, &mut turn));
                        let future = async {
                            PendingOnce::default().await;
                            PendingOnce::default().await;
                        };
                        let future = timer.timeout(inner, future);
                        timer.timeout(outer, timer.timeout(middle, future)).await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no round panics");
        }
        meter.stop()
    })
}
