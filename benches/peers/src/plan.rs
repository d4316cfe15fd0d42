//! Which processes are run, and in which order.

use crate::churn::Against::{self, Ambient, OwnThreads, Peers};
use crate::churn::{Lengths, Nested};
use crate::expiring::Part;
use crate::floods::FLOODS;
use crate::keyed::{To, Triples};
use crate::measure::Scale;
use crate::sides::Side;
use crate::sleepers::Idle;
use crate::workload::Workload;
use crate::{crowd, fresh, intervals, rates};

/// One process.
#[derive(Debug, Clone, Copy)]
pub struct Job {
    /// The group of its figures.
    pub group: &'static str,
    /// The row of the table that it belongs to; `--only` chooses by it.
    pub id: &'static str,
    pub what: &'static str,
    pub workload: Workload,
    pub program: Program,
}

/// The program that runs a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Program {
    /// This one.
    Peers,
    /// The one with an allocator that counts.
    Counted,
    /// This one, built with `--cfg tokio_unstable`: for Tokio's alternative timer, and to see each
    /// poll.
    Alternative,
}

impl Job {
    fn by(self, program: Program) -> Self {
        Job { program, ..self }
    }
}

const fn job(id: &'static str, group: &'static str, what: &'static str, workload: Workload) -> Job {
    Job {
        group,
        id,
        what,
        workload,
        program: Program::Peers,
    }
}

const fn churn(workers: usize, mixed: bool, against: Against) -> Workload {
    Workload::Churn {
        workers,
        mixed,
        against,
    }
}

const fn nested(workers: usize, tasks: u64, lengths: Lengths) -> Nested {
    Nested {
        workers,
        tasks,
        lengths,
    }
}

/// S2d: the group of each process, and what it does.
const NESTED: [(&str, &str, Nested); 9] = [
    (
        "S2d one",
        "nested timeouts of one length, 4096 tasks, current_thread",
        nested(1, 4096, Lengths::One),
    ),
    (
        "S2d two 64",
        "nested timeouts of two lengths, 64 tasks, current_thread",
        nested(1, 64, Lengths::Two),
    ),
    (
        "S2d two",
        "nested timeouts of two lengths, 4096 tasks, current_thread",
        nested(1, 4096, Lengths::Two),
    ),
    (
        "S2d two, 2 workers",
        "nested timeouts of two lengths, 4096 tasks, 2 workers",
        nested(2, 4096, Lengths::Two),
    ),
    (
        "S2d random 64",
        "nested timeouts of random lengths, 64 tasks, current_thread",
        nested(1, 64, Lengths::Random),
    ),
    (
        "S2d random 512",
        "nested timeouts of random lengths, 512 tasks, current_thread",
        nested(1, 512, Lengths::Random),
    ),
    (
        "S2d random",
        "nested timeouts of random lengths, 4096 tasks, current_thread",
        nested(1, 4096, Lengths::Random),
    ),
    (
        "S2d random 64, 2 workers",
        "nested timeouts of random lengths, 64 tasks, 2 workers",
        nested(2, 64, Lengths::Random),
    ),
    (
        "S2d random, 2 workers",
        "nested timeouts of random lengths, 4096 tasks, 2 workers",
        nested(2, 4096, Lengths::Random),
    ),
];

/// The groups of S2d, what each of them does, and its bar.
pub fn nested_bars() -> impl Iterator<Item = (&'static str, &'static str, f64)> {
    NESTED.iter().map(|&(group, what, nested)| {
        let bar = match nested.lengths {
            Lengths::Two => 0.8,
            Lengths::One | Lengths::Random => 1.0,
        };
        (group, what, bar)
    })
}

/// All processes in their order. One that is to be repeated is there several times, in turn with
/// its peer.
#[allow(clippy::too_many_lines)] // it is a list
pub fn jobs(scale: Scale) -> Vec<Job> {
    let mut jobs = vec![
        job("S1", "S1", "churn, current_thread", churn(1, false, Peers)),
        job(
            "S1",
            "S1 others",
            "churn, current_thread, timers with a thread of their own",
            churn(1, false, OwnThreads),
        ),
        job("S2", "S2", "churn, 2 workers", churn(2, false, Peers)),
        job(
            "S2",
            "S2 others",
            "churn, 2 workers, timers with a thread of their own",
            churn(2, false, OwnThreads),
        ),
        job(
            "S2b",
            "S2b",
            "churn, 2 workers, lengths mixed",
            churn(2, true, Peers),
        ),
        job(
            "S2c",
            "S2c",
            "churn, 2 workers, through tickwheel::time",
            churn(2, false, Ambient),
        ),
        job(
            "S2c",
            "S2c 1",
            "churn, current_thread, through tickwheel::time",
            churn(1, false, Ambient),
        ),
        job(
            "threads",
            "4 threads",
            "churn, 4 workers",
            churn(4, false, Peers),
        ),
        job(
            "threads",
            "8 threads",
            "churn, 8 workers",
            churn(8, false, Peers),
        ),
        job(
            "threads",
            "16 threads",
            "churn, 16 workers",
            churn(16, false, Peers),
        ),
        job(
            "S4",
            "S4",
            "reset, current_thread",
            Workload::Reset { workers: 1 },
        ),
        job(
            "S4",
            "S4 2 workers",
            "reset, 2 workers",
            Workload::Reset { workers: 2 },
        ),
        job("S5", "S5", "touch", Workload::Touch),
        job("idle", "echo", "echo over an idle stream", Workload::Echo),
        job("idle", "watches", "connections watched", Workload::Watches),
    ];
    jobs.extend([
        job(
            "adapters",
            "adapters",
            "resets and sleeps of hyper and quinn",
            Workload::Adapters,
        ),
        job(
            "adapters",
            "calls",
            "limited calls of tower",
            Workload::Calls { cloned: false },
        ),
        job(
            "adapters",
            "calls cloned",
            "limited calls of tower, the service cloned for each",
            Workload::Calls { cloned: true },
        ),
        job(
            "service",
            "service",
            "a server of hyper under load",
            Workload::Service,
        ),
        job(
            "service",
            "proxy",
            "a proxy under load, constant lengths",
            Workload::Proxy { mixed: false },
        ),
        job(
            "service",
            "proxy mixed",
            "a proxy under load, mixed lengths",
            Workload::Proxy { mixed: true },
        ),
    ]);
    for (group, what, nested) in NESTED {
        jobs.push(job("S2d", group, what, Workload::Nested(nested)));
    }
    for (group, what, triples) in [
        ("S6 1", "set + move + remove, 1 producer", Triples::of(1)),
        ("S6 2", "set + move + remove, 2 producers", Triples::of(2)),
        (
            "S6 1 among",
            "set + move + remove, 1 producer, 1000 others",
            Triples::of(1).among(1000),
        ),
        (
            "S6 2 among",
            "set + move + remove, 2 producers, 1000 others",
            Triples::of(2).among(1000),
        ),
    ] {
        jobs.push(job("S6", group, what, Workload::Triples(triples)));
    }
    for (group, what, triples) in [
        ("S6 4", "set + move + remove, 4 threads", Triples::of(4)),
        ("S6 8", "set + move + remove, 8 threads", Triples::of(8)),
        ("S6 16", "set + move + remove, 16 threads", Triples::of(16)),
        (
            "S6 2 apart",
            "set + move + remove, 2 threads with a set each",
            Triples::of(2).apart(),
        ),
        (
            "S6 16 apart",
            "set + move + remove, 16 threads with a set each",
            Triples::of(16).apart(),
        ),
    ] {
        jobs.push(job("threads", group, what, Workload::Triples(triples)));
    }
    for (group, what, to) in [
        ("S7", "a random key moved later", To::Later),
        ("S7 anywhere", "a random key moved anywhere", To::Anywhere),
    ] {
        jobs.push(job("S7", group, what, Workload::Moves(to)));
    }
    let wheels = [
        ("S8 10^3", "wheel, 10^3 resident", 1_000),
        ("S8 10^5", "wheel, 10^5 resident", 100_000),
        (
            "S8 10^7",
            "wheel, 10^7 resident",
            scale.pick(1_000_000, 10_000_000),
        ),
    ];
    for (group, what, resident) in wheels {
        jobs.push(job("S8", group, what, Workload::Wheels { resident }));
    }
    jobs.push(job("actor", "actor", "the actor's work", Workload::Actor));
    let allocated = "allocations of a timeout";
    for job in [
        job("S10", "S10", "bytes of a timer", Workload::Bytes),
        job(
            "allocations",
            "allocations",
            allocated,
            Workload::Allocations,
        ),
    ] {
        jobs.push(job.by(Program::Counted));
    }
    for with in [Idle::NoWheel, Idle::NoTimers, Idle::OneFarTimer] {
        jobs.push(job("S11", "S11", with.name(), Workload::Idle(with)));
    }
    light(&mut jobs, scale);
    rates(&mut jobs, scale);
    not_pooled(&mut jobs, scale);
    fleets(&mut jobs, scale);
    for (group, flood, what) in FLOODS {
        jobs.push(job("S14", group, what, Workload::Beside(flood)));
    }
    jobs.push(job("S15", "S15", "many sets due at once", Workload::Sets));
    for (group, what, workload) in [
        (
            "S2a",
            "churn, 2 workers, alternative timer",
            churn(2, false, Peers),
        ),
        (
            "S4a",
            "reset, 2 workers, alternative timer",
            Workload::Reset { workers: 2 },
        ),
    ] {
        jobs.push(job(group, group, what, workload).by(Program::Alternative));
    }
    for _ in 0..scale.pick(1, 5) {
        let turns = job("S9", "S9", "turns", Workload::Turns);
        jobs.push(turns.by(Program::Alternative));
    }
    for (id, repetitions, of) in [
        (
            "S9",
            scale.pick(1, 5),
            Workload::Storm as fn(Side) -> Workload,
        ),
        (
            "S3",
            scale.pick(1, 3),
            Workload::Many as fn(Side) -> Workload,
        ),
    ] {
        for repetition in 0..repetitions {
            let sides = [Side::Tokio, Side::Tickwheel];
            for turn in 0..2 {
                let side = sides[(turn + repetition) % 2];
                jobs.push(job(id, id, side.name(), of(side)));
            }
        }
        jobs.push(job(id, id, Side::Pingora.name(), of(Side::Pingora)));
    }
    jobs
}

/// Servers with many connections. The sides take turns, each in a process of its own.
fn fleets(jobs: &mut Vec<Job>, scale: Scale) {
    for (id, of, repetitions) in [
        (
            "reconnects",
            Workload::Reconnects as fn(Side) -> Workload,
            3,
        ),
        ("keepalive", Workload::KeepAlive, 3),
        ("pings", Workload::Pings, 3),
    ] {
        for repetition in 0..scale.pick(1, repetitions) {
            let mut sides = [Side::Tokio, Side::Tickwheel, Side::Floor];
            sides.rotate_left(repetition % 3);
            // Without intervals there are no pings.
            let has_floor = id != "pings";
            for side in (sides.into_iter()).filter(|&side| has_floor || side != Side::Floor) {
                jobs.push(job(id, id, side.name(), of(side)));
            }
        }
    }
}

/// S12b, likewise.
fn rates(jobs: &mut Vec<Job>, scale: Scale) {
    for (group, per_second) in rates::RATES {
        let rate = |side: Side| {
            job(
                "S12b",
                group,
                side.name(),
                Workload::Rate { side, per_second },
            )
        };
        for repetition in 0..scale.pick(1, 5) {
            let mut sides = [Side::Tokio, Side::Tickwheel, Side::Precise];
            sides.rotate_left(repetition % 3);
            jobs.extend(sides.map(rate));
        }
        jobs.extend(rates::VARIANTS.map(rate));
        // A thread that they all wake has no time for more.
        if per_second <= 10_000 {
            jobs.extend(rates::PEERS.map(rate));
        }
    }
}

/// The groups of timers with keys that fire, or are new.
const EXPIRING: [(&str, &str, Part); 2] = [
    ("S6b", "10^5 keyed timers fire", Part::Fire),
    ("S6c", "10^5 new keys", Part::Set),
];

/// What no pool serves, likewise.
fn not_pooled(jobs: &mut Vec<Job>, scale: Scale) {
    for repetition in 0..scale.pick(1, 4) {
        let mut pair = [Side::Tokio, Side::Tickwheel];
        pair.rotate_left(repetition % 2);
        for (group, sleeps, what) in fresh::FRESH {
            let job = |side| job("S16", group, what, Workload::Fresh { side, sleeps });
            jobs.extend(pair.map(job));
        }
        for (group, workers, what) in intervals::INTERVALS {
            let mut sides = intervals::SIDES;
            sides.rotate_left(repetition % 3);
            let job = |side| job("S17", group, what, Workload::Intervals { side, workers });
            jobs.extend(sides.map(job));
        }
        for (group, what, part) in EXPIRING {
            let job = |side| job(group, group, what, Workload::Keyed { side, part });
            jobs.extend(pair.map(job));
        }
    }
    for repetition in 0..scale.pick(1, 3) {
        let mut sides = [true, false];
        sides.rotate_left(repetition % 2);
        for is_many in sides {
            let what = if is_many { crowd::MANY } else { crowd::ONE };
            jobs.push(job("S18", "S18", what, Workload::Crowd { is_many }));
        }
    }
}

/// S12 and S13. The sides that are compared with a bar take turns, each time in a process of its
/// own.
fn light(jobs: &mut Vec<Job>, scale: Scale) {
    for repetition in 0..scale.pick(2, 10) {
        let mut sides = [Side::Tokio, Side::Tickwheel, Side::LongTick, Side::Precise];
        sides.rotate_left(repetition % 4);
        for side in sides {
            jobs.push(job("S12", "S12", side.name(), Workload::Few(side)));
        }
    }
    for side in [
        Side::OwnThread,
        Side::Pingora,
        Side::FuturesTimer,
        Side::AsyncIo,
        Side::TokioTimerfd,
    ] {
        jobs.push(job("S12", "S12", side.name(), Workload::Few(side)));
    }
    for side in [Side::Tokio, Side::Tickwheel, Side::OwnThread] {
        jobs.push(job("S13", "S13", side.name(), Workload::Blocked(side)));
    }
    let side = Side::TokioAlternative;
    for (id, workload) in [
        ("S12", Workload::Few(side)),
        ("S13", Workload::Blocked(side)),
    ] {
        jobs.push(job(id, id, side.name(), workload).by(Program::Alternative));
    }
}
