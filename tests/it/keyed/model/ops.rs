//! The steps of a script, with a distribution that finds the bugs of wheels.

use std::time::Duration;

use proptest::prelude::*;

use crate::support::script_time::{Span, delay, offset, slots, ticks};

/// A wheel, and the instant of its start.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) tick: Duration,
    pub(crate) slots: usize,
    /// The clock's reading at the start.
    pub(crate) offset: Duration,
    pub(crate) max_keyed: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Op {
    Set(u8, Span),
    SetAt(u8, Span),
    SetPast(u8, Span),
    SetInterval(u8, Span),
    SetIfAbsent(u8, Span),
    Move(u8, Span),
    MoveAt(u8, Span),
    MovePast(u8, Span),
    Remove(u8),
    Deadline(u8),
    /// Keeps each timer if the bit of its key is set.
    Retain(u8),
    Drain,
    Advance(Span),
    /// The clock jumps while nothing else runs.
    Stall(Span),
    /// Sets that many timers of another set.
    Flood(u16, Span),
    /// Receives up to that many of these.
    ReadFlood(u16),
    Settle,
    Yield,
    Recv,
    TryRecv,
    RecvMany(u8),
    CloneHandle,
    DropHandle,
    DropStream,
    Shutdown,
    Unexpired,
}

pub(crate) fn setup() -> impl Strategy<Value = Setup> {
    let tick = prop_oneof![
        Just(Duration::from_millis(1)),
        Just(Duration::from_micros(1)),
        Just(Duration::from_micros(250)),
        Just(Duration::from_micros(1001)),
        Just(Duration::from_millis(10)),
        Just(Duration::from_secs(1)),
    ];
    let max_keyed = prop_oneof![3 => Just(None), 1 => (1..5_usize).prop_map(Some)];
    (tick, slots(), offset(), max_keyed).prop_map(|(tick, slots, offset, max_keyed)| Setup {
        tick,
        slots,
        offset,
        max_keyed,
    })
}

fn key() -> impl Strategy<Value = u8> {
    0..6_u8
}

/// Changes of the set, and of the clock.
pub(crate) fn change() -> impl Strategy<Value = Op> {
    prop_oneof![
        10 => (key(), delay()).prop_map(|(key, span)| Op::Set(key, span)),
        3 => (key(), delay()).prop_map(|(key, span)| Op::SetAt(key, span)),
        1 => (key(), ticks(20)).prop_map(|(key, span)| Op::SetPast(key, span)),
        2 => (key(), delay()).prop_map(|(key, span)| Op::SetInterval(key, span)),
        4 => (key(), delay()).prop_map(|(key, span)| Op::SetIfAbsent(key, span)),
        8 => (key(), delay()).prop_map(|(key, span)| Op::Move(key, span)),
        3 => (key(), delay()).prop_map(|(key, span)| Op::MoveAt(key, span)),
        1 => (key(), ticks(20)).prop_map(|(key, span)| Op::MovePast(key, span)),
        6 => key().prop_map(Op::Remove),
        2 => key().prop_map(Op::Deadline),
        2 => any::<u8>().prop_map(Op::Retain),
        1 => Just(Op::Drain),
        4 => ticks(24).prop_map(Op::Advance),
        4 => (-1..=1_i8).prop_map(|nanos| Op::Advance(Span::ToEarliest(nanos))),
        4 => Just(Op::Settle),
        2 => Just(Op::Yield),
    ]
}

pub(crate) fn read() -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => Just(Op::Recv),
        2 => Just(Op::TryRecv),
        2 => (0..5_u8).prop_map(Op::RecvMany),
    ]
}

/// Stalls and floods.
pub(crate) fn turmoil() -> impl Strategy<Value = Op> {
    let flood = prop_oneof![8 => 1..40_u16, 1 => 2_000..5_000_u16];
    prop_oneof![
        4 => ticks(16).prop_map(Op::Stall),
        2 => (-1..=1_i8).prop_map(|nanos| Op::Stall(Span::ToEarliest(nanos))),
        2 => (flood, delay()).prop_map(|(n, span)| Op::Flood(n, span)),
        2 => prop_oneof![1 => 1..40_u16, 1 => Just(u16::MAX)].prop_map(Op::ReadFlood),
    ]
}

/// Operations that leave the set open.
pub(crate) fn lasting_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        50 => change(),
        9 => read(),
        4 => turmoil(),
    ]
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        40 => lasting_op(),
        1 => Just(Op::CloneHandle),
        1 => Just(Op::DropHandle),
        1 => prop_oneof![
            2 => Just(Op::Unexpired),
            1 => Just(Op::Shutdown),
            1 => Just(Op::DropStream),
        ],
    ]
}
