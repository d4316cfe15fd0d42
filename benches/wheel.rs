//! The wheel alone: items are inserted, removed and handed out, among up to ten million others.
#![allow(missing_docs)]

mod support;

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use support::Random;
use tickwheel::wheel::{Token, Wheel};

/// An hour of ticks of a millisecond.
const HOUR: u64 = 3_600_000;

const RESIDENT: [usize; 5] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// How far away the ticks are at which items are due.
#[derive(Clone, Copy)]
enum Deadlines {
    /// Anywhere within an hour.
    Uniform,
    /// Half an hour, as timeouts of one kind have it.
    Constant,
    /// Mostly near and now and then very far: each octave is as likely as the next.
    PowerLaw,
}

impl Deadlines {
    const ALL: [(&'static str, Deadlines); 3] = [
        ("uniform", Deadlines::Uniform),
        ("constant", Deadlines::Constant),
        ("power law", Deadlines::PowerLaw),
    ];

    fn next(self, now: u64, random: &mut Random) -> u64 {
        let away = match self {
            Deadlines::Uniform => random.below(HOUR) + 1,
            Deadlines::Constant => HOUR / 2,
            Deadlines::PowerLaw => {
                let octave = random.below(32);
                (1 << octave) + random.below(1 << octave)
            }
        };
        now + away
    }
}

struct Filled {
    wheel: Wheel<u64>,
    tokens: Vec<Token>,
    deadlines: Deadlines,
    random: Random,
}

impl Filled {
    fn new(resident: usize, deadlines: Deadlines) -> Self {
        let mut random = Random::new(resident as u64);
        let mut wheel = Wheel::new();
        let tokens = (0..resident as u64)
            .map(|item| wheel.insert(deadlines.next(0, &mut random), item))
            .collect();
        Filled {
            wheel,
            tokens,
            deadlines,
            random,
        }
    }

    fn due(&mut self) -> u64 {
        self.deadlines.next(self.wheel.now(), &mut self.random)
    }

    fn insert_and_remove(&mut self) -> Option<u64> {
        let due = self.due();
        let token = self.wheel.insert(due, 7);
        self.wheel.remove(black_box(token))
    }

    /// One of the others goes and comes again.
    fn replace(&mut self) {
        let at = self.random.below(self.tokens.len() as u64);
        let at = usize::try_from(at).expect("it is a place in memory");
        let item = self.wheel.remove(self.tokens[at]).expect("it is there");
        let due = self.due();
        self.tokens[at] = self.wheel.insert(due, item);
    }

    /// Advances until this many items are handed out, and inserts each again at once. Returns how
    /// long that took.
    fn advance(&mut self, items: u64) -> Duration {
        let mut yielded = 0;
        let start = Instant::now();
        while yielded < items {
            let next = self.wheel.next_wake().expect("it is never empty");
            let due: Vec<u64> = self.wheel.advance(next, 256).collect();
            yielded += due.len() as u64;
            for item in due {
                let due = self.due();
                self.wheel.insert(due, item);
            }
        }
        support::share(start.elapsed(), items, yielded)
    }
}

fn wheel(c: &mut Criterion) {
    for resident in RESIDENT {
        for (name, deadlines) in Deadlines::ALL {
            let mut group = c.benchmark_group(format!("wheel: {resident} resident, {name}"));
            let mut filled = Filled::new(resident, deadlines);
            group.bench_function("insert + remove", |b| b.iter(|| filled.insert_and_remove()));
            group.bench_function("another removed + inserted", |b| {
                b.iter(|| filled.replace());
            });
            group.bench_function(BenchmarkId::new("advance", "item"), |b| {
                b.iter_custom(|items| filled.advance(items));
            });
            group.finish();
        }
    }
}

criterion_group!(benches, wheel);
criterion_main!(benches);
