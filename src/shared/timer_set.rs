//! A set of timers as the actor sees it, without the types of its keys and values.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::atomic::AtomicU32;

pub(crate) use super::actor_mutex::{Batch, Contended, LockMode};
use super::turn::Turn;
use crate::wheel::BareWheel;

/// The most keyed timers a wheel can have, over all of its sets.
pub(crate) const MAX_KEYED: usize = 1 << 29;

/// The actor's half of a set. Every call locks the set once, for a bounded time.
///
/// A call that succeeds returns whether the set has ended for good: no timer is pending, none can
/// be set any more, and the wheel has none of its indices.
pub(crate) trait TimerSet: Send + Sync + fmt::Debug {
    /// The actor's number for the set; 0 when it has none. Only the actor uses it.
    fn number(&self) -> &AtomicU32;

    /// While the set's command is queued: no dirty index is needed before this tick. Does not lock the set. A tick that was
    /// announced to the mailbox is seen.
    fn earliest(&self) -> u64;

    /// Moves the dirty indices into `batch`, which is empty.
    fn take_dirty(&self, batch: &mut Batch, lock_mode: LockMode) -> Result<bool, Contended>;

    /// Makes the wheel agree with these indices, which were dirty. None of them is needed before
    /// tick `earliest`, except those marked again since.
    fn process(
        &self,
        indices: &[u32],
        earliest: u64,
        turn: &Turn<'_>,
        wheel: &mut Timers,
        lock_mode: LockMode,
    ) -> Result<bool, Contended>;

    /// The wheel has reached these indices. Those that are due go onto the heap.
    fn process_expirations(
        &self,
        indices: &[u32],
        turn: &Turn<'_>,
        wheel: &mut Timers,
        due: &mut DueHeap,
        lock_mode: LockMode,
    ) -> Result<bool, Contended>;

    /// Delivers timers that are due before tick `before`. Processes at most `limit` of them, and lowers it by that number.
    fn deliver(
        &self,
        before: u64,
        limit: &mut usize,
        turn: &Turn<'_>,
        wheel: &mut Timers,
        due: &mut DueHeap,
        lock_mode: LockMode,
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

/// A keyed timer on the wheel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    /// The actor's number for its set.
    pub(crate) set: NonZeroU32,
    pub(crate) index: u32,
}

/// The wheel of all keyed timers.
pub(crate) type Timers = BareWheel<Item>;
