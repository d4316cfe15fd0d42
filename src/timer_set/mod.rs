//! A set of timers with one type of key and value: what lies beneath [keyed timers](crate::keyed) and
//! [reapers](crate::Reaper).
//!
//! The wheel holds a lower [bound](crate::shared::bound); the set holds the truth. The whole state of a timer lies under one
//! lock, which the handles, the stream and the actor share. All changes of a timer are therefore ordered, and exactly one
//! of *fired*, *removed*, *replaced* and *drained* ends it.
//!
//! # The three sides
//!
//! * **Handles** ([`calls`]) write the timer. If the actor would process it too late, or has an index on the wheel that
//!   holds no timer any more, they mark the index as dirty. Moving a timer later does neither.
//! * **The actor** ([`actor_side`]) processes dirty indices: it puts them on the wheel, moves them to an earlier tick, or
//!   takes them off. When the wheel reaches an index the timer is due, or was moved and is rescheduled. Timers that are
//!   due are delivered by tick, and within a tick in the order in which they were armed.
//! * **The stream** ([`stream_side`]) takes what was delivered. The actor never waits for it.
//!
//! No function has to notify the actor by itself: the guard of the [lock](crate::shared::actor_mutex) does it. No hold of
//! the lock touches more than [`BATCH`] timers.
//!
//! # Invariants
//!
//! An index names a [slot](table::Slot), whose bound keeps B1 to B5. Dirty indices are queued. A slot wants what its timer
//! wants, and without a timer nothing. These hold, too, whenever the lock is free; debug builds assert S1 and S2 for each slot
//! that was changed.
//!
//! * **S1** An index with a timer that the actor knows is scheduled no later than the tick of its deadline.
//! * **S2** An index without a timer is scheduled never, and is dirty if it has a node: the actor is going to take it off.
//! * **S3** An index that is queued is among the [dirty ones](crate::shared::actor_mutex::Batch), or in the batch that
//!   the actor took. Processing an index twice changes nothing.
//! * **S4** The order of each arming is unique in the set: it is the generation of the index. A timer that the actor found
//!   due has an entry in the actor's heap, with its index and order, and its bound is as new. So a timer that is set again
//!   or moved leaves nothing behind but an entry with another order, which is stale and is skipped.
//!
//! They and the [lock's](crate::shared::actor_mutex) L1 to L3 give the promise: an armed timer is processed at its
//! deadline's tick or before.
//!
//! # Growth under the lock
//!
//! Some memory is allocated and moved while the set is locked. Each step is bounded, most of them by a constant:
//!
//! | | grows by | moves at most |
//! |---|---|---|
//! | [slots](table) | a chunk of 256 slots, the first one by doubling | half of the first chunk |
//! | the list of chunks | doubling | 40 bytes for each 256 timers |
//! | the [key index](key_index) | a part, or a quarter of the lines of one | one part, of some 100 to 450 indices; in the list of parts, 24 bytes for each 192 timers |
//! | dirty indices | doubling | 4 bytes for each change since the actor last took them |
//! | expirations | a block of 256, the first one by doubling | half of the first block; 40 bytes for each block |
//! | nodes of the wheel | a chunk of 4096 nodes, the first one by doubling | half of the first chunk |
//! | commands in a queue | a block of 512 commands, the first one by doubling | half of the first block; 40 bytes for each block |
//! | repeating timers | a node of a tree | half a node |
//! | the activity of a watch | 32 bytes | nothing |
//!
//! At a million timers the largest of these moves is one of 2 MB: half of four million bytes, when
//! each timer has changed before the actor takes a turn. Memory that follows the size of a storm
//! grows while the lock is free: the actor's heap of due timers, and the vectors of callers who
//! drain or receive many. Memory is freed in steps of a chunk, part or block.
//!
//! # Watches
//!
//! A watch expires when the actor delivers it: a compare-and-exchange on its [activity
//! word](crate::shared::activity) decides that once. [`Reaper`](crate::Reaper) says what touches
//! return before and after.
//!
//! # User code
//!
//! A key's `Hash` runs in the caller before the lock is taken. `Eq` runs under the lock before anything is changed, and
//! so may unwind. `Clone` of a repeating timer runs in the actor, under the lock, and is caught. None of them may call
//! back into the same set. Keys and values are dropped, and wakers cloned, woken and dropped, when the lock is free.

mod actor_side;
mod calls;
mod drain;
mod error;
mod expired;
mod key_index;
mod stream_side;
mod table;
#[cfg(all(test, not(tickwheel_loom)))]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;

use hashbrown::DefaultHashBuilder;

use crate::clock;
use crate::collections::BlockQueue;
use crate::console::{SetResource, TimerType};
use crate::metrics::{Event, OwnCounters};
use crate::shared::Shared;
use crate::shared::actor_mutex::{ActorGuard, ActorLink, ActorMutex, Outbox};
use crate::shared::command::Command;
use crate::shared::sets::SetKey;
use crate::shared::timer_set::TimerSet;
use crate::sync::{EXPLORED, thread_number};
use crate::tick::{NEVER, Timestamp};
use table::{Slot, Table, Timer};

pub(crate) use calls::Handles;
pub use error::{Closed, SetTimerError, TryRecvError};
pub use expired::{Cause, Expired};
pub(crate) use stream_side::{Receiver, Source};

/// The most timers that one hold of the lock touches.
const BATCH: u32 = if EXPLORED { 2 } else { 256 };

/// In a long list of dirty indices, those that are needed within this many ticks are processed before all others.
const HORIZON: u64 = if EXPLORED { 4 } else { 256 };

/// The expirations that were delivered and not received, a block for each batch.
type Delivered<T> = BlockQueue<T, { BATCH as usize }, 1>;

/// An empty heap of due timers keeps memory for this many.
const KEPT: usize = 64;

/// A value in a set. It decides when its timer expires.
pub(crate) trait Payload {
    /// The value that is delivered.
    type Value;
    /// Data that all values of a set share.
    type Rules;
    /// Whether timers are found by their key.
    const KEYED: bool;

    /// The deadline as far as it is known now. The timer need not be processed before that.
    fn due(&self, deadline: Timestamp, now: Timestamp, rules: &Self::Rules) -> Timestamp;

    /// Decides, once, whether the timer expires; the actor calls it at delivery. Returns the deadline that was reached.
    /// `None` if the timer does not expire yet: then [`due`](Self::due) is later than before.
    fn expire(
        &self,
        deadline: Timestamp,
        now: Timestamp,
        rules: &Self::Rules,
    ) -> Option<(Timestamp, Cause)>;

    /// Ends the value of a timer that does not expire. Returns the deadline it would have reached. The timer keeps that
    /// deadline, so a second call returns the same.
    fn end(
        &mut self,
        deadline: Timestamp,
        now: Timestamp,
        rules: &Self::Rules,
    ) -> (Timestamp, Cause);

    fn into_value(self) -> Self::Value;
}

/// A value whose timer expires at its deadline.
pub(crate) struct Plain<V>(pub(crate) V);

impl<V> Payload for Plain<V> {
    type Value = V;
    type Rules = ();
    const KEYED: bool = true;

    fn due(&self, deadline: Timestamp, _: Timestamp, (): &()) -> Timestamp {
        deadline
    }

    fn expire(&self, deadline: Timestamp, _: Timestamp, (): &()) -> Option<(Timestamp, Cause)> {
        Some((deadline, Cause::Deadline))
    }

    fn end(&mut self, deadline: Timestamp, _: Timestamp, (): &()) -> (Timestamp, Cause) {
        (deadline, Cause::Deadline)
    }

    fn into_value(self) -> V {
        self.0
    }
}

/// See the module.
pub(crate) struct Set<K, S: Payload> {
    /// The set itself, for its command.
    this: Weak<dyn TimerSet>,
    shared: Arc<Shared>,
    rules: S::Rules,
    hasher: DefaultHashBuilder,
    /// The actor's number for the set; 0 when it has none.
    number: AtomicU32,
    /// While the command is queued: no dirty index is needed before this tick. Written under the lock, read without.
    earliest: AtomicU64,
    state: ActorMutex<State<K, S>>,
    resource: SetResource,
}

struct State<K, S: Payload> {
    counters: OwnCounters,
    /// The set's entry in the wheel's list; none if the set was made after the actor had ended.
    entry: Option<SetKey>,
    table: Table<K, S>,
    /// The repeating timers, by index.
    repeats: BTreeMap<u32, Repeat<K, S>>,
    delivered: Delivered<Expired<K, S::Value>>,
    receiver: Option<Waker>,
    /// The `order` of the last arming.
    order: u64,
    phase: Phase,
    /// Whether a handle is left that could set a timer.
    has_handles: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// The stream was dropped.
    Unread,
    /// The actor has ended.
    Ended,
}

/// How a timer repeats.
pub(crate) struct Repeat<K, S: Payload> {
    /// In nanoseconds; above zero.
    pub(crate) period: i64,
    pub(crate) clone: fn(&K, &S) -> (K, S::Value),
}

type Guard<'a, K, S> = ActorGuard<'a, State<K, S>, Set<K, S>>;

impl<K, S> Set<K, S>
where
    K: Send + 'static,
    S: Payload<Value: Send, Rules: Send + Sync> + Send + 'static,
{
    #[cfg_attr(feature = "console", track_caller)]
    pub(crate) fn new(shared: &Arc<Shared>, rules: S::Rules) -> Arc<Self> {
        let hasher = DefaultHashBuilder::default();
        let resource = SetResource::new(if S::KEYED {
            TimerType::KeyedTimers
        } else {
            TimerType::Reaper
        });
        let set = Arc::new_cyclic(|this: &Weak<Self>| Set {
            this: Weak::clone(this) as Weak<dyn TimerSet>,
            shared: Arc::clone(shared),
            rules,
            hasher,
            number: AtomicU32::new(0),
            earliest: AtomicU64::new(NEVER),
            state: ActorMutex::new(State {
                counters: shared.metrics.0.register(),
                entry: None,
                table: Table::new(),
                repeats: BTreeMap::new(),
                delivered: Delivered::new(),
                receiver: None,
                order: 0,
                phase: Phase::Open,
                has_handles: true,
            }),
            resource,
        });
        match shared.sets.register(Weak::clone(&set.this)) {
            None => set.lock().phase = Phase::Ended,
            entry => set.lock().entry = entry,
        }
        set
    }
}

impl<K, S: Payload> Set<K, S> {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn len(&self) -> usize {
        self.state.read(|state| state.table.len())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.read(|state| state.phase != Phase::Open)
    }

    #[inline]
    fn lock(&self) -> Guard<'_, K, S> {
        self.state.lock(self)
    }

    #[inline]
    fn open(&self) -> Result<Guard<'_, K, S>, Closed> {
        let state = self.lock();
        if state.phase == Phase::Open {
            Ok(state)
        } else {
            Err(Closed::new())
        }
    }

    /// Counts a new timer. Returns `false`, and counts nothing, if the wheel has as many as it may have.
    #[must_use]
    fn count_new(&self, state: &State<K, S>) -> bool {
        let has_room = self.shared.reserve();
        if has_room {
            state.counters.add(Event::KeyedAdded, 1);
            self.resource.changed(1);
        }
        has_room
    }

    /// Counts the end of timers, which left the set.
    fn count_ended(&self, state: &State<K, S>, event: Event, n: usize) {
        state.counters.add(event, n as u64);
        self.resource.changed(-i64::try_from(n).unwrap_or(i64::MAX));
        self.shared.free(n);
    }

    /// The tick of the deadline.
    fn tick(&self, deadline: Timestamp) -> u64 {
        self.shared.ticks.deadline_of(deadline)
    }
}

impl<K, S: Payload> Drop for Set<K, S> {
    /// Counts what is pending as drained. Keys and values are dropped after that, so none is counted as pending while it
    /// is dropped.
    fn drop(&mut self) {
        let entry = self.state.read(|state| {
            self.count_ended(state, Event::KeyedDrained, state.table.len());
            state.entry
        });
        if let Some(entry) = entry {
            self.shared.sets.retire(entry);
        }
    }
}

impl<K, S: Payload> ActorLink for Set<K, S> {
    fn horizon(&self) -> u64 {
        let now = self.shared.ticks.timestamp(clock::now());
        self.shared.ticks.tick_at(now).saturating_add(HORIZON)
    }

    fn enqueue(&self, tick: u64) -> u64 {
        let Some(this) = self.this.upgrade() else {
            return NEVER; // it is being dropped, and nothing in it can fire
        };
        self.earliest.store(tick, Ordering::SeqCst);
        let thread = thread_number();
        let queued = (self.shared.mailbox).enqueue(thread, tick, Command::Set(this));
        // Without an actor nothing will fire; it has closed the set, or is about to.
        queued.unwrap_or(NEVER)
    }

    fn announce(&self, tick: u64) {
        self.earliest.store(tick, Ordering::SeqCst);
        self.shared.mailbox.lower(thread_number(), tick);
    }

    fn wake_by(&self, tick: u64) {
        // A virtual clock moves on its own to the earliest tick of the wheel, also to that of a timer that was removed.
        let tick = if self.shared.has_virtual_clock() {
            0
        } else {
            tick
        };
        self.shared.mailbox.wake_by(tick);
    }

    #[inline]
    fn unlocked(&self) {
        self.resource.unlocked();
    }
}

impl<K, S: Payload> State<K, S> {
    #[inline]
    fn next_order(&mut self) -> NonZeroU64 {
        self.order += 1;
        NonZeroU64::MIN.saturating_add(self.order - 1)
    }

    /// Takes a timer out, and changes its slot.
    fn remove(&mut self, index: u32, change: impl FnOnce(&mut Slot<K, S>)) -> Option<Timer<K, S>> {
        if !self.repeats.is_empty() {
            self.repeats.remove(&index);
        }
        if S::KEYED {
            self.table.remove_keyed(index, change)
        } else {
            self.table.remove_unkeyed(index, change)
        }
    }

    /// Takes a timer out, and marks its index if that has to leave the wheel.
    fn take_out(&mut self, outbox: &mut Outbox, index: u32) -> Option<Timer<K, S>> {
        self.remove(index, |slot| outbox.release(index, &mut slot.bound))
    }

    /// Whether the stream has ended once it has taken what was delivered.
    fn is_finished(&self) -> bool {
        self.phase == Phase::Ended || (!self.has_handles && self.table.len() == 0)
    }

    /// Whether no timer is pending, none can be set any more, and the actor knows no index.
    fn is_over(&self) -> bool {
        (!self.has_handles || self.phase != Phase::Open) && self.table.is_unused()
    }

    /// Asserts S1 and S2 of one index. `tick` gives the tick of a deadline.
    fn assert_slot(&self, index: u32, tick: impl FnOnce(Timestamp) -> u64) {
        if !cfg!(debug_assertions) {
            return;
        }
        let Some(Slot { bound, timer, .. }) = self.table.get(index) else {
            return;
        };
        if let Some(timer) = timer {
            let is_in_time = bound.scheduled() <= tick(timer.deadline) || !bound.is_in_use();
            assert!(is_in_time, "S1: index {index}");
        } else {
            let is_leaving = bound.is_queued() || !bound.is_in_use();
            assert!(
                bound.scheduled() == NEVER && is_leaving,
                "S2: index {index}"
            );
        }
    }
}

impl<K, S: Payload> fmt::Debug for Set<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pending, undelivered, phase) =
            (self.state).read(|state| (state.table.len(), state.delivered.len(), state.phase));
        f.debug_struct("Set")
            .field("wheel", &self.shared.name)
            .field("pending", &pending)
            .field("undelivered", &undelivered)
            .field("phase", &phase)
            .finish_non_exhaustive()
    }
}
