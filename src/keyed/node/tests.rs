//! The wheel of keyed timers without an actor: which nodes there are, what readers are told, and
//! how sets are forgotten.

use super::*;
use std::iter;
use std::task::{Wake, Waker};

use crate::sync::atomic::{AtomicUsize, Ordering};

/// No turn reaches so many indices.
const ALL: usize = usize::MAX;

/// Sets, and the wheel with their nodes.
struct World {
    wheel: KeyedWheel,
    keys: SetKeys,
    told: ToldBefore,
}

/// A set with its reader.
struct Set {
    key: SetKey,
    hints: Arc<Hints>,
    reach: Reach,
    wakes: Arc<Wakes>,
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl World {
    fn new() -> Self {
        World {
            wheel: KeyedWheel::new(64),
            keys: SetKeys::new(),
            told: ToldBefore::default(),
        }
    }

    fn set(&mut self) -> Set {
        let (key, hints) = (self.keys.draw(), Arc::new(Hints::new()));
        self.wheel.register(key, Arc::clone(&hints));
        Set {
            key,
            hints,
            reach: Reach::default(),
            wakes: Arc::default(),
        }
    }

    fn note(&mut self, set: &Set, indices: impl IntoIterator<Item = u32>, tick: u64) {
        for index in indices {
            self.wheel.apply(set.key, index, tick);
        }
    }

    /// Returns the tick before which all is told.
    fn fire(&mut self, until: u64, limit: usize) -> u64 {
        self.wheel.fire(until, limit, Timestamp::MIN, &self.told).0
    }

    /// What the reader is told since, sorted. It has not been woken without any news.
    fn take(&self, set: &mut Set) -> Vec<u32> {
        let mut indices = Vec::new();
        let woken = &mut None;
        (set.hints).take(&mut indices, &mut set.reach, &self.told, woken);
        indices.sort_unstable();
        indices
    }

    /// How many places for nodes a set has memory for.
    fn places(&self, set: &Set) -> usize {
        let nodes = self.wheel.sets[set.key.position()].as_ref();
        let pages = &nodes.expect("it is registered").pages;
        pages.iter().map(|page| page.nodes.capacity()).sum()
    }
}

impl Set {
    /// The reader waits.
    fn wait(&self) -> bool {
        self.hints.wait(&Waker::from(Arc::clone(&self.wakes)))
    }

    fn woken(&self) -> usize {
        self.wakes.0.swap(0, Ordering::Relaxed)
    }
}

// --- notes ---

#[test]
fn last_note_for_an_index_counts() {
    let mut world = World::new();
    let mut set = world.set();
    for ticks in [
        &[5][..],
        &[9, 5],
        &[3, 5],
        &[NEVER, 5],
        &[9, NEVER, 5],
        &[5, NEVER, NEVER, 7, 5],
    ] {
        let now = world.wheel.wheel.now();
        for &tick in ticks {
            world.note(&set, [0], tick.saturating_add(now));
        }
        world.fire(now + 4, ALL);
        assert_eq!(world.take(&mut set), [], "{ticks:?}");
        assert_eq!(world.wheel.wheel.len(), 1);
        world.fire(now + 20, ALL);
        assert_eq!(world.take(&mut set), [0], "{ticks:?}");
        assert_eq!(world.wheel.wheel.len(), 0);
    }
    world.note(&set, [0, 7, 5_000], NEVER);
    assert_eq!(world.wheel.wheel.len(), 0);
}

#[test]
fn reached_index_has_no_node_and_can_have_another() {
    let mut world = World::new();
    let mut set = world.set();
    world.note(&set, [0], 5);
    world.fire(5, ALL);
    world.note(&set, [0], 5);
    world.note(&set, [1], 6);
    // It would take the node of another away.
    world.fire(5, ALL);
    world.note(&set, [0], NEVER);
    world.fire(6, ALL);
    assert_eq!(world.take(&mut set), [0, 0, 1]);
}

#[test]
fn memory_follows_the_nodes() {
    let mut world = World::new();
    let set = world.set();
    world.note(&set, 0..100_000, 5);
    world.note(&set, [70_000], 500);
    assert!(world.places(&set) >= 100_000);
    world.fire(5, ALL);
    assert!(world.places(&set) <= 2 * PAGE, "{}", world.places(&set));
    world.note(&set, [70_000], NEVER);
    assert!(world.places(&set) <= PAGE);
    let nodes = world.wheel.sets[set.key.position()].as_ref();
    assert!(nodes.expect("it is there").pages.len() <= 1);
}

// --- hints ---

#[test]
fn reader_is_told_how_far_the_wheel_has_come_with_all_hints() {
    let mut world = World::new();
    let mut set = world.set();
    world.note(&set, [0, 1], 5);
    world.note(&set, [2], 6);
    assert!(set.wait());
    assert_eq!(world.fire(4, ALL), 5);
    assert_eq!((set.woken(), world.take(&mut set)), (0, vec![]));
    assert_eq!(world.fire(5, ALL), 6);
    assert_eq!((set.woken(), world.take(&mut set)), (1, vec![0, 1]));
    assert_eq!((set.reach.tick, set.reach.before), (5, 6));
    // It comes late.
    assert_eq!(world.fire(9, ALL), 10);
    assert_eq!(world.take(&mut set), [2]);
    assert_eq!((set.reach.tick, set.reach.before), (9, 10));
}

// The tick of its hint was all that it knew: what was moved later, and due since, got a note.
#[test]
fn reader_without_news_learns_how_far_the_wheel_has_come() {
    let mut world = World::new();
    let (mut set, other) = (world.set(), world.set());
    world.note(&set, [0], 5);
    world.note(&other, [0], 8);
    world.fire(5, ALL);
    assert_eq!(world.take(&mut set), [0]);
    world.fire(8, ALL);
    assert_eq!(world.take(&mut set), []);
    assert_eq!((set.reach.tick, set.reach.before), (8, 9));
}

// It was told, and not woken.
#[test]
fn reader_is_woken_for_a_tick_that_was_complete() {
    let mut world = World::new();
    let mut set = world.set();
    for index in 0..3 {
        world.note(&set, [index], 5);
        assert!(set.wait());
        assert_eq!(world.fire(5, ALL), 6);
        assert_eq!((set.woken(), world.take(&mut set)), (1, vec![index]));
    }
}

/// A tick takes several turns, and has hints for two sets. Neither reader takes anything of that
/// tick before the last turn, since what comes first by number may come last; then both are woken.
#[test]
fn p4_reader_of_a_part_of_a_tick_knows_that_more_may_follow() {
    let mut world = World::new();
    let mut sets = [world.set(), world.set()];
    let mut tick = 5;
    // The second time the tick was complete before, and more is set for it.
    for again in [false, false, true, true, false] {
        tick += u64::from(!again);
        for index in 0..6 {
            for set in &sets {
                world.note(set, [index], tick);
            }
        }
        let mut told = [Vec::new(), Vec::new()];
        for turn in 0..6 {
            assert!(sets.each_ref().map(Set::wait).contains(&true) || turn > 0);
            let before = world.fire(tick, 2);
            let is_last = turn == 5;
            let expected = if is_last { tick + 1 } else { tick };
            assert_eq!(before, expected, "turn {turn}, again {again}");
            for (set, told) in sets.iter_mut().zip(&mut told) {
                let new = world.take(set);
                // A reader that hears of nothing new need not hear that the tick is not complete.
                assert!(new.is_empty() || set.reach.before == before);
                told.extend(new);
            }
        }
        for told in &mut told {
            told.sort_unstable();
            assert_eq!(*told, [0, 1, 2, 3, 4, 5]);
        }
    }
}

/// The reader has not taken the news of a tick when more of it comes, in parts.
#[test]
fn p4_reader_that_comes_late_takes_nothing_of_a_tick_that_goes_on() {
    let mut world = World::new();
    let mut set = world.set();
    world.note(&set, [0], 5);
    assert_eq!(world.fire(5, ALL), 6);
    world.note(&set, 1..5, 5);
    assert_eq!(world.fire(5, 2), 5);
    assert_eq!(world.take(&mut set).len(), 3);
    assert_eq!((set.reach.tick, set.reach.before), (5, 5));
    assert_eq!(world.fire(5, 2), 6);
    assert_eq!(world.take(&mut set).len(), 2);
    assert_eq!((set.reach.tick, set.reach.before), (5, 6));
}

/// As above, with readers that wait: they are woken once, when the tick is complete.
#[test]
fn p4_reader_is_woken_once_a_tick_is_complete_that_came_in_parts() {
    let mut world = World::new();
    let mut sets = [world.set(), world.set(), world.set()];
    for round in 0..2 {
        for (n, set) in (0..).zip(&sets) {
            // The last set is told everything in the last turn.
            world.note(set, 0..3 + n, 5);
            assert!(set.wait(), "round {round}");
        }
        let turns = iter::from_fn(|| (world.fire(5, 4) < 6).then_some(())).count();
        assert_eq!(turns, 2);
        for (n, set) in (0..).zip(&mut sets) {
            assert_eq!(set.woken(), 1, "set {n} in round {round}");
            assert_eq!(world.take(set), (0..3 + n).collect::<Vec<_>>());
            assert_eq!(set.reach.before, 6);
        }
    }
}

/// The actor does not wait for a reader that has its list locked, and tells it in a later turn. A
/// task that settles waits for that, and so does what was told for later ticks.
#[test]
fn p4_p11_reader_that_has_its_list_locked_is_told_later() {
    let mut world = World::new();
    let (mut set, mut other) = (world.set(), world.set());
    world.note(&set, [0, 1], 5);
    world.note(&other, [0], 5);
    let held = Arc::clone(&set.hints);
    let held = held.hold();
    assert_eq!(world.fire(5, ALL), 0, "it does not settle");
    assert_eq!(world.take(&mut other), [0], "another is told");
    assert_eq!((other.reach.tick, other.reach.before), (5, 6));
    world.note(&set, [2], 6);
    world.note(&other, [1], 6);
    assert_eq!(world.fire(6, ALL), 0);
    assert_eq!(world.take(&mut other), [1]);
    assert_eq!(world.told.get(), 0, "not all of it is told");
    drop(held);
    assert_eq!(world.fire(6, ALL), 7);
    assert_eq!(world.take(&mut set), [0, 1, 2]);
    assert_eq!((set.reach.tick, set.reach.before), (6, 7));
}

/// It was told a part of a tick, and has its list locked when the tick is complete.
#[test]
fn reader_that_has_its_list_locked_learns_that_a_tick_is_complete() {
    let mut world = World::new();
    let (mut set, other) = (world.set(), world.set());
    world.note(&set, [0, 1], 5);
    world.note(&other, [0, 1], 5);
    assert_eq!(world.fire(5, 2), 5);
    let first = if set.hints.has_news() { &set } else { &other };
    let held = Arc::clone(&first.hints);
    let held = held.hold();
    for _ in 0..3 {
        assert_eq!(world.fire(5, 2), 0);
    }
    drop(held);
    assert_eq!(world.fire(5, 2), 6);
    assert_eq!(world.take(&mut set), [0, 1]);
    assert_eq!((set.reach.tick, set.reach.before), (5, 6));
}

/// Overdue commands are left over: the wheel fires what is due before them, though it had come
/// further.
#[test]
fn wheel_that_stops_before_its_tick_tells_no_more_than_is_known() {
    let mut world = World::new();
    let mut set = world.set();
    world.fire(9, ALL);
    assert_eq!(world.told.get(), 10);
    // It counts as scheduled for the tick to which the wheel has come.
    world.note(&set, [0], 3);
    assert_eq!(world.fire(8, ALL), 9);
    assert_eq!((world.take(&mut set), world.told.get()), (vec![], 9));
    assert_eq!(world.fire(9, ALL), 10);
    assert_eq!(world.take(&mut set), [0]);
    assert_eq!((set.reach.tick, set.reach.before), (9, 10));
}

// A clock that is virtual would move to the node of a removed timer.
#[test]
fn eviction_tells_every_reader_of_every_node() {
    let mut world = World::new();
    let mut sets = [world.set(), world.set()];
    for set in &sets {
        world.note(set, [0, 3], 1_000);
        assert!(set.wait());
    }
    world.wheel.evict();
    assert_eq!(world.wheel.wheel.next_wake(), None);
    assert_eq!(world.fire(1, ALL), 2);
    for set in &mut sets {
        assert_eq!((set.woken(), world.take(set)), (1, vec![0, 3]));
        assert_eq!((set.reach.tick, set.reach.before), (1, 2));
    }
}

// --- sets that are forgotten ---

#[test]
fn nodes_of_a_forgotten_set_leave_in_bounded_turns_and_then_its_key() {
    let mut world = World::new();
    let (set, other) = (world.set(), world.set());
    world.note(&set, 0..5_000, 100);
    world.note(&other, [0], 100);
    world.wheel.forget(set.key);
    let mut turns = 0;
    while world.wheel.has_work_left() {
        assert_ne!(world.keys.draw(), set.key, "it has nodes");
        let left = world.wheel.wheel.len();
        world.wheel.dismantle(1_000, &world.keys);
        let gone = left - world.wheel.wheel.len();
        assert!((1..=1_000).contains(&gone) || left == 1);
        turns += 1;
    }
    assert!((6..10).contains(&turns), "{turns}");
    assert_eq!(world.wheel.wheel.len(), 1);
    assert_eq!(world.keys.draw(), set.key);
}

#[test]
fn many_forgotten_sets_go_in_bounded_turns() {
    let mut world = World::new();
    let sets: Vec<_> = (0..1_000).map(|_| world.set()).collect();
    for set in &sets {
        world.wheel.forget(set.key);
    }
    let mut turns = 0;
    while world.wheel.has_work_left() {
        world.wheel.dismantle(100 * COST_OF_SET, &world.keys);
        turns += 1;
    }
    assert!((10..20).contains(&turns), "{turns}");
    assert!(world.wheel.sets.is_empty());
}

#[test]
fn forgotten_set_is_told_nothing_whatever_the_wheel_reaches() {
    let mut world = World::new();
    let (mut set, mut other) = (world.set(), world.set());
    world.note(&set, 0..3, 5);
    world.note(&set, 3..6, 9);
    world.note(&other, [0], 5);
    // Some are reached while the reader has its list locked.
    let held = Arc::clone(&set.hints);
    let held = held.hold();
    assert_eq!(world.fire(5, ALL), 0);
    drop(held);
    world.wheel.forget(set.key);
    world.wheel.dismantle(1, &world.keys);
    assert_eq!(world.fire(9, ALL), 10);
    assert_eq!(world.take(&mut set), []);
    assert_eq!(world.take(&mut other), [0]);
    // The set that has its key next begins without any.
    while world.wheel.has_work_left() {
        world.wheel.dismantle(ALL, &world.keys);
    }
    let mut next = world.set();
    assert_eq!(next.key, set.key);
    world.note(&next, [1], 12);
    assert_eq!(world.fire(12, ALL), 13);
    assert_eq!(
        (world.take(&mut set), world.take(&mut next)),
        (vec![], vec![1])
    );
}

// A caller that draws a key may be preempted.
#[test]
fn p11_key_is_given_back_once_no_caller_draws_one() {
    let mut world = World::new();
    let set = world.set();
    world.wheel.forget(set.key);
    let held = world.keys.hold();
    for _ in 0..3 {
        world.wheel.dismantle(ALL, &world.keys);
        assert!(world.wheel.has_work_left());
    }
    drop(held);
    world.wheel.dismantle(ALL, &world.keys);
    assert!(!world.wheel.has_work_left());
    assert_eq!(world.keys.draw(), set.key);
}

#[test]
fn list_of_sets_shrinks_with_the_last_ones() {
    let mut world = World::new();
    let sets: Vec<_> = (0..1_000).map(|_| world.set()).collect();
    for set in &sets[1..] {
        world.wheel.forget(set.key);
    }
    while world.wheel.has_work_left() {
        world.wheel.dismantle(ALL, &world.keys);
    }
    assert_eq!(world.wheel.sets.len(), 1);
    assert!(world.wheel.sets.capacity() < 1_000 / SPARSE);
    // The lowest keys are drawn first.
    assert_eq!(world.set().key.position(), 1);
}
