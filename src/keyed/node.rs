//! The wheel of keyed timers and watches: the indices of all sets, and which node each has.
//!
//! It applies notes in order, so the last one for an index counts. It tells the reader of a set
//! which indices the wheel has reached; the reader decides what is due there. The actor never looks
//! at a set.
//!
//! When a set is forgotten its nodes leave the wheel a bounded number each turn. Its key is given
//! back after the last one.

use std::collections::VecDeque;
use std::sync::Arc;

use super::hint::{Hints, Reach, ToldBefore};
use super::set_key::{SetKey, SetKeys};
use crate::shared::mailbox::CommandQueue;
use crate::tick::{NEVER, Timestamp};
use crate::wheel::BareWheel;

#[cfg(all(test, not(any(tickwheel_loom, tickwheel_shuttle))))]
mod tests;

/// The index has no node.
const NO_NODE: u32 = u32::MAX;

/// How many nodes a page has.
const PAGE: usize = 1024;

/// A page without a node on the wheel keeps memory for so many.
const KEPT_CAPACITY: usize = 64;

/// What it costs to let go of a set, in nodes.
const COST_OF_SET: usize = 16;

/// A list of sets with memory for this many times their number is moved to less.
const SPARSE: usize = 4;

/// See the module.
#[derive(Debug)]
pub(crate) struct KeyedWheel {
    /// Others only read it.
    pub(crate) wheel: BareWheel<(SetKey, u32)>,
    /// By the position of the set's key.
    sets: Vec<Option<Box<Nodes>>>,
    /// The indices that the wheel has reached, and of which their readers were not told.
    reached: Vec<(SetKey, u32)>,
    /// Sets whose readers were told of a part of what is reached at this tick.
    partly: VecDeque<(u64, SetKey)>,
    /// Sets that are forgotten, and are there until all their nodes are gone.
    forgotten: CommandQueue<SetKey>,
    /// The keys that are to be given back.
    unused: Vec<SetKey>,
    /// What a step of the wheel has reached; kept for its memory.
    batch: Vec<(SetKey, u32)>,
}

/// The nodes of a set.
#[derive(Debug)]
struct Nodes {
    /// `None` once the set is forgotten.
    hints: Option<Arc<Hints>>,
    /// By index: page by page, so that no list of millions is moved as it grows, and a page with
    /// nothing on the wheel gives its memory back.
    pages: Vec<Page>,
    /// The last tick for which it is in `partly`; `NEVER` if it is not.
    partly_told_at: u64,
}

/// The nodes of so many indices in a row.
#[derive(Debug, Default)]
struct Page {
    nodes: Vec<u32>,
    /// How many are on the wheel.
    scheduled: usize,
}

impl Nodes {
    fn get(&self, index: u32) -> u32 {
        let page = self.pages.get(index as usize / PAGE);
        let node = page.and_then(|page| page.nodes.get(index as usize % PAGE));
        node.copied().unwrap_or(NO_NODE)
    }

    /// The index, which had none, has this node.
    fn enter(&mut self, index: u32, node: u32) {
        let (number, place) = (index as usize / PAGE, index as usize % PAGE);
        if number >= self.pages.len() {
            self.pages.resize_with(number + 1, Page::default);
        }
        let page = &mut self.pages[number];
        if place >= page.nodes.len() {
            if number > 0 {
                page.nodes.reserve_exact(PAGE);
            }
            page.nodes.resize(place + 1, NO_NODE);
        }
        page.nodes[place] = node;
        page.scheduled += 1;
    }

    /// The node of the index has left the wheel.
    fn leave(&mut self, index: u32) {
        let page = &mut self.pages[index as usize / PAGE];
        page.nodes[index as usize % PAGE] = NO_NODE;
        page.scheduled -= 1;
        if page.scheduled == 0 && page.nodes.capacity() > KEPT_CAPACITY {
            page.nodes = Vec::new();
            self.cut();
        }
    }

    /// Cuts off what lies behind the last node on the wheel.
    #[cold]
    fn cut(&mut self) {
        while self.pages.last().is_some_and(|page| page.scheduled == 0) {
            self.pages.pop();
        }
        if self.pages.len() <= self.pages.capacity() / SPARSE {
            self.pages.shrink_to_fit();
        }
    }
}

impl KeyedWheel {
    pub(crate) fn new(slots: usize) -> Self {
        KeyedWheel {
            wheel: BareWheel::new(slots),
            sets: Vec::new(),
            reached: Vec::new(),
            partly: VecDeque::new(),
            forgotten: CommandQueue::new(),
            unused: Vec::new(),
            batch: Vec::new(),
        }
    }

    /// A set has drawn this key.
    pub(crate) fn register(&mut self, set: SetKey, hints: Arc<Hints>) {
        let position = set.position();
        if position >= self.sets.len() {
            self.sets.resize_with(position + 1, || None);
        }
        debug_assert!(self.sets[position].is_none(), "a key names one set");
        self.sets[position] = Some(Box::new(Nodes {
            hints: Some(hints),
            pages: Vec::new(),
            partly_told_at: NEVER,
        }));
    }

    /// The set has sent its last note under this key.
    pub(crate) fn forget(&mut self, set: SetKey) {
        self.nodes(set).hints = None;
        self.forgotten.push(NEVER, set);
    }

    fn nodes(&mut self, set: SetKey) -> &mut Nodes {
        let nodes = self.sets[set.position()].as_mut();
        nodes.expect("a set is registered first, and is there until all its nodes are gone")
    }

    /// Applies a note: schedules the index for this tick, or takes it off the wheel.
    pub(crate) fn apply(&mut self, set: SetKey, index: u32, tick: u64) {
        let nodes = self.sets[set.position()].as_mut();
        let nodes = nodes.expect("a set is registered before its notes, and forgotten after");
        match (nodes.get(index), tick) {
            (NO_NODE, NEVER) => {}
            (NO_NODE, tick) => nodes.enter(index, self.wheel.insert(tick, (set, index))),
            (node, NEVER) => {
                self.wheel.remove(node);
                nodes.leave(index);
            }
            (node, tick) => {
                self.wheel.reschedule(node, tick);
            }
        }
    }

    /// Takes nodes of forgotten sets off the wheel, at most `limit`, and gives keys back.
    pub(crate) fn dismantle(&mut self, mut limit: usize, keys: &SetKeys) {
        while let Some(&set) = self.forgotten.front().filter(|_| limit > 0) {
            let nodes = self.sets[set.position()].as_mut();
            let pages = &mut nodes
                .expect("it is there until all its nodes are gone")
                .pages;
            if let Some(page) = pages.last_mut() {
                limit -= 1;
                match page.nodes.pop() {
                    Some(NO_NODE) => {}
                    Some(node) => drop(self.wheel.remove(node)),
                    None => drop(pages.pop()),
                }
                continue;
            }
            limit = limit.saturating_sub(COST_OF_SET);
            self.forgotten.pop();
            self.sets[set.position()] = None;
            self.unused.push(set);
        }
        if !self.unused.is_empty() {
            keys.give_back(&mut self.unused);
        }
        while limit > 0 && self.sets.last().is_some_and(Option::is_none) {
            limit -= 1;
            self.sets.pop();
        }
        if self.sets.len() <= self.sets.capacity() / SPARSE {
            self.sets.shrink_to_fit();
        }
    }

    /// Whether there is work beside what is due.
    pub(crate) fn has_work_left(&self) -> bool {
        !self.forgotten.is_empty()
            || !self.unused.is_empty()
            || self.sets.last().is_some_and(Option::is_none)
            || self.wheel.has_spare()
    }

    /// Tells the readers what the wheel reaches by tick `until`, at most `limit` indices. Returns
    /// the tick before which all of it is told, and how many indices it has reached.
    pub(crate) fn fire(
        &mut self,
        until: u64,
        limit: usize,
        armed_after: Timestamp,
        told: &ToldBefore,
    ) -> (u64, usize) {
        let (mut left, mut count) = (limit, 0);
        while self.wheel.step(until, &mut self.batch, &mut left) {
            count += self.batch.len();
            for (set, index) in self.batch.drain(..) {
                let nodes = self.sets[set.position()].as_mut();
                let nodes = nodes.expect("a set is there until all its nodes are gone");
                nodes.leave(index);
                if nodes.hints.is_some() {
                    self.reached.push((set, index));
                }
            }
        }
        let before = self.wheel.done_before(until);
        told.lower(before);
        let reach = self.reach(before, armed_after);
        let is_told = self.tell_reached(reach) && self.tell_partly(reach, limit);
        if !is_told {
            return (0, count);
        }
        told.set(before);
        (before, count)
    }

    /// The wheel has told everything before this tick, or is about to.
    fn reach(&self, before: u64, armed_after: Timestamp) -> Reach {
        Reach {
            tick: self.wheel.now().max(before.saturating_sub(1)),
            before,
            armed_after,
        }
    }

    /// Tells the readers what was reached. Returns `false` if the lists of some are locked, which
    /// are told in the next turn.
    fn tell_reached(&mut self, reach: Reach) -> bool {
        let now = self.wheel.now();
        // A reader is told once how far the wheel has come, with all of its indices.
        self.reached.sort_by_key(|&(set, _)| set);
        let mut kept = Vec::new();
        for run in self.reached.chunk_by(|one, other| one.0 == other.0) {
            let set = run[0].0;
            let Some(nodes) = self.sets[set.position()].as_deref_mut() else {
                continue;
            };
            let Some(hints) = &nodes.hints else {
                continue;
            };
            if !hints.tell(run.iter().map(|&(_, index)| index), reach) {
                kept.extend_from_slice(run);
            } else if reach.before <= now && nodes.partly_told_at != now {
                nodes.partly_told_at = now;
                self.partly.push_back((now, set));
            }
        }
        self.reached.clear();
        self.reached.append(&mut kept);
        self.reached.is_empty()
    }

    /// Tells readers that a tick is complete of which they were told a part, at most `limit`.
    /// Returns whether that is all of them.
    fn tell_partly(&mut self, reach: Reach, limit: usize) -> bool {
        for _ in 0..limit {
            let Some(&(tick, set)) = self.partly.front() else {
                break;
            };
            if tick >= reach.before {
                return true;
            }
            // It may be forgotten by now. Then another set may have the key, which may know this.
            let nodes = self.sets.get_mut(set.position());
            if let Some(nodes) = nodes.and_then(Option::as_deref_mut) {
                let hints = nodes.hints.as_ref();
                if hints.is_some_and(|hints| !hints.tell([].into_iter(), reach)) {
                    return false;
                }
                // Timers that are set for that tick from now on may come in parts again.
                nodes.partly_told_at = NEVER;
            }
            self.partly.pop_front();
        }
        self.partly.is_empty()
    }

    /// The clock has become virtual, and would move to the nodes of kept slots. Which they are the
    /// readers know: takes all nodes off the wheel, as if it had reached them.
    pub(crate) fn evict(&mut self) {
        for node in 0..self.wheel.indices() {
            if let Some((set, index)) = self.wheel.remove(node) {
                self.nodes(set).leave(index);
                self.reached.push((set, index));
            }
        }
    }

    /// The lists of all sets.
    pub(crate) fn hints(&self) -> impl Iterator<Item = &Hints> {
        let nodes = self.sets.iter().flatten();
        nodes.filter_map(|nodes| nodes.hints.as_deref())
    }
}
