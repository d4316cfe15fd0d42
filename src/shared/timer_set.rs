//! A set of timers as the actor sees it, without the types of its keys and values.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::num::NonZeroU64;

use super::note::Place;
use super::turn::Turn;

/// The most keyed timers a wheel can have, over all of its sets.
pub(crate) const MAX_KEYED: usize = 1 << 29;

/// The actor's half of a set.
pub(crate) trait TimerSet: Send + Sync + fmt::Debug {
    /// Processes indices that the wheel has reached, and delivers due timers, a bounded number.
    fn visit(&self, visit: Visit<'_>) -> Result<(), Contended>;

    /// The actor ends: nothing will expire any more.
    fn close(&self);
}

/// Another thread holds the lock of the set, or of the list of sets, for which the actor does not
/// wait. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Contended;

/// What the actor has for a set that it visits.
pub(crate) struct Visit<'a> {
    /// Indices that the wheel has reached. They have no node.
    pub(crate) reached: &'a mut Vec<u32>,
    /// Timers that were found due.
    pub(crate) due: &'a mut DueHeap,
    /// Only timers that are due before this tick are delivered.
    pub(crate) before: u64,
    /// How many timers may be processed, less those that have been.
    pub(crate) limit: &'a mut usize,
    pub(crate) turn: &'a Turn<'a>,
    pub(crate) wheel: &'a mut dyn Place,
}

/// A timer that is due and waits to be delivered, ordered by tick and then by arming. The
/// [set](crate::timer_set) says whether it still counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Due {
    pub(crate) tick: u64,
    pub(crate) order: NonZeroU64,
    pub(crate) index: u32,
}

/// The due timers of one set, the first to be delivered on top.
pub(crate) type DueHeap = BinaryHeap<Reverse<Due>>;
