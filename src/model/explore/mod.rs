//! The explorer: it runs the real sets, queues and entries and the real actor under a scheduler
//! that chooses the next thread at every lock and every atomic.
//!
//! ```text
//! RUSTFLAGS="--cfg tickwheel_shuttle" cargo test --profile models --lib explore::
//! ```
//!
//! The loom models run parts of the crate through every interleaving. This module searches at
//! random for bugs in the code between those parts, which no model contains. [shuttle] runs the
//! threads as coroutines, and schedules them at random or by probabilistic concurrency testing.
//! Time is virtual, see [`world`]. The steps that the threads take are random too, see [`work`].
//!
//! Everything but the scheduling is written against the public interface. The seam to the crate is:
//!
//! | here | there |
//! |---|---|
//! | mutexes, atomics, `thread_local!` | `sync`: every lock that is held across a step is taken through it |
//! | limits that a short schedule would not reach | `sync::IN_EXPLORER` |
//! | the clock | `clock::now`, which reads what `clock::set` has written |
//! | an actor without a runtime | `Builder::start_explored`, with `Actor::step` and `Actor::next_turn` |
//! | what notifies it | `ActorNotifier::explored`, a function |
//! | the queue of a thread, the same at each replay | `sync::thread_number` |
//!
//! # Numbers
//!
//! A schedule has a number. It gives the work and the scheduler with its seed: sixteen schedules in
//! a row, a group, share both. One group in four is scheduled at random, one by PCT, and two
//! [sluggishly](sluggish). A schedule that fails is printed with its number, and replayed by it:
//!
//! | in the environment | |
//! |---|---|
//! | `TICKWHEEL_EXPLORE_ONLY` | replays the schedule of this number, and shows what happens in it |
//! | `TICKWHEEL_EXPLORE_FROM` | the first number, for other schedules than the last time |
//! | `TICKWHEEL_EXPLORE_SCHEDULES` | how many |
//! | `TICKWHEEL_EXPLORE_ALL` | goes on after a failure, and lists at the end what has failed, and how often |
//!
//! [shuttle]: https://docs.rs/shuttle

mod facts;
mod mix;
mod readers;
mod sluggish;
mod work;
mod worker;
mod world;

use std::collections::BTreeMap;
use std::env;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use mix::{Mix, Random};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use sluggish::Sluggish;

/// How many schedules in a row share the work.
const GROUP: u64 = 16;

/// How many schedules each test explores unless told otherwise.
const SCHEDULES: u64 = 4096;

fn number(name: &str) -> Option<u64> {
    let value = env::var(name).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name} is not a number: {value}")),
    )
}

/// Explores schedules of the mix; `name` is the test's.
fn explore(name: &str, mix: Mix) {
    // Sleeps of a wheel that is shut down go on with Tokio's timer, and need a runtime to be polled
    // in.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    // It is never dropped: it would wake tasks of schedules that have failed.
    let runtime = ManuallyDrop::new(runtime.expect("a runtime can be built"));
    let _within = runtime.enter();

    let only = number("TICKWHEEL_EXPLORE_ONLY");
    let from = only
        .or_else(|| number("TICKWHEEL_EXPLORE_FROM"))
        .unwrap_or(0);
    let count = number("TICKWHEEL_EXPLORE_SCHEDULES").unwrap_or(SCHEDULES);
    let to = only.map_or(from + count, |only| only + 1);
    let all = env::var_os("TICKWHEEL_EXPLORE_ALL").is_some();

    let began = Instant::now();
    let mut failures: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut explored = 0;
    for group in from / GROUP..to.div_ceil(GROUP) {
        let end = ((group + 1) * GROUP).min(to);
        let (ran, failure) = explore_group(mix, group, end - group * GROUP, only);
        explored += ran;
        let Some((number, why, trace)) = failure else {
            continue;
        };
        if !all {
            println!("{}", trace.join("\n"));
            panic!(
                "schedule {number} of `{name}` failed after {explored} schedules in {:.1?}: {why}\n\
                 Replay it with TICKWHEEL_EXPLORE_ONLY={number} RUSTFLAGS=\"--cfg tickwheel_shuttle\" \
                 cargo test --profile models --lib explore::{name}",
                began.elapsed(),
            );
        }
        failures.entry(kind(&why)).or_default().push(number);
    }
    println!(
        "{name}: {explored} schedules from {from} in {:.1?}",
        began.elapsed()
    );
    for (why, numbers) in &failures {
        let (times, first) = (numbers.len(), &numbers[..numbers.len().min(8)]);
        println!("{times:>6} times, first {first:?}: {why}");
    }
    assert!(failures.is_empty(), "{} kinds of failure", failures.len());
    assert!(only.is_none(), "schedule {from} of `{name}` does not fail");
}

/// The failure without its numbers.
fn kind(why: &str) -> String {
    let mut kind = String::new();
    for c in why.chars().take(160) {
        let c = if c.is_ascii_digit() { '#' } else { c };
        if !(c == '#' && kind.ends_with('#')) {
            kind.push(c);
        }
    }
    kind
}

/// Runs the first `count` schedules of a group. Returns how many it ran, and the one that failed:
/// its number, the reason, and its trace if `shown` is its number.
fn explore_group(
    mix: Mix,
    group: u64,
    count: u64,
    shown: Option<u64>,
) -> (u64, Option<(u64, String, Vec<String>)>) {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    config.max_steps = MaxSteps::FailAfter(100_000);
    let mut random = Random::new(group);
    let (seed, work_seed) = (random.next(), random.next());
    let ran = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&ran);
    let run = move || {
        let number = group * GROUP + counted.fetch_add(1, Ordering::Relaxed);
        world::begin(shown == Some(number));
        work::run(mix, work_seed);
    };
    let times = usize::try_from(count).expect("a group is small");
    let result = catch_unwind(AssertUnwindSafe(|| match group % 4 {
        0 => Runner::new(RandomScheduler::new_from_seed(seed, times), config).run(run),
        1 => {
            let depth = 2 + usize::try_from(group / 4 % 3).expect("small");
            Runner::new(PctScheduler::new_from_seed(seed, depth, times), config).run(run)
        }
        _ => {
            let stays = random.pick(&[60, 80, 90, 95, 98]);
            Runner::new(Sluggish::new(seed, stays, count), config).run(run)
        }
    }));
    let ran = ran.load(Ordering::Relaxed);
    let (failure, trace) = world::failure();
    let panicked = result.err().map(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.unwrap_or_else(|| "the schedule panicked".to_owned())
    });
    let why = failure.or(panicked);
    (ran, why.map(|why| (group * GROUP + ran - 1, why, trace)))
}

/// Several threads set, move and remove keyed timers.
#[test]
fn fires_keyed_timers_on_time() {
    let mix = Mix {
        threads: (2, 3),
        steps: 6,
        set: 8,
        interval: 1,
        move_to: 4,
        remove: 4,
        drain: 1,
        sleep: 2,
        advance: 2,
        rest: 2,
        settle: 1,
        metrics: 1,
        ..Mix::default()
    };
    explore("fires_keyed_timers_on_time", mix);
}

/// Timers are set again, moved and removed when they are due, while their reader is late.
#[test]
fn decides_once_on_timers_that_are_changed_late() {
    let mix = Mix {
        threads: (2, 3),
        steps: 16,
        set: 6,
        interval: 2,
        move_to: 4,
        remove: 4,
        drain: 1,
        advance: 6,
        rest: 2,
        metrics: 1,
        lagging: 50,
        ..Mix::default()
    };
    explore("decides_once_on_timers_that_are_changed_late", mix);
}

/// Threads change one set and do nothing else, so no other command wakes the actor if a change
/// fails to.
#[test]
fn notifies_the_actor_of_every_change_of_a_set() {
    let mix = Mix {
        threads: (2, 3),
        steps: 8,
        set: 6,
        move_to: 3,
        remove: 6,
        ..Mix::default()
    };
    explore("notifies_the_actor_of_every_change_of_a_set", mix);
}

/// Watches are touched, dropped and replaced, while the reader of the stream pauses now and then.
#[test]
fn reaps_idle_watches() {
    let mix = Mix {
        threads: (2, 3),
        steps: 24,
        watch: 4,
        touch: 8,
        busy: 1,
        unwatch: 4,
        sleep: 1,
        advance: 4,
        rest: 4,
        lagging: 50,
        ..Mix::default()
    };
    explore("reaps_idle_watches", mix);
}

/// Watches are touched when the wheel has reached them, and before they are received.
#[test]
fn decides_once_on_watches_that_are_touched_late() {
    let mix = Mix {
        threads: (1, 2),
        steps: 40,
        watch: 4,
        touch: 8,
        advance: 6,
        rest: 1,
        lagging: 30,
        ..Mix::default()
    };
    explore("decides_once_on_watches_that_are_touched_late", mix);
}

/// Watches take over the indices of dropped ones while the actor is late.
#[test]
fn reaps_watches_at_reused_indices() {
    let mix = Mix {
        threads: (2, 3),
        steps: 40,
        watch: 5,
        unwatch: 4,
        sleep_and_drop: 2,
        advance: 6,
        rest: 1,
        lagging: 30,
        ..Mix::default()
    };
    explore("reaps_watches_at_reused_indices", mix);
}

/// Wakers panic, and wheels are shut down.
#[test]
fn survives_panicking_wakers() {
    let mix = Mix {
        threads: (2, 3),
        steps: 4,
        set: 4,
        sleep: 3,
        advance: 2,
        settle: 3,
        shutdown: 2,
        panicking: 40,
        ..Mix::default()
    };
    explore("survives_panicking_wakers", mix);
}

/// Several threads arm, reset and drop sleeps.
#[test]
fn ends_sleeps_on_time() {
    let mix = Mix {
        threads: (2, 3),
        steps: 6,
        sleep: 6,
        sleep_and_drop: 4,
        advance: 2,
        rest: 2,
        settle: 1,
        metrics: 1,
        ..Mix::default()
    };
    explore("ends_sleeps_on_time", mix);
}

/// Threads take every kind of step.
#[test]
fn every_kind_of_step_at_once() {
    let mix = Mix {
        threads: (2, 3),
        steps: 8,
        set: 6,
        interval: 1,
        move_to: 3,
        remove: 3,
        drain: 1,
        watch: 4,
        touch: 4,
        busy: 1,
        unwatch: 3,
        sleep: 3,
        sleep_and_drop: 2,
        advance: 2,
        rest: 2,
        settle: 1,
        metrics: 1,
        shutdown: 1,
        panicking: 10,
        lagging: 30,
    };
    explore("every_kind_of_step_at_once", mix);
}
