//! What a script consists of, with a distribution that finds the bugs of wheels.

use std::time::Duration;

use proptest::prelude::*;

/// A wheel, and when it is started.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) tick: Duration,
    pub(crate) slots: usize,
    /// The clock's reading at the start, so that ticks and milliseconds do not coincide.
    pub(crate) offset: Duration,
    pub(crate) max_keyed: Option<usize>,
}

/// A length of time, in ticks of the wheel.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Span {
    /// So many ticks, and a fraction in 1/8 of a tick.
    Ticks(u64, u8),
    /// From now to the deadline of the earliest timer, and so many nanoseconds more or less.
    ToEarliest(i8),
    /// `Duration::MAX` and its like.
    Far(u8),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Op {
    Set(u8, Span),
    SetAt(u8, Span),
    SetPast(u8, Span),
    SetInterval(u8, Span),
    Move(u8, Span),
    MoveAt(u8, Span),
    MovePast(u8, Span),
    Remove(u8),
    Deadline(u8),
    Drain,
    Advance(Span),
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
    let slots = (1..=12_u32).prop_map(|bits| 1 << bits);
    let offset = prop_oneof![Just(0), 0..3_000_000_u64];
    let max_keyed = prop_oneof![3 => Just(None), 1 => (1..5_usize).prop_map(Some)];
    (tick, slots, offset, max_keyed).prop_map(|(tick, slots, offset, max_keyed)| Setup {
        tick,
        slots,
        offset: Duration::from_nanos(offset),
        max_keyed,
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

fn key() -> impl Strategy<Value = u8> {
    0..6_u8
}

/// Operations that leave the set open.
pub(crate) fn lasting_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        10 => (key(), delay()).prop_map(|(key, span)| Op::Set(key, span)),
        3 => (key(), delay()).prop_map(|(key, span)| Op::SetAt(key, span)),
        1 => (key(), ticks(20)).prop_map(|(key, span)| Op::SetPast(key, span)),
        2 => (key(), delay()).prop_map(|(key, span)| Op::SetInterval(key, span)),
        8 => (key(), delay()).prop_map(|(key, span)| Op::Move(key, span)),
        3 => (key(), delay()).prop_map(|(key, span)| Op::MoveAt(key, span)),
        1 => (key(), ticks(20)).prop_map(|(key, span)| Op::MovePast(key, span)),
        6 => key().prop_map(Op::Remove),
        2 => key().prop_map(Op::Deadline),
        1 => Just(Op::Drain),
        4 => ticks(24).prop_map(Op::Advance),
        4 => (-1..=1_i8).prop_map(|nanos| Op::Advance(Span::ToEarliest(nanos))),
        4 => Just(Op::Settle),
        2 => Just(Op::Yield),
        5 => Just(Op::Recv),
        2 => Just(Op::TryRecv),
        2 => (0..5_u8).prop_map(Op::RecvMany),
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
