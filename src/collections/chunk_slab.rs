//! A slab with its cells in chunks.
//!
//! A vector of a million cells takes milliseconds to grow, because it is moved, and to free,
//! because its pages go back one by one. Chunks are allocated and freed one at a time: a cell in
//! use keeps the memory of its own chunk alone. Growing moves at most half of the first chunk, and
//! the list of chunks.

#[cfg(all(test, not(any(tickwheel_loom, tickwheel_shuttle))))]
mod tests;

use std::mem;

/// All indices are below this number.
pub(crate) const INDICES: u32 = u32::MAX - 4095;

/// No cell of a chunk.
const NONE: u32 = u32::MAX;

/// A slab without a cell in use keeps memory for at most this many cells.
const KEPT_CELLS: usize = 1024;

/// Room for an item.
///
/// A cell is *vacant* until it is taken, and again once it was vacated.
pub(crate) trait SlabCell {
    /// A vacant cell.
    fn new() -> Self;

    /// Whether it has an item. A vacant cell has none.
    fn is_in_use(&self) -> bool;

    /// The chunk's next vacant cell, as set when this one was vacated.
    fn next_vacant(&self) -> u32;

    fn set_next_vacant(&mut self, place: u32);
}

/// See the module. A chunk has `CHUNK` cells, a power of two.
#[derive(Clone)]
pub(crate) struct ChunkSlab<T, const CHUNK: u32> {
    chunks: Vec<Chunk<T>>,
    /// The chunks with room, also those without memory. The last one is used next.
    roomy: Vec<u32>,
    /// The chunks that have memory and had no cell in use. Some may have a cell in use again.
    idle: Vec<u32>,
    /// How many chunks have memory.
    allocated: u32,
    in_use: usize,
}

/// Cells side by side, each named by its place.
#[derive(Clone)]
struct Chunk<T> {
    /// Those that were ever taken.
    cells: Vec<T>,
    /// The cell that was vacated last, or `NONE`.
    vacant: u32,
    /// How many cells are in use.
    in_use: u32,
    /// It is in `idle`.
    is_listed: bool,
}

impl<T> Chunk<T> {
    const NEW: Chunk<T> = Chunk {
        cells: Vec::new(),
        vacant: NONE,
        in_use: 0,
        is_listed: false,
    };

    fn is_absent(&self) -> bool {
        self.cells.capacity() == 0
    }

    /// A cell was vacated.
    #[inline]
    fn count_vacated(&mut self, number: u32, idle: &mut Vec<u32>) {
        self.in_use -= 1;
        if self.in_use == 0 && !mem::replace(&mut self.is_listed, true) {
            idle.push(number);
        }
    }

    /// The place of the cell to be taken next. It is the size of a chunk if there is none.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // at most the size of a chunk
    fn next_place(&self) -> u32 {
        if self.vacant == NONE {
            self.cells.len() as u32
        } else {
            self.vacant
        }
    }
}

impl<T: SlabCell> Chunk<T> {
    /// Adds a cell. The first one allocates memory for `whole` cells, and is counted.
    #[inline]
    fn add_cell(&mut self, whole: u32, allocated: &mut u32) {
        if self.is_absent() {
            *allocated += 1;
            self.allocate(whole);
        }
        self.cells.push(T::new());
    }

    #[cold]
    fn allocate(&mut self, cells: u32) {
        self.cells.reserve_exact(cells as usize);
    }
}

impl<T: SlabCell, const CHUNK: u32> ChunkSlab<T, CHUNK> {
    pub(crate) const fn new() -> Self {
        ChunkSlab {
            chunks: Vec::new(),
            roomy: Vec::new(),
            idle: Vec::new(),
            allocated: 0,
            in_use: 0,
        }
    }

    pub(crate) fn in_use(&self) -> usize {
        self.in_use
    }

    /// How many cells the chunks have that have memory. The highest index says nothing of that:
    /// most chunks below it may have gone back to the allocator.
    pub(crate) fn places(&self) -> usize {
        self.allocated as usize * CHUNK as usize
    }

    /// One more than the highest index there may be.
    #[allow(clippy::cast_possible_truncation)] // at most `INDICES`
    pub(crate) fn indices(&self) -> u32 {
        self.chunks.len() as u32 * CHUNK
    }

    /// The first index from this one on in a chunk with a cell in use.
    #[allow(clippy::cast_possible_truncation)] // at most `INDICES`
    pub(crate) fn next_in_use(&self, from: u32) -> Option<u32> {
        let mut chunks = self.chunks.iter().skip((from / CHUNK) as usize);
        let skipped = chunks.position(|chunk| chunk.in_use > 0)? as u32;
        Some(from.max((from / CHUNK + skipped) * CHUNK))
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        let chunk = self.chunks.get((index / CHUNK) as usize)?;
        chunk.cells.get((index % CHUNK) as usize)
    }

    /// The cell, for changes that leave it in use.
    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        let chunk = self.chunks.get_mut((index / CHUNK) as usize)?;
        chunk.cells.get_mut((index % CHUNK) as usize)
    }

    /// Takes a vacant cell, in a chunk the one vacated last. `fill` puts an item in. Returns the
    /// index.
    #[inline]
    pub(crate) fn take(&mut self, fill: impl FnOnce(&mut T)) -> u32 {
        let number = match self.roomy.last() {
            Some(&number) => number,
            None => self.grow(),
        };
        let chunk = &mut self.chunks[number as usize];
        let place = chunk.next_place();
        if chunk.vacant == NONE {
            let whole = if number == 0 { 0 } else { CHUNK };
            chunk.add_cell(whole, &mut self.allocated);
        }
        let index = number * CHUNK + place;
        let cell = &mut chunk.cells[place as usize];
        if chunk.vacant != NONE {
            chunk.vacant = cell.next_vacant();
        }
        debug_assert!(!cell.is_in_use(), "it is vacant");
        chunk.in_use += 1;
        self.in_use += 1;
        fill(cell);
        if chunk.next_place() == CHUNK {
            self.roomy.pop();
        }
        index
    }

    /// One chunk more, without memory; returns its number.
    #[cold]
    fn grow(&mut self) -> u32 {
        let next = self.indices();
        assert!(next < INDICES, "a slab has at most 2^32 - 4096 cells");
        self.chunks.push(Chunk::NEW);
        self.roomy.push(next / CHUNK);
        next / CHUNK
    }

    /// Vacates a cell: `change` takes the item out, or returns `None` if the cell is vacant
    /// already.
    #[inline]
    pub(crate) fn vacate<R>(
        &mut self,
        index: u32,
        change: impl FnOnce(&mut T) -> Option<R>,
    ) -> Option<R> {
        let (number, place) = (index / CHUNK, index % CHUNK);
        let chunk = self.chunks.get_mut(number as usize)?;
        let was_full = chunk.next_place() == CHUNK;
        let cell = chunk.cells.get_mut(place as usize)?;
        let taken_out = change(cell)?;
        debug_assert!(!cell.is_in_use(), "its item was taken out");
        cell.set_next_vacant(mem::replace(&mut chunk.vacant, place));
        if was_full {
            self.roomy.push(number);
        }
        self.in_use -= 1;
        chunk.count_vacated(number, &mut self.idle);
        Some(taken_out)
    }

    /// Whether there is memory to free. One idle chunk stays for the next items, but only a small
    /// one if no cell is in use.
    #[inline]
    pub(crate) fn has_spare(&self) -> bool {
        match self.idle.len() {
            0 => false,
            1 => {
                self.in_use == 0
                    && (self.chunks.len() > 1 || self.chunks[0].cells.capacity() > KEPT_CELLS)
            }
            _ => true,
        }
    }

    /// Frees some of the unused memory: at most that many chunks.
    #[inline]
    pub(crate) fn free_spare(&mut self, chunks: usize) {
        if self.has_spare() {
            self.free(chunks);
        }
    }

    #[cold]
    fn free(&mut self, chunks: usize) {
        for _ in 0..chunks {
            if !self.has_spare() {
                break;
            }
            // The chunk that is used next stays, or would soon be allocated again.
            let is_next = self.idle.len() > 1 && self.idle.first() == self.roomy.last();
            let number = self.idle.swap_remove(usize::from(is_next));
            let chunk = &mut self.chunks[number as usize];
            chunk.is_listed = false;
            if chunk.in_use == 0 {
                *chunk = Chunk::NEW;
                self.allocated -= 1;
            }
        }
        let left = self.chunks.iter().rposition(|chunk| !chunk.is_absent());
        let left = left.map_or(0, |last| last + 1);
        if left == 0 {
            *self = Self::new();
        } else if left < self.chunks.len() {
            self.chunks.truncate(left);
            self.roomy.retain(|&number| (number as usize) < left);
        }
    }

    #[cfg(test)]
    pub(crate) fn chunks(&self) -> usize {
        self.chunks
            .iter()
            .filter(|chunk| !chunk.is_absent())
            .count()
    }
}
