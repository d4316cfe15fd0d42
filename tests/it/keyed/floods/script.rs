//! Scripts of a few near timers among floods of far ones, and their interpreter.

use std::collections::BTreeMap;
use std::pin::pin;
use std::task::{Context, Waker};
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
    /// The clock jumps, and nothing else runs.
    Stall(u16),
    /// Lets the actor take a turn.
    Yield,
    Settle,
    /// Receives this many timers at most.
    Receive(u8),
}

/// When timers are received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    /// After each operation.
    Prompt,
    /// By [`Op::Receive`] alone, and at the end.
    Slow,
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
        12 if key > 240 => Op::Stall(number % 400),
        12 | 13 => Op::Advance(number % 400),
        14 if key > 128 => Op::Receive(key % 4),
        14 => Op::Yield,
        _ => Op::Settle,
    }
}

#[derive(Debug, Clone, Copy)]
struct Near {
    key: u32,
    /// How often the script had awaited when it was armed.
    awaits: u64,
    /// It was due when everything had settled since it was armed: the reader knows of it.
    is_known: bool,
}

struct Run {
    wheel: TimerWheel,
    timers: KeyedTimers<u32, ()>,
    stream: Expirations<u32, ()>,
    origin: Instant,
    reader: Reader,
    /// The near timers that were not received, by tick and order of arming, in which they have to
    /// expire.
    pending: BTreeMap<(u64, u64), Near>,
    /// The far timers.
    far: Vec<u32>,
    armed: u64,
    awaits: u64,
}

/// Plays a script under the paused clock.
pub(crate) fn run(script: &[Op], reader: Reader) {
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
            reader,
            pending: BTreeMap::new(),
            far: Vec::new(),
            armed: 0,
            awaits: 0,
        };
        for &op in script {
            run.apply(op).await;
            if reader == Reader::Prompt {
                run.receive(usize::MAX);
            }
        }
        run.settle().await;
        run.receive(usize::MAX);
        run.assert_all_received();
    });
}

impl Run {
    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).expect("not so far")
    }

    fn forget(&mut self, key: u32) {
        self.pending.retain(|_, other| other.key != key);
    }

    fn arm(&mut self, key: u32, millis: u16) {
        self.forget(key);
        self.armed += 1;
        let tick = self.now() + u64::from(millis);
        let near = Near {
            key,
            awaits: self.awaits,
            is_known: false,
        };
        self.pending.insert((tick, self.armed), near);
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
                let is_pending = self.pending.values().any(|other| other.key == key);
                assert_eq!(moved, Ok(is_pending), "key {key}");
                if is_pending {
                    self.arm(key, millis);
                }
            }
            Op::Remove(key) => {
                let key = u32::from(key % KEYS);
                let removed = self.timers.remove_timer(&key).expect("it is open");
                let is_pending = self.pending.values().any(|other| other.key == key);
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
            Op::Advance(millis) => {
                time::advance(after(millis)).await;
                self.awaits += 1;
            }
            Op::Stall(millis) => stall(after(millis)),
            Op::Yield => {
                tokio::task::yield_now().await;
                self.awaits += 1;
            }
            Op::Settle => self.settle().await,
            Op::Receive(n) => self.receive(n.into()),
        }
    }

    async fn settle(&mut self) {
        self.wheel.settle().await;
        self.awaits += 1;
        let now = self.now();
        for (_, near) in self.pending.range_mut(..(now + 1, 0)) {
            near.is_known = true;
        }
        if self.reader == Reader::Prompt {
            self.receive(usize::MAX);
            self.assert_all_received();
        }
    }

    fn assert_all_received(&self) {
        let late = self.pending.values().find(|near| near.is_known);
        assert!(late.is_none(), "{late:?} is due and was not received");
    }

    /// The expired timers are the first ones of those that the reader knows, in order, and they are
    /// due.
    fn receive(&mut self, limit: usize) {
        for _ in 0..limit {
            let Ok(expired) = self.stream.try_recv() else {
                return self.assert_all_received();
            };
            let mut all = self.pending.iter();
            let own = all.find(|(_, near)| near.key == expired.key);
            let (&place, &near) = own.expect("a far timer has expired, or one twice");
            assert!(place.0 <= self.now(), "{near:?} is early");
            // Without a turn of the actor it was found in the slot of another timer.
            let was_told = near.awaits < self.awaits;
            let comes_first =
                |other: &Near| other.is_known || (was_told && other.awaits <= near.awaits);
            let first = self
                .pending
                .range(..place)
                .find(|(_, other)| comes_first(other));
            assert!(first.is_none(), "{near:?} comes before {first:?}");
            self.pending.remove(&place);
        }
    }
}

/// As in [`jump`](crate::support::jump); the fuzz target has no such helper.
fn stall(by: Duration) {
    let advance = pin!(time::advance(by));
    let polled = advance.poll(&mut Context::from_waker(Waker::noop()));
    assert!(
        polled.is_pending(),
        "the clock moves before the first yield"
    );
}
