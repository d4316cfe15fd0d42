//! Finds a timer's index by the hash of its key.
//!
//! The indices lie in *parts*, hash tables of some hundreds, whose number grows and shrinks one by
//! one: linear hashing (Litwin, 1980). A single large table would move all of its indices when it
//! grows, tens of milliseconds for a million of them, while the set is locked. Here no step moves
//! more than those of one part. Nothing ever hashes a key again: the hash is stored beside the
//! timer.
//!
//! A part is a row of cache lines. A line holds up to [`LINE_LEN`] indices, with eight bits of the
//! hash for each. So looking a key up takes one line of the part, and the timer. An index whose
//! line is full goes to the next one with room, and each line counts those that have passed it: a
//! search ends at a line that no index has passed.
//!
//! A part has as many lines as it needs, and is four fifths full on average. Tables of a power of
//! two of places would be two thirds full, or half full for an unlucky number of timers.

use std::mem;

#[cfg(all(test, not(any(tickwheel_loom, tickwheel_shuttle))))]
mod tests;

/// The number of indices in a line.
const LINE_LEN: usize = 12;

/// A part gets more lines when it would have more indices than this for each of them.
const MAX_LOAD: usize = 11;

/// A part gives lines back when it has fewer indices than this for each of them.
const MIN_LOAD: usize = 4;

/// How many indices a part has, on average over all parts, before another part is added. The
/// largest have twice as many, and a few more by chance.
const PART_LEN: usize = 192;

/// The tag of a place without an index.
const VACANT: u8 = 0;

/// See the module. It never holds equal keys: the timer table finds a key before it adds one.
#[derive(Debug)]
pub(super) struct KeyIndex {
    /// At least one. The lowest bits of a hash number its part. Until there is such a part, its
    /// indices lie in the part whose number lacks the highest of these bits.
    parts: Vec<Part>,
    /// Masks these bits: as many as the highest part number has.
    mask: usize,
    len: usize,
}

#[derive(Debug, Default)]
struct Part {
    lines: Box<[Line]>,
    len: usize,
}

#[derive(Debug, Clone)]
#[repr(align(64))]
struct Line {
    /// Bits of the hash of each index.
    tags: [u8; LINE_LEN],
    /// How many indices found this line full and lie in a later one.
    passed: u32,
    indices: [u32; LINE_LEN],
}

/// An index, after its hash.
type Hashed = (u32, u32);

/// An index in a part, and where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Found {
    index: u32,
    line: usize,
    place: usize,
}

impl KeyIndex {
    pub(super) fn new() -> Self {
        KeyIndex {
            parts: vec![Part::default()],
            mask: 0,
            len: 0,
        }
    }

    /// The index with this hash for which `matches` is true.
    #[inline]
    pub(super) fn find(&self, hash: u32, matches: impl FnMut(u32) -> bool) -> Option<u32> {
        let found = self.parts[self.part_of(hash)].find(hash, matches)?;
        Some(found.index)
    }

    /// Adds an index; `hash_of` gives the hash of one that was added before.
    pub(super) fn insert(&mut self, hash: u32, index: u32, hash_of: impl Fn(u32) -> u32) {
        if self.len >= self.parts.len() * PART_LEN {
            self.split(&hash_of);
        }
        self.len += 1;
        let part = self.part_of(hash);
        let part = &mut self.parts[part];
        if part.is_full() {
            part.grow(&hash_of);
        }
        part.insert((hash, index));
    }

    /// Removes the index with this hash for which `matches` is true.
    pub(super) fn remove(
        &mut self,
        hash: u32,
        matches: impl FnMut(u32) -> bool,
        hash_of: impl Fn(u32) -> u32,
    ) -> Option<u32> {
        let part = self.part_of(hash);
        let part = &mut self.parts[part];
        let found = part.find(hash, matches)?;
        part.remove(hash, found);
        if part.is_sparse() {
            part.shrink(&hash_of);
        }
        self.len -= 1;
        if self.len < (self.parts.len() - 1) * (PART_LEN / 4) {
            self.merge(&hash_of);
        }
        Some(found.index)
    }

    /// The number of the part for a hash.
    #[inline]
    fn part_of(&self, hash: u32) -> usize {
        let part = hash as usize & self.mask;
        if part < self.parts.len() {
            part
        } else {
            part & (self.mask >> 1)
        }
    }

    /// Adds a part, to which about half of the indices of another go.
    #[cold]
    fn split(&mut self, hash_of: impl Fn(u32) -> u32) {
        let last = self.parts.len();
        let other = without_highest_bit(last);
        self.parts.push(Part::default());
        self.mask |= last;
        let indices = self.parts[other].take(hash_of);
        let (stay, go): (Vec<_>, Vec<_>) =
            (indices.into_iter()).partition(|&(hash, _)| self.part_of(hash) == other);
        self.parts[other] = Part::of(&stay);
        self.parts[last] = Part::of(&go);
    }

    /// Takes the last of several parts away. Its indices go to the part from which it was split.
    #[cold]
    fn merge(&mut self, hash_of: impl Fn(u32) -> u32) {
        let mut last = self.parts.pop().unwrap_or_default();
        let other = without_highest_bit(self.parts.len());
        self.mask = self.parts.len().next_power_of_two() - 1;
        let mut indices = last.take(&hash_of);
        indices.append(&mut self.parts[other].take(&hash_of));
        self.parts[other] = Part::of(&indices);
        if self.parts.len() < self.parts.capacity() / 4 {
            self.parts.shrink_to(self.parts.len() * 2);
        }
    }
}

/// For a number above zero.
fn without_highest_bit(number: usize) -> usize {
    number & !(1 << number.ilog2())
}

impl Part {
    /// A part of these indices, with room for some more.
    fn of(indices: &[Hashed]) -> Self {
        let room = indices.len() + indices.len() / 4;
        Part::with_lines(room.div_ceil(MAX_LOAD), indices)
    }

    /// A part of these indices, for which there are lines enough.
    fn with_lines(lines: usize, indices: &[Hashed]) -> Self {
        let mut part = Part {
            lines: vec![Line::EMPTY; lines].into(),
            len: 0,
        };
        for &index in indices {
            part.insert(index);
        }
        part
    }

    /// Whether it gets more lines before the next index is added.
    fn is_full(&self) -> bool {
        self.len >= self.lines.len() * MAX_LOAD
    }

    /// Whether it gives lines back. There is one at least.
    fn is_sparse(&self) -> bool {
        self.len < (self.lines.len() - 1) * MIN_LOAD
    }

    /// Adds lines: a quarter, so that the part is not far from full.
    #[cold]
    fn grow(&mut self, hash_of: impl Fn(u32) -> u32) {
        let lines = self.lines.len();
        *self = Part::with_lines(lines + (lines / 4).max(1), &self.take(hash_of));
    }

    /// Gives lines back.
    #[cold]
    fn shrink(&mut self, hash_of: impl Fn(u32) -> u32) {
        *self = Part::of(&self.take(hash_of));
    }

    /// Takes all indices out. Reads their hashes one after the other and does nothing else
    /// meanwhile, so that the cache misses overlap.
    fn take(&mut self, hash_of: impl Fn(u32) -> u32) -> Vec<Hashed> {
        let mut indices = Vec::with_capacity(self.len);
        let Part { lines, .. } = mem::take(self);
        for line in &lines {
            let used = (line.tags.iter().zip(line.indices)).filter(|&(&tag, _)| tag != VACANT);
            indices.extend(used.map(|(_, index)| (hash_of(index), index)));
        }
        indices
    }

    /// The index with this hash for which `matches` is true.
    #[inline]
    fn find(&self, hash: u32, mut matches: impl FnMut(u32) -> bool) -> Option<Found> {
        let first = self.line_of(hash);
        let line = self.lines.get(first)?;
        let tag = tag_of(hash);
        match line.find(tag, &mut matches) {
            Some((place, index)) => Some(Found {
                index,
                line: first,
                place,
            }),
            None if line.passed == 0 => None,
            None => self.find_after(first, tag, matches),
        }
    }

    /// The same for an index that is not in its first line.
    #[inline(never)]
    fn find_after(
        &self,
        first: usize,
        tag: u8,
        mut matches: impl FnMut(u32) -> bool,
    ) -> Option<Found> {
        let mut number = self.after(first);
        while number != first {
            let line = &self.lines[number];
            if let Some((place, index)) = line.find(tag, &mut matches) {
                return Some(Found {
                    index,
                    line: number,
                    place,
                });
            }
            if line.passed == 0 {
                return None;
            }
            number = self.after(number);
        }
        None
    }

    /// Adds an index, for which there is room.
    fn insert(&mut self, (hash, index): Hashed) {
        let mut number = self.line_of(hash);
        loop {
            let line = &mut self.lines[number];
            if let Some(place) = line.places(VACANT).next() {
                line.tags[place] = tag_of(hash);
                line.indices[place] = index;
                self.len += 1;
                return;
            }
            line.passed += 1;
            number = self.after(number);
        }
    }

    /// Removes the index with this hash that was found.
    fn remove(&mut self, hash: u32, found: Found) {
        let mut passed = self.line_of(hash);
        while passed != found.line {
            self.lines[passed].passed -= 1;
            passed = self.after(passed);
        }
        self.lines[found.line].tags[found.place] = VACANT;
        self.len -= 1;
    }

    /// The number of the first line for a hash, by its highest bits.
    #[inline]
    fn line_of(&self, hash: u32) -> usize {
        #[allow(clippy::cast_possible_truncation)] // less than the number of lines
        let line = ((u64::from(hash) * self.lines.len() as u64) >> u32::BITS) as usize;
        line
    }

    #[inline]
    fn after(&self, line: usize) -> usize {
        if line + 1 < self.lines.len() {
            line + 1
        } else {
            0
        }
    }
}

impl Line {
    const EMPTY: Line = Line {
        tags: [VACANT; LINE_LEN],
        passed: 0,
        indices: [0; LINE_LEN],
    };

    /// An index with this tag for which `matches` is true, after its place.
    #[inline]
    fn find(&self, tag: u8, matches: &mut impl FnMut(u32) -> bool) -> Option<(usize, u32)> {
        let mut indices = self.places(tag).map(|place| (place, self.indices[place]));
        indices.find(|&(_, index)| matches(index))
    }

    /// The places with this tag.
    #[inline]
    fn places(&self, tag: u8) -> Places {
        let first = self.tags.first_chunk().copied().map(u64::from_le_bytes);
        let last = self.tags.last_chunk().copied().map(u32::from_le_bytes);
        let low = equal_bytes(first.unwrap_or(0), tag);
        let high = equal_bytes(last.unwrap_or(0).into(), tag);
        Places(low >> 7 | (high & u64::from(u32::MAX)) >> 6)
    }
}

/// The highest bit of each of the eight bytes that is equal to this one.
#[inline]
fn equal_bytes(bytes: u64, byte: u8) -> u64 {
    const LOW: u64 = u64::from_le_bytes([0x7F; 8]);
    let differing = bytes ^ u64::from_le_bytes([byte; 8]);
    // The sum carries into the highest bit of a byte unless its other bits are all zero, and never
    // further.
    !(((differing & LOW) + LOW) | differing | LOW)
}

/// Some places of a line. The lowest bit of each of eight bytes stands for one of the first eight
/// places, the second bit for the one that comes eight places later.
struct Places(u64);

impl Iterator for Places {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(bit / 8 + bit % 8 * 8)
    }
}

/// Eight bits of a hash, other ones than those that choose part and line as long as there are fewer
/// than 2^18 parts.
#[inline]
fn tag_of(hash: u32) -> u8 {
    let [bits, ..] = (hash << 6).to_be_bytes();
    bits.max(VACANT + 1)
}
