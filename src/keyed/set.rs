//! The timers of one type of key and value: the truth about each, of which the wheel holds a lower bound.
//!
//! This file has the state and what is common; [`writes`](super::writes) what the handles do, [`visits`](super::visits)
//! what the actor does, [`receive`](super::receive) what the stream does.
//!
//! # Who does what
//!
//! A set is shared by its [handles](super::KeyedTimers), its [stream](super::Expirations) and the actor. All it knows
//! lies under one lock, so what happens to a timer happens in some order, and exactly one of *fired*, *removed*,
//! *replaced* and *drained* ends it.
//!
//! * A **handle** writes the timer: its deadline, its value, or that it is gone. If the actor would look too late for
//!   that, or has a slot on the wheel that holds no timer any more, the slot is *noted*, and the set queued to the
//!   actor, once, by the [wake rule](crate::shared::mailbox). A move to later costs neither.
//! * The **actor** [attends](super::visits::AnySet::attend) to the slots that are noted; it [looks](super::visits::AnySet::look) at those the wheel
//!   has reached, and files again what was moved; and it [delivers](super::visits::AnySet::deliver) what is due to the stream.
//! * The **stream** takes delivered expirations. The actor never waits for it.
//!
//! Values that are [watched](super::stored::Stored::CLAIMED) are delivered as candidates: the stream has the last word.
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
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::Waker;

use hashbrown::DefaultHashBuilder;
use tokio::time::Instant;

use super::Expired;
use super::book::{Book, Place, Timer};
use super::error::Closed;
use super::stored::Stored;
use super::visits::AnySet;
use crate::metrics::KeyedCounts;
use crate::shared::Shared;
use crate::shared::command::Command;
use crate::shared::entry::Notify;
use crate::shared::mailbox::QUEUE_BOUND;
use crate::shared::sets::SetKey;
use crate::shared::turn::Shelf;
use crate::sync::lock_with_backoff;
use crate::tick::{NEVER, Timestamp};

/// How many timers a long operation takes out under one hold of the lock.
const CHUNK: u32 = 256;

/// See the module.
pub(crate) struct Set<K: Hash + Eq, S: Stored> {
    /// The set itself, to be sent to the actor.
    this: Weak<Self>,
    pub(super) shared: Arc<Shared>,
    pub(super) rules: S::Rules,
    pub(super) hasher: DefaultHashBuilder,
    /// The actor's number for the set; 0 when it has none.
    pub(super) number: AtomicU32,
    /// Its entry in the wheel's list; none when it was made after the actor had ended.
    registered: OnceLock<SetKey>,
    state: Mutex<State<K, S>>,
}

pub(super) struct State<K: Hash + Eq, S: Stored> {
    pub(super) book: Book<K, S>,
    /// By slot; few timers repeat.
    pub(super) repeats: HashMap<u32, Repeat<K, S>>,
    pub(super) ripe: BinaryHeap<Reverse<Ripe>>,
    /// Slots the actor should attend to, each once.
    pub(super) notes: VecDeque<u32>,
    /// The set is in the actor's queue, or about to be put there.
    pub(super) queued: bool,
    /// The order of the last arming.
    pub(super) order: u64,
    pub(super) fired: VecDeque<Fired<K, S::Value>>,
    pub(super) receiver: Option<Waker>,
    pub(super) phase: Phase,
    /// Whether a handle is left that could set a timer.
    pub(super) has_handles: bool,
    pub(super) counts: KeyedCounts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// The stream was dropped.
    Unread,
    /// The actor has ended.
    Ended,
}

/// A timer that came off the wheel: by tick, then by order of arming.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ripe {
    pub(super) tick: u64,
    pub(super) order: u64,
    pub(super) slot: u32,
}

/// What was delivered to the stream.
pub(super) enum Fired<K, V> {
    Expired(Expired<K, V>),
    /// The timer of this order in this slot, if it is still there and expires.
    Candidate {
        slot: u32,
        order: u64,
    },
}

/// What makes a timer repeat.
pub(super) struct Repeat<K, S: Stored> {
    pub(super) period_nanos: i64,
    pub(super) clone: fn(&K, &S) -> (K, S::Value),
}

impl<K, S> Set<K, S>
where
    K: Hash + Eq + Send + 'static,
    S: Stored,
{
    pub(crate) fn new(shared: &Arc<Shared>, rules: S::Rules) -> Arc<Self> {
        let hasher = DefaultHashBuilder::default();
        let set = Arc::new_cyclic(|this: &Weak<Self>| Set {
            this: Weak::clone(this),
            shared: Arc::clone(shared),
            rules,
            hasher: hasher.clone(),
            number: AtomicU32::new(0),
            registered: OnceLock::new(),
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
        match shared.register(weak as Weak<dyn AnySet>) {
            Some(key) => {
                let _ = set.registered.set(key);
            }
            None => set.lock().phase = Phase::Ended,
        }
        set
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().book.len()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().phase != Phase::Open
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State<K, S>> {
        lock_with_backoff(&self.state)
    }

    pub(super) fn open(&self) -> Result<MutexGuard<'_, State<K, S>>, Closed> {
        let state = self.lock();
        if state.phase == Phase::Open {
            Ok(state)
        } else {
            Err(Closed::new())
        }
    }

    /// Says to the actor what a change requires. Not while the set is locked.
    pub(super) fn tell(&self, tell: Notify) {
        match tell {
            Notify::None => {}
            Notify::Wake(tick) => self.shared.mailbox.wake_by(tick),
            Notify::Enqueue(tick) => {
                if let Some(set) = self.this.upgrade() {
                    // Without an actor nothing will fire, and the set learns of it by `close`.
                    let _ = self.shared.send(tick, Command::Set(set));
                }
            }
        }
    }

    /// Takes out every timer whose order of arming is at most `armed_by`, earliest first.
    pub(super) fn take_all(&self, armed_by: u64) -> Vec<Expired<K, S::Value>> {
        let mut taken: Vec<(Timer, K, S)> = Vec::new();
        let mut next = 0;
        let now = self.shared.ticks.timestamp(Instant::now());
        loop {
            let before = taken.len();
            let mut state = self.lock();
            let slots = state.book.slots();
            let mut tell = Notify::None;
            while next < slots && taken.len() < before + CHUNK as usize {
                // A set cannot have more slots than a u32 counts.
                let slot = u32::try_from(next).unwrap_or(u32::MAX);
                next += 1;
                let meant = |timer: &mut Timer| timer.order <= armed_by;
                if state.book.timer(slot).is_some_and(meant) {
                    self.end_slot(&mut state, slot, now);
                    let (out, told) = state.take_out(slot);
                    taken.extend(out.map(|(key, value, timer)| (timer, key, value)));
                    if let Notify::Enqueue(_) = told {
                        tell = told;
                    }
                }
            }
            let n = taken.len() - before;
            state.counts.drained += n as u64;
            // Before the lock is released, here and elsewhere: who sees that a timer is gone finds its place free.
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
        let expired = |(timer, key, value): (Timer, K, S)| Expired {
            key,
            value: value.into_value(),
            deadline: self.shared.ticks.instant(timer.deadline),
        };
        taken.into_iter().map(expired).collect()
    }

    /// Ends the value in a slot, and writes down when it would have expired.
    fn end_slot(&self, state: &mut State<K, S>, slot: u32, now: Timestamp) {
        let Some(&mut Timer { deadline, .. }) = state.book.timer(slot) else {
            return;
        };
        let due =
            (state.book.get(slot)).and_then(|(_, value)| value.end(deadline, now, &self.rules));
        if let (Some(due), Some(timer)) = (due, state.book.timer(slot)) {
            timer.deadline = due;
        }
    }

    /// Ends every value, and leaves it where it is. Nothing is added to the set any more.
    pub(super) fn end_all(&self) {
        let now = self.shared.ticks.timestamp(Instant::now());
        let mut next = 0_u32;
        loop {
            let mut state = self.lock();
            let slots = u32::try_from(state.book.slots()).unwrap_or(u32::MAX);
            let until = slots.min(next.saturating_add(CHUNK));
            (next..until).for_each(|slot| self.end_slot(&mut state, slot, now));
            next = until;
            if next >= slots {
                break;
            }
        }
    }
}

impl<K: Hash + Eq, S: Stored> State<K, S> {
    pub(super) fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// Writes when a timer fires; what the actor knows of it stays.
    pub(super) fn write_deadline(&mut self, slot: u32, deadline: Timestamp, order: u64) {
        if let Some(timer) = self.book.timer(slot) {
            timer.deadline = deadline;
            timer.order = order;
        }
    }

    /// The actor has to look at this slot by `tick`.
    pub(super) fn needed(&mut self, slot: u32, tick: u64) -> Notify {
        let order = match self.book.timer(slot) {
            Some(timer) if timer.scheduled > tick => {
                timer.scheduled = tick;
                timer.order
            }
            _ => return Notify::None,
        };
        if *self.book.place(slot) == Place::RIPE {
            // The actor is about to deliver it, and has not come to it. Now it may come before others.
            self.ripe.push(Reverse(Ripe { tick, order, slot }));
            return Notify::None;
        }
        self.note(slot, tick)
    }

    /// Notes the slot down for the actor to attend to, by `tick`.
    pub(super) fn note(&mut self, slot: u32, tick: u64) -> Notify {
        if !mem::replace(self.book.noted(slot), true) {
            self.notes.push_back(slot);
        }
        self.queue(tick)
    }

    pub(super) fn queue(&mut self, tick: u64) -> Notify {
        let tick = if self.notes.len() >= QUEUE_BOUND {
            0
        } else {
            tick
        };
        if mem::replace(&mut self.queued, true) {
            Notify::Wake(tick)
        } else {
            Notify::Enqueue(tick)
        }
    }

    /// Takes a timer out of the book, and sees to it that its slot leaves the wheel.
    pub(super) fn take_out(&mut self, slot: u32) -> (Option<(K, S, Timer)>, Notify) {
        if !self.repeats.is_empty() {
            self.repeats.remove(&slot);
        }
        let taken = self.book.remove(slot);
        let tell = match self.book.place(slot).node() {
            Some(_) => self.note(slot, NEVER),
            None => Notify::None,
        };
        (taken, tell)
    }

    /// Puts the slot, which is nowhere, on the wheel for its timer.
    pub(super) fn file(&mut self, slot: u32, tick: u64, lent: &mut dyn Shelf) {
        if let Some(timer) = self.book.timer(slot) {
            timer.scheduled = tick;
        }
        if tick != NEVER {
            *self.book.place(slot) = Place::on_wheel(lent.insert(tick, slot));
        }
    }

    /// Whether the stream has ended: nothing is going to fire any more.
    pub(super) fn is_finished(&self) -> bool {
        self.phase == Phase::Ended || (!self.has_handles && self.book.len() == 0)
    }
}

impl<K: Hash + Eq, S: Stored> Drop for Set<K, S> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let left = state.book.len();
        state.counts.drained += left as u64;
        self.shared.free(left);
        if let Some(&key) = self.registered.get() {
            self.shared.retire(key, &state.counts);
        }
    }
}

impl<K: Hash + Eq, S: Stored> fmt::Debug for Set<K, S> {
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
