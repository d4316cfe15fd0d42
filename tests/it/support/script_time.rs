//! The time of a random script: lengths that find the bugs of wheels, and instants in nanoseconds.

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::{self, Instant};

/// Nanoseconds, without overflow.
pub(crate) type Nanos = i128;

/// The end of a script's clock: 200 years, so that no `Instant` overflows.
pub(crate) const LAST: Nanos = 200 * 365 * 86_400 * 1_000_000_000;

/// A length of time.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Span {
    /// A number of ticks, and of eighths of a tick.
    Ticks(u64, u8),
    /// From now until the earliest timer fires, and some nanoseconds more or less.
    ToEarliest(i8),
    /// `Duration::MAX` and other lengths that are too long.
    Far(u8),
}

/// Up to 2^`bits` ticks, often near the borders of levels, whatever the number of slots.
pub(crate) fn ticks(bits: u32) -> impl Strategy<Value = Span> {
    let border = (0..bits, 0..3_u64).prop_map(|(bit, more)| (1 << bit) - 1 + more);
    let ticks = prop_oneof![2 => 0..12_u64, 2 => border, 1 => 0..5000_u64];
    let eighths = prop_oneof![2 => Just(0_u8), 1 => 0..8_u8];
    (ticks, eighths).prop_map(|(ticks, eighths)| Span::Ticks(ticks, eighths))
}

pub(crate) fn delay() -> impl Strategy<Value = Span> {
    prop_oneof![
        12 => ticks(40),
        2 => (-1..=1_i8).prop_map(Span::ToEarliest),
        1 => any::<u8>().prop_map(Span::Far),
    ]
}

/// A number of slots, as a wheel may have.
pub(crate) fn slots() -> impl Strategy<Value = usize> {
    (1..=12_u32).prop_map(|bits| 1 << bits)
}

/// The clock's reading at the start, so that ticks and milliseconds do not coincide.
pub(crate) fn offset() -> impl Strategy<Value = Duration> {
    prop_oneof![Just(0), 0..3_000_000_u64].prop_map(Duration::from_nanos)
}

pub(crate) fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).expect("2^64 seconds fit")
}

/// The duration, or zero for negative nanoseconds.
pub(crate) fn to_duration(nanos: Nanos) -> Duration {
    let nanos = nanos.max(0);
    let secs = u64::try_from(nanos / 1_000_000_000).expect("not so far");
    let subsec = u32::try_from(nanos % 1_000_000_000).expect("a remainder");
    Duration::new(secs, subsec)
}

/// Moves the paused clock while nothing else runs.
pub(crate) fn stall(by: Duration) {
    let advance = pin!(time::advance(by));
    let polled = advance.poll(&mut Context::from_waker(Waker::noop()));
    assert!(
        polled.is_pending(),
        "the clock moves before the first yield"
    );
}

/// Counts time from the start of a script's wheel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScriptClock {
    origin: Instant,
    pub(crate) tick: Duration,
}

impl ScriptClock {
    /// A clock that starts now.
    pub(crate) fn start(tick: Duration) -> Self {
        let origin = Instant::now();
        ScriptClock { origin, tick }
    }

    pub(crate) fn nanos(&self, at: Instant) -> Nanos {
        nanos(at.saturating_duration_since(self.origin))
            - nanos(self.origin.saturating_duration_since(at))
    }

    pub(crate) fn now(&self) -> Nanos {
        self.nanos(Instant::now())
    }

    /// The length of a span; `earliest` is the instant at which the earliest timer fires.
    pub(crate) fn length(&self, span: Span, earliest: impl FnOnce() -> Option<Nanos>) -> Duration {
        match span {
            Span::Ticks(ticks, eighths) => {
                let tick = nanos(self.tick);
                to_duration(Nanos::from(ticks) * tick + tick * Nanos::from(eighths) / 8)
            }
            Span::ToEarliest(more) => {
                let earliest = earliest().unwrap_or(self.now());
                to_duration(earliest - self.now() + Nanos::from(more))
            }
            Span::Far(n) => match n % 4 {
                0 => Duration::MAX,
                1 => Duration::from_secs(u64::MAX),
                2 => Duration::from_secs(1 << (33 + n / 9)),
                _ => Duration::from_nanos(u64::MAX >> (n / 128)),
            },
        }
    }
}
