//! A set of timers as the actor sees it, without the types of its keys and values.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::AtomicU32;

pub(crate) use super::batch::{Batch, Contended, Patience};
use super::turn::Turn;

/// The most keyed timers a wheel can have, over all of its sets.
pub(crate) const MAX_KEYED: usize = 1 << 29;

/// The actor's half of a set. Every call locks the set once, for a bounded time.
///
/// A call that succeeds says whether the set is over: no timer is pending, and none can be set any more. Then that stays
/// so.
pub(crate) trait TimerSet: Send + Sync + fmt::Debug {
    /// The actor's number for the set; 0 when it has none. Only the actor uses it.
    fn number(&self) -> &AtomicU32;

    /// While the set's command is queued: no dirty index is needed before this tick. Does not lock the set. A tick that was
    /// announced to the mailbox is seen.
    fn earliest(&self) -> u64;

    /// Moves the dirty indices into `batch`, which is empty.
    fn take_dirty(&self, batch: &mut Batch, patience: Patience) -> Result<bool, Contended>;

    /// Makes the wheel agree with these indices, which were dirty. None of them is needed before tick `earliest`, but for
    /// those that were marked again since.
    fn process(
        &self,
        indices: &[u32],
        earliest: u64,
        turn: &Turn<'_>,
        wheel: &mut dyn SetWheel,
        patience: Patience,
    ) -> Result<bool, Contended>;

    /// The wheel has reached these indices.
    fn process_expirations(
        &self,
        indices: &[u32],
        turn: &Turn<'_>,
        wheel: &mut dyn SetWheel,
        patience: Patience,
    ) -> Result<bool, Contended>;

    /// Delivers timers that are due before tick `before`. Processes at most `limit` of them, and lowers it by that number.
    fn deliver(
        &self,
        before: u64,
        limit: &mut usize,
        turn: &Turn<'_>,
        wheel: &mut dyn SetWheel,
        patience: Patience,
    ) -> Result<bool, Contended>;

    /// The actor ends: nothing will expire any more.
    fn close(&self);
}

/// A timer that came off the wheel and waits to be delivered, ordered by tick and then by arming. The
/// [set](crate::timer_set) says whether it still counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Due {
    pub(crate) tick: u64,
    pub(crate) order: NonZeroU64,
    pub(crate) index: u32,
}

/// The due timers of one set, the first to be delivered on top.
pub(crate) type DueHeap = BinaryHeap<Reverse<Due>>;

/// The actor's state for one set, as the set may use it: the wheel, and the heap of its due timers.
pub(crate) trait SetWheel {
    /// Puts an index on the wheel; returns the node.
    fn insert(&mut self, tick: u64, index: u32) -> u32;
    /// The tick of a node.
    fn tick(&self, node: u32) -> u64;
    /// Moves a node to another tick.
    fn reschedule(&mut self, node: u32, tick: u64);
    /// Takes a node off the wheel.
    fn remove(&mut self, node: u32);
    /// The due timers of the set.
    fn due(&mut self) -> &mut DueHeap;
}
