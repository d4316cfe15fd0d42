//! S8: the wheels alone, without a runtime.

use std::hint::black_box;
use std::time::Duration;

use fastrand::Rng;
use hierarchical_hash_wheel_timer::IdOnlyTimerEntry;
use hierarchical_hash_wheel_timer::wheels::cancellable::QuadWheelWithOverflow;
use tickwheel::wheel::{Token, Wheel};

use crate::measure::{Meter, Scale, Spent, alternate, emit_cost};

/// An hour of ticks of a millisecond.
const HOUR: u64 = 3_600_000;

struct Ours {
    wheel: Wheel<u64>,
    tokens: Vec<Token>,
    rng: Rng,
}

impl Ours {
    fn new(resident: u64) -> Self {
        let mut rng = Rng::with_seed(8);
        let mut wheel = Wheel::new();
        let tokens = (0..resident)
            .map(|id| wheel.insert(rng.u64(1..HOUR), id))
            .collect();
        Ours { wheel, tokens, rng }
    }

    fn insert_and_remove(&mut self, rounds: u64) -> Spent {
        let meter = Meter::start();
        for id in 0..rounds {
            let token = self.wheel.insert(self.rng.u64(1..HOUR), id);
            black_box(self.wheel.remove(token)).expect("it was just inserted");
        }
        meter.stop()
    }

    fn replace(&mut self, rounds: u64) -> Spent {
        let meter = Meter::start();
        for _ in 0..rounds {
            let at = self.rng.usize(0..self.tokens.len());
            let id = self.wheel.remove(self.tokens[at]).expect("it is there");
            self.tokens[at] = self.wheel.insert(self.rng.u64(1..HOUR), id);
        }
        meter.stop()
    }
}

struct Theirs {
    wheel: QuadWheelWithOverflow<IdOnlyTimerEntry<u64>>,
    resident: u64,
    rng: Rng,
}

impl Theirs {
    fn new(resident: u64) -> Self {
        let mut theirs = Theirs {
            wheel: QuadWheelWithOverflow::new(),
            resident,
            rng: Rng::with_seed(8),
        };
        for id in 0..resident {
            theirs.insert(id);
        }
        theirs
    }

    fn insert(&mut self, id: u64) {
        let delay = Duration::from_millis(self.rng.u64(1..HOUR));
        let inserted = self.wheel.insert(IdOnlyTimerEntry { id, delay });
        inserted.expect("it is not due yet");
    }

    fn insert_and_remove(&mut self, rounds: u64) -> Spent {
        let meter = Meter::start();
        for id in self.resident..self.resident + rounds {
            self.insert(id);
            self.wheel.cancel(&id).expect("it was just inserted");
        }
        meter.stop()
    }

    fn replace(&mut self, rounds: u64) -> Spent {
        let meter = Meter::start();
        for _ in 0..rounds {
            let id = self.rng.u64(0..self.resident);
            self.wheel.cancel(&id).expect("it is there");
            self.insert(id);
        }
        meter.stop()
    }
}

/// Inserts and removes while so many others are pending.
pub fn run(scale: Scale, resident: u64) {
    let mut ours = Ours::new(resident);
    let mut theirs = Theirs::new(resident);
    // Theirs keeps what was cancelled until its time has come, which never does here: short turns,
    // so that it is not measured with a heap that only a benchmark makes.
    let scale = Scale {
        quick: scale.quick || resident > 1_000_000,
    };
    let costs = alternate(scale, 4, |side, rounds| match side {
        0 => theirs.insert_and_remove(rounds),
        1 => ours.insert_and_remove(rounds),
        2 => theirs.replace(rounds),
        _ => ours.replace(rounds),
    });
    for costs in costs {
        emit_cost("hhwt, the same", costs[0]);
        emit_cost("tickwheel, the same", costs[1]);
        emit_cost("hhwt, another", costs[2]);
        emit_cost("tickwheel, another", costs[3]);
    }
}
