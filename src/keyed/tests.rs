//! A set without an actor: what it keeps, which nobody else sees.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::set::{Repeat, Set};
use super::stored::Plain;
use super::visits::{AnySet, Delivered};
use crate::shared::mailbox::{Backlog, QUEUE_BOUND};
use crate::shared::notifier::ActorNotifier;
use crate::shared::turn::{Shelf, Turn};
use crate::shared::{Config, Shared};
use crate::tick::{Ticks, Timestamp};

/// A wheel on which nothing comes round.
#[derive(Default)]
struct Nodes {
    ticks: Vec<u64>,
    rescheduled: usize,
    removed: usize,
}

impl Shelf for Nodes {
    fn insert(&mut self, tick: u64, _: u32) -> u32 {
        self.ticks.push(tick);
        u32::try_from(self.ticks.len() - 1).expect("there are few")
    }

    fn tick(&self, node: u32) -> u64 {
        self.ticks[node as usize]
    }

    fn reschedule(&mut self, node: u32, tick: u64) {
        self.ticks[node as usize] = tick;
        self.rescheduled += 1;
    }

    fn remove(&mut self, _: u32) {
        self.removed += 1;
    }
}

type Timers = Arc<Set<u64, Plain<()>>>;

/// A wheel without an actor, which would empty the queue at its end: what is queued holds the set, and that the queue.
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
fn set() -> (Undriven, Timers) {
    let shared = Arc::new(Shared::new(Config {
        name: "nobody drives it".into(),
        ticks: Ticks::new(Instant::now(), Duration::from_millis(1)).expect("not zero"),
        late_warning: Duration::MAX,
        max_keyed: 1 << 20,
        notifier: ActorNotifier::for_thread(),
        runtime: None,
        virtual_clock: false,
    }));
    let set = Set::new(&shared, ());
    (Undriven(shared), set)
}

fn tick(n: u64) -> Timestamp {
    Timestamp::at(n * 1_000_000)
}

/// How many have fired, how many are pending, and how many of those wait to be delivered.
fn lengths(set: &Timers) -> (usize, usize, usize) {
    let state = set.lock();
    (state.fired.len(), state.book.len(), state.ripe.len())
}

fn arm(set: &Timers, keys: std::ops::Range<u64>, at: u64) {
    for key in keys {
        assert!(set.set(key, (), tick(at), None).is_ok());
    }
}

#[test]
fn after_a_burst_the_notes_give_their_memory_back() {
    let (shared, set) = set();
    let mut nodes = Nodes::default();
    let turn = Turn::new(0, tick(0), &shared.metrics.0);
    arm(&set, 0..10_000, 5);
    assert_eq!(set.attend(9_000, &turn, &mut nodes), (9_000, 1_000));
    assert!(set.lock().queued, "some are left");
    assert!(set.lock().notes.capacity() >= 10_000);
    assert_eq!(set.attend(9_000, &turn, &mut nodes), (1_000, 0));
    assert!(!set.lock().queued);
    assert!(set.lock().notes.capacity() <= QUEUE_BOUND);
    assert_eq!(nodes.ticks, vec![5; 10_000]);
    assert_eq!((nodes.rescheduled, nodes.removed), (0, 0));
    assert_eq!(set.take_all(u64::MAX).len(), 10_000);
    assert_eq!(set.lock().book.slots(), 10_000, "the wheel knows them");
    assert_eq!(set.attend(10_000, &turn, &mut nodes), (10_000, 0));
    assert_eq!(nodes.removed, 10_000);
    assert_eq!(set.lock().book.slots(), 0);
}

#[test]
fn what_waits_to_be_delivered_is_dropped_from_the_list_when_nobody_reads_any_more() {
    let (shared, set) = set();
    let mut nodes = Nodes::default();
    arm(&set, 0..3, 5);
    let turn = Turn::new(5, tick(5), &shared.metrics.0);
    assert_eq!(set.attend(9, &turn, &mut nodes), (3, 0));
    set.look(&[0, 1, 2], &turn, &mut nodes);
    let mut limit = 9;
    assert_eq!(
        set.deliver(5, &mut limit, &turn, &mut nodes),
        Delivered::Unripe
    );
    assert_eq!((lengths(&set), limit), ((0, 3, 3), 9));
    AnySet::close(&*set);
    assert_eq!(
        set.deliver(6, &mut limit, &turn, &mut nodes),
        Delivered::All
    );
    assert_eq!((lengths(&set), limit), ((0, 3, 0), 9));
}

#[test]
fn delivery_is_limited_over_all_sets_and_counts_what_it_delivers() {
    let (shared, set) = set();
    let mut nodes = Nodes::default();
    arm(&set, 0..3, 5);
    arm(&set, 3..4, 6);
    let turn = Turn::new(6, tick(6), &shared.metrics.0);
    assert_eq!(set.attend(9, &turn, &mut nodes), (4, 0));
    set.look(&[3, 2, 1, 0], &turn, &mut nodes);
    let mut limit = 2;
    assert_eq!(
        set.deliver(6, &mut limit, &turn, &mut nodes),
        Delivered::More
    );
    assert_eq!((limit, lengths(&set)), (0, (2, 2, 2)));
    assert_eq!(shared.pending_keyed(), 2);
    limit = 2;
    assert_eq!(
        set.deliver(6, &mut limit, &turn, &mut nodes),
        Delivered::Unripe
    );
    assert_eq!((limit, lengths(&set)), (1, (3, 1, 1)));
    assert_eq!(
        set.deliver(7, &mut limit, &turn, &mut nodes),
        Delivered::All
    );
    assert_eq!((limit, set.counts().fired), (0, 4));
    assert_eq!(shared.pending_keyed(), 0);
}

#[test]
fn what_was_armed_later_is_not_taken() {
    let (_shared, set) = set();
    arm(&set, 0..3, 5);
    let by = set.lock().order;
    arm(&set, 3..5, 4);
    arm(&set, 1..2, 3);
    let keys: Vec<_> = set.take_all(by).iter().map(|taken| taken.key).collect();
    assert_eq!(keys, [0, 2]);
    let keys: Vec<_> = set
        .take_all(u64::MAX)
        .iter()
        .map(|taken| taken.key)
        .collect();
    assert_eq!(keys, [1, 3, 4], "the earliest first");
}

#[test]
fn nothing_can_be_set_after_the_end_and_a_new_set_has_ended_too() {
    let (shared, set) = set();
    assert_eq!(shared.close_sets().len(), 1);
    assert!(!set.is_closed(), "whoever closes the list closes the sets");
    AnySet::close(&*set);
    assert!(set.is_closed() && set.open().is_err());
    let another: Timers = Set::new(&shared, ());
    assert!(another.is_closed());
    assert!(another.set(1, (), tick(5), None).is_err());
    assert_eq!(another.number.load(Ordering::Relaxed), 0);
}

#[test]
fn a_slot_is_noted_once_and_what_is_removed_does_not_repeat() {
    let (_shared, set) = set();
    for at in [5, 4, 3] {
        arm(&set, 0..2, at);
    }
    assert_eq!(set.lock().notes, [0, 1]);
    let repeat = Repeat {
        period_nanos: 1,
        clone: |&key, _: &Plain<()>| (key, ()),
    };
    assert!(set.set(0, (), tick(9), Some(repeat)).is_ok());
    assert_eq!(set.lock().repeats.len(), 1);
    assert!(matches!(set.remove(&0), Ok(Some((0, ())))));
    assert!(set.lock().repeats.is_empty());
}
