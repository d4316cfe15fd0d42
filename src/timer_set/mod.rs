//! A set of timers with one type of key and value: what lies beneath [keyed timers](crate::keyed)
//! and [reapers](crate::Reaper).
//!
//! The wheel holds a lower bound; the set holds the truth. The whole state of a timer lies under
//! one lock, which the handles, the stream and the actor share. All changes of a timer are
//! therefore ordered, and exactly one of *fired*, *removed*, *replaced* and *drained* ends it.
//!
//! # The three sides
//!
//! * **Handles** ([`calls`]) write the timer. If the actor would process it too late, they send it
//!   a [note](crate::shared::note::Note): *schedule this index for this tick*. Moving a timer later
//!   sends none.
//! * **The actor** applies notes without a lock: it knows the node of each index. When the wheel
//!   reaches an index, the actor [visits](visit) the set: the timer is due, or was moved and is
//!   scheduled again. Timers that are due are delivered by tick, and within a tick in the order in
//!   which they were armed.
//! * **The stream** ([`stream_side`]) takes what was delivered. The actor never waits for it.
//!
//! No hold of the lock touches more than [`BATCH`] timers. The actor [never waits](lock) for it,
//! but for its end, and for once in a test that pauses the clock.
//!
//! # Notes
//!
//! An index names a [slot](table::Slot), which has room for one timer. A slot remembers for which
//! tick its newest note was.
//!
//! * **N1** Each note and each arming in a set has a number greater than all before. A note's is
//!   drawn, and the note pushed, under one hold of the lock. So when a caller relies on a note that
//!   another one drew, the note is in the mailbox.
//! * **N2** The actor remembers for each index the number that it applied last, and ignores notes
//!   with lower ones. So the newest note wins, in whatever order notes arrive.
//! * **N3** A visit returns a note for each index that it processes, which the actor applies at
//!   once. Then slot and node agree, and all notes for the index that are still on their way are
//!   void.
//! * **N4** The newest note for a slot with a timer is for the tick of its deadline or for an
//!   earlier one, until the timer is found due, or its tick is never.
//! * **N5** The newest note for a vacant slot takes its index off the wheel, or the index has no
//!   node. A slot that a timer has left may be [kept](Kept) instead, with its node, for the next
//!   timer with a later deadline.
//! * **N6** A timer has the number of its arming. One that a visit found due has an entry in the
//!   actor's heap, with its index and number, and no node. A timer that is set again or moved
//!   leaves nothing behind but an entry with another number, which is stale and is skipped. An
//!   index that the wheel has reached gets no node until it is visited, or it could be reached
//!   twice and have two entries.
//! * **N7** The actor forgets the number of an index only when no note is left that was drawn
//!   before it: when it has [parked](crate::shared::mailbox::Mailbox::park). The key of a set is
//!   given to another one only when no note about this one is left: see [`Backlog`](crate::actor).
//!
//! By N1 to N4 and the [wake rule](crate::shared::mailbox), the wheel reaches the index of an armed
//! timer at its deadline's tick or before: either the newest note is applied, or it lies in the
//! mailbox, and no timer fires that is due after the tick of a note in the mailbox. A note for a
//! tick that had passed counts as [later](crate::shared::mailbox), but as no later than when it was
//! pushed.
//!
//! # Kept slots
//!
//! A timer that is removed is often set again soon, as a timeout is for each request. So its slot
//! is kept with its node, and the next timer whose deadline is not earlier takes it over without a
//! note. There are [`MAX_KEPT`] kept slots at most. A removal leaves at most one more than there
//! are timers, so memory and wake-ups follow their number; those that expire leave kept slots
//! alone, until the wheel reaches them. None is kept when nothing can be set any more, since the
//! actor would wait for it before it ends, nor on a virtual clock, which moves on its own to the
//! next node.
//!
//! # Growth under the lock
//!
//! Some memory is allocated and moved while the set is locked. Each step is bounded, most of them
//! by a constant:
//!
//! | | grows by | moves at most |
//! |---|---|---|
//! | [slots](table) | a chunk of 256 slots, the first one by doubling | half of the first chunk |
//! | the list of chunks | doubling | 40 bytes for each 256 timers |
//! | the [key index](key_index) | a part, or doubling one | one part, of some 150 to 450 indices; in the list of parts, 32 bytes for each 256 timers |
//! | expirations | a block of 256, the first one by doubling | half of the first block; 40 bytes for each block |
//! | commands in a queue | a block of 512 commands, the first one by doubling | half of the first block; 40 bytes for each block |
//! | repeating timers | a node of a tree | half a node |
//!
//! Memory that follows the size of a storm
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
//! A key's `Hash` runs in the caller before the lock is taken. `Eq` runs under the lock before
//! anything is changed, and so may unwind. So do `Clone` of a value that is read, and what reads
//! it; `keep` of `retain` may change values, and unwind between two timers. `Clone` of a repeating
//! timer runs in the actor, under the lock, and is caught. None of them may call back into the same
//! set. Keys, values and panics are dropped, and wakers cloned, woken and dropped, when the lock is
//! free.

mod calls;
mod drain;
mod error;
mod expire;
mod expired;
mod key_index;
mod notes;
mod stream_side;
mod table;

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU64;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};

use hashbrown::DefaultHashBuilder;

use crate::console::{SetResource, TimerType};
use crate::metrics::OwnCounters;
use crate::shared::Shared;
use crate::shared::command::Request;
use crate::shared::mailbox::WakeBy;
use crate::shared::reached::Reached;
use crate::shared::sets::{SetKey, TimerSet};
use crate::sync::{IN_EXPLORER, Mutex, MutexGuard, lock_with_backoff};
use crate::tick::{NEVER, Ticks, Timestamp};
use expire::Reader;
use table::{Table, Timer};

pub(crate) use calls::Handles;
pub use error::{Closed, SetTimerError, TryRecvError};
pub use expired::{Cause, Expired};
pub(crate) use stream_side::ExpirationSource;

/// The most timers that one hold of the lock touches.
const BATCH: u32 = if IN_EXPLORER { 2 } else { 256 };

/// A reader that is so late lets others run before it decides.
#[cfg(feature = "_yield")]
const LATE: std::time::Duration = std::time::Duration::from_millis(20);

/// The most slots that are kept with their nodes.
const MAX_KEPT: usize = if IN_EXPLORER { 2 } else { 16 };

/// A value in a set. It decides when its timer expires.
pub(crate) trait Payload {
    /// The value that is delivered.
    type Value;
    /// Whether timers are found by their key.
    const KEYED: bool;

    /// The deadline as far as it is known now. The timer need not be processed before that.
    /// `idle` is the set's idle duration in nanoseconds.
    fn due(&self, deadline: Timestamp, now: Timestamp, idle: u64, ticks: &Ticks) -> Timestamp;

    /// Decides, once, whether the timer expires; the actor calls it at delivery. Returns the
    /// deadline that was reached. `None` if the timer does not expire yet: then [`due`](Self::due)
    /// is later than `now`, or the next call decides.
    fn expire(&self, deadline: Timestamp, now: Timestamp, idle: u64) -> Option<(Timestamp, Cause)>;

    /// Ends the value of a timer that does not expire. Returns the deadline it would have reached.
    /// The timer keeps that deadline, so a second call returns the same.
    fn end(&mut self, deadline: Timestamp, now: Timestamp, idle: u64) -> (Timestamp, Cause);

    fn into_value(self) -> Self::Value;
}

/// The value of a timer that expires at its deadline.
pub(crate) struct Plain<V>(pub(crate) V);

impl<V> Payload for Plain<V> {
    type Value = V;
    const KEYED: bool = true;

    fn due(&self, deadline: Timestamp, _: Timestamp, _: u64, _: &Ticks) -> Timestamp {
        deadline
    }

    fn expire(&self, deadline: Timestamp, _: Timestamp, _: u64) -> Option<(Timestamp, Cause)> {
        Some((deadline, Cause::Deadline))
    }

    fn end(&mut self, deadline: Timestamp, _: Timestamp, _: u64) -> (Timestamp, Cause) {
        (deadline, Cause::Deadline)
    }

    fn into_value(self) -> V {
        self.0
    }
}

/// See the module.
pub(crate) struct Set<K, S: Payload> {
    shared: Arc<Shared>,
    /// The idle duration of watches, in nanoseconds; zero for keyed timers.
    idle: u64,
    hasher: DefaultHashBuilder,
    state: Mutex<State<K, S>>,
    /// Locked before the state, by the reader alone.
    reader: Mutex<Reader>,
    reached: Arc<Reached>,
    resource: SetResource,
}

struct State<K, S: Payload> {
    counters: OwnCounters,
    /// None if the set was made after the actor had ended.
    set_key: Option<SetKey>,
    table: Table<K, S>,
    /// The repeating timers by index, with the numbers that they had when they were set or moved.
    repeats: BTreeMap<u32, (NonZeroU64, Repeat<K, S>)>,
    kept: Vec<Kept>,
    /// The last number that was drawn.
    number: NonZeroU64,
    /// Whether timers can be set. It is closed once the stream is dropped, or the actor has ended.
    is_open: bool,
    /// Whether a handle is left that could set a timer.
    has_handles: bool,
}

/// A slot that a timer has left, with its node.
#[derive(Debug, Clone, Copy)]
struct Kept {
    index: u32,
    /// Its node lies on the wheel at the tick of this instant or before.
    scheduled: Timestamp,
}

/// The copies of a key and its value.
type Copied<K, V> = (Option<K>, Option<V>);

/// How a timer repeats.
pub(crate) struct Repeat<K, S: Payload> {
    /// In nanoseconds; above zero.
    pub(crate) period: i64,
    /// What it has cloned lies in the copy also if it panics: the set is locked, and the drop of a
    /// key may lock it.
    pub(crate) clone: fn(&K, &S, &mut Copied<K, S::Value>),
}

/// The set is locked. Its drop unlocks the set, and then follows the wake rule for the notes that
/// were pushed meanwhile.
struct Guard<'a, K, S: Payload> {
    state: MutexGuard<'a, State<K, S>>,
    /// The last field: its drop comes after the unlocking.
    after: AfterUnlock<'a, K, S>,
}

struct AfterUnlock<'a, K, S: Payload> {
    set: &'a Set<K, S>,
    /// For the notes that were pushed.
    wake_by: WakeBy,
}

impl<'a, K, S: Payload> Guard<'a, K, S> {
    fn set(&self) -> &'a Set<K, S> {
        self.after.set
    }
}

impl<K, S: Payload> Drop for AfterUnlock<'_, K, S> {
    #[inline]
    fn drop(&mut self) {
        if self.wake_by != WakeBy::NEVER {
            self.set.shared.mailbox.wake(self.wake_by);
        }
        self.set.resource.unlocked();
    }
}

impl<K, S: Payload> Deref for Guard<'_, K, S> {
    type Target = State<K, S>;

    #[inline]
    fn deref(&self) -> &State<K, S> {
        &self.state
    }
}

impl<K, S: Payload> DerefMut for Guard<'_, K, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut State<K, S> {
        &mut self.state
    }
}

impl<K, S> Set<K, S>
where
    K: Send + 'static,
    S: Payload<Value: Send> + Send + 'static,
{
    #[cfg_attr(feature = "console", track_caller)]
    pub(crate) fn new(shared: &Arc<Shared>, idle: u64) -> Arc<Self> {
        let hasher = DefaultHashBuilder::default();
        let resource = SetResource::new(if S::KEYED {
            TimerType::KeyedTimers
        } else {
            TimerType::Reaper
        });
        let set = Arc::new(Set {
            shared: Arc::clone(shared),
            idle,
            hasher,
            state: Mutex::new(State {
                counters: shared.metrics.0.register(),
                set_key: None,
                table: Table::new(),
                repeats: BTreeMap::new(),
                kept: Vec::new(),
                number: NonZeroU64::MIN,
                is_open: true,
                has_handles: true,
            }),
            reader: Mutex::new(Reader::new()),
            reached: Arc::new(Reached::new()),
            resource,
        });
        let registered: Weak<Self> = Arc::downgrade(&set);
        let Some(key) = shared.sets.register(registered) else {
            set.lock().is_open = false;
            return set;
        };
        let register = Request::Register(key, Arc::clone(&set.reached));
        // An error means that the actor has ended, and closes the set.
        if let Ok(wake_by) = shared.enqueue_for(key, NEVER, register.into()) {
            shared.mailbox.wake(wake_by);
        }
        set.lock().set_key = Some(key);
        set
    }
}

impl<K, S: Payload> Set<K, S> {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    pub(crate) fn is_closed(&self) -> bool {
        !self.lock().is_open
    }

    #[inline]
    fn lock(&self) -> Guard<'_, K, S> {
        // This may send a command, which no thread does that holds the lock.
        let is_virtual = self.shared.detect_virtual_clock();
        let state = lock_with_backoff(&self.state);
        let after = AfterUnlock {
            set: self,
            wake_by: WakeBy::NEVER,
        };
        let mut guard = Guard { state, after };
        if is_virtual && !guard.kept.is_empty() && !guard.may_keep() {
            guard.vacate_kept();
        }
        guard
    }

    #[inline]
    fn open(&self) -> Result<Guard<'_, K, S>, Closed> {
        let state = self.lock();
        if state.is_open {
            Ok(state)
        } else {
            Err(Closed::new())
        }
    }

    /// See [`Payload::due`].
    fn due(&self, value: &S, deadline: Timestamp, now: Timestamp) -> Timestamp {
        value.due(deadline, now, self.idle, &self.shared.ticks)
    }

    /// The tick of the deadline.
    fn tick(&self, deadline: Timestamp) -> u64 {
        self.shared.ticks.round_up_timestamp(deadline)
    }
}

impl<K, S: Payload> Drop for Set<K, S> {
    /// Its stream has taken every timer out: no code of a user runs here.
    fn drop(&mut self) {
        debug_assert!(self.len() == 0, "its stream has closed it");
        let set_key = self.lock().set_key;
        if let Some(key) = set_key {
            // An error means that the actor has ended.
            let forget = Request::Forget(key).into();
            if let Ok(wake_by) = self.shared.enqueue_for(key, NEVER, forget) {
                self.shared.mailbox.wake(wake_by);
            }
            self.shared.sets.unregister(key);
        }
    }
}

impl<K, S> TimerSet for Set<K, S>
where
    K: Send + 'static,
    S: Payload<Value: Send> + Send + 'static,
{
    fn close(&self) {
        self.lock().is_open = false;
        if !S::KEYED {
            // Touches of what is watched return false from now on.
            self.end_all();
        }
        self.reached.wake();
    }
}

impl<K, S: Payload> State<K, S> {
    /// How many timers there are.
    fn len(&self) -> usize {
        self.table.in_use() - self.kept.len()
    }

    /// The number of the next arming, or the next note (N1, N6).
    #[inline]
    fn next_number(&mut self) -> NonZeroU64 {
        self.number = self.number.saturating_add(1);
        self.number
    }

    /// A kept slot for a timer with this deadline: the one that was kept last of those that
    /// are scheduled early enough.
    #[inline]
    fn take_kept(&mut self, due: Timestamp) -> Option<Kept> {
        let is_in_time = |kept: &Kept| kept.scheduled <= due;
        let position = self.kept.iter().rposition(is_in_time)?;
        Some(self.kept.remove(position))
    }

    /// Takes a timer out. Its slot has to be vacated, or kept.
    fn remove(&mut self, index: u32) -> Option<Timer<K, S>> {
        self.repeats.remove(&index);
        self.table.take(index, S::KEYED)
    }

    /// Whether the stream has ended once it has taken what was delivered.
    fn is_finished(&self) -> bool {
        !self.is_open || (!self.has_handles && self.len() == 0)
    }
}

impl<K, S: Payload> fmt::Debug for Set<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        let pending = state.len();
        let is_open = state.is_open;
        drop(state);
        f.debug_struct("Set")
            .field("wheel", &self.shared.name)
            .field("pending", &pending)
            .field("is_open", &is_open)
            .finish_non_exhaustive()
    }
}
