//! The places of one set on the wheel: the node of each index, and the number of its newest note.
//!
//! They need no lock, since only the actor has them. They lie in chunks, which grow and go back to
//! the allocator one at a time.
//!
//! # When a chunk is freed
//!
//! A number must not be forgotten while an older note may be on its way (N7). So a chunk that is
//! left without a node is *watched*: the actor [frees](Places::free) it when every note has been
//! applied that is on its way now. If the chunk has changed meanwhile, it is watched once more.

#[cfg(all(test, tickwheel_loom))]
mod model;
#[cfg(all(test, not(any(tickwheel_loom, tickwheel_shuttle))))]
mod tests;

use crate::shared::note::{Note, SetKey};
use crate::sync::EXPLORED;
use crate::tick::NEVER;
use crate::wheel::BareWheel;

/// The wheel of all keyed timers: the indices of all sets.
pub(super) type Timers = BareWheel<(SetKey, u32)>;

/// How many indices a chunk has.
const CHUNK: u32 = if EXPLORED { 2 } else { 256 };

/// There are as many as timers: hence the alignment.
#[derive(Debug, Clone, Copy)]
#[repr(C, packed(4))]
struct Place {
    /// The number of the newest note that was applied (N2); 0 if there was none.
    number: u64,
    /// The node of the index, or `NO_NODE`.
    node: u32,
}

const NO_NODE: u32 = u32::MAX;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Places {
    chunks: Vec<Chunk>,
}

#[derive(Debug, Default)]
struct Chunk {
    places: Vec<Place>,
    /// How many of the indices have a node.
    nodes: u32,
    is_watched: bool,
    /// It has changed since it is watched.
    has_changed: bool,
}

impl Places {
    /// Applies a note, unless a newer one for this index was applied. Returns the number of a chunk
    /// that has to be watched from now on.
    pub(super) fn apply(&mut self, note: &Note, wheel: &mut Timers) -> Option<u32> {
        let place = self.place(note.index);
        if note.number.get() <= place.number {
            return None;
        }
        place.number = note.number.get();
        match (place.node, note.tick) {
            (NO_NODE, NEVER) => {
                self.changed(note.index);
            }
            (NO_NODE, tick) => {
                place.node = wheel.insert(tick, (note.set, note.index));
                self.changed(note.index).nodes += 1;
            }
            (node, NEVER) => {
                wheel.remove(node);
                return self.reached(note.index);
            }
            (node, tick) => {
                wheel.reschedule(node, tick);
            }
        }
        None
    }

    /// The node of an index is gone, because the wheel has reached it. Returns the number of a
    /// chunk that has to be watched from now on.
    pub(super) fn reached(&mut self, index: u32) -> Option<u32> {
        self.place(index).node = NO_NODE;
        let chunk = self.changed(index);
        chunk.nodes -= 1;
        // The first chunk stays as long as the set.
        if chunk.nodes > 0 || index < CHUNK || chunk.is_watched {
            return None;
        }
        chunk.is_watched = true;
        chunk.has_changed = false;
        Some(index / CHUNK)
    }

    /// The number of the newest note for an index.
    pub(super) fn number(&mut self, index: u32) -> u64 {
        self.place(index).number
    }

    fn place(&mut self, index: u32) -> &mut Place {
        let (number, position) = ((index / CHUNK) as usize, (index % CHUNK) as usize);
        if number >= self.chunks.len() {
            self.chunks
                .reserve_exact(usize::from(self.chunks.is_empty()));
            self.chunks.resize_with(number + 1, Chunk::default);
        }
        let places = &mut self.chunks[number].places;
        if position >= places.len() {
            if number > 0 {
                places.reserve_exact(CHUNK as usize - places.len());
            }
            let new = Place {
                number: 0,
                node: NO_NODE,
            };
            places.resize(position + 1, new);
        }
        &mut places[position]
    }

    fn changed(&mut self, index: u32) -> &mut Chunk {
        let chunk = &mut self.chunks[(index / CHUNK) as usize];
        chunk.has_changed = true;
        chunk
    }

    /// Every note is applied that was on its way when this chunk began to be watched. Frees it if
    /// it is still empty and has not changed (N7). Returns whether it has to be watched once more.
    pub(super) fn free(&mut self, number: u32) -> bool {
        let Some(chunk) = self.chunks.get_mut(number as usize) else {
            return false;
        };
        chunk.is_watched = chunk.nodes == 0 && chunk.has_changed;
        chunk.has_changed = false;
        if chunk.is_watched || chunk.nodes > 0 {
            return chunk.is_watched;
        }
        *chunk = Chunk::default();
        let is_freed = |chunk: &Chunk| chunk.places.capacity() == 0;
        while self.chunks.len() > 1 && self.chunks.last().is_some_and(is_freed) {
            self.chunks.pop();
        }
        if self.chunks.len() <= self.chunks.capacity() / 4 {
            self.chunks.shrink_to_fit();
        }
        false
    }

    /// Takes all indices off the wheel.
    pub(super) fn clear(&mut self, wheel: &mut Timers) {
        for place in self.chunks.drain(..).flat_map(|chunk| chunk.places) {
            if place.node != NO_NODE {
                wheel.remove(place.node);
            }
        }
    }
}
