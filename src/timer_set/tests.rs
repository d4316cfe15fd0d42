//! A set without an actor: its memory, its dirty indices, and its heap.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::clock::ClockPolicy;
use crate::shared::Config;
use crate::shared::mailbox::Backlog;
use crate::shared::notifier::ActorNotifier;
use crate::shared::timer_set::{Batch, DueHeap, LockMode, Timers};
use crate::shared::turn::Turn;
use crate::tick::Ticks;

mod stream;

/// The state that the actor keeps for a set.
struct Nodes {
    wheel: Timers,
    due: DueHeap,
}

impl Default for Nodes {
    fn default() -> Self {
        Nodes {
            wheel: Timers::new(16),
            due: DueHeap::new(),
        }
    }
}

impl Nodes {
    /// The ticks of the indices on the wheel, by their nodes.
    fn ticks(&self) -> Vec<u64> {
        let nodes = 0..self.wheel.indices();
        nodes.filter_map(|node| self.wheel.tick_of(node)).collect()
    }
}

const TRY: LockMode = LockMode::Try;

type Keyed = Arc<Set<u64, Plain<()>>>;

/// A wheel without an actor. An actor would empty the queues at its end, and break the circle of references: a queued
/// command holds the set, and the set holds the queues.
struct Undriven(Arc<Shared>);

impl Deref for Undriven {
    type Target = Arc<Shared>;

    fn deref(&self) -> &Arc<Shared> {
        &self.0
    }
}

impl Drop for Undriven {
    fn drop(&mut self) {
        self.0.mailbox.close(&mut Backlog::new());
    }
}

/// A set whose ticks are milliseconds.
fn set() -> (Undriven, Keyed) {
    let shared = Arc::new(Shared::new(Config {
        name: "no actor".into(),
        ticks: Ticks::new(Instant::now(), Duration::from_millis(1)).expect("not zero"),
        late_warning: Duration::MAX,
        max_keyed: 1 << 20,
        notifier: ActorNotifier::for_thread(),
        clock: ClockPolicy::new(None, false, true),
    }));
    let set = Set::new(&shared, ());
    set.number.store(1, Ordering::Relaxed);
    (Undriven(shared), set)
}

fn tick(n: u64) -> Timestamp {
    Timestamp::at(n * 1_000_000)
}

/// How many timers are delivered, how many are pending, and how many entries the heap has.
fn lengths(set: &Keyed, nodes: &Nodes) -> (usize, usize, usize) {
    let state = set.lock();
    (state.delivered.len(), state.table.len(), nodes.due.len())
}

fn arm(set: &Keyed, keys: std::ops::Range<u64>, at: u64) {
    for key in keys {
        assert!(set.set(key, (), tick(at), None).is_ok());
    }
}

/// Processes all dirty indices, as the actor does; returns how many.
fn process(set: &Keyed, turn: &Turn<'_>, nodes: &mut Nodes) -> usize {
    let mut batch = Batch::default();
    set.take_dirty(&mut batch, TRY)
        .expect("no other thread locks it");
    for (list, earliest) in [
        (&batch.urgent, batch.earliest),
        (&batch.rest, batch.rest_earliest),
    ] {
        for indices in list.chunks(256) {
            let processed = set.process(indices, earliest, turn, &mut nodes.wheel, TRY);
            assert!(processed.is_ok());
        }
    }
    batch.len()
}

/// The wheel has reached these indices.
fn reach(set: &Keyed, indices: &[u32], turn: &Turn<'_>, nodes: &mut Nodes) {
    let reached: HashSet<_> = indices.iter().collect();
    for node in 0..nodes.wheel.indices() {
        let item = nodes.wheel.get(node);
        if item.is_some_and(|item| reached.contains(&item.index)) {
            nodes.wheel.remove(node);
        }
    }
    for indices in indices.chunks(256) {
        let (wheel, due) = (&mut nodes.wheel, &mut nodes.due);
        let processed = set.process_expirations(indices, turn, wheel, due, TRY);
        assert!(processed.is_ok());
    }
}

/// Delivers what is due before a tick, at most `limit`; returns what is left of it.
fn deliver(
    set: &Keyed,
    before: u64,
    mut limit: usize,
    turn: &Turn<'_>,
    nodes: &mut Nodes,
) -> usize {
    let (wheel, due) = (&mut nodes.wheel, &mut nodes.due);
    let delivered = set.deliver(before, &mut limit, turn, wheel, due, TRY);
    assert!(delivered.is_ok());
    limit
}

#[test]
fn memory_follows_the_number_of_timers() {
    let (shared, set) = set();
    let mut nodes = Nodes::default();
    let turn = Turn::new(tick(0), &shared);
    arm(&set, 0..10_000, 5);
    assert_eq!(process(&set, &turn, &mut nodes), 10_000);
    assert_eq!(nodes.ticks(), vec![5; 10_000]);
    assert_eq!(set.take_all(u64::MAX).len(), 10_000);
    assert_eq!(set.lock().table.chunks(), 40, "the wheel knows the indices");
    assert_eq!(process(&set, &turn, &mut nodes), 10_000);
    assert!(nodes.wheel.is_empty());
    assert_eq!(set.lock().table.chunks(), 0);

    // Expirations free it too.
    arm(&set, 0..10_000, 5);
    process(&set, &turn, &mut nodes);
    let turn = Turn::new(tick(5), &shared);
    let indices: Vec<_> = (0..10_000).collect();
    reach(&set, &indices, &turn, &mut nodes);
    assert_eq!(deliver(&set, 6, 20_000, &turn, &mut nodes), 10_000);
    let state = set.lock();
    assert!(state.table.chunks() <= 1 && nodes.due.capacity() <= KEPT);
    assert_eq!(state.delivered.len(), 10_000);
}

#[test]
fn indices_are_used_again() {
    let (shared, set) = set();
    let mut nodes = Nodes::default();
    let turn = Turn::new(tick(0), &shared);
    for _ in 0..100 {
        arm(&set, 0..300, 5);
        process(&set, &turn, &mut nodes);
        (0..300).for_each(|key| assert!(set.remove(&key).is_ok()));
    }
    assert!(set.lock().table.end() <= 512);
    assert_eq!(nodes.wheel.len(), 300, "they stay on the wheel in between");
}

#[test]
fn reuses_the_numbers_of_freed_chunks() {
    let (shared, set) = set();
    let mut nodes = Nodes::default();
    let turn = Turn::new(tick(0), &shared);
    // Some stay, so that the table never starts again.
    arm(&set, 0..1_000, 5);
    for _ in 0..50 {
        arm(&set, 1_000..4_000, 5);
        process(&set, &turn, &mut nodes);
        (1_000..4_000).for_each(|key| assert!(set.remove(&key).is_ok()));
        process(&set, &turn, &mut nodes);
        assert!(set.lock().table.chunks() <= 5);
    }
    assert!(set.lock().table.end() <= 17 * 256);
}

#[test]
fn chunk_keeps_its_timers_while_another_is_emptied() {
    let (shared, set) = set();
    let mut nodes = Nodes::default();
    let turn = Turn::new(tick(0), &shared);
    arm(&set, 0..256, 5);
    for _ in 0..3 {
        arm(&set, 256..300, 5);
        process(&set, &turn, &mut nodes);
        (256..300).for_each(|key| assert!(set.remove(&key).is_ok()));
        process(&set, &turn, &mut nodes);
        assert!((0..256).all(|key| set.deadline(&key).is_some()));
        assert_eq!(set.lock().table.chunks(), 2);
    }
}

#[test]
fn due_timers_of_a_closed_set_are_not_delivered() {
    let (shared, set) = set();
    let mut nodes = Nodes::default();
    arm(&set, 0..3, 5);
    let turn = Turn::new(tick(5), &shared);
    assert_eq!(process(&set, &turn, &mut nodes), 3);
    reach(&set, &[0, 1, 2], &turn, &mut nodes);
    assert_eq!(deliver(&set, 5, 9, &turn, &mut nodes), 9, "too early");
    assert_eq!(lengths(&set, &nodes), (0, 3, 3));
    TimerSet::close(&*set);
    assert_eq!(deliver(&set, 6, 9, &turn, &mut nodes), 9, "it is closed");
    assert_eq!(lengths(&set, &nodes), (0, 3, 0));
}

#[test]
fn delivery_stops_at_its_limit_and_at_its_tick() {
    let (shared, set) = set();
    let mut nodes = Nodes::default();
    arm(&set, 0..3, 5);
    arm(&set, 3..4, 6);
    let turn = Turn::new(tick(6), &shared);
    assert_eq!(process(&set, &turn, &mut nodes), 4);
    reach(&set, &[3, 2, 1, 0], &turn, &mut nodes);
    assert_eq!(deliver(&set, 6, 2, &turn, &mut nodes), 0);
    assert_eq!(lengths(&set, &nodes), (2, 2, 2));
    assert_eq!(shared.metrics.0.read().keyed_pending, 2);
    assert_eq!(deliver(&set, 6, 2, &turn, &mut nodes), 1);
    assert_eq!(lengths(&set, &nodes), (3, 1, 1));
    assert_eq!(deliver(&set, 7, 1, &turn, &mut nodes), 0);
    let metrics = shared.metrics.0.read();
    assert_eq!((metrics.keyed_fired, metrics.keyed_pending), (4, 0));
}

#[test]
fn stale_entries_of_the_heap_are_skipped() {
    let (shared, set) = set();
    let mut nodes = Nodes::default();
    arm(&set, 0..4, 5);
    let turn = Turn::new(tick(5), &shared);
    process(&set, &turn, &mut nodes);
    reach(&set, &[0, 1, 2, 3], &turn, &mut nodes);
    // Removed; removed and its index used again; moved later; moved earlier.
    assert!(matches!(set.remove(&0), Ok(Some(()))));
    assert!(matches!(set.remove(&1), Ok(Some(()))));
    arm(&set, 8..9, 7);
    assert_eq!(set.move_to(&2, tick(9)), Ok(true));
    assert_eq!(set.move_to(&3, tick(2)), Ok(true));
    deliver(&set, 6, 9, &turn, &mut nodes);
    assert_eq!(lengths(&set, &nodes), (0, 3, 0));
    assert_eq!(process(&set, &turn, &mut nodes), 3);
    let mut ticks = nodes.ticks();
    ticks.sort_unstable();
    assert_eq!(ticks, [2, 7, 9], "they are on the wheel again");
}

#[test]
fn draining_leaves_timers_that_were_armed_later() {
    let (_shared, set) = set();
    arm(&set, 0..3, 5);
    let by = set.lock().order;
    arm(&set, 3..5, 4);
    arm(&set, 1..2, 3);
    let keys = |by| -> Vec<_> { set.take_all(by).iter().map(|taken| taken.key).collect() };
    assert_eq!(keys(by), [0, 2]);
    assert_eq!(keys(u64::MAX), [1, 3, 4], "the earliest first");
}

#[test]
fn nothing_can_be_set_after_the_end() {
    let (shared, set) = set();
    assert_eq!(shared.sets.close().len(), 1);
    assert!(
        !set.is_closed(),
        "closing the list leaves the sets to the caller"
    );
    TimerSet::close(&*set);
    assert!(set.is_closed() && set.open().is_err());
    let another: Keyed = Set::new(&shared, ());
    assert!(another.is_closed());
    assert!(another.set(1, (), tick(5), None).is_err());
    assert_eq!(another.number.load(Ordering::Relaxed), 0);
}

/// The dirty indices, the urgent ones first, and the earliest ticks.
fn take(set: &Keyed) -> (Vec<u32>, Vec<u32>, [u64; 2]) {
    let mut batch = Batch::default();
    set.take_dirty(&mut batch, TRY)
        .expect("no other thread locks it");
    (
        batch.urgent,
        batch.rest,
        [batch.earliest, batch.rest_earliest],
    )
}

#[test]
fn marks_an_index_dirty_once() {
    let (shared, set) = set();
    for at in [5, 4, 3] {
        arm(&set, 0..2, at);
    }
    assert_eq!(take(&set), (vec![0, 1], vec![], [3, NEVER]));
    // An index in the actor's batch stays dirty. An earlier tick is announced nevertheless.
    arm(&set, 0..1, 2);
    assert_eq!(take(&set), (vec![], vec![], [2, NEVER]));
    let mut nodes = Nodes::default();
    let turn = Turn::new(tick(0), &shared);
    let processed = set.process(&[0, 1], 2, &turn, &mut nodes.wheel, TRY);
    assert_eq!(processed, Ok(false));
    assert_eq!(nodes.ticks(), [2, 3]);
}

#[tokio::test(start_paused = true)]
async fn urgent_indices_of_a_long_list_are_those_before_the_horizon() {
    let (_shared, set) = set();
    assert_eq!(take(&set), (vec![], vec![], [NEVER, NEVER]));
    // A short list is urgent as a whole.
    arm(&set, 0..256, 20_000);
    // The horizon is at tick 256 now.
    arm(&set, 256..600, 10_000);
    arm(&set, 600..601, 256);
    arm(&set, 601..602, 255);
    // An index that becomes urgent is listed again, once.
    for at in [300, 8, 7] {
        arm(&set, 300..301, at);
    }
    let urgent = (0..256).chain([601, 300]).collect();
    assert_eq!(take(&set), (urgent, (256..601).collect(), [7, 256]));
}

// The index is dirty because it has to leave the wheel. It was once taken for urgent by the tick of its node.
#[tokio::test(start_paused = true)]
async fn index_of_a_removed_timer_becomes_urgent_when_used_again() {
    let (shared, set) = set();
    let mut nodes = Nodes::default();
    let turn = Turn::new(tick(0), &shared);
    arm(&set, 0..1, 200);
    process(&set, &turn, &mut nodes);
    arm(&set, 1..301, 5_000);
    assert!(matches!(set.remove(&0), Ok(Some(()))));
    for at in [300, 10, 9] {
        arm(&set, 0..1, at);
    }
    let (urgent, rest, earliest) = take(&set);
    assert_eq!(urgent, (1..257).chain([0]).collect::<Vec<_>>());
    assert_eq!(rest.len(), 45, "it has been among the rest before");
    assert_eq!(earliest, [9, 300]);
}

#[test]
fn stops_repeating_when_set_again() {
    let (_shared, set) = set();
    let repeat = || {
        Some(Repeat {
            period: 1,
            clone: |&key: &u64, _: &Plain<()>| (key, ()),
        })
    };
    assert!(set.set(0, (), tick(9), repeat()).is_ok());
    assert_eq!(set.lock().repeats.len(), 1);
    assert!(matches!(set.set(0, (), tick(9), None), Ok(Some(()))));
    assert!(set.lock().repeats.is_empty());
    assert!(set.set(0, (), tick(9), repeat()).is_ok());
    assert!(matches!(set.remove(&0), Ok(Some(()))));
    assert!(set.lock().repeats.is_empty());
}

#[test]
#[cfg(target_pointer_width = "64")]
fn takes_48_bytes_for_a_slot_with_a_u64_key_and_value() {
    assert_eq!(size_of::<table::Slot<u64, Plain<u64>>>(), 48);
}

/// Fires the timers at these indices.
fn fire(shared: &Shared, set: &Keyed, nodes: &mut Nodes, indices: &[u32], at: u64) {
    let turn = Turn::new(tick(at), shared);
    process(set, &turn, nodes);
    reach(set, indices, &turn, nodes);
    deliver(set, at + 1, 1_000_000, &turn, nodes);
}

// The table once remembered a chunk to keep after it had begun again without one: an index out of bounds.
#[test]
fn begins_again_when_its_last_chunks_are_freed() {
    let (shared, set) = set();
    let mut nodes = Nodes::default();
    let turn = Turn::new(tick(0), &shared);
    let mut remove = |keys: std::ops::Range<u64>| {
        keys.for_each(|key| assert!(matches!(set.remove(&key), Ok(Some(())))));
        process(&set, &turn, &mut nodes);
    };
    for _ in 0..2 {
        arm(&set, 0..512, 5);
        remove(256..512);
        remove(0..256);
        for key in 0..3 {
            arm(&set, key..key + 1, 5);
            remove(key..key + 1);
        }
    }
    assert!(set.lock().table.chunks() <= 1);
}
