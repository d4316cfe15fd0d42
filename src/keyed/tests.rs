//! A set and the wheel, without an actor: a test chooses when notes arrive, how far the wheel goes,
//! and when the reader looks.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use super::error::TryRecvError;
use super::expired::Expired;
use super::node::KeyedWheel;
use super::payload::Plain;
use super::receipt::{Reader, Receipt};
use super::set::{BATCH, Handles, Repeat, Set};
use super::stream::ExpirationSource;
use super::table;
use crate::clock::ClockPolicy;
use crate::shared::command::{Command, Request};
use crate::shared::mailbox::CommandQueue;
use crate::shared::notifier::ActorNotifier;
use crate::shared::{Alive, Config, Shared};
use crate::tick::{Ticks, Timestamp};

mod closing;
mod every_order;
mod random;
mod receipts;

fn hash(key: u64) -> u32 {
    u32::try_from(key).expect("test keys are small")
}

/// What the actor has of keyed timers.
struct Actor {
    wheel: KeyedWheel,
    /// The commands that have not arrived.
    queued: VecDeque<Command>,
}

impl Actor {
    fn new() -> Self {
        Actor {
            wheel: KeyedWheel::new(64),
            queued: VecDeque::new(),
        }
    }

    /// Takes what was sent. Returns how many notes.
    fn take(&mut self, shared: &Shared) -> usize {
        let mut taken = CommandQueue::new();
        assert!(shared.mailbox.take_all(&mut taken));
        let before = self.queued.len();
        self.queued.extend(std::iter::from_fn(|| taken.pop()));
        let new = self.queued.range(before..);
        new.filter(|command| matches!(command, Command::Note { .. }))
            .count()
    }

    /// Applies the first of the commands that it took.
    fn apply_next(&mut self) {
        match self.queued.pop_front() {
            Some(Command::Note { set, index, tick }) => self.wheel.apply(set, index, tick),
            Some(Command::Request(request)) => match *request {
                Request::Register(set, hints) => self.wheel.register(set, hints),
                Request::Forget(set) => self.wheel.forget(set),
                Request::Orphaned => {}
                other => panic!("{other:?} is not about keyed timers"),
            },
            Some(other) => panic!("{other:?} is not about keyed timers"),
            None => {}
        }
    }

    /// Applies everything that was sent. Returns how many notes.
    fn apply_all(&mut self, shared: &Shared) -> usize {
        let notes = self.take(shared);
        while !self.queued.is_empty() {
            self.apply_next();
        }
        notes
    }

    /// Everything that was sent arrives, and the wheel goes to this tick.
    fn reach(&mut self, shared: &Shared, tick: u64) {
        self.apply_all(shared);
        let (before, _) = self
            .wheel
            .fire(tick, usize::MAX, Timestamp::MIN, &shared.told_before.0);
        assert_eq!(before, tick + 1);
        self.wheel.dismantle(usize::MAX, &shared.set_keys);
    }

    /// The wheel goes through these ticks. Returns what was received, as tick and key.
    fn run(&mut self, set: &Keyed, ticks: Range<u64>) -> Vec<(u64, u64)> {
        let mut received = Vec::new();
        for at in ticks {
            self.reach(&set.shared, at);
            received.extend(set.received().into_iter().map(|key| (at, key)));
        }
        received
    }

    /// How many indices are on the wheel.
    fn scheduled(&self) -> usize {
        self.wheel.wheel.len()
    }
}

/// A set with its reader.
struct Keyed {
    set: Arc<Set<u64, Plain<()>>>,
    reader: RefCell<Reader>,
}

impl Deref for Keyed {
    type Target = Arc<Set<u64, Plain<()>>>;

    fn deref(&self) -> &Self::Target {
        &self.set
    }
}

impl Keyed {
    fn new(shared: &Arc<Shared>) -> Self {
        Keyed {
            set: Set::new(shared, 0),
            reader: RefCell::new(Reader::new()),
        }
    }

    /// One hold of the lock. Returns what it has come to, and the keys that were received.
    fn receive(&self, limit: usize) -> (Receipt, Vec<u64>) {
        let mut keys = Vec::new();
        let reader = &mut self.reader.borrow_mut();
        let out = |expired: Expired<u64, ()>| keys.push(expired.key);
        let receipt = Set::receive(&self.set, reader, limit, &mut |_, (), _| true, out);
        (receipt, keys)
    }

    /// Receives all that is due. Returns the keys.
    fn received(&self) -> Vec<u64> {
        let mut out = Vec::new();
        let reader = &mut self.reader.borrow_mut();
        self.recv_more(reader, usize::MAX, &mut out);
        out.iter().map(|expired| expired.key).collect()
    }

    fn try_recv(&self) -> Result<u64, TryRecvError> {
        let expired = ExpirationSource::try_recv(&*self.set, &mut self.reader.borrow_mut());
        expired.map(|expired| expired.key)
    }

    fn poll(&self) -> Poll<Option<u64>> {
        let mut cx = Context::from_waker(Waker::noop());
        let polled = ExpirationSource::poll_recv(
            &*self.set,
            &mut self.reader.borrow_mut(),
            &mut cx,
            &mut |_, (), _| true,
        );
        polled.map(|expired| expired.map(|expired| expired.key))
    }

    fn drained(&self) -> Vec<u64> {
        let all = self.drain().expect("it is open");
        all.iter().map(|expired| expired.key).collect()
    }

    fn unexpired(&self) -> Vec<u64> {
        let all = ExpirationSource::unexpired(&*self.set);
        all.iter().map(|expired| expired.key).collect()
    }

    fn kept(&self) -> usize {
        self.lock().kept.len()
    }
}

/// A wheel with ticks of a millisecond, and a set of it.
fn set() -> (Arc<Shared>, Keyed) {
    let shared = Arc::new(Shared::new(Config {
        name: "no actor".into(),
        ticks: Ticks::new(Instant::now(), Duration::from_millis(1)).expect("not zero"),
        late_warning: Duration::MAX,
        max_keyed: 1 << 20,
        notifier: ActorNotifier::of_nobody(),
        clock: ClockPolicy::new(None, false, true),
    }));
    let set = Keyed::new(&shared);
    (shared, set)
}

fn tick(n: u64) -> Timestamp {
    Timestamp::at(n * 1_000_000)
}

fn arm(set: &Keyed, keys: Range<u64>, at: u64) {
    for key in keys {
        assert!(set.set(hash(key), key, (), tick(at), None).is_ok());
    }
}

fn remove(set: &Keyed, keys: Range<u64>) {
    keys.for_each(|key| assert!(matches!(set.remove(hash(key), &key), Ok(Some(())))));
}

fn repeat() -> Repeat<u64, Plain<()>> {
    Repeat {
        period: 1_000_000,
        clone: |&key: &u64, _: &Plain<()>, copied| *copied = (Some(key), Some(())),
    }
}

// --- the table ---

#[test]
fn timers_stay_while_others_come_and_go() {
    let (_shared, set) = set();
    arm(&set, 0..256, 5);
    for _ in 0..20 {
        arm(&set, 256..3_000, 5);
        remove(&set, 256..3_000);
        assert!((0..256).all(|key| set.deadline(hash(key), &key).is_some()));
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
fn all_timers_are_visited_in_batches() {
    const MANY: u32 = 100_000;
    let (_shared, set) = set();
    arm(&set, 0..u64::from(MANY), 5);
    let mut visited = 0;
    for range in set.batches() {
        assert!(range.start == visited && range.len() <= BATCH as usize);
        visited = range.end;
    }
    assert_eq!(visited, set.lock().table.end());
    assert_eq!(set.drained().len(), MANY as usize);
}

#[test]
#[cfg(target_pointer_width = "64")]
fn slot_with_a_u64_key_and_value_takes_48_bytes() {
    assert_eq!(size_of::<table::Slot<u64, Plain<u64>>>(), 48);
}

// --- notes ---

#[test]
fn only_an_earlier_tick_needs_a_note() {
    let (shared, set) = set();
    let mut actor = Actor::new();
    let mut sent = |move_to: &[u64]| {
        for &to in move_to {
            assert_eq!(set.move_to(hash(0), &0, tick(to)), Ok(true));
        }
        actor.take(&shared)
    };
    arm(&set, 0..1, 100);
    assert_eq!(sent(&[]), 1);
    assert_eq!(sent(&[100, 500, 200]), 0, "the wheel reaches it early");
    assert_eq!(sent(&[90, 95, 90, 80]), 2);
    arm(&set, 0..1, 300);
    assert_eq!(sent(&[]), 0);
    assert_eq!(sent(&[8_000_000_000, 7_996_000_000, 80]), 0);
}

#[test]
fn moves_by_hours_and_back_come_on_time() {
    for last in [70, 3_000, 7_994_000, 8_000_000] {
        let (shared, set) = set();
        let mut actor = Actor::new();
        arm(&set, 0..1, 100);
        for to in [8_000_000, 7_996_000, 7_994_000, last] {
            assert_eq!(set.move_to(hash(0), &0, tick(to)), Ok(true));
        }
        assert_eq!(set.move_to(hash(0), &0, Timestamp::NEVER), Ok(true));
        assert_eq!(set.move_to(hash(0), &0, tick(last)), Ok(true));
        actor.reach(&shared, last - 1);
        assert_eq!(set.received(), []);
        assert_eq!(actor.run(&set, last..last + 1), [(last, 0)]);
    }
}

#[test]
fn timer_that_is_set_again_and_again_needs_no_note() {
    let (shared, set) = set();
    let mut actor = Actor::new();
    arm(&set, 0..1, 10);
    actor.apply_all(&shared);
    for at in [10, 12, 20] {
        remove(&set, 0..1);
        arm(&set, 0..1, at);
    }
    assert_eq!(actor.take(&shared), 0, "it takes the place of the last");
    remove(&set, 0..1);
    // It would be late there.
    arm(&set, 1..2, 5);
    assert_eq!(actor.run(&set, 1..30), [(5, 1)]);
    assert_eq!((actor.scheduled(), set.kept()), (0, 0));
}

/// The wheel has reached the kept slot, and the reader is away: its hint serves the new timer.
#[test]
fn timer_in_a_kept_slot_with_a_hint_comes_on_time() {
    for read in [false, true] {
        let (shared, set) = set();
        let mut actor = Actor::new();
        arm(&set, 0..1, 10);
        remove(&set, 0..1);
        actor.reach(&shared, 10);
        if read {
            assert_eq!(set.received(), []);
            assert_eq!(set.kept(), 0, "its node is gone");
        }
        arm(&set, 1..2, 12);
        assert_eq!(actor.apply_all(&shared), usize::from(read));
        assert_eq!(actor.run(&set, 11..14), [(12, 1)]);
    }
}

// The reader looked by the tick of an old hint: the timer was due, and got a note.
#[test]
fn timer_moved_later_while_the_reader_was_away_is_found_due() {
    for kept in [false, true] {
        let (shared, set) = set();
        let mut actor = Actor::new();
        arm(&set, 0..1, 5);
        actor.reach(&shared, 5);
        if kept {
            remove(&set, 0..1);
            arm(&set, 0..1, 8);
        } else {
            assert_eq!(set.move_to(hash(0), &0, tick(8)), Ok(true));
        }
        actor.reach(&shared, 8);
        assert_eq!(set.try_recv(), Ok(0));
        assert_eq!(actor.take(&shared), 0);
    }
}

#[test]
fn wheel_follows_the_number_of_timers() {
    let (shared, set) = set();
    let mut actor = Actor::new();
    arm(&set, 0..1_000, 100);
    for left in (0..1_000).rev() {
        remove(&set, left..left + 1);
        actor.apply_all(&shared);
        let few = 16.min(set.len() + 1);
        assert!(actor.scheduled() <= set.len() + few);
    }
    arm(&set, 0..1_000, 100);
    assert_eq!(set.drained().len(), 1_000);
    actor.apply_all(&shared);
    actor.wheel.dismantle(usize::MAX, &shared.set_keys);
    assert_eq!(actor.scheduled(), 0);
}

#[test]
fn removed_timers_leave_the_wheel_when_none_can_be_set() {
    for drop_stream in [false, true] {
        let (shared, set) = set();
        let mut actor = Actor::new();
        arm(&set, 0..20, 100);
        remove(&set, 0..10);
        actor.apply_all(&shared);
        assert!(actor.scheduled() > 10, "some are left for others");
        if drop_stream {
            ExpirationSource::close(&**set);
        } else {
            let alive = Arc::new(Alive {
                shared: Arc::clone(&shared),
            });
            drop(Handles::new(&set, (), &alive));
            remove(&set, 10..15);
        }
        actor.reach(&shared, 1);
        assert_eq!(actor.scheduled(), set.len());
    }
}

// --- draining ---

/// Notes of the old key are on their way, and the wheel has nodes of it, when timers take the same
/// indices under the new one.
#[test]
fn drained_set_goes_on_under_another_key() {
    let (shared, set) = set();
    let mut actor = Actor::new();
    arm(&set, 0..300, 10);
    actor.apply_all(&shared);
    arm(&set, 300..600, 4);
    let old = set.lock().key;
    assert_eq!(set.drained()[..2], [300, 301], "the earliest first");
    assert_ne!(set.lock().key, old);
    arm(&set, 600..603, 6);
    // It forgets the set in bounded turns, and the wheel goes on meanwhile.
    actor.apply_all(&shared);
    for at in 1..=12 {
        actor.wheel.dismantle(50, &shared.set_keys);
        let (before, _) = actor
            .wheel
            .fire(at, usize::MAX, Timestamp::MIN, &shared.told_before.0);
        assert_eq!(before, at + 1);
        let expected: &[u64] = if at == 6 { &[600, 601, 602] } else { &[] };
        assert_eq!(set.received(), expected, "at {at}");
    }
    while actor.wheel.has_work_left() {
        actor.wheel.dismantle(50, &shared.set_keys);
    }
    assert_eq!(actor.scheduled(), 0);
    // Both drains have given a key back.
    assert_eq!(set.drained(), []);
    actor.reach(&shared, 13);
    let keys = [shared.set_keys.draw(), shared.set_keys.draw()];
    assert_eq!(
        keys.map(crate::keyed::set_key::SetKey::position)
            .iter()
            .max(),
        Some(&2)
    );
}

/// The reader has hints of the timers before the drain in hand, and has found some due.
#[test]
fn hints_of_drained_timers_do_no_harm() {
    let (shared, set) = set();
    let mut actor = Actor::new();
    arm(&set, 0..1_000, 5);
    actor.reach(&shared, 5);
    assert_eq!(set.try_recv(), Ok(0));
    assert_eq!(set.drained().len(), 999);
    arm(&set, 0..1_000, 8);
    for key in 0..1_000 {
        assert_eq!(set.move_to(hash(key), &key, tick(9 + key % 2)), Ok(true));
    }
    let received = actor.run(&set, 5..11);
    let expected = (0..1_000).step_by(2).map(|key| (9, key));
    assert!(
        received
            .into_iter()
            .eq(expected.chain((1..1_000).step_by(2).map(|key| (10, key))))
    );
}

#[tokio::test(start_paused = true)]
async fn draining_takes_a_repeating_timer_that_was_received() {
    let (_shared, set) = set();
    let mut actor = Actor::new();
    assert!(set.set(hash(0), 0, (), tick(1), Some(repeat())).is_ok());
    assert_eq!(actor.run(&set, 1..3), [(1, 0), (2, 0)]);
    assert_eq!(set.drained(), [0]);
    assert_eq!(actor.run(&set, 3..9), []);
}

#[tokio::test(start_paused = true)]
async fn stops_repeating_when_set_again_or_removed() {
    let (_shared, set) = set();
    let mut actor = Actor::new();
    for key in 0..3 {
        assert!(set.set(hash(key), key, (), tick(2), Some(repeat())).is_ok());
    }
    assert!(matches!(
        set.set(hash(0), 0, (), tick(2), None),
        Ok(Some(()))
    ));
    remove(&set, 1..2);
    arm(&set, 1..2, 2);
    assert_eq!(
        actor.run(&set, 1..4),
        [(2, 2), (2, 0), (2, 1), (3, 2)],
        "in the order of arming"
    );
}
