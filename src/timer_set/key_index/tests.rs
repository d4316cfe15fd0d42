//! Tests of the key index, with hashes as they are and with the worst ones.

use super::*;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use proptest::collection::vec;
use proptest::prelude::*;

/// Hashes as well spread as those of a set, and the same in every run.
fn hashes(n: u32) -> Vec<u32> {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let low = |n: u32| u32::try_from(hasher.hash_one(n) >> 32).expect("a half");
    (0..n).map(low).collect()
}

fn fill(hashes: &[u32]) -> KeyIndex {
    let mut map = KeyIndex::new();
    for (index, &hash) in (0..).zip(hashes) {
        map.insert(hash, index, |other| hashes[other as usize]);
    }
    map
}

#[test]
fn finds_every_index_and_none_that_was_removed() {
    let hashes = hashes(50_000);
    let mut map = fill(&hashes);
    let hash_of = |index: u32| hashes[index as usize];
    for index in 0..50_000 {
        assert_eq!(
            map.find(hash_of(index), |other| other == index),
            Some(index)
        );
        if index % 3 == 0 {
            assert!(
                map.remove(hash_of(index), |other| other == index, hash_of)
                    .is_some()
            );
        }
    }
    for index in 0..50_000 {
        let found = map.find(hash_of(index), |other| other == index);
        assert_eq!(found, (index % 3 != 0).then_some(index));
    }
    for index in (0..50_000).filter(|index| index % 3 != 0) {
        assert!(
            map.remove(hash_of(index), |other| other == index, hash_of)
                .is_some()
        );
    }
    assert_eq!((map.len, map.parts.len()), (0, 1));
    assert!(map.parts[0].lines.len() <= 1);
}

#[test]
fn no_part_has_much_more_than_twice_the_average() {
    let hashes = hashes(200_000);
    let mut map = KeyIndex::new();
    let mut largest = 0;
    for (index, &hash) in (0..).zip(&hashes) {
        map.insert(hash, index, |other| hashes[other as usize]);
        if index % 1000 == 0 {
            largest = map
                .parts
                .iter()
                .map(|part| part.len)
                .fold(largest, usize::max);
        }
    }
    assert!(largest < PART_LEN * 5 / 2, "{largest}");
}

#[test]
fn an_index_takes_less_than_8_bytes_whatever_their_number() {
    let hashes = hashes(200_000);
    let mut map = KeyIndex::new();
    for (index, &hash) in (0..).zip(&hashes) {
        map.insert(hash, index, |other| hashes[other as usize]);
        if index % 1000 == 0 && index >= 10_000 {
            let lines: usize = map.parts.iter().map(|part| part.lines.len()).sum();
            let bytes = lines * size_of::<Line>() + map.parts.len() * size_of::<Part>();
            assert!(bytes * 2 < map.len * 15, "{bytes} for {}", map.len);
        }
    }
}

#[test]
fn equal_hashes_share_a_part() {
    let hashes = vec![7; 5_000];
    let mut map = fill(&hashes);
    for index in 0..5_000 {
        assert_eq!(map.find(7, |other| other == index), Some(index));
        assert!(map.remove(7, |other| other == index, |_| 7).is_some());
    }
    assert_eq!((map.len, map.parts.len()), (0, 1));
    assert!(map.parts[0].lines.len() <= 1);
}

#[test]
fn memory_goes_back_with_the_indices() {
    let hashes = hashes(20_000);
    let mut map = fill(&hashes);
    let hash_of = |index: u32| hashes[index as usize];
    for index in 100..20_000 {
        let removed = map.remove(hash_of(index), |other| other == index, hash_of);
        assert!(removed.is_some());
    }
    let lines: usize = map.parts.iter().map(|part| part.lines.len()).sum();
    assert!(lines <= 100 / MIN_LOAD + map.parts.len(), "{lines} lines");
    assert!(map.parts.capacity() <= 16, "{}", map.parts.capacity());
    for index in 0..100 {
        let found = map.find(hash_of(index), |other| other == index);
        assert_eq!(found, Some(index));
    }
}

// A set whose size stays about the same moves no indices.
#[test]
fn merges_no_parts_that_were_just_split() {
    let hashes = hashes(20_000);
    let hash_of = |index: u32| hashes[index as usize];
    let mut map = fill(&hashes);
    let (parts, last) = (map.parts.len(), 19_999);
    for fewer in [1, PART_LEN, 20 * PART_LEN] {
        let removed: Vec<_> = (0..=last).rev().take(fewer).collect();
        for &index in &removed {
            let found = map.remove(hash_of(index), |other| other == index, hash_of);
            assert_eq!(found, Some(index));
        }
        assert_eq!(map.parts.len(), parts, "{fewer} fewer");
        for index in removed {
            map.insert(hash_of(index), index, hash_of);
        }
        assert_eq!(map.parts.len(), parts, "{fewer} more");
    }
}

/// A line is followed by others only as long as an index has passed it.
#[test]
fn a_search_ends_where_no_index_has_passed() {
    let mut part = Part::with_lines(3, &[]);
    // All of them belong into the last line; the lines after it are the first two.
    let hash = u32::MAX;
    for index in 0..30 {
        part.insert((hash, index));
    }
    let passed = |part: &Part| [0, 1, 2].map(|line: usize| part.lines[line].passed);
    assert_eq!(passed(&part), [6, 0, 18]);
    for index in (0..30).rev() {
        let found = part.find(hash, |other| other == index);
        part.remove(hash, found.expect("it is there"));
        assert_eq!(part.find(hash, |other| other == index), None);
    }
    assert_eq!((passed(&part), part.len), ([0; 3], 0));
}

/// Fails unless every index lies in the part for its hash, at or after its first line, and the
/// counts are right.
fn assert_consistent(map: &KeyIndex, hash_of: impl Fn(u32) -> u32) {
    let highest = map.parts.len() - 1;
    assert_eq!(map.mask, (highest + 1).next_power_of_two() - 1);
    assert_eq!(
        map.len,
        map.parts.iter().map(|part| part.len).sum::<usize>()
    );
    for (number, part) in map.parts.iter().enumerate() {
        let mut passed = vec![0; part.lines.len()];
        let mut len = 0;
        for (at, line) in part.lines.iter().enumerate() {
            let used = (line.tags.iter().zip(line.indices)).filter(|&(&tag, _)| tag != VACANT);
            for (&tag, index) in used {
                let hash = hash_of(index);
                assert_eq!(map.part_of(hash), number, "the part of index {index}");
                assert_eq!(tag_of(hash), tag, "the tag of index {index}");
                let mut from = part.line_of(hash);
                while from != at {
                    passed[from] += 1;
                    from = part.after(from);
                }
                len += 1;
            }
        }
        assert_eq!(part.len, len, "indices of part {number}");
        let counted = part.lines.iter().map(|line| line.passed);
        assert!(counted.eq(passed), "lines of part {number}");
    }
}

/// How a key hashes, at worst.
#[derive(Debug, Clone, Copy)]
enum Hashes {
    Spread,
    Equal(u32),
    /// All in one part, whatever their number.
    EqualLowBits,
    /// All of a part in one line, the last one, so that the others follow from the first line on.
    EqualHighBits,
    /// All with the tag nearest to a vacant place.
    LowestTags,
}

impl Hashes {
    fn of(self, random: u32) -> u32 {
        match self {
            Hashes::Spread => random,
            Hashes::Equal(hash) => hash,
            Hashes::EqualLowBits => random & !0xFFFF | 3,
            Hashes::EqualHighBits => random | 0xFFF0_0000,
            Hashes::LowestTags => random & !(0xFE << 18),
        }
    }
}

fn some_hashes() -> impl Strategy<Value = Hashes> {
    prop_oneof![
        3 => Just(Hashes::Spread),
        1 => any::<u32>().prop_map(Hashes::Equal),
        1 => Just(Hashes::EqualLowBits),
        1 => Just(Hashes::EqualHighBits),
        1 => Just(Hashes::LowestTags),
    ]
}

/// How many indices there are to be in the end, and whether some steps on the way lead away from
/// that.
fn waves() -> impl Strategy<Value = Vec<(usize, bool)>> {
    let size = prop_oneof![
        2 => 0..30_usize,
        3 => 100..1_500_usize,
        1 => Just(PART_LEN),
        1 => Just(PART_LEN * 3 + 1),
    ];
    vec((size, any::<bool>()), 2..8)
}

/// Pseudo-random numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        u32::try_from((self.0 ^ self.0 >> 31) >> 32).expect("half of it")
    }

    fn below(&mut self, end: usize) -> usize {
        self.next() as usize % end
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.div_ceil(4),
        ..ProptestConfig::default()
    })]

    #[test]
    fn finds_what_is_there_while_it_grows_and_shrinks(
        kind in some_hashes(),
        waves in waves(),
        seed in any::<u64>(),
    ) {
        let mut random = Numbers(seed);
        let mut map = KeyIndex::new();
        // The hash of each index; those of indices that are not there have no meaning.
        let mut hashes: Vec<u32> = Vec::new();
        let (mut there, mut gone) = (Vec::new(), Vec::new());
        for (size, wavers) in waves {
            while there.len() != size {
                let turns_back = wavers && !there.is_empty() && random.below(4) == 0;
                let inserts = (there.len() < size) ^ turns_back;
                if inserts {
                    // Indices are used again, with another hash.
                    let index = gone.pop().unwrap_or_else(|| {
                        hashes.push(0);
                        u32::try_from(hashes.len() - 1).expect("there are few")
                    });
                    let hash = kind.of(random.next());
                    map.insert(hash, index, |other| {
                        assert_ne!(other, index, "it was not added before");
                        hashes[other as usize]
                    });
                    hashes[index as usize] = hash;
                    there.push(index);
                } else {
                    let index = there.swap_remove(random.below(there.len()));
                    let hash = hashes[index as usize];
                    let removed = map.remove(hash, |other| other == index, |other| {
                        assert_ne!(other, index, "it was removed");
                        hashes[other as usize]
                    });
                    assert_eq!(removed, Some(index));
                    gone.push(index);
                }
            }
            let hash_of = |index: u32| hashes[index as usize];
            let find = |index: u32| map.find(hash_of(index), |other| other == index);
            assert_consistent(&map, hash_of);
            assert_eq!(map.len, there.len());
            assert!(there.iter().all(|&index| find(index) == Some(index)));
            assert!(gone.iter().all(|&index| find(index).is_none()));
        }
    }
}
