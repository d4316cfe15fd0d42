//! Tests of the slab: it behaves like a map, and keeps little memory.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

impl<T: SlabCell, const CHUNK: u32> ChunkSlab<T, CHUNK> {
    /// How many cells there is memory for.
    pub(crate) fn capacity(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.cells.capacity()).sum()
    }

    /// Panics unless every chunk and every list is in order.
    pub(crate) fn assert_consistent(&self) {
        let count = |list: &[u32], number| list.iter().filter(|&&other| other == number).count();
        let mut in_use = 0;
        for (number, chunk) in (0..).zip(&self.chunks) {
            let cells = &chunk.cells;
            let used = cells.iter().filter(|cell| cell.is_in_use()).count();
            assert_eq!(used, chunk.in_use as usize, "in use in chunk {number}");
            in_use += used;
            let mut vacant = vec![false; cells.len()];
            let mut place = chunk.vacant;
            while place != NONE {
                let is_known = mem::replace(&mut vacant[place as usize], true);
                assert!(!is_known, "the vacant cells go in a circle");
                place = cells[place as usize].next_vacant();
            }
            let is_taken = |(cell, vacant): (&T, bool)| cell.is_in_use() || vacant;
            assert!(cells.iter().zip(vacant).all(is_taken), "a cell is lost");
            let has_room = chunk.next_place() < CHUNK;
            assert_eq!(count(&self.roomy, number), usize::from(has_room));
            assert_eq!(count(&self.idle, number), usize::from(chunk.is_listed));
            let is_idle = chunk.in_use == 0 && !chunk.is_absent();
            assert!(chunk.is_listed || !is_idle, "chunk {number} is not listed");
        }
        assert_eq!(in_use, self.in_use);
        assert_eq!(self.places(), self.chunks() * CHUNK as usize, "places");
    }
}

/// Room for a number.
#[derive(Debug, Clone, Default)]
struct Room {
    item: Option<usize>,
    next: u32,
}

impl SlabCell for Room {
    fn new() -> Self {
        Room::default()
    }

    fn is_in_use(&self) -> bool {
        self.item.is_some()
    }

    fn next_vacant(&self) -> u32 {
        self.next
    }

    fn set_next_vacant(&mut self, place: u32) {
        self.next = place;
    }
}

const CHUNK: u32 = 8;

type Slab = ChunkSlab<Room, CHUNK>;

fn insert(slab: &mut Slab, item: usize) -> u32 {
    let index = slab.take(|room| {
        assert!(room.item.is_none());
        room.item = Some(item);
    });
    assert!(index < slab.indices());
    index
}

fn remove(slab: &mut Slab, index: u32) -> Option<usize> {
    slab.vacate(index, |room| room.item.take())
}

fn item(slab: &Slab, index: u32) -> Option<usize> {
    slab.get(index)?.item
}

fn fill(slab: &mut Slab, count: u32) -> Vec<u32> {
    (0..count as usize).map(|n| insert(slab, n)).collect()
}

#[test]
fn cell_that_was_vacated_last_is_taken_first() {
    let mut slab = Slab::new();
    assert_eq!(fill(&mut slab, 4), [0, 1, 2, 3]);
    for index in [1, 3, 0] {
        assert!(remove(&mut slab, index).is_some());
        assert_eq!(remove(&mut slab, index), None, "it is vacant");
    }
    assert_eq!(fill(&mut slab, 4), [0, 3, 1, 4]);
    assert_eq!(item(&slab, 2), Some(2));
    slab.assert_consistent();
}

#[test]
fn growing_moves_no_full_chunk() {
    let mut slab = Slab::new();
    fill(&mut slab, CHUNK);
    let before = slab.get(0).map(std::ptr::from_ref);
    let indices = fill(&mut slab, 2 * CHUNK);
    assert!(indices.into_iter().eq(CHUNK..3 * CHUNK));
    assert_eq!(slab.get(0).map(std::ptr::from_ref), before);
    assert_eq!(slab.capacity(), 3 * CHUNK as usize);
    slab.assert_consistent();
}

#[test]
fn next_in_use_skips_chunks_without_a_cell_in_use() {
    let mut slab = Slab::new();
    assert_eq!(slab.next_in_use(0), None);
    for index in fill(&mut slab, 5 * CHUNK) {
        if ![CHUNK + 3, 4 * CHUNK].contains(&index) {
            remove(&mut slab, index);
        }
    }
    for (from, next) in [
        (0, CHUNK),
        (CHUNK, CHUNK),
        (CHUNK + 5, CHUNK + 5),
        (2 * CHUNK, 4 * CHUNK),
        (4 * CHUNK + 1, 4 * CHUNK + 1),
    ] {
        assert_eq!(slab.next_in_use(from), Some(next));
    }
    assert_eq!(slab.next_in_use(5 * CHUNK), None);
}

#[test]
fn memory_around_a_cell_in_use_goes_back() {
    const CHUNKS: u32 = 20;
    for stays in [0, 10 * CHUNK + 7, CHUNKS * CHUNK - 1] {
        let mut slab = Slab::new();
        for index in fill(&mut slab, CHUNKS * CHUNK) {
            if index != stays {
                assert!(remove(&mut slab, index).is_some());
                slab.assert_consistent();
            }
        }
        assert_eq!(slab.in_use(), 1);
        let mut chunks = CHUNKS as usize;
        while slab.has_spare() {
            slab.free_spare(3);
            slab.assert_consistent();
            assert!(slab.chunks() < chunks && slab.chunks() + 3 >= chunks);
            chunks = slab.chunks();
        }
        assert_eq!(chunks, 2, "its own, and an idle one");
        let is_there = slab.get(stays).is_some_and(SlabCell::is_in_use);
        assert!(is_there && slab.indices() > stays);
        // All of it can be used again.
        fill(&mut slab, CHUNKS * CHUNK - 1);
        assert_eq!(slab.chunks(), CHUNKS as usize);
        slab.assert_consistent();
    }
}

#[test]
fn indices_of_chunks_at_the_end_are_forgotten() {
    let mut slab = Slab::new();
    let indices = fill(&mut slab, 20 * CHUNK);
    for &index in indices[CHUNK as usize..].iter().rev() {
        remove(&mut slab, index);
        slab.free_spare(2);
        slab.assert_consistent();
    }
    assert_eq!(slab.indices(), 2 * CHUNK);
}

#[test]
fn load_around_a_boundary_allocates_nothing() {
    for full in [1, 2, 5] {
        let mut slab = Slab::new();
        fill(&mut slab, full * CHUNK);
        for size in [1, CHUNK, 2] {
            let mut steps = 0;
            for _ in 0..100 {
                let before = slab.chunks();
                let more = fill(&mut slab, size);
                steps += usize::from(slab.chunks() != before);
                for index in more {
                    remove(&mut slab, index);
                    slab.free_spare(2);
                }
                slab.assert_consistent();
            }
            assert!(steps <= 1, "{steps} allocations at {full} chunks");
        }
    }
}

#[test]
fn slab_without_items_keeps_little() {
    type Large = ChunkSlab<Room, 4096>;
    for (count, kept) in [(1, 4), (1024, 1024), (1025, 0), (5000, 0)] {
        let mut slab = Large::new();
        for item in 0..count {
            slab.take(|room| room.item = Some(item));
        }
        for index in 0..slab.indices() {
            slab.vacate(index, |room| room.item.take());
        }
        assert_eq!(slab.has_spare(), kept == 0);
        slab.free_spare(2);
        assert!(!slab.has_spare());
        assert_eq!(slab.capacity(), kept, "of {count}");
        slab.assert_consistent();
    }
}

#[derive(Debug, Clone)]
enum Op {
    Insert,
    Remove(usize),
    FreeSpare(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => Just(Op::Insert),
        3 => any::<usize>().prop_map(Op::Remove),
        1 => (0..3_usize).prop_map(Op::FreeSpare),
    ]
}

proptest! {
    #[test]
    fn slab_holds_what_a_map_holds(ops in prop::collection::vec(op(), 0..400)) {
        let mut slab = Slab::new();
        // The items by index.
        let mut items = HashMap::new();
        for (n, op) in ops.into_iter().enumerate() {
            // Mostly the same few, so that whole chunks come and go.
            let pick = |map: &HashMap<u32, usize>, at: usize| {
                let mut indices: Vec<u32> = map.keys().copied().collect();
                indices.sort_unstable();
                indices.get(at % indices.len().max(1)).copied()
            };
            match op {
                Op::Insert => {
                    let index = insert(&mut slab, n);
                    prop_assert_eq!(items.insert(index, n), None, "index {} twice", index);
                }
                Op::Remove(at) => {
                    if let Some(index) = pick(&items, at) {
                        prop_assert_eq!(remove(&mut slab, index), items.remove(&index));
                    }
                }
                Op::FreeSpare(chunks) => slab.free_spare(chunks),
            }
            slab.assert_consistent();
            for index in 0..slab.indices() {
                prop_assert_eq!(item(&slab, index), items.get(&index).copied());
            }
            prop_assert_eq!(slab.in_use(), items.len());
        }
    }
}
