//! The wheel's knowledge of one timer: the protocol between the timer's owner and the actor.
//!
//! # The idea
//!
//! The wheel holds a lower bound; the owner holds the truth. The owner of a timer knows the
//! tick at which the timer is due. The wheel knows a tick by which the actor processes the timer
//! ([`scheduled`](Bound::scheduled)). While the timer is armed,
//!
//! > `scheduled` is not later than the tick at which the timer is due
//!
//! and correctness needs nothing else: at `scheduled` the timer fires, is scheduled again, or
//! leaves the wheel. Hence **moving later and cancelling send no command**.
//!
//! An [entry](crate::shared::entry) of a sleeping future has a bound, with the truth beside it,
//! under a lock. The same idea carries [keyed timers](crate::timer_set), which tell the actor of it
//! in another way.
//!
//! # The operations
//!
//! | | by | when | returns |
//! |---|---|---|---|
//! | [`require`](Bound::require) | owner | it armed or moved the timer | what the actor must be told |
//! | [`release`](Bound::release) | owner | it needs the wheel no more | the same |
//! | [`agree`](Bound::agree) | actor | it took the timer from a queue | how the wheel has to change |
//! | [`reached`](Bound::reached) | actor | the wheel reached the timer's node, which is gone | whether the timer is due |
//! | [`leave`](Bound::leave) | actor | it takes the node off the wheel for another reason | |
//!
//! # Invariants
//!
//! They hold whenever the owner's lock is free and the actor has changed the wheel as it was asked
//! to.
//!
//! * **B1** A timer that is to be processed by tick *t* is scheduled at *t* or before, until it is
//!   found due.
//! * **B2** A timer that is not queued lies on the wheel at `scheduled`. If it has no node,
//!   `scheduled` is `NEVER`.
//! * **B3** A timer that is queued lies on the wheel at `scheduled` or before, or its owner has
//!   told the actor, after the rule of [`ActorAction`], to process it by `scheduled`.
//! * **B4** `queued` is set from before the owner queues the timer until the actor has taken it
//!   out. So an owner queues a timer once, and tells the actor only the earlier tick after that, or
//!   queues it once more, to be taken out earlier. The actor ignores a timer that comes out while
//!   `queued` is not set. A timer is found due only while it is not queued.
//! * **B5** `node` is the only node of this timer on the wheel. Only the actor changes the wheel,
//!   and it does so before it processes any other timer. It processes a timer that the wheel has
//!   reached before it takes the same timer from a queue.
//!
//! B1 to B3, and an actor that follows what it was told, give the promise: an armed timer is
//! processed when it is due.

#[cfg(all(test, not(tickwheel_loom)))]
mod tests;

use crate::tick::NEVER;
use crate::wheel::BareWheel;

/// See the module.
///
/// There may be millions of them, each beside a field of a byte: hence the alignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, packed(4))]
pub(crate) struct Bound {
    /// Only the operations of the bound write it.
    pub(super) scheduled: u64,
    /// The node, or `NO_NODE`; with `QUEUED`.
    place: u32,
}

/// The timer is in a queue, or is going to be pushed into one before its lock is released.
const QUEUED: u32 = 1 << 31;
/// A wheel has fewer nodes.
const NO_NODE: u32 = QUEUED - 1;

/// The action that an owner must take after it has changed a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum ActorAction {
    /// Nothing: the actor processes the timer in time.
    None,
    /// The timer is queued already, but is needed earlier now: announce this tick, or queue the
    /// timer again for it.
    Wake(u64),
    /// Queue the timer, then follow the wake rule for this tick.
    Enqueue(u64),
}

/// The change that the actor must make to the wheel at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum WheelOp {
    Keep,
    /// Insert the timer at this tick.
    Insert(u64),
    /// Move this node to this tick.
    Move(u32, u64),
    /// Take this node off the wheel.
    Remove(u32),
}

impl WheelOp {
    /// Changes the wheel.
    pub(crate) fn apply<T>(self, wheel: &mut BareWheel<T>, item: T) {
        match self {
            WheelOp::Keep => {}
            WheelOp::Insert(tick) => {
                wheel.insert(tick, item);
            }
            WheelOp::Move(node, tick) => {
                wheel.reschedule(node, tick);
            }
            WheelOp::Remove(node) => {
                wheel.remove(node);
            }
        }
    }
}

impl Bound {
    /// The bound of a timer that the actor does not know.
    pub(crate) const NEW: Bound = Bound {
        scheduled: NEVER,
        place: NO_NODE,
    };

    /// The actor processes the timer at this tick or before it; `NEVER` when it is not going to.
    #[cfg(test)]
    pub(crate) fn scheduled(&self) -> u64 {
        self.scheduled
    }

    /// True once the timer is queued or on the wheel.
    #[inline]
    pub(crate) fn is_in_use(&self) -> bool {
        self.place != NO_NODE
    }

    #[inline]
    pub(crate) fn is_queued(&self) -> bool {
        self.place & QUEUED != 0
    }

    #[inline]
    fn node(&self) -> Option<u32> {
        let node = self.place & NO_NODE;
        (node != NO_NODE).then_some(node)
    }

    // --- the owner ---

    /// The timer was armed or moved: the actor has to process it by `tick`.
    #[inline]
    pub(crate) fn require(&mut self, tick: u64) -> ActorAction {
        if self.scheduled <= tick {
            return ActorAction::None;
        }
        self.scheduled = tick;
        if self.is_queued() {
            return ActorAction::Wake(tick);
        }
        self.place |= QUEUED;
        ActorAction::Enqueue(tick)
    }

    /// The timer needs no node any more.
    #[inline]
    pub(crate) fn release(&mut self) -> ActorAction {
        self.scheduled = NEVER;
        if self.is_queued() || !self.is_in_use() {
            return ActorAction::None;
        }
        self.place |= QUEUED;
        ActorAction::Enqueue(NEVER)
    }

    // --- the actor ---

    /// The timer came out of a queue: makes the wheel agree with its owner. A timer that is not
    /// queued has come out before, and stays as it is.
    ///
    /// The owner wants the timer processed at the tick `want`. `NEVER`: it is not armed, and may be
    /// soon, so its node stays where it is. `None`: it needs no node.
    pub(crate) fn agree<T>(&mut self, want: Option<u64>, wheel: &BareWheel<T>) -> WheelOp {
        if !self.is_queued() {
            return WheelOp::Keep;
        }
        self.place &= NO_NODE;
        let node = self.node();
        let on_wheel = node.and_then(|node| Some((node, wheel.tick_of(node)?)));
        debug_assert_eq!(node.is_some(), on_wheel.is_some(), "B5");
        match (want, on_wheel) {
            (None, on_wheel) => {
                *self = Bound::NEW;
                on_wheel.map_or(WheelOp::Keep, |(node, _)| WheelOp::Remove(node))
            }
            (Some(tick), Some((node, at))) if tick < at => {
                self.scheduled = tick;
                WheelOp::Move(node, tick)
            }
            (Some(tick), None) if tick != NEVER => {
                self.insert(tick, wheel);
                WheelOp::Insert(tick)
            }
            (_, on_wheel) => {
                self.scheduled = on_wheel.map_or(NEVER, |(_, at)| at);
                WheelOp::Keep
            }
        }
    }

    /// The wheel has reached the timer, and its node is gone. `now` is the current tick; `want` is
    /// as in [`agree`](Self::agree).
    ///
    /// Returns a tick by `now` if the timer is due since then, and a later one if it has to be
    /// inserted again at once. `None`: it has left the wheel.
    pub(crate) fn reached<T>(
        &mut self,
        want: Option<u64>,
        now: u64,
        wheel: &BareWheel<T>,
    ) -> Option<u64> {
        self.place |= NO_NODE;
        if self.is_queued() {
            // B3: it comes out of the queue in time.
            return None;
        }
        self.scheduled = NEVER;
        let tick = want.filter(|&tick| tick != NEVER)?;
        if tick > now {
            self.insert(tick, wheel);
        }
        Some(tick)
    }

    /// The timer is inserted next, at this tick.
    fn insert<T>(&mut self, tick: u64, wheel: &BareWheel<T>) {
        debug_assert!(!self.is_in_use(), "B5");
        self.scheduled = tick;
        self.place = wheel.next_index();
        assert!(
            self.place < NO_NODE,
            "the actor's wheels hold fewer than 2^31 timers each"
        );
    }

    /// The node is taken off the wheel. A timer that is in a queue stays there.
    pub(crate) fn leave(&mut self) {
        self.scheduled = NEVER;
        self.place |= NO_NODE;
    }
}
