//! Stalls: when the runtime stood still. Time in which nobody could speak is not silence.
//!
//! After a stall the bytes of a peer lie in its socket, and the task that reads them has not run
//! yet. By the clock alone its connection would be idle. So the verdict that something is idle
//! falls later:
//!
//! > A stall lasts from when the actor could have run until it did, more than [`SHORTEST`]. It
//! > gives a *respite* as long as itself, but no longer than the idle duration. A verdict that is
//! > due during a stall, or during its respite, falls at the end of the respite.
//!
//! What is active until then is not idle. The rule depends on the instant at which the verdict is
//! due, and so on the last activity alone: nothing is written for each connection, and a verdict is
//! put off once. While stalls follow each other it still falls, and what is silent is found to be
//! idle later by a respite at most.
//!
//! The actor records a stall as its turn begins, before it tells anybody what is due. So whoever
//! decides because the actor said so knows of the stall.
//!
//! The actor may run while those stand still that it tells, as on a runtime of its own. So whoever
//! decides, and was waiting, has a [gap](Gap) of its own: from when it was told until it is polled.
//! The same rule holds for that, in its decisions alone.
//!
//! * Nothing is a stall on a virtual clock, which moves in jumps.
//! * While a machine is suspended its monotonic clock stands still, and nothing falls due.
//! * A stall that ends before the actor had anything to do is not noticed. Nothing fell due in it.
//!   What falls due soon after is left to the [hearing](super::hearing).
//! * If some workers are blocked, and others run the actor and those who decide, the runtime does
//!   not stand still.
//!
//! Only the actor writes. A stall has two words, and a reader that finds the first one changed
//! after it has read the second one leaves it out: it is being replaced, and the reader was told of
//! nothing that is due in the new one. So nobody waits for anybody.

use std::time::Duration;

use crate::sync::IN_EXPLORER;
use crate::sync::atomic::{AtomicU64, Ordering};

#[cfg(all(test, tickwheel_loom))]
mod model;
#[cfg(all(test, not(tickwheel_loom)))]
mod tests;

/// A pause is a stall if it is longer: the system may not run a thread for so long.
pub(crate) const SHORTEST: Duration = Duration::from_millis(20);

/// How many stalls are known.
const KEPT: usize = 8;

/// There is no stall here, or it is being replaced.
const NONE: u64 = u64::MAX;

/// A time in which nobody could speak, in nanoseconds from the wheel's origin. By default there is
/// none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Gap {
    from: u64,
    to: u64,
}

impl Gap {
    /// Somebody could have run at `from`, and did at `to`. `None` if that is too short, or the
    /// clock is virtual, as `is_virtual` says.
    pub(crate) fn between(from: u64, to: u64, is_virtual: impl FnOnce() -> bool) -> Option<Self> {
        let length = Duration::from_nanos(to.saturating_sub(from));
        // The clock of the explorer moves in jumps too.
        let is_gap = length > SHORTEST && !IN_EXPLORER && !is_virtual();
        is_gap.then_some(Gap { from, to })
    }

    /// The end of the respite that it gives.
    fn respite(self, idle: u64) -> u64 {
        self.to.saturating_add((self.to - self.from).min(idle))
    }

    /// When a verdict falls that is due at `due` by the last activity, and takes so much silence.
    #[inline]
    pub(crate) fn put_off(self, due: u64, idle: u64) -> u64 {
        if self.from <= due {
            due.max(self.respite(idle))
        } else {
            due
        }
    }
}

/// The stalls of a wheel. See the module.
#[derive(Debug)]
pub(crate) struct Stalls {
    /// No verdict that is due at this time or later is put off. Not loom's: it would multiply the
    /// models of those who read it, and have no stall.
    until: std::sync::atomic::AtomicU64,
    kept: [Stall; KEPT],
}

#[derive(Debug)]
struct Stall {
    from: AtomicU64,
    to: AtomicU64,
}

impl Stall {
    fn read(&self) -> Option<Gap> {
        let from = self.from.load(Ordering::Acquire);
        let to = self.to.load(Ordering::Acquire);
        let is_whole = from != NONE && self.from.load(Ordering::Relaxed) == from;
        is_whole.then_some(Gap { from, to })
    }

    fn write(&self, Gap { from, to }: Gap) {
        self.from.store(NONE, Ordering::Relaxed);
        self.to.store(to, Ordering::Release);
        self.from.store(from, Ordering::Release);
    }
}

impl Default for Stalls {
    fn default() -> Self {
        let none = || Stall {
            from: AtomicU64::new(NONE),
            to: AtomicU64::new(0),
        };
        Stalls {
            until: 0.into(),
            kept: std::array::from_fn(|_| none()),
        }
    }
}

impl Stalls {
    /// The actor has noticed a stall.
    pub(crate) fn record(&self, stall: Gap) {
        let ends = |kept: &&Stall| kept.read().map_or(0, |stall| stall.respite(NONE));
        // The one that is over first.
        if let Some(kept) = self.kept.iter().min_by_key(ends) {
            kept.write(stall);
        }
        self.until.fetch_max(stall.respite(NONE), Ordering::Release);
    }

    /// When a verdict falls that is due at `due` by the last activity, and takes so much silence.
    #[inline]
    pub(crate) fn put_off(&self, due: u64, idle: u64) -> u64 {
        if due >= self.until.load(Ordering::Acquire) {
            return due;
        }
        self.put_off_by_stalls(due, idle)
    }

    #[cold]
    fn put_off_by_stalls(&self, due: u64, idle: u64) -> u64 {
        let stalls = self.kept.iter().filter_map(Stall::read);
        stalls.fold(due, |latest, stall| latest.max(stall.put_off(due, idle)))
    }
}
