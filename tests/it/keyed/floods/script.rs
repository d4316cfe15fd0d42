//! Scripts of a few near timers among floods of far ones, and their interpreter.

use std::collections::BTreeMap;
use std::time::Duration;

use tickwheel::{Expirations, KeyedTimers, TimerWheel};
use tokio::time::{self, Instant};

#[derive(Debug, Clone, Copy)]
pub(crate) enum Op {
    /// Sets the timer of a key to some milliseconds from now.
    Set(u8, u16),
    Move(u8, u16),
    Remove(u8),
    /// Sets this many far timers.
    Flood(u16),
    /// Removes the far timers.
    Ebb,
    Advance(u16),
    /// Lets the actor take a turn.
    Yield,
    Settle,
}

/// The keys of far timers are these and above.
const FAR: u32 = 1_000;

/// How many keys of near timers there are.
const KEYS: u8 = 8;

/// The operation that four bytes spell.
#[allow(dead_code)] // the fuzz target reads bytes
pub(crate) fn decode(bytes: [u8; 4]) -> Op {
    let [kind, key, high, low] = bytes;
    let number = u16::from_be_bytes([high, low]);
    match kind % 16 {
        0..=4 => Op::Set(key, number % 600),
        5 | 6 => Op::Move(key, number % 600),
        7..=9 => Op::Remove(key),
        10 => Op::Flood(number % 6_000),
        11 => Op::Ebb,
        12 | 13 => Op::Advance(number % 400),
        14 => Op::Yield,
        _ => Op::Settle,
    }
}

struct Run {
    wheel: TimerWheel,
    timers: KeyedTimers<u32, ()>,
    stream: Expirations<u32, ()>,
    origin: Instant,
    /// The near timers: the key of each by its tick and its order of arming, in which they have to
    /// expire.
    pending: BTreeMap<(u64, u64), u32>,
    /// The far timers.
    far: Vec<u32>,
    armed: u64,
}

/// Plays a script under the paused clock.
pub(crate) fn run(script: &[Op]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        // The slots of removed timers are kept, as on a real clock.
        let wheel = TimerWheel::builder().sleeps_on_wheel().start();
        let wheel = wheel.expect("the settings are valid");
        let (timers, stream) = wheel.keyed();
        let mut run = Run {
            wheel,
            timers,
            stream,
            origin: Instant::now(),
            pending: BTreeMap::new(),
            far: Vec::new(),
            armed: 0,
        };
        for &op in script {
            run.apply(op).await;
            run.receive();
        }
        run.settle().await;
    });
}

impl Run {
    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).expect("not so far")
    }

    fn forget(&mut self, key: u32) {
        self.pending.retain(|_, other| *other != key);
    }

    fn arm(&mut self, key: u32, millis: u16) {
        self.forget(key);
        self.armed += 1;
        let tick = self.now() + u64::from(millis);
        self.pending.insert((tick, self.armed), key);
    }

    async fn apply(&mut self, op: Op) {
        let after = |millis: u16| Duration::from_millis(millis.into());
        match op {
            Op::Set(key, millis) => {
                let key = u32::from(key % KEYS);
                let set = self.timers.set_timer(key, (), after(millis));
                assert!(set.is_ok());
                self.arm(key, millis);
            }
            Op::Move(key, millis) => {
                let key = u32::from(key % KEYS);
                let moved = self.timers.move_timer(&key, after(millis));
                let is_pending = self.pending.values().any(|&other| other == key);
                assert_eq!(moved, Ok(is_pending), "key {key}");
                if is_pending {
                    self.arm(key, millis);
                }
            }
            Op::Remove(key) => {
                let key = u32::from(key % KEYS);
                let removed = self.timers.remove_timer(&key).expect("it is open");
                let is_pending = self.pending.values().any(|&other| other == key);
                assert_eq!(removed.is_some(), is_pending, "key {key}");
                self.forget(key);
            }
            Op::Flood(count) => {
                let first = self.far.last().map_or(FAR, |last| last + 1);
                for key in first..first + u32::from(count) {
                    let set = self
                        .timers
                        .set_timer(key, (), Duration::from_secs(1_000_000));
                    assert!(set.is_ok());
                    self.far.push(key);
                }
            }
            Op::Ebb => {
                for key in std::mem::take(&mut self.far) {
                    assert_eq!(self.timers.remove_timer(&key), Ok(Some(())));
                }
            }
            Op::Advance(millis) => time::advance(after(millis)).await,
            Op::Yield => tokio::task::yield_now().await,
            Op::Settle => self.settle().await,
        }
    }

    async fn settle(&mut self) {
        self.wheel.settle().await;
        self.receive();
        let first = self.pending.first_key_value();
        let is_due = first.is_some_and(|((tick, _), _)| *tick <= self.now());
        assert!(
            !is_due,
            "{first:?} is due at {} and has not fired",
            self.now()
        );
    }

    /// The expired timers are the first ones, in order, and they are due.
    fn receive(&mut self) {
        while let Ok(expired) = self.stream.try_recv() {
            let expected = self.pending.pop_first();
            let ((tick, _), key) = expected.expect("a far timer has expired");
            assert_eq!(expired.key, key, "due at {tick}");
            assert!(tick <= self.now(), "{key} is early");
        }
    }
}
