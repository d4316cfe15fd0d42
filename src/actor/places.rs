//! The places of one set on the wheel: the actor's record of each index.
//!
//! They need no lock, since only the actor has them. They lie in chunks, which grow and go back to
//! the allocator one at a time.

#[cfg(all(test, tickwheel_loom))]
mod model;
#[cfg(all(test, not(any(tickwheel_loom, tickwheel_shuttle))))]
mod tests;

use std::num::NonZeroU64;

use crate::shared::note::{Item, Note, Place, SetKey};
use crate::sync::EXPLORED;
use crate::tick::NEVER;
use crate::wheel::BareWheel;

/// The wheel of all keyed timers.
pub(super) type Timers = BareWheel<Item>;

/// How many indices a chunk has.
const CHUNK: u32 = if EXPLORED { 2 } else { 256 };

/// The place of an index. There are as many as timers: hence the alignment.
#[derive(Debug, Clone, Copy)]
#[repr(C, packed(4))]
struct Record {
    /// The number of the newest note that was applied (N2); 0 if there was none.
    number: u64,
    /// Its node, or `NO_NODE`.
    node: u32,
}

const NO_NODE: u32 = u32::MAX;

impl Record {
    const NEW: Record = Record {
        number: 0,
        node: NO_NODE,
    };
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Places {
    chunks: Vec<Chunk>,
    /// Chunks without a node that are not being watched yet.
    emptied: Vec<u32>,
}

#[derive(Debug, Default)]
struct Chunk {
    records: Vec<Record>,
    /// How many of the indices have a node.
    nodes: u32,
    /// It has had no node, and is watched: see [`Places::free`].
    is_watched: bool,
    /// It has changed since it is watched.
    has_changed: bool,
}

impl Places {
    /// Applies a note, unless a newer one for this index was applied.
    pub(super) fn apply(&mut self, note: &Note, wheel: &mut Timers) {
        let record = self.record(note.index);
        if note.number.get() <= record.number {
            return;
        }
        self.set(note.set, note.index, note.number, note.tick, wheel);
    }

    /// The wheel has reached an index, and its node is gone.
    pub(super) fn reached(&mut self, index: u32) {
        self.record(index).node = NO_NODE;
        self.node_left(index);
    }

    fn set(&mut self, set: SetKey, index: u32, number: NonZeroU64, tick: u64, wheel: &mut Timers) {
        let record = self.record(index);
        record.number = number.get();
        match (record.node, tick) {
            (NO_NODE, NEVER) => {
                self.changed(index);
            }
            (NO_NODE, tick) => {
                record.node = wheel.insert(tick, Item { set, index });
                self.changed(index).nodes += 1;
            }
            (node, NEVER) => {
                record.node = NO_NODE;
                wheel.remove(node);
                self.node_left(index);
            }
            (node, tick) => {
                wheel.reschedule(node, tick);
            }
        }
    }

    fn record(&mut self, index: u32) -> &mut Record {
        let (number, place) = ((index / CHUNK) as usize, (index % CHUNK) as usize);
        if number >= self.chunks.len() {
            self.chunks
                .reserve_exact(usize::from(self.chunks.is_empty()));
            self.chunks.resize_with(number + 1, Chunk::default);
        }
        let records = &mut self.chunks[number].records;
        if place >= records.len() {
            if number > 0 {
                records.reserve_exact(CHUNK as usize - records.len());
            }
            records.resize(place + 1, Record::NEW);
        }
        &mut records[place]
    }

    fn changed(&mut self, index: u32) -> &mut Chunk {
        let chunk = &mut self.chunks[(index / CHUNK) as usize];
        chunk.has_changed = true;
        chunk
    }

    fn node_left(&mut self, index: u32) {
        let chunk = self.changed(index);
        chunk.nodes -= 1;
        // The first chunk stays as long as the set.
        if chunk.nodes == 0 && index >= CHUNK && !chunk.is_watched {
            chunk.is_watched = true;
            chunk.has_changed = false;
            self.emptied.push(index / CHUNK);
        }
    }

    /// The chunks to be watched from now on: to be [freed](Self::free) when no note is left that is
    /// on its way now.
    pub(super) fn emptied(&mut self) -> impl Iterator<Item = u32> + '_ {
        self.emptied.drain(..)
    }

    /// Frees a watched chunk that is still empty and has not changed: no note is left for its
    /// indices (N7). Returns whether it has to be watched once more.
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
        let is_freed = |chunk: &Chunk| chunk.records.capacity() == 0;
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
        for record in self.chunks.drain(..).flat_map(|chunk| chunk.records) {
            if record.node != NO_NODE {
                wheel.remove(record.node);
            }
        }
    }
}

/// The places of a set that is visited.
pub(super) struct Placing<'a> {
    pub(super) set: SetKey,
    pub(super) places: &'a mut Places,
    pub(super) wheel: &'a mut Timers,
}

impl Place for Placing<'_> {
    fn place(&mut self, index: u32, number: NonZeroU64, tick: u64) {
        (self.places).set(self.set, index, number, tick, self.wheel);
    }
}
