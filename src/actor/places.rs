//! The places of one set on the wheel: the node of each index, and the number of its newest note.
//!
//! They need no lock, since only the actor has them. They lie in chunks, which grow and go back to
//! the allocator one at a time.
//!
//! # When a chunk is freed
//!
//! A number must not be forgotten while an older note may be on its way (N7). So a chunk that is
//! left with nothing scheduled is listed, and [freed](Places::free) when the actor has
//! [parked](crate::shared::mailbox::Mailbox::park), if there is still nothing scheduled in it:
//!
//! 1. The actor has applied every note that it took, and found each queue empty after that. So a
//!    note that is on its way was pushed after the last visit, and after the last commands were
//!    taken.
//! 2. It was pushed under the hold of the set's lock under which it was drawn (N1). A greater
//!    number was drawn under a later hold: by a caller who pushed the note later still, or by a
//!    later visit. So none was applied.
//!
//! The chunks of a set that the actor forgets are listed no more. An actor that never parks keeps
//! the memory of as many places as there have been timers at once.

#[cfg(all(test, tickwheel_loom))]
mod model;
#[cfg(all(test, not(any(tickwheel_loom, tickwheel_shuttle))))]
mod tests;

use crate::shared::note::{Note, SetKey};
use crate::sync::IN_EXPLORER;
use crate::tick::NEVER;
use crate::wheel::BareWheel;

/// The wheel of all keyed timers: the indices of all sets.
pub(super) type IndexWheel = BareWheel<(SetKey, u32)>;

/// How many indices a chunk has.
const CHUNK: u32 = if IN_EXPLORER { 2 } else { 256 };

/// There are as many as timers, so it is packed, in 12 bytes.
#[derive(Debug, Clone, Copy)]
#[repr(C, packed(4))]
struct Place {
    /// The number of the newest note that was applied (N2); 0 if there was none.
    number: u64,
    /// The node of the index, `NO_NODE` or `REACHED`.
    node: u32,
}

const NO_NODE: u32 = u32::MAX;

/// The index was reached, and waits for a visit. It needs no node until then.
const REACHED: u32 = u32::MAX - 1;

impl Place {
    /// The node of the index, if it has one.
    fn node(self) -> Option<u32> {
        (!matches!(self.node, NO_NODE | REACHED)).then_some(self.node)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Places {
    chunks: Vec<Chunk>,
}

#[derive(Debug, Default)]
struct Chunk {
    places: Vec<Place>,
    /// How many of the indices have a node or wait for a visit.
    occupied: u32,
    /// It waits to be [freed](Places::free).
    is_listed: bool,
}

impl Chunk {
    /// The place of an index, which is in this chunk.
    #[inline]
    fn place(&mut self, index: u32) -> &mut Place {
        &mut self.places[(index % CHUNK) as usize]
    }

    /// Puts the node of an index where the note says. Returns the chunk's position if it has to be
    /// listed.
    fn schedule(&mut self, note: &Note, wheel: &mut IndexWheel) -> Option<u32> {
        let place = self.place(note.index);
        let before = place.node;
        place.node = match (before, note.tick) {
            (NO_NODE | REACHED, NEVER) => NO_NODE,
            (NO_NODE | REACHED, tick) => wheel.insert(tick, (note.set, note.index)),
            (node, NEVER) => {
                let removed = wheel.remove(node);
                debug_assert!(removed.is_some(), "the node is the index's");
                NO_NODE
            }
            (node, tick) => {
                let is_there = wheel.reschedule(node, tick);
                debug_assert!(is_there, "the node is the index's");
                node
            }
        };
        let is_scheduled = place.node != NO_NODE;
        self.occupied += u32::from(is_scheduled);
        self.occupied -= u32::from(before != NO_NODE);
        // The first chunk stays as long as the set.
        let position = note.index / CHUNK;
        if self.occupied > 0 || position == 0 || self.is_listed {
            return None;
        }
        self.is_listed = true;
        Some(position)
    }
}

impl Places {
    /// Applies a note from the mailbox, unless a newer one for this index was applied. Returns the
    /// position of a chunk that has to be listed.
    pub(super) fn apply(&mut self, note: &Note, wheel: &mut IndexWheel) -> Option<u32> {
        let chunk = self.chunk(note.index);
        let place = chunk.place(note.index);
        if note.number.get() <= place.number {
            return None;
        }
        place.number = note.number.get();
        if place.node == REACHED {
            // The visit will see what the note is about.
            return None;
        }
        chunk.schedule(note, wheel)
    }

    /// The wheel has reached an index: its node is gone, and it waits for a visit.
    pub(super) fn reached(&mut self, index: u32) {
        self.chunk(index).place(index).node = REACHED;
    }

    /// Applies the note of a visit. Returns the position of a chunk that has to be listed.
    pub(super) fn visited(&mut self, note: &Note, wheel: &mut IndexWheel) -> Option<u32> {
        let chunk = self.chunk(note.index);
        let place = chunk.place(note.index);
        debug_assert!(place.number < note.number.get(), "N3");
        place.number = note.number.get();
        chunk.schedule(note, wheel)
    }

    /// The chunk with the place of an index.
    #[inline]
    fn chunk(&mut self, index: u32) -> &mut Chunk {
        let (position, within) = ((index / CHUNK) as usize, (index % CHUNK) as usize);
        let has_place = |chunk: &Chunk| within < chunk.places.len();
        if !self.chunks.get(position).is_some_and(has_place) {
            self.add_place(position, within);
        }
        &mut self.chunks[position]
    }

    #[cold]
    fn add_place(&mut self, position: usize, within: usize) {
        if position >= self.chunks.len() {
            if self.chunks.is_empty() {
                // Most sets need no other.
                self.chunks.reserve_exact(1);
            }
            self.chunks.resize_with(position + 1, Chunk::default);
        }
        let places = &mut self.chunks[position].places;
        if position > 0 {
            places.reserve_exact(CHUNK as usize - places.len());
        }
        let new = Place {
            number: 0,
            node: NO_NODE,
        };
        places.resize(within + 1, new);
    }

    /// The actor has parked: frees a listed chunk if nothing is scheduled in it.
    pub(super) fn free(&mut self, position: u32) {
        let Some(chunk) = self.chunks.get_mut(position as usize) else {
            return;
        };
        chunk.is_listed = false;
        if chunk.occupied > 0 {
            return;
        }
        *chunk = Chunk::default();
        let is_freed = |chunk: &Chunk| chunk.places.capacity() == 0;
        while self.chunks.len() > 1 && self.chunks.last().is_some_and(is_freed) {
            self.chunks.pop();
        }
        if self.chunks.len() <= self.chunks.capacity() / 4 {
            self.chunks.shrink_to_fit();
        }
    }

    /// Whether a chunk waits to be [freed](Self::free).
    pub(super) fn has_listed(&self) -> bool {
        self.chunks.iter().any(|chunk| chunk.is_listed)
    }

    /// Takes all indices off the wheel.
    pub(super) fn clear(&mut self, wheel: &mut IndexWheel) {
        let occupied = self.chunks.drain(..).filter(|chunk| chunk.occupied > 0);
        for place in occupied.flat_map(|chunk| chunk.places) {
            if let Some(node) = place.node() {
                wheel.remove(node);
            }
        }
    }
}
