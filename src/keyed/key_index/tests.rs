//! Tests of the key index, with hashes as they are and with the worst ones.

use super::*;

use proptest::collection::vec;
use proptest::prelude::*;

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

/// Hashes as well spread as those of a set, and the same in every run.
fn hashes(n: u32) -> Vec<u32> {
    let mut random = Numbers(7);
    (0..n).map(|_| random.next()).collect()
}

fn fill(hashes: &[u32]) -> KeyIndex {
    let mut map = KeyIndex::new();
    for (index, &hash) in (0..).zip(hashes) {
        map.insert(hash, index);
    }
    map
}

fn bytes(map: &KeyIndex) -> usize {
    map.pairs.allocation_size() + map.old.allocation_size()
}

fn len(map: &KeyIndex) -> usize {
    map.pairs.len() + map.old.len()
}

/// Asserts that the change moves few pairs.
fn change(map: &mut KeyIndex, change: impl FnOnce(&mut KeyIndex)) {
    let (before, buckets) = (map.old.len(), map.pairs.num_buckets());
    change(map);
    if map.pairs.num_buckets() == buckets {
        assert!(
            before - map.old.len() <= 2 * MOVED + 1,
            "{before} were left"
        );
    } else {
        // Another table takes the place of this one. The one before was empty by then.
        assert!(before <= 2 * MOVED + 1, "{before} were left");
    }
}

// A caller holds the lock of its set meanwhile.
#[test]
fn change_moves_few_pairs() {
    let hashes = hashes(200_000);
    let mut map = KeyIndex::new();
    for (index, &hash) in (0..).zip(&hashes) {
        change(&mut map, |map| map.insert(hash, index));
    }
    for (index, &hash) in (0..).zip(&hashes) {
        change(&mut map, |map| map.remove(hash, index));
    }
    assert_eq!(len(&map), 0);
}

#[test]
fn indices_replaced_by_others_take_no_more_memory() {
    let mut hashes = hashes(9_000);
    let mut map = fill(&hashes);
    let before = bytes(&map);
    let mut random = Numbers(1);
    for index in (0..9_000).cycle().take(90_000) {
        map.remove(hashes[index as usize], index);
        let hash = random.next();
        map.insert(hash, index);
        hashes[index as usize] = hash;
    }
    let after = bytes(&map);
    assert!(after <= before, "{before} bytes became {after}");
    assert!(after < 9_000 * 18, "{after} bytes");
}

#[test]
fn memory_goes_back_with_the_indices() {
    let hashes = hashes(20_000);
    let mut map = fill(&hashes);
    let hash_of = |index: u32| hashes[index as usize];
    for index in 100..20_000 {
        map.remove(hash_of(index), index);
    }
    assert!(bytes(&map) < 20_000, "{} bytes", bytes(&map));
    for index in 0..100 {
        assert_eq!(map.find(hash_of(index), |i| i == index), Some(index));
        map.remove(hash_of(index), index);
    }
    assert_eq!(len(&map), 0);
    assert!(bytes(&map) < 500, "{} bytes", bytes(&map));
}

// A set that stays about as large moves no indices.
#[test]
fn table_that_was_just_replaced_stays() {
    let hashes = hashes(20_000);
    let hash_of = |index: u32| hashes[index as usize];
    let mut map = fill(&hashes);
    let buckets = map.pairs.num_buckets();
    for fewer in [1, 1_000, 12_000] {
        let removed: Vec<_> = (0..20_000).rev().take(fewer).collect();
        for &index in &removed {
            map.remove(hash_of(index), index);
        }
        assert_eq!(map.pairs.num_buckets(), buckets, "{fewer} fewer");
        for index in removed {
            map.insert(hash_of(index), index);
        }
        assert_eq!(map.pairs.num_buckets(), buckets, "{fewer} more");
    }
}

/// How a key hashes, at worst.
#[derive(Debug, Clone, Copy)]
enum Hashes {
    Spread,
    Equal(u32),
    /// All near one place.
    EqualLowBits,
    EqualHighBits,
}

impl Hashes {
    fn of(self, random: u32) -> u32 {
        match self {
            Hashes::Spread => random,
            Hashes::Equal(hash) => hash,
            Hashes::EqualLowBits => random & !0xFFFF | 3,
            Hashes::EqualHighBits => random | 0xFFFF_0000,
        }
    }
}

fn some_hashes() -> impl Strategy<Value = Hashes> {
    prop_oneof![
        3 => Just(Hashes::Spread),
        1 => any::<u32>().prop_map(Hashes::Equal),
        1 => Just(Hashes::EqualLowBits),
        1 => Just(Hashes::EqualHighBits),
    ]
}

/// How many indices there are to be in the end, and whether some steps on the way lead away from
/// that.
fn waves() -> impl Strategy<Value = Vec<(usize, bool)>> {
    let size = prop_oneof![
        2 => 0..30_usize,
        3 => 100..1_500_usize,
        1 => Just(448),
        1 => Just(449),
    ];
    vec((size, any::<bool>()), 2..8)
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
                    map.insert(hash, index);
                    hashes[index as usize] = hash;
                    there.push(index);
                } else {
                    let index = there.swap_remove(random.below(there.len()));
                    map.remove(hashes[index as usize], index);
                    gone.push(index);
                }
            }
            let find = |index: u32| map.find(hashes[index as usize], |other| other == index);
            assert_eq!(len(&map), there.len());
            assert!(there.iter().all(|&index| find(index) == Some(index)));
            assert!(gone.iter().all(|&index| find(index).is_none()));
        }
    }
}
