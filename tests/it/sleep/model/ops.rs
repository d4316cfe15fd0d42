//! The steps of a script, with a distribution that finds the bugs of wheels.

use std::time::Duration;

use proptest::prelude::*;

use crate::support::script_time::{Span, delay, offset, slots, ticks};

/// How many tasks poll each sleep.
pub(crate) const TASKS: usize = 3;

/// A wheel, and the instant of its start.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) tick: Duration,
    pub(crate) slots: usize,
    /// The clock's reading at the start.
    pub(crate) offset: Duration,
    /// Whether the script ends with a shutdown while sleeps wait, or with the last deadline.
    pub(crate) shuts_down: bool,
}

/// A step. A number names a sleep by its position, modulo the number of sleeps.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Op {
    Make(Span),
    MakeAt(Span),
    MakePast(Span),
    Poll(u8, u8),
    Reset(u8, Span),
    ResetPast(u8, Span),
    /// Resets a sleep to the deadline it has.
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
    (tick, slots(), offset(), any::<bool>()).prop_map(|(tick, slots, offset, shuts_down)| Setup {
        tick,
        slots,
        offset,
        shuts_down,
    })
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
