//! A set with an actor that a test drives: it chooses when notes arrive, and when a visit takes
//! place.

use std::collections::HashMap;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::clock::ClockPolicy;
use crate::shared::command::Command;
use crate::shared::mailbox::Lanes;
use crate::shared::note::Note;
use crate::shared::notifier::ActorNotifier;
use crate::shared::timer_set::{DueTimers, TimerSet};
use crate::shared::turn::Turn;
use crate::shared::{Alive, Config};
use crate::tick::Ticks;

mod random;
mod stream;

/// An actor with one set.
#[derive(Default)]
struct Actor {
    /// By index: the number of the newest note, and the tick for which the index is scheduled.
    scheduled: HashMap<u32, (NonZeroU64, u64)>,
    due: DueTimers,
}

impl Actor {
    fn apply(&mut self, note: &Note) {
        let new = (note.number, note.tick);
        let newest = self.scheduled.entry(note.index).or_insert(new);
        *newest = (*newest).max(new);
    }

    /// Applies every note that was sent.
    fn apply_all(&mut self, shared: &Shared) {
        for note in notes(shared) {
            self.apply(&note);
        }
    }

    /// The wheel reaches everything that is scheduled by this tick.
    fn reach(&mut self, until: u64) {
        for (&index, place) in &mut self.scheduled {
            if place.1 <= until {
                place.1 = NEVER;
                self.due.reach(index, until);
            }
        }
    }

    /// Visits the set once at tick `at`. Returns how many timers were processed.
    fn visit_once<S>(&mut self, set: &Set<u64, S>, before: u64, limit: usize, at: u64) -> usize
    where
        S: Payload<Value: Send> + Send + 'static,
    {
        let mut notes = Vec::new();
        let turn = Turn::new(tick(at), &set.shared);
        let processed = set.visit(&mut self.due, before, limit, &mut notes, &turn);
        for note in notes {
            self.apply(&note);
        }
        processed.expect("no other thread locks it")
    }

    /// Fires the timers that are due at this tick.
    fn fire<S>(&mut self, set: &Set<u64, S>, at: u64)
    where
        S: Payload<Value: Send> + Send + 'static,
    {
        self.apply_all(&set.shared);
        self.reach(at);
        while self.visit_once(set, at + 1, usize::MAX, at) > 0 {}
    }

    /// Fires at each of these ticks. Returns what was delivered, as tick and key.
    fn run(&mut self, set: &Keyed, ticks: std::ops::Range<u64>) -> Vec<(u64, u64)> {
        let mut fired = Vec::new();
        for at in ticks {
            self.fire(set, at);
            fired.extend(delivered(set).into_iter().map(|key| (at, key)));
        }
        fired
    }

    /// How many indices are scheduled.
    fn scheduled(&self) -> usize {
        let ticks = self.scheduled.values().map(|&(_, tick)| tick);
        ticks.filter(|&tick| tick != NEVER).count()
    }
}

/// The keys of the expirations that were delivered since the last call.
fn delivered(set: &Keyed) -> Vec<u64> {
    let mut out = Vec::new();
    set.recv_more(1_000_000, &mut out);
    out.iter().map(|expired| expired.key).collect()
}

struct Keyed(Arc<Set<u64, Plain<()>>>);

impl Deref for Keyed {
    type Target = Arc<Set<u64, Plain<()>>>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for Keyed {
    /// As its stream does.
    fn drop(&mut self) {
        self.0.close_unread();
    }
}

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
    let set = Keyed(Set::new(&shared, 0));
    (Undriven(shared), set)
}

fn tick(n: u64) -> Timestamp {
    Timestamp::at(n * 1_000_000)
}

fn arm(set: &Keyed, keys: std::ops::Range<u64>, at: u64) {
    for key in keys {
        assert!(set.set(key, (), tick(at), None).is_ok());
    }
}

/// The notes that were sent since the last call.
fn notes(shared: &Shared) -> Vec<Note> {
    let mut taken = Lanes::new();
    assert!(shared.mailbox.take_all(&mut taken));
    let note = |command| match command {
        Command::Note(note) => Some(note),
        Command::Other(_) => None,
    };
    std::iter::from_fn(|| taken.pop())
        .filter_map(note)
        .collect()
}

fn remove(set: &Keyed, keys: std::ops::Range<u64>) {
    keys.for_each(|key| assert!(matches!(set.remove(&key), Ok(Some(())))));
}

#[test]
fn timers_stay_while_others_come_and_go() {
    let (_shared, set) = set();
    arm(&set, 0..256, 5);
    for _ in 0..20 {
        arm(&set, 256..3_000, 5);
        remove(&set, 256..3_000);
        assert!((0..256).all(|key| set.deadline(&key).is_some()));
    }
}

// The table once remembered a chunk to keep after it had begun again without one: an index out of
// bounds.
#[test]
fn table_begins_again_when_it_is_empty() {
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
    assert_eq!(set.len(), 0);
}

#[test]
fn due_timers_of_a_closed_set_are_not_delivered() {
    let (shared, set) = set();
    let mut actor = Actor::default();
    arm(&set, 0..3, 5);
    actor.apply_all(&shared);
    actor.reach(5);
    actor.visit_once(&set, 5, 9, 5);
    assert!(delivered(&set).is_empty(), "too early");
    TimerSet::close(&**set);
    actor.visit_once(&set, 6, 9, 5);
    assert!(delivered(&set).is_empty(), "it is closed");
    assert_eq!(ExpirationSource::unexpired(&**set).len(), 3);
}

#[test]
fn visit_stops_at_its_limit_and_at_its_tick() {
    let (shared, set) = set();
    let mut actor = Actor::default();
    arm(&set, 0..3, 5);
    arm(&set, 3..4, 6);
    actor.apply_all(&shared);
    actor.reach(6);
    assert_eq!(actor.visit_once(&set, 6, 6, 6), 6);
    assert_eq!(delivered(&set), [0, 1], "all are found due first");
    assert_eq!(actor.visit_once(&set, 6, 2, 6), 1);
    assert_eq!(delivered(&set), [2], "the other is due later");
    assert_eq!(actor.visit_once(&set, 7, 1, 6), 1);
    assert_eq!(delivered(&set), [3]);
    let metrics = shared.metrics.0.read();
    assert_eq!((metrics.keyed_fired, metrics.keyed_pending), (4, 0));
}

#[test]
fn visit_processes_one_batch_at_most() {
    let (shared, set) = set();
    let mut actor = Actor::default();
    arm(&set, 0..1_000, 5);
    actor.apply_all(&shared);
    actor.reach(5);
    assert_eq!(actor.visit_once(&set, 6, 10_000, 5), BATCH as usize);
}

#[test]
fn due_timer_that_was_changed_fires_as_it_was_changed() {
    let (shared, set) = set();
    let mut actor = Actor::default();
    arm(&set, 0..4, 5);
    actor.apply_all(&shared);
    actor.reach(5);
    actor.visit_once(&set, 0, 9, 5);
    // Removed; removed and its index used again; moved later; moved earlier.
    remove(&set, 0..2);
    arm(&set, 8..9, 7);
    assert_eq!(set.move_to(&2, tick(9)), Ok(true));
    assert_eq!(set.move_to(&3, tick(2)), Ok(true));
    assert_eq!(actor.run(&set, 5..10), [(5, 3), (7, 8), (9, 2)]);
}

// --- notes ---

#[test]
fn only_an_earlier_tick_needs_a_note() {
    let (shared, set) = set();
    let sent = |move_to: &[u64]| {
        for &to in move_to {
            assert_eq!(set.move_to(&0, tick(to)), Ok(true));
        }
        notes(&shared).len()
    };
    arm(&set, 0..1, 100);
    assert!(sent(&[]) <= 1);
    assert_eq!(sent(&[100, 500, 200]), 0, "the wheel reaches it early");
    assert!(sent(&[90, 95, 90, 80]) <= 2);
    arm(&set, 0..1, 300);
    assert_eq!(sent(&[]), 0);
    // It is remembered for 71 minutes before the deadline.
    assert_eq!(sent(&[8_000_000_000, 7_996_000_000]), 0);
}

#[test]
fn moves_by_hours_and_back_fire_on_time() {
    for last in [70, 3_000, 7_994_000, 8_000_000] {
        let (_shared, set) = set();
        let mut actor = Actor::default();
        arm(&set, 0..1, 100);
        for to in [8_000_000, 7_996_000, 7_994_000, last] {
            assert_eq!(set.move_to(&0, tick(to)), Ok(true));
        }
        assert_eq!(set.move_to(&0, Timestamp::NEVER), Ok(true));
        assert_eq!(set.move_to(&0, tick(last)), Ok(true));
        actor.fire(&set, last - 1);
        assert!(delivered(&set).is_empty());
        assert_eq!(actor.run(&set, last..last + 1), [(last, 0)]);
    }
}

#[test]
fn timer_that_is_set_again_and_again_needs_no_note() {
    let (shared, set) = set();
    let mut actor = Actor::default();
    arm(&set, 0..1, 10);
    actor.apply_all(&shared);
    for at in [10, 12, 20] {
        remove(&set, 0..1);
        arm(&set, 0..1, at);
    }
    assert_eq!(notes(&shared).len(), 0, "it takes the place of the last");
    remove(&set, 0..1);
    // It would be late there.
    arm(&set, 1..2, 5);
    assert_eq!(actor.run(&set, 1..30), [(5, 1)]);
    assert_eq!(actor.scheduled(), 0);
}

#[test]
fn wheel_follows_the_number_of_timers() {
    let (shared, set) = set();
    let mut actor = Actor::default();
    arm(&set, 0..1_000, 100);
    for left in (0..1_000).rev() {
        remove(&set, left..left + 1);
        actor.apply_all(&shared);
        let few = MAX_KEPT.min(set.len() + 1);
        assert!(actor.scheduled() <= set.len() + few);
    }
    arm(&set, 0..1_000, 100);
    assert_eq!(set.take_all(NonZeroU64::MAX).len(), 1_000);
    actor.apply_all(&shared);
    assert!(actor.scheduled() <= 1);
}

#[test]
fn removed_timers_leave_the_wheel_when_none_can_be_set() {
    for drop_stream in [false, true] {
        let (shared, set) = set();
        let mut actor = Actor::default();
        arm(&set, 0..20, 100);
        remove(&set, 0..10);
        actor.apply_all(&shared);
        assert!(actor.scheduled() > 10, "some are left for others");
        if drop_stream {
            ExpirationSource::close_unread(&**set);
        } else {
            let alive = Arc::new(Alive {
                shared: Arc::clone(&shared),
            });
            drop(Handles::new(&set, &alive));
            remove(&set, 10..15);
        }
        actor.apply_all(&shared);
        assert_eq!(actor.scheduled(), set.len());
    }
}

/// A value that is due at tick 5, and is touched as it is about to expire: it is due at its
/// deadline then, and expires at the second attempt.
struct Touched(std::sync::atomic::AtomicBool);

impl Payload for Touched {
    type Value = ();
    const KEYED: bool = false;

    fn due(&self, deadline: Timestamp, _: Timestamp, _: u64, _: &Ticks) -> Timestamp {
        let is_touched = self.0.load(std::sync::atomic::Ordering::Relaxed);
        if is_touched { deadline } else { tick(5) }
    }

    fn expire(&self, deadline: Timestamp, _: Timestamp, _: u64) -> Option<(Timestamp, Cause)> {
        let refused = self.0.swap(true, std::sync::atomic::Ordering::Relaxed);
        refused.then_some((deadline, Cause::Idle))
    }

    fn end(&mut self, deadline: Timestamp, _: Timestamp, _: u64) -> (Timestamp, Cause) {
        (deadline, Cause::Idle)
    }

    fn into_value(self) {}
}

#[test]
fn timer_that_refuses_to_expire_is_tried_again_when_it_is_due() {
    // At once, if its touch was overdue.
    for due in [5, 6, 9] {
        let (shared, _) = set();
        let set: Arc<Set<u64, Touched>> = Set::new(&shared, 0);
        let touched = Touched(false.into());
        assert!(set.add(1, touched, tick(due), tick(0)).is_ok());
        let mut actor = Actor::default();
        for at in 5..=due {
            assert!(matches!(
                ExpirationSource::try_recv(&*set),
                Err(TryRecvError::Empty)
            ));
            actor.fire(&set, at);
        }
        assert!(ExpirationSource::try_recv(&*set).is_ok());
    }
}

fn repeat() -> Repeat<u64, Plain<()>> {
    Repeat {
        period: 1_000_000,
        clone: |&key: &u64, _: &Plain<()>, copied| *copied = (Some(key), Some(())),
    }
}

// A drain once left repeating timers that were armed again while it went on.
#[test]
fn draining_takes_a_repeating_timer_that_is_armed_again() {
    let (_shared, set) = set();
    let mut actor = Actor::default();
    assert!(set.set(0, (), tick(1), Some(repeat())).is_ok());
    let by = set.lock().number;
    assert_eq!(actor.run(&set, 1..3), [(1, 0), (2, 0)]);
    assert!(set.set(1, (), tick(3), Some(repeat())).is_ok());
    let keys: Vec<_> = set.take_all(by).iter().map(|taken| taken.key).collect();
    assert_eq!(keys, [0]);
}

#[test]
fn draining_leaves_timers_that_were_armed_later() {
    let (_shared, set) = set();
    arm(&set, 0..3, 5);
    let by = set.lock().number;
    arm(&set, 3..5, 4);
    arm(&set, 1..2, 3);
    let keys = |by| -> Vec<_> { set.take_all(by).iter().map(|taken| taken.key).collect() };
    assert_eq!(keys(by), [0, 2]);
    assert_eq!(keys(NonZeroU64::MAX), [1, 3, 4], "the earliest first");
}

#[test]
fn draining_leaves_a_repeating_timer_that_was_moved_later() {
    let (_shared, set) = set();
    assert!(set.set(0, (), tick(1), Some(repeat())).is_ok());
    let by = set.lock().number;
    assert!(set.move_to(&0, tick(2)).is_ok_and(|moved| moved));
    assert!(set.take_all(by).is_empty());
}

#[test]
fn nothing_can_be_set_after_the_end() {
    let (shared, set) = set();
    assert_eq!(shared.sets.close().len(), 1);
    assert!(
        !set.is_closed(),
        "closing the list leaves the sets to the caller"
    );
    TimerSet::close(&**set);
    assert!(set.is_closed() && set.open().is_err());
    let another = Keyed(Set::new(&shared, 0));
    assert!(another.is_closed());
    assert!(another.set(1, (), tick(5), None).is_err());
}

#[test]
fn stops_repeating_when_set_again_or_removed() {
    let (_shared, set) = set();
    let mut actor = Actor::default();
    for key in 0..3 {
        assert!(set.set(key, (), tick(2), Some(repeat())).is_ok());
    }
    assert!(matches!(set.set(0, (), tick(2), None), Ok(Some(()))));
    remove(&set, 1..2);
    arm(&set, 1..2, 2);
    assert_eq!(
        actor.run(&set, 1..4),
        [(2, 2), (2, 0), (2, 1), (3, 2)],
        "in the order of arming"
    );
}

#[test]
#[cfg(target_pointer_width = "64")]
fn slot_with_a_u64_key_and_value_takes_40_bytes() {
    assert_eq!(size_of::<table::Slot<u64, Plain<u64>>>(), 40);
}
