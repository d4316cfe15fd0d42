//! What a script consists of, with a distribution that finds the bugs of wheels.

use std::time::Duration;

use proptest::prelude::*;

/// How many tasks poll each sleep.
pub(crate) const TASKS: usize = 3;

/// A wheel, and when it is started.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) tick: Duration,
    pub(crate) slots: usize,
    /// The clock's reading at the start, so that ticks and milliseconds do not coincide.
    pub(crate) offset: Duration,
    /// How the script ends: with the wheel shut down while sleeps wait, or with the last deadline.
    pub(crate) shuts_down: bool,
}

/// A length of time.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Span {
    /// So many ticks of the wheel, and a fraction in 1/8 of a tick.
    Ticks(u64, u8),
    /// From now to when the earliest waiting sleep fires, and so many nanoseconds more or less.
    ToEarliest(i8),
    /// `Duration::MAX` and its like.
    Far(u8),
}

/// A step. Sleeps are named by their places, modulo how many there are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Op {
    Make(Span),
    MakeAt(Span),
    MakePast(Span),
    Poll(u8, u8),
    Reset(u8, Span),
    ResetPast(u8, Span),
    /// To the deadline it has.
    ResetSame(u8),
    Drop(u8),
    /// Advances the clock; the actor may run or not.
    Advance(Span),
    Settle,
    Yield,
    /// Waits for a sleep, while the clock goes by itself.
    Wait(u8),
}

pub(crate) fn setup() -> impl Strategy<Value = Setup> {
    let tick = prop_oneof![
        4 => Just(Duration::from_millis(1)),
        1 => Just(Duration::from_micros(1)),
        1 => Just(Duration::from_micros(250)),
        1 => Just(Duration::from_micros(1001)),
        2 => Just(Duration::from_millis(10)),
        1 => Just(Duration::from_secs(1)),
    ];
    let slots = (1..=12_u32).prop_map(|bits| 1 << bits);
    let offset = prop_oneof![Just(0), 0..3_000_000_u64];
    (tick, slots, offset, any::<bool>()).prop_map(|(tick, slots, offset, shuts_down)| Setup {
        tick,
        slots,
        offset: Duration::from_nanos(offset),
        shuts_down,
    })
}

/// Up to 2^`bits` ticks, with a liking for the borders of levels whatever the number of slots.
fn ticks(bits: u32) -> impl Strategy<Value = Span> {
    let border = (0..bits, 0..3_u64).prop_map(|(bit, more)| (1 << bit) - 1 + more);
    let ticks = prop_oneof![2 => 0..12_u64, 2 => border, 1 => 0..5000_u64];
    let eighths = prop_oneof![2 => Just(0_u8), 1 => 0..8_u8];
    (ticks, eighths).prop_map(|(ticks, eighths)| Span::Ticks(ticks, eighths))
}

fn delay() -> impl Strategy<Value = Span> {
    prop_oneof![
        12 => ticks(40),
        2 => (-1..=1_i8).prop_map(Span::ToEarliest),
        1 => any::<u8>().prop_map(Span::Far),
    ]
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let name = || 0..8_u8;
    prop_oneof![
        8 => delay().prop_map(Op::Make),
        2 => delay().prop_map(Op::MakeAt),
        1 => ticks(20).prop_map(Op::MakePast),
        14 => (name(), 0..3_u8).prop_map(|(name, task)| Op::Poll(name, task)),
        7 => (name(), delay()).prop_map(|(name, span)| Op::Reset(name, span)),
        1 => (name(), ticks(20)).prop_map(|(name, span)| Op::ResetPast(name, span)),
        1 => name().prop_map(Op::ResetSame),
        5 => name().prop_map(Op::Drop),
        3 => ticks(24).prop_map(Op::Advance),
        4 => (-1..=1_i8).prop_map(|nanos| Op::Advance(Span::ToEarliest(nanos))),
        4 => Just(Op::Settle),
        2 => Just(Op::Yield),
        2 => name().prop_map(Op::Wait),
    ]
}
