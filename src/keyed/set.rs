//! The timers of one type of key and value: the truth about each, of which the wheel holds a lower bound.
//!
//! # Who does what
//!
//! A set is shared by its [handles](super::KeyedTimers), its [stream](super::Expirations) and the actor. All it knows
//! lies under one lock, so what happens to a timer happens in some order, and exactly one of *fired*, *removed*,
//! *replaced* and *drained* ends it.
//!
//! * A **handle** writes the timer: its deadline, its value, or that it is gone. If the actor would look too late for
//!   that, or has a slot on the wheel that holds no timer any more, the slot is *noted*, and the set queued to the
//!   actor, once, by the [wake rule](crate::submit). A move to later costs neither.
//! * The **actor** [attends](AnySet::attend) to the slots that are noted; it [looks](AnySet::look) at those the wheel
//!   has reached, and files again what was moved; and it [delivers](AnySet::deliver) what is due to the stream.
//! * The **stream** takes delivered expirations. The actor never waits for it.
//!
//! # Order
//!
//! Items of one tick leave the wheel in any order and perhaps over several turns. They are collected in a heap by tick
//! and order of arming, and delivered when the wheel has handed out everything of their tick. Until then they are
//! pending: they can still be moved and removed.
//!
//! A key's `Hash` and `Eq`, and `Clone` of a repeating timer's key and value, run while the set is locked. They must
//! not call back into the same set. Values are dropped, and wakers woken and dropped, when it is not.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::mem;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use hashbrown::DefaultHashBuilder;
use tokio::time::Instant;

use super::Expired;
use super::book::{Book, Place, Timer, hash_of};
use super::error::{Closed, SetTimerError};
use crate::command::Command;
use crate::entry::Tell;
use crate::metrics::KeyedCounts;
use crate::shared::Shared;
use crate::shield::{dispose, shield, wake};
use crate::submit::QUEUE_BOUND;
use crate::tick::{NEVER, Stamp, Ticks};
use crate::turn::{Shelf, Turn};

/// How many timers a long operation takes out under one hold of the lock.
const CHUNK: usize = 256;

/// A set as the actor sees it, whatever its key and value are.
pub(crate) trait AnySet: Send + Sync + fmt::Debug {
    /// The actor's number for the set; 0 when it has none. The actor's note to itself.
    fn number(&self) -> &AtomicU32;

    /// Files the slots that were noted, at most `limit`, the first ones first. Returns how many that were, and how many
    /// are left.
    fn attend(&self, shelf: &mut dyn Shelf, limit: usize) -> (usize, usize);

    /// The wheel has reached these slots.
    fn look(&self, slots: &[u32], turn: &Turn<'_>, shelf: &mut dyn Shelf);

    /// Delivers what is due before tick `before`, at most `limit`.
    fn deliver(&self, before: u64, limit: &mut usize, turn: &Turn<'_>, shelf: &mut dyn Shelf) -> Delivered;

    /// The actor ends: there will be no more expirations.
    fn close(&self);

    /// Whether no timer will ever be set in it again, and none is pending.
    fn is_over(&self) -> bool;

    /// What it has counted.
    fn counts(&self) -> KeyedCounts;
}

/// What a delivery has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivered {
    /// Nothing waits to be delivered.
    All,
    /// What is left belongs to a tick that the wheel has not handed out in full.
    Unripe,
    /// The limit was reached.
    More,
}

/// See the module.
pub(crate) struct Set<K: Hash + Eq, V> {
    shared: Arc<Shared>,
    hasher: DefaultHashBuilder,
    number: AtomicU32,
    state: Mutex<State<K, V>>,
}

struct State<K: Hash + Eq, V> {
    book: Book<K, V>,
    /// By slot; few timers repeat.
    repeats: HashMap<u32, Repeat<K, V>>,
    ripe: BinaryHeap<Reverse<Ripe>>,
    /// Slots the actor should attend to, each once.
    notes: VecDeque<u32>,
    /// The set is in the actor's queue, or about to be put there.
    queued: bool,
    /// The order of the next arming.
    order: u64,
    fired: VecDeque<Expired<K, V>>,
    receiver: Option<Waker>,
    phase: Phase,
    /// Whether a handle is left that could set a timer.
    has_handles: bool,
    counts: KeyedCounts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// The stream was dropped.
    Unread,
    /// The actor has ended.
    Ended,
}

/// A timer that came off the wheel: by tick, then by order of arming.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Ripe {
    tick: u64,
    order: u64,
    slot: u32,
}

/// What makes a timer repeat.
pub(super) struct Repeat<K, V> {
    pub(super) period_nanos: i64,
    pub(super) clone: fn(&K, &V) -> (K, V),
}

/// What was taken out of a set, with what is needed to sort it.
type Taken<K, V> = Vec<(Timer, K, V)>;

impl<K, V> Set<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    pub(super) fn new(shared: &Arc<Shared>) -> Arc<Self> {
        let hasher = DefaultHashBuilder::default();
        let set = Arc::new(Set {
            shared: Arc::clone(shared),
            hasher: hasher.clone(),
            number: AtomicU32::new(0),
            state: Mutex::new(State {
                book: Book::new(hasher),
                repeats: HashMap::new(),
                ripe: BinaryHeap::new(),
                notes: VecDeque::new(),
                queued: false,
                order: 0,
                fired: VecDeque::new(),
                receiver: None,
                phase: Phase::Open,
                has_handles: true,
                counts: KeyedCounts::default(),
            }),
        });
        let weak = Arc::downgrade(&set);
        if !shared.register(weak as Weak<dyn AnySet>) {
            set.lock().phase = Phase::Ended;
        }
        set
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    // --- the handles ---

    pub(super) fn set(
        self: &Arc<Self>,
        key: K,
        value: V,
        deadline: Stamp,
        repeat: Option<Repeat<K, V>>,
    ) -> Result<(), SetTimerError<K, V>> {
        let Some(hash) = hash_of(&self.hasher, &key) else {
            dispose([key]);
            dispose([value]);
            return Ok(());
        };
        let mut state = self.lock();
        if state.phase != Phase::Open {
            drop(state);
            return Err(SetTimerError::Closed(key, value));
        }
        let timer = Timer {
            deadline,
            filed: NEVER,
            order: state.next_order(),
        };
        let (slot, old) = if let Some(slot) = state.book.find(hash, &key) {
            let old = state.book.replace_value(slot, value);
            state.write_deadline(slot, &timer);
            state.counts.replaced += 1;
            (slot, Some((key, old)))
        } else {
            if !self.shared.reserve() {
                drop(state);
                return Err(SetTimerError::Full(key, value));
            }
            (state.book.insert(hash, key, value, timer), None)
        };
        state.counts.set += 1;
        if let Some(repeat) = repeat {
            state.repeats.insert(slot, repeat);
        } else if !state.repeats.is_empty() {
            state.repeats.remove(&slot);
        }
        let tell = state.needed(slot, self.shared.ticks.deadline_of(deadline));
        drop(state);
        self.tell(tell);
        if let Some((key, value)) = old {
            dispose([key]);
            dispose(value);
        }
        Ok(())
    }

    pub(super) fn move_to(self: &Arc<Self>, key: &K, deadline: Stamp) -> Result<(), Closed> {
        let hash = hash_of(&self.hasher, key);
        let mut state = self.open()?;
        let Some(slot) = hash.and_then(|hash| state.book.find(hash, key)) else {
            return Ok(());
        };
        let timer = Timer {
            deadline,
            filed: NEVER,
            order: state.next_order(),
        };
        state.write_deadline(slot, &timer);
        state.counts.moved += 1;
        let tell = state.needed(slot, self.shared.ticks.deadline_of(deadline));
        drop(state);
        self.tell(tell);
        Ok(())
    }

    pub(super) fn remove(self: &Arc<Self>, key: &K) -> Result<Option<(K, V)>, Closed> {
        let hash = hash_of(&self.hasher, key);
        let mut state = self.open()?;
        let Some(slot) = hash.and_then(|hash| state.book.find(hash, key)) else {
            return Ok(None);
        };
        let (taken, tell) = state.take_out(slot);
        state.counts.removed += 1;
        self.shared.free(1);
        drop(state);
        self.tell(tell);
        Ok(taken.map(|(key, value, _)| (key, value)))
    }

    pub(super) fn deadline(&self, key: &K) -> Result<Option<Instant>, Closed> {
        let hash = hash_of(&self.hasher, key);
        let mut state = self.open()?;
        let slot = hash.and_then(|hash| state.book.find(hash, key));
        let timer = slot.and_then(|slot| state.book.timer(slot).copied());
        drop(state);
        Ok(timer.map(|timer| self.shared.ticks.instant(timer.deadline)))
    }

    pub(super) fn drain(self: &Arc<Self>) -> Result<Vec<Expired<K, V>>, Closed> {
        let armed_by = self.open()?.order;
        Ok(self.take_all(armed_by))
    }

    pub(super) fn len(&self) -> usize {
        self.lock().book.len()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().phase != Phase::Open
    }

    /// The last handle was dropped.
    pub(super) fn handles_gone(self: &Arc<Self>) {
        let mut state = self.lock();
        state.has_handles = false;
        let receiver = state.receiver.take();
        // The actor has it on its list, perhaps only until now.
        let tell = state.queue(NEVER);
        drop(state);
        wake(receiver);
        self.tell(tell);
    }

    // --- the stream ---

    pub(super) fn try_recv(&self) -> Result<Expired<K, V>, Empty> {
        let mut state = self.lock();
        match state.fired.pop_front() {
            Some(expired) => Ok(expired),
            None if state.is_finished() => Err(Empty::Finished),
            None => Err(Empty::ForNow),
        }
    }

    /// What `take` gets out of the expirations that have not been received; if that is nothing, `None` when there will
    /// be none any more.
    pub(super) fn poll_recv<R>(
        &self,
        cx: &mut Context<'_>,
        mut take: impl FnMut(&mut VecDeque<Expired<K, V>>) -> Option<R>,
    ) -> Poll<Option<R>> {
        let mut poll = |state: &mut State<K, V>| match take(&mut state.fired) {
            None if !state.is_finished() => Poll::Pending,
            taken => Poll::Ready(taken),
        };
        let mut state = self.lock();
        let first = poll(&mut state);
        let known = (state.receiver.as_ref()).is_some_and(|waker| waker.will_wake(cx.waker()));
        if first.is_ready() || known {
            return first;
        }
        drop(state);
        let mut waker = Some(cx.waker().clone());
        let mut state = self.lock();
        let second = poll(&mut state);
        if second.is_pending() {
            mem::swap(&mut state.receiver, &mut waker);
        }
        drop(state);
        drop(waker);
        second
    }

    pub(super) fn unexpired(self: &Arc<Self>) -> Vec<Expired<K, V>> {
        if self.lock().phase != Phase::Ended {
            return Vec::new();
        }
        self.take_all(u64::MAX)
    }

    /// The stream was dropped: so is everything in the set.
    pub(super) fn unread(self: &Arc<Self>) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Unread;
        }
        let receiver = state.receiver.take();
        let fired = mem::take(&mut state.fired);
        drop(state);
        drop(receiver);
        dispose(fired);
        dispose(self.take_all(u64::MAX));
    }

    // --- common ---

    fn lock(&self) -> MutexGuard<'_, State<K, V>> {
        // Poisoned it is still whole: what a user wrote runs behind the shield.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> Result<MutexGuard<'_, State<K, V>>, Closed> {
        let state = self.lock();
        if state.phase == Phase::Open {
            Ok(state)
        } else {
            Err(Closed::new())
        }
    }

    fn tell(self: &Arc<Self>, tell: Tell) {
        match tell {
            Tell::Nothing => {}
            Tell::Sooner(tick) => self.shared.mailbox.wake_by(tick),
            Tell::Queue(tick) => {
                let set = Arc::clone(self) as Arc<dyn AnySet>;
                // Without an actor nothing will fire, and the set learns of it by `close`.
                let _ = self.shared.submit(tick, Command::Set(set));
            }
        }
    }

    /// Takes out every timer whose order of arming is at most `armed_by`, earliest first.
    fn take_all(self: &Arc<Self>, armed_by: u64) -> Vec<Expired<K, V>> {
        let mut taken: Taken<K, V> = Vec::new();
        let mut next = 0;
        loop {
            let before = taken.len();
            let mut state = self.lock();
            let slots = state.book.slots();
            let mut tell = Tell::Nothing;
            while next < slots && taken.len() < before + CHUNK {
                // A set cannot have more slots than a u32 counts.
                let slot = u32::try_from(next).unwrap_or(u32::MAX);
                next += 1;
                let due = |timer: &mut Timer| timer.order <= armed_by;
                if state.book.timer(slot).is_some_and(due) {
                    let (out, told) = state.take_out(slot);
                    taken.extend(out.map(|(key, value, timer)| (timer, key, value)));
                    if let Tell::Queue(_) = told {
                        tell = told;
                    }
                }
            }
            let n = taken.len() - before;
            state.counts.drained += n as u64;
            self.shared.free(n);
            drop(state);
            self.tell(tell);
            if next >= slots {
                break;
            }
        }
        // What was taken out should leave the wheel now, and without it the actor may have nothing left to do.
        self.shared.mailbox.wake_by(0);
        taken.sort_unstable_by_key(|(timer, ..)| (timer.deadline, timer.order));
        let ticks = self.shared.ticks;
        let expired = |(timer, key, value): (Timer, K, V)| Expired {
            key,
            value,
            deadline: ticks.instant(timer.deadline),
        };
        taken.into_iter().map(expired).collect()
    }
}

/// Why there is no expiration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Empty {
    ForNow,
    Finished,
}

impl<K: Hash + Eq, V> State<K, V> {
    fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// Writes when a timer fires; what the actor knows of it stays.
    fn write_deadline(&mut self, slot: u32, new: &Timer) {
        if let Some(timer) = self.book.timer(slot) {
            timer.deadline = new.deadline;
            timer.order = new.order;
        }
    }

    /// The actor has to look at this slot by `tick`.
    fn needed(&mut self, slot: u32, tick: u64) -> Tell {
        match self.book.timer(slot) {
            Some(timer) if timer.filed > tick => timer.filed = tick,
            _ => return Tell::Nothing,
        }
        self.note(slot, tick)
    }

    /// Notes the slot down for the actor to attend to, by `tick`.
    fn note(&mut self, slot: u32, tick: u64) -> Tell {
        if !mem::replace(self.book.noted(slot), true) {
            self.notes.push_back(slot);
        }
        self.queue(tick)
    }

    fn queue(&mut self, tick: u64) -> Tell {
        let tick = if self.notes.len() >= QUEUE_BOUND {
            0
        } else {
            tick
        };
        if mem::replace(&mut self.queued, true) {
            Tell::Sooner(tick)
        } else {
            Tell::Queue(tick)
        }
    }

    /// Takes a timer out of the book, and sees to it that its slot leaves the wheel.
    fn take_out(&mut self, slot: u32) -> (Option<(K, V, Timer)>, Tell) {
        if !self.repeats.is_empty() {
            self.repeats.remove(&slot);
        }
        let taken = self.book.remove(slot);
        let tell = match self.book.place(slot).node() {
            Some(_) => self.note(slot, NEVER),
            None => Tell::Nothing,
        };
        (taken, tell)
    }

    /// Makes the wheel agree with the slot, which was noted.
    fn attend(&mut self, slot: u32, ticks: &Ticks, shelf: &mut dyn Shelf) {
        *self.book.noted(slot) = false;
        let place = *self.book.place(slot);
        let Some(timer) = self.book.timer(slot) else {
            if let Some(node) = place.node() {
                shelf.remove(node);
                *self.book.place(slot) = Place::NOWHERE;
            }
            return;
        };
        let tick = ticks.deadline_of(timer.deadline);
        match place.node() {
            Some(node) if shelf.tick(node) <= tick => timer.filed = shelf.tick(node),
            Some(node) => {
                timer.filed = tick;
                shelf.refile(node, tick);
            }
            None if place == Place::NOWHERE => self.file(slot, tick, shelf),
            // It waits to be delivered, and is looked at then.
            None => {}
        }
    }

    /// Puts the slot, which is nowhere, on the wheel for its timer.
    fn file(&mut self, slot: u32, tick: u64, shelf: &mut dyn Shelf) {
        if let Some(timer) = self.book.timer(slot) {
            timer.filed = tick;
        }
        if tick != NEVER {
            *self.book.place(slot) = Place::on_wheel(shelf.insert(tick, slot));
        }
    }

    /// Whether the stream has ended: nothing is going to fire any more.
    fn is_finished(&self) -> bool {
        self.phase == Phase::Ended || (!self.has_handles && self.book.len() == 0)
    }
}

impl<K, V> AnySet for Set<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    fn number(&self) -> &AtomicU32 {
        &self.number
    }

    fn attend(&self, shelf: &mut dyn Shelf, limit: usize) -> (usize, usize) {
        let mut state = self.lock();
        let n = state.notes.len().min(limit);
        for _ in 0..n {
            if let Some(slot) = state.notes.pop_front() {
                state.attend(slot, &self.shared.ticks, shelf);
            }
        }
        let left = state.notes.len();
        state.queued = left > 0;
        if left == 0 {
            state.notes.shrink_to(QUEUE_BOUND);
        }
        if left == 0 && state.ripe.is_empty() {
            // Every slot that the actor knew of and that holds no timer has been taken off the wheel by now.
            state.book.give_back_if_empty();
        }
        (n, left)
    }

    fn look(&self, slots: &[u32], turn: &Turn<'_>, shelf: &mut dyn Shelf) {
        let ticks = self.shared.ticks;
        let mut state = self.lock();
        for &slot in slots {
            *state.book.place(slot) = Place::NOWHERE;
            let Some(timer) = state.book.timer(slot) else {
                continue;
            };
            let (tick, order) = (ticks.deadline_of(timer.deadline), timer.order);
            if tick <= turn.tick {
                timer.filed = 0;
                *state.book.place(slot) = Place::RIPE;
                state.ripe.push(Reverse(Ripe { tick, order, slot }));
            } else {
                turn.refiled();
                state.file(slot, tick, shelf);
            }
        }
    }

    fn deliver(&self, before: u64, limit: &mut usize, turn: &Turn<'_>, shelf: &mut dyn Shelf) -> Delivered {
        let ticks = self.shared.ticks;
        let mut lost = None;
        let mut freed = 0;
        let mut state = self.lock();
        let fired_before = state.fired.len();
        let left = loop {
            let Some(&Reverse(ripe)) = state.ripe.peek() else {
                break Delivered::All;
            };
            if state.phase != Phase::Open {
                // Nobody reads, and whoever closed the set takes its timers out.
                state.ripe.clear();
                break Delivered::All;
            }
            if ripe.tick >= before {
                break Delivered::Unripe;
            }
            if *limit == 0 || lost.is_some() {
                break Delivered::More;
            }
            *limit -= 1;
            state.ripe.pop();
            let slot = ripe.slot;
            *state.book.place(slot) = Place::NOWHERE;
            let Some(&mut timer) = state.book.timer(slot) else {
                continue;
            };
            let tick = ticks.deadline_of(timer.deadline);
            if tick > turn.tick {
                turn.refiled();
                state.file(slot, tick, shelf);
            } else if (tick, timer.order) != (ripe.tick, ripe.order) {
                // Set or moved anew meanwhile, and due all the same: to its place in the order.
                let order = timer.order;
                *state.book.place(slot) = Place::RIPE;
                state.ripe.push(Reverse(Ripe { tick, order, slot }));
            } else {
                turn.fired(turn.now.since(timer.deadline));
                let pair = if state.repeats.contains_key(&slot) {
                    let pair = state.repeat(slot, timer, turn);
                    if pair.is_some() {
                        let timer = state.book.timer(slot).copied();
                        let deadline = timer.map_or(Stamp::NEVER, |timer| timer.deadline);
                        state.file(slot, ticks.deadline_of(deadline), shelf);
                    } else {
                        lost = state.take_out(slot).0;
                        state.counts.removed += 1;
                        freed += 1;
                    }
                    pair
                } else {
                    freed += 1;
                    let taken = state.book.remove(slot);
                    taken.map(|(key, value, _)| (key, value))
                };
                if let Some((key, value)) = pair {
                    state.counts.fired += 1;
                    let deadline = ticks.instant(timer.deadline);
                    state.fired.push_back(Expired {
                        key,
                        value,
                        deadline,
                    });
                }
            }
        };
        let news = state.fired.len() > fired_before || state.is_finished();
        let receiver = if news { state.receiver.take() } else { None };
        // Before the lock is released: whoever sees that a timer is gone finds its place free.
        self.shared.free(freed);
        drop(state);
        wake(receiver);
        if let Some((key, value, _)) = lost {
            dispose([key]);
            dispose([value]);
        }
        left
    }

    fn close(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Ended;
        }
        let receiver = state.receiver.take();
        drop(state);
        wake(receiver);
    }

    fn is_over(&self) -> bool {
        let state = self.lock();
        state.book.len() == 0 && (!state.has_handles || state.phase != Phase::Open)
    }

    fn counts(&self) -> KeyedCounts {
        self.lock().counts
    }
}

impl<K: Hash + Eq, V> State<K, V> {
    /// Arms a repeating timer for its next time; returns copies of its key and value for this one.
    ///
    /// Times that have passed meanwhile are left out. `None` when copying panicked.
    fn repeat(&mut self, slot: u32, timer: Timer, turn: &Turn<'_>) -> Option<(K, V)> {
        let repeat = self.repeats.get(&slot)?;
        let (key, value) = self.book.get(slot)?;
        let pair = shield("the Clone of a repeating timer", || {
            (repeat.clone)(key, value)
        })?;
        let period = repeat.period_nanos;
        let late = turn.now.nanos().saturating_sub(timer.deadline.nanos());
        let missed = late.max(0) / period;
        let next = Timer {
            deadline: (timer.deadline).plus(period.saturating_mul(missed.saturating_add(1))),
            filed: NEVER,
            order: self.next_order(),
        };
        self.write_deadline(slot, &next);
        self.counts.set += 1;
        Some(pair)
    }
}

impl<K: Hash + Eq, V> Drop for Set<K, V> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let left = state.book.len();
        state.counts.drained += left as u64;
        self.shared.free(left);
        let gone = &self.shared.metrics.gone_sets;
        let mut gone = gone.lock().unwrap_or_else(PoisonError::into_inner);
        gone.add(&state.counts);
    }
}

impl<K: Hash + Eq, V> fmt::Debug for Set<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("Set")
            .field("wheel", &self.shared.name)
            .field("pending", &state.book.len())
            .field("undelivered", &state.fired.len())
            .field("phase", &state.phase)
            .finish_non_exhaustive()
    }
}
