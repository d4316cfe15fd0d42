//! The wheel of keyed timers and watches: the indices of all sets.
//!
//! The actor knows the node of each index, and what it is told by notes, in order: so the last one
//! counts. It tells the reader of a set which indices the wheel has reached. Whether a timer is due
//! there, the reader decides. The actor never looks at a set.

use std::mem;
use std::sync::Arc;

use crate::shared::reached::Reached;
use crate::shared::sets::SetKey;
use crate::tick::NEVER;
use crate::wheel::BareWheel;

/// The index has no node.
const NO_NODE: u32 = u32::MAX;

/// A set with nothing scheduled keeps memory for so many nodes.
const KEPT_CAPACITY: usize = 256;

/// See the module.
#[derive(Debug)]
pub(super) struct KeyedWheel {
    /// Others only read it.
    pub(super) wheel: BareWheel<(SetKey, u32)>,
    /// By the position of the set's key.
    sets: Vec<Option<Known>>,
    /// The sets with indices of this tick, which are not all added yet.
    added: Vec<SetKey>,
    added_at: u64,
    /// What the wheel has just reached; kept for its memory.
    batch: Vec<(SetKey, u32)>,
}

#[derive(Debug)]
struct Known {
    reached: Arc<Reached>,
    /// By index.
    nodes: Vec<u32>,
    /// How many indices have a node.
    scheduled: usize,
    /// It is in `added`.
    is_added: bool,
}

impl Known {
    /// So many nodes have left the wheel.
    fn left(&mut self, nodes: usize) {
        self.scheduled -= nodes;
        if self.scheduled == 0 && self.nodes.capacity() > KEPT_CAPACITY {
            self.nodes = Vec::new();
        }
    }
}

impl KeyedWheel {
    pub(super) fn new(slots: usize) -> Self {
        KeyedWheel {
            wheel: BareWheel::new(slots),
            sets: Vec::new(),
            added: Vec::new(),
            added_at: 0,
            batch: Vec::new(),
        }
    }

    /// A set was made.
    pub(super) fn register(&mut self, set: SetKey, reached: Arc<Reached>) {
        let position = set.position();
        if position >= self.sets.len() {
            self.sets.resize_with(position + 1, || None);
        }
        self.sets[position] = Some(Known {
            reached,
            nodes: Vec::new(),
            scheduled: 0,
            is_added: false,
        });
    }

    /// A set was dropped.
    pub(super) fn forget(&mut self, set: SetKey) {
        let known = self.sets[set.position()].take();
        // Its timers were removed before: few nodes are left, if any.
        let known = known.filter(|known| known.scheduled > 0);
        for node in known.into_iter().flat_map(|known| known.nodes) {
            if node != NO_NODE {
                self.wheel.remove(node);
            }
        }
        while self.sets.last().is_some_and(Option::is_none) {
            self.sets.pop();
        }
        if self.sets.len() <= self.sets.capacity() / 4 {
            self.sets.shrink_to_fit();
        }
    }

    /// Applies a note.
    pub(super) fn apply(&mut self, set: SetKey, index: u32, tick: u64) {
        let known = self.sets[set.position()].as_mut();
        let known = known.expect("a set is registered before its notes, and forgotten after");
        let position = index as usize;
        if position >= known.nodes.len() {
            if tick == NEVER {
                return;
            }
            known.nodes.resize(position + 1, NO_NODE);
        }
        let node = &mut known.nodes[position];
        match (*node, tick) {
            (NO_NODE, NEVER) => {}
            (NO_NODE, tick) => {
                *node = self.wheel.insert(tick, (set, index));
                known.scheduled += 1;
            }
            (there, NEVER) => {
                self.wheel.remove(there);
                *node = NO_NODE;
                known.left(1);
            }
            (there, tick) => {
                self.wheel.reschedule(there, tick);
            }
        }
    }

    /// Tells the readers what the wheel reaches by tick `until`, at most `limit` indices. Returns
    /// the tick before which none is left.
    pub(super) fn fire(&mut self, until: u64, mut limit: usize) -> u64 {
        while self.wheel.step(until, &mut self.batch, &mut limit) {
            let tick = self.wheel.now();
            if self.added_at < tick {
                self.publish(tick);
            }
            for run in self.batch.chunk_by(|one, other| one.0 == other.0) {
                let known = self.sets[run[0].0.position()].as_mut();
                let known = known.expect("a set with a node is not forgotten");
                for &(_, index) in run {
                    known.nodes[index as usize] = NO_NODE;
                }
                known.left(run.len());
                known.reached.add(run.iter().map(|&(_, index)| index), tick);
                if !mem::replace(&mut known.is_added, true) {
                    self.added.push(run[0].0);
                }
            }
            self.batch.clear();
        }
        let before = self.wheel.done_before(until);
        if before > self.wheel.now() {
            self.publish(before);
        }
        before
    }

    /// All indices were added that are reached before this tick.
    fn publish(&mut self, before: u64) {
        for set in self.added.drain(..) {
            // It may have been forgotten.
            if let Some(known) = &mut self.sets.get_mut(set.position()).and_then(Option::as_mut) {
                known.reached.publish(before);
                known.is_added = false;
            }
        }
        self.added_at = before;
    }
}
