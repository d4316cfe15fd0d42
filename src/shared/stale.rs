//! The stale nodes on the wheel of the sleeps: how many there are, and when the actor sweeps.
//!
//! A thread that drops a sleep, and has no room for its entry in its pool, sends no command for
//! it: it leaves a node behind that nothing needs. So does a sleep that is scheduled earlier. A
//! thread counts the nodes it leaves, and adds them up here, [`STALE_BATCH`] at a time. Above a
//! [limit] the actor sweeps: it visits the nodes, a bounded number each turn, and takes the
//! stale ones off the wheel.
//!
//! # Invariants
//!
//! * **W1** A node is counted after it became stale, and after its command was pushed.
//! * **W2** The stale nodes on the wheel, and the commands for such, are at most as many as were
//!   counted since the last sweep began, and [`STALE_BATCH`] for each thread besides. A node that
//!   the actor reaches in time is still counted, so the count may be too high, and a sweep too
//!   early.
//! * **W3** While the actor waits the count is not above the limit, or the actor is being notified.
//!
//! *W2:* the actor [takes](StaleNodes::begin_sweep) the count first. It then applies every command
//! that was pushed before that, and visits all nodes after that. So a node that was in the count
//! that it took is on the wheel when the sweep comes by, or has left it, by W1.
//!
//! *W3:* the last thing that the actor does with the count before it waits is to
//! [publish](StaleNodes::is_over) the limit for the nodes that it has, and then to read the count
//! by adding zero to it: it is not above the limit, or the actor would sweep. A caller adds to the
//! count, and then reads the limit. If it adds later than the actor, it sees that limit. The first
//! one to bring the count above it [finds so](StaleNodes::add), and tells the actor by a
//! command.
//!
//! So the nodes of dropped sleeps do not wait for their deadlines (P7). At rest they are at most as
//! many as the others, or [`STALE_KEPT`], or one for each [`PLACES_PER_STALE`] for which the wheel
//! has memory, with [`STALE_BATCH`] for each thread besides, as a thread also keeps a pool of
//! cancelled entries. In return a sweep takes constant time for each node that was counted.

use crate::sync::IN_EXPLORER;
use crate::sync::atomic::{AtomicUsize, Ordering};

#[cfg(all(test, tickwheel_loom))]
mod model;
#[cfg(all(test, not(tickwheel_loom)))]
mod tests;

/// How many stale nodes a thread counts before it adds them up.
pub(crate) const STALE_BATCH: usize = if IN_EXPLORER || cfg!(tickwheel_loom) {
    2
} else {
    64
};

/// How many stale nodes there may be, however few others.
pub(crate) const STALE_KEPT: usize = if IN_EXPLORER || cfg!(tickwheel_loom) {
    2
} else {
    512
};

/// A sweep looks at each place for a node: there may be a stale node for this many.
const PLACES_PER_STALE: usize = 16;

/// How many of so many nodes may be stale, on a wheel with memory for so many `places`.
pub(crate) fn limit(nodes: usize, places: usize) -> usize {
    (nodes / 2).max(places / PLACES_PER_STALE).max(STALE_KEPT)
}

/// See the module.
#[derive(Debug)]
pub(crate) struct StaleNodes {
    /// An upper bound of those that were left since the last sweep began.
    count: AtomicUsize,
    limit: AtomicUsize,
}

impl Default for StaleNodes {
    fn default() -> Self {
        StaleNodes {
            count: AtomicUsize::new(0),
            limit: AtomicUsize::new(STALE_KEPT),
        }
    }
}

impl StaleNodes {
    /// The caller has left so many. Returns whether it has to tell the actor, by a command.
    pub(crate) fn add(&self, nodes: usize) -> bool {
        let before = self.count.fetch_add(nodes, Ordering::AcqRel);
        let limit = self.limit.load(Ordering::Relaxed);
        (before..before + nodes).contains(&limit)
    }

    /// The actor has taken its turn, and allows so many. Returns whether there are more.
    pub(crate) fn is_over(&self, limit: usize) -> bool {
        self.limit.store(limit, Ordering::Relaxed);
        self.count.fetch_add(0, Ordering::AcqRel) > limit
    }

    /// A sweep left so many nodes, which may be stale: their entries were locked.
    pub(crate) fn count_again(&self, nodes: usize) {
        self.count.fetch_add(nodes, Ordering::Relaxed);
    }

    /// The actor begins a sweep: it applies the commands that were pushed before this, and then
    /// visits all nodes.
    pub(crate) fn begin_sweep(&self) -> usize {
        self.count.swap(0, Ordering::AcqRel)
    }
}
