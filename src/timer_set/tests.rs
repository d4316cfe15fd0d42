//! A set without an actor: its memory, its notes, and its heap.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::clock::ClockPolicy;
use crate::shared::Config;
use crate::shared::command::Command;
use crate::shared::mailbox::Lanes;
use crate::shared::note::{Note, Place};
use crate::shared::notifier::ActorNotifier;
use crate::shared::timer_set::{DueHeap, TimerSet, Visit};
use crate::shared::turn::Turn;
use crate::tick::Ticks;

mod random;
mod stream;

/// What the actor knows of a set.
#[derive(Default)]
struct Nodes {
    /// The number of the newest note, and the tick of the node.
    places: HashMap<u32, (u64, u64)>,
    reached: Vec<u32>,
    due: DueHeap,
}

impl Place for HashMap<u32, (u64, u64)> {
    fn place(&mut self, index: u32, number: NonZeroU64, tick: u64) {
        self.insert(index, (number.get(), tick));
    }
}

impl Nodes {
    /// The ticks of the indices on the wheel.
    fn ticks(&self) -> Vec<u64> {
        let ticks = self.places.values().map(|&(_, tick)| tick);
        let mut ticks: Vec<_> = ticks.filter(|&tick| tick != NEVER).collect();
        ticks.sort_unstable();
        ticks
    }

    fn apply(&mut self, note: &Note) {
        let newest = self.places.get(&note.index).map_or(0, |place| place.0);
        if note.number.get() > newest {
            self.places.place(note.index, note.number, note.tick);
        }
    }

    /// The wheel reaches everything that is scheduled by this tick.
    fn reach(&mut self, until: u64) {
        for (&index, place) in &mut self.places {
            if place.1 <= until {
                place.1 = NEVER;
                self.reached.push(index);
            }
        }
    }

    /// Visits the set, and delivers what is due before a tick. At most `limit` are processed;
    /// returns what is left of that.
    fn visit(&mut self, set: &Keyed, before: u64, mut limit: usize, turn: &Turn<'_>) -> usize {
        loop {
            let left = limit;
            let visited = set.visit(Visit {
                reached: &mut self.reached,
                due: &mut self.due,
                before,
                limit: &mut limit,
                turn,
                wheel: &mut self.places,
            });
            assert!(visited.is_ok(), "no other thread locks it");
            if limit == left {
                return limit;
            }
        }
    }
}

type Keyed = Arc<Set<u64, Plain<()>>>;

/// A wheel without an actor. An actor would empty the queues at its end, and break the circle of
/// references: a queued command holds the set, and the set holds the queues.
struct Undriven(Arc<Shared>);

impl Deref for Undriven {
    type Target = Arc<Shared>;

    fn deref(&self) -> &Arc<Shared> {
        &self.0
    }
}

impl Drop for Undriven {
    fn drop(&mut self) {
        self.0.mailbox.close(&mut Lanes::new());
    }
}

/// A set with ticks of a millisecond.
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

/// The notes that were sent since the last call.
fn notes(shared: &Shared) -> Vec<Note> {
    let mut taken = Lanes::new();
    assert!(shared.mailbox.take(&mut taken));
    let note = |command| match command {
        Command::Note(note) => Some(note),
        Command::Request(_) => None,
    };
    std::iter::from_fn(|| taken.pop())
        .filter_map(note)
        .collect()
}

/// Applies all notes, as the actor does; returns how many.
fn process(shared: &Shared, nodes: &mut Nodes) -> usize {
    let notes = notes(shared);
    for note in &notes {
        nodes.apply(note);
    }
    notes.len()
}

fn remove(set: &Keyed, keys: std::ops::Range<u64>) {
    keys.for_each(|key| assert!(matches!(set.remove(&key), Ok(Some(())))));
}

/// Fires the timers that are due at this tick.
fn fire(shared: &Shared, set: &Keyed, nodes: &mut Nodes, at: u64) {
    let turn = Turn::new(tick(at), shared);
    process(shared, nodes);
    nodes.reach(at);
    nodes.visit(set, at + 1, 1_000_000, &turn);
}

#[test]
fn memory_follows_the_number_of_timers() {
    let (shared, set) = set();
    let mut nodes = Nodes::default();
    arm(&set, 0..10_000, 5);
    assert_eq!(process(&shared, &mut nodes), 10_000);
    assert_eq!(nodes.ticks(), vec![5; 10_000]);
    assert_eq!(set.take_all(u64::MAX).len(), 10_000);
    process(&shared, &mut nodes);
    assert!(nodes.ticks().len() <= 1 && set.lock().table.chunks() <= 2);

    // Expirations free it too.
    arm(&set, 0..10_000, 5);
    fire(&shared, &set, &mut nodes, 5);
    assert!(nodes.ticks().is_empty());
    let state = set.lock();
    assert!(state.table.chunks() <= 1 && nodes.due.capacity() <= KEPT);
    assert_eq!(state.delivered.len(), 10_000);
}

#[test]
fn indices_are_used_again() {
    let (shared, set) = set();
    let mut nodes = Nodes::default();
    for _ in 0..100 {
        arm(&set, 0..300, 5);
        process(&shared, &mut nodes);
        remove(&set, 0..300);
    }
    assert!(set.lock().table.end() <= 512);
}

#[test]
fn reuses_the_numbers_of_freed_chunks() {
    let (_shared, set) = set();
    // Some stay, so that the table never starts again.
    arm(&set, 0..1_000, 5);
    for _ in 0..50 {
        arm(&set, 1_000..4_000, 5);
        remove(&set, 1_000..4_000);
        assert!(set.lock().table.chunks() <= 4 + MAX_KEPT);
    }
    assert!(set.lock().table.end() <= 17 * 256);
}

#[test]
fn chunk_keeps_its_timers_while_another_is_emptied() {
    let (_shared, set) = set();
    arm(&set, 0..256, 5);
    for _ in 0..3 {
        arm(&set, 256..300, 5);
        remove(&set, 256..300);
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
    assert_eq!(process(&shared, &mut nodes), 3);
    nodes.reach(5);
    nodes.visit(&set, 5, 9, &turn);
    assert_eq!(lengths(&set, &nodes), (0, 3, 3), "too early");
    TimerSet::close(&*set);
    nodes.visit(&set, 6, 9, &turn);
    assert_eq!(lengths(&set, &nodes), (0, 3, 0), "it is closed");
}

#[test]
fn delivery_stops_at_its_limit_and_at_its_tick() {
    let (shared, set) = set();
    let mut nodes = Nodes::default();
    arm(&set, 0..3, 5);
    arm(&set, 3..4, 6);
    let turn = Turn::new(tick(6), &shared);
    process(&shared, &mut nodes);
    nodes.reach(6);
    assert_eq!(nodes.visit(&set, 6, 6, &turn), 0);
    assert_eq!(lengths(&set, &nodes), (2, 2, 2), "all are found due first");
    assert_eq!(shared.metrics.0.read().keyed_pending, 2);
    assert_eq!(nodes.visit(&set, 6, 2, &turn), 1);
    assert_eq!(lengths(&set, &nodes), (3, 1, 1));
    assert_eq!(nodes.visit(&set, 7, 1, &turn), 0);
    let metrics = shared.metrics.0.read();
    assert_eq!((metrics.keyed_fired, metrics.keyed_pending), (4, 0));
}

#[test]
fn hold_of_the_lock_touches_one_batch() {
    let (shared, set) = set();
    let mut nodes = Nodes::default();
    arm(&set, 0..1_000, 5);
    process(&shared, &mut nodes);
    nodes.reach(5);
    let turn = Turn::new(tick(5), &shared);
    let mut limit = 10_000;
    let visited = set.visit(Visit {
        reached: &mut nodes.reached,
        due: &mut nodes.due,
        before: 6,
        limit: &mut limit,
        turn: &turn,
        wheel: &mut nodes.places,
    });
    assert!(visited.is_ok());
    assert_eq!(limit, 10_000 - BATCH as usize);
    assert_eq!(lengths(&set, &nodes), (0, 1_000, BATCH as usize));
}

#[test]
fn stale_entries_of_the_heap_are_skipped() {
    let (shared, set) = set();
    let mut nodes = Nodes::default();
    arm(&set, 0..4, 5);
    let turn = Turn::new(tick(5), &shared);
    process(&shared, &mut nodes);
    nodes.reach(5);
    nodes.visit(&set, 0, 9, &turn);
    assert_eq!(lengths(&set, &nodes), (0, 4, 4));
    // Removed; removed and its index used again; moved later; moved earlier.
    remove(&set, 0..2);
    arm(&set, 8..9, 7);
    assert_eq!(set.move_to(&2, tick(9)), Ok(true));
    assert_eq!(set.move_to(&3, tick(2)), Ok(true));
    nodes.visit(&set, 6, 9, &turn);
    assert_eq!(lengths(&set, &nodes), (0, 3, 0));
    process(&shared, &mut nodes);
    assert_eq!(nodes.ticks(), [2, 7, 9], "they are on the wheel again");
}

// --- notes ---

#[test]
fn only_an_earlier_tick_needs_a_note() {
    let (shared, set) = set();
    let ticks = |move_to: &[u64]| -> Vec<_> {
        for &to in move_to {
            assert_eq!(set.move_to(&0, tick(to)), Ok(true));
        }
        notes(&shared).iter().map(|note| note.tick).collect()
    };
    arm(&set, 0..1, 100);
    assert_eq!(ticks(&[]), [100]);
    assert_eq!(ticks(&[100, 500, 200]), [], "the node is early enough");
    assert_eq!(ticks(&[90, 95, 90, 80]), [90, 80]);
    arm(&set, 0..1, 300);
    assert_eq!(ticks(&[]), []);
    // The slot remembers at most 71 minutes between its node and the deadline.
    assert_eq!(ticks(&[8_000_000_000, 7_996_000_000]), []);
    assert_eq!(ticks(&[7_994_000_000]), [7_994_000_000]);
    assert_eq!(set.move_to(&0, Timestamp::NEVER), Ok(true));
    assert_eq!(ticks(&[70]), [70]);
}

#[test]
fn timer_that_never_fires_needs_no_note() {
    let (shared, set) = set();
    assert!(set.set(0, (), Timestamp::NEVER, None).is_ok());
    assert_eq!(set.move_to(&0, Timestamp::NEVER), Ok(true));
    assert!(notes(&shared).is_empty());
    remove(&set, 0..1);
    assert!(set.lock().kept.is_empty());
}

#[test]
fn removed_timer_leaves_its_node_to_a_later_one() {
    let (shared, set) = set();
    let mut nodes = Nodes::default();
    arm(&set, 0..1, 100);
    assert_eq!(process(&shared, &mut nodes), 1);
    for at in [100, 120, 200] {
        remove(&set, 0..1);
        arm(&set, 0..1, at);
    }
    assert_eq!(process(&shared, &mut nodes), 0);
    assert_eq!((nodes.ticks(), set.lock().table.end()), (vec![100], 256));
    remove(&set, 0..1);
    arm(&set, 1..2, 50);
    assert_eq!(process(&shared, &mut nodes), 1);
    assert_eq!(nodes.ticks(), [50, 100], "it would be late at 100");
    fire(&shared, &set, &mut nodes, 100);
    assert_eq!(lengths(&set, &nodes), (1, 0, 0));
    assert!(set.lock().kept.is_empty() && nodes.ticks().is_empty());
}

#[test]
fn few_removed_timers_leave_their_nodes() {
    let (shared, set) = set();
    let mut nodes = Nodes::default();
    arm(&set, 0..1_000, 100);
    process(&shared, &mut nodes);
    for left in (0..1_000).rev() {
        remove(&set, left..left + 1);
        process(&shared, &mut nodes);
        let kept = set.lock().kept.len() as u64;
        assert_eq!(kept, (1_000 - left).min(MAX_KEPT as u64).min(left + 1));
        assert_eq!(nodes.ticks().len() as u64, left + kept);
    }
}

#[test]
fn no_node_is_left_when_no_timer_can_be_set() {
    let (shared, set) = set();
    let mut nodes = Nodes::default();
    arm(&set, 0..20, 100);
    remove(&set, 0..10);
    assert_eq!(set.lock().kept.len(), 10);
    drop(Handles::of(&set));
    remove(&set, 10..15);
    process(&shared, &mut nodes);
    assert_eq!((set.lock().kept.len(), nodes.ticks().len()), (0, 5));
    Source::close_unread(&*set);
    process(&shared, &mut nodes);
    assert!(nodes.ticks().is_empty());
}

#[test]
fn no_node_is_left_when_the_stream_is_dropped() {
    let (shared, set) = set();
    let mut nodes = Nodes::default();
    arm(&set, 0..20, 100);
    remove(&set, 0..10);
    process(&shared, &mut nodes);
    assert_eq!((set.lock().kept.len(), nodes.ticks().len()), (10, 20));
    Source::close_unread(&*set);
    process(&shared, &mut nodes);
    assert!(set.lock().kept.is_empty() && nodes.ticks().is_empty());
}

/// A value that was touched between two looks at it: it expires at the second attempt.
struct Touched(std::sync::atomic::AtomicBool);

impl Payload for Touched {
    type Value = ();
    type Rules = ();
    const KEYED: bool = false;

    fn due(&self, deadline: Timestamp, _: Timestamp, (): &()) -> Timestamp {
        deadline
    }

    fn expire(&self, deadline: Timestamp, _: Timestamp, (): &()) -> Option<(Timestamp, Cause)> {
        let refused = self.0.swap(true, std::sync::atomic::Ordering::Relaxed);
        refused.then_some((deadline, Cause::Idle))
    }

    fn end(&mut self, deadline: Timestamp, _: Timestamp, (): &()) -> (Timestamp, Cause) {
        (deadline, Cause::Idle)
    }

    fn into_value(self) {}
}

#[test]
fn timer_that_refuses_to_expire_is_tried_again_a_tick_later() {
    let (shared, _) = set();
    let set: Arc<Set<u64, Touched>> = Set::new(&shared, ());
    let touched = |(), _| (Touched(false.into()), ());
    assert!(set.add(1, (), tick(5), tick(0), touched).is_ok());
    let mut nodes = Nodes::default();
    for at in [5, 6] {
        let turn = Turn::new(tick(at), &shared);
        process(&shared, &mut nodes);
        nodes.reach(at);
        let mut limit = 100;
        let visited = set.visit(Visit {
            reached: &mut nodes.reached,
            due: &mut nodes.due,
            before: at + 1,
            limit: &mut limit,
            turn: &turn,
            wheel: &mut nodes.places,
        });
        assert!(visited.is_ok());
        let expected = if at == 5 { (vec![6], 0) } else { (vec![], 1) };
        assert_eq!((nodes.ticks(), set.lock().delivered.len()), expected);
    }
}

// A drain once left repeating timers that were armed again while it went on.
#[test]
fn draining_takes_a_repeating_timer_that_is_armed_again() {
    let (shared, set) = set();
    let mut nodes = Nodes::default();
    assert!(set.set(0, (), tick(1), Some(repeat())).is_ok());
    let by = set.lock().order;
    fire(&shared, &set, &mut nodes, 1);
    assert!(
        set.lock()
            .table
            .timer(0)
            .is_some_and(|timer| timer.order.get() > by)
    );
    assert!(set.set(1, (), tick(1), Some(repeat())).is_ok());
    let keys: Vec<_> = set.take_all(by).iter().map(|taken| taken.key).collect();
    assert_eq!(keys, [0]);
}

fn repeat() -> Repeat<u64, Plain<()>> {
    Repeat {
        period: 1,
        clone: |&key: &u64, _: &Plain<()>| (key, ()),
    }
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
    assert!(another.lock().key.is_none());
}

#[test]
fn stops_repeating_when_set_again() {
    let (_shared, set) = set();
    assert!(set.set(0, (), tick(9), Some(repeat())).is_ok());
    assert_eq!(set.lock().repeats.len(), 1);
    assert!(matches!(set.set(0, (), tick(9), None), Ok(Some(()))));
    assert!(set.lock().repeats.is_empty());
    assert!(set.set(0, (), tick(9), Some(repeat())).is_ok());
    assert!(matches!(set.remove(&0), Ok(Some(()))));
    assert!(set.lock().repeats.is_empty());
}

#[test]
#[cfg(target_pointer_width = "64")]
fn slot_with_a_u64_key_and_value_takes_40_bytes() {
    assert_eq!(size_of::<table::Slot<u64, Plain<u64>>>(), 40);
}

// The table once remembered a chunk to keep after it had begun again without one: an index out of
// bounds.
#[test]
fn begins_again_when_its_last_chunks_are_freed() {
    let (_shared, set) = set();
    for _ in 0..2 {
        arm(&set, 0..512, 5);
        remove(&set, 256..512);
        remove(&set, 0..256);
        for key in 0..3 {
            arm(&set, key..key + 1, 5);
            remove(&set, key..key + 1);
        }
    }
    assert!(set.lock().table.chunks() <= 2);
}
