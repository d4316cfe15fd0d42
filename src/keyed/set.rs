//! A set of timers with one type of key and value: what lies beneath keyed timers and
//! [reapers](crate::Reaper). The [module](super) has the protocol.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU64;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::error::ClosedError;
use super::hint::Hints;
use super::in_hand::InHand;
use super::payload::{Payload, Silence};
use super::set_key::SetKey;
use super::table::{Table, Timer};
use crate::metrics::{Event, OwnCounters};
use crate::shared::command::Request;
use crate::shared::mailbox::WakeBy;
use crate::shared::stalls::Gap;
use crate::shared::{Alive, Shared};
use crate::sync::{IN_EXPLORER, Mutex, MutexGuard, lock_with_backoff, try_lock};
use crate::tick::{NEVER, Timestamp};

/// The most timers that one hold of the lock touches.
pub(super) const BATCH: u32 = if IN_EXPLORER { 2 } else { 256 };

/// See the module.
pub(crate) struct Set<K, S: Payload> {
    pub(super) shared: Arc<Shared>,
    /// The shortest idle duration of a watch, in nanoseconds; zero for keyed timers.
    pub(crate) shortest_idle: AtomicU64,
    state: Mutex<State<K, S>>,
    pub(crate) hints: Arc<Hints>,
}

/// What the lock of a set guards.
pub(super) struct State<K, S: Payload> {
    pub(super) counters: OwnCounters,
    /// By which the actor knows the set; `None` when it does not.
    pub(super) key: Option<SetKey>,
    pub(super) table: Table<K, S>,
    /// The repeating timers, by index.
    pub(super) repeats: BTreeMap<u32, Repeat<K, S>>,
    /// While a dispatch runs.
    pub(super) in_hand: Option<InHand<K>>,
    /// The kept slots, the one that was kept last at the end.
    pub(super) kept: Vec<u32>,
    /// The last number that was drawn.
    number: NonZeroU64,
    /// Whether the stream is there.
    pub(super) has_stream: bool,
    /// Whether a handle is left that could set a timer.
    pub(super) has_handles: bool,
}

/// The copies of a key and its value.
pub(crate) type Copied<K, V> = (Option<K>, Option<V>);

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
pub(super) struct Guard<'a, K, S: Payload> {
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
    pub(super) fn set(&self) -> &'a Set<K, S> {
        self.after.set
    }

    /// The actor has to run so, once the set is unlocked.
    pub(super) fn wake(&mut self, by: WakeBy) {
        self.after.wake_by = self.after.wake_by.min(by);
    }
}

impl<K, S: Payload> Drop for AfterUnlock<'_, K, S> {
    #[inline]
    fn drop(&mut self) {
        if self.wake_by != WakeBy::NEVER {
            self.set.shared.mailbox.wake(self.wake_by);
        }
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

impl<K, S: Payload> Set<K, S> {
    pub(crate) fn new(shared: &Arc<Shared>, idle: u64) -> Arc<Self> {
        let set = Set {
            shared: Arc::clone(shared),
            shortest_idle: AtomicU64::new(idle),
            state: Mutex::new(State {
                counters: shared.metrics.0.register(),
                key: None,
                table: Table::new(),
                repeats: BTreeMap::new(),
                in_hand: None,
                kept: Vec::new(),
                number: NonZeroU64::MIN,
                has_stream: true,
                has_handles: true,
            }),
            hints: Arc::new(Hints::new()),
        };
        let is_known = set.lock().register();
        if !is_known {
            set.hints.end();
        }
        Arc::new(set)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether the actor has ended.
    #[inline]
    pub(crate) fn is_ended(&self) -> bool {
        self.hints.is_ended()
    }

    pub(crate) fn is_closed(&self) -> bool {
        !self.lock().is_open()
    }

    #[inline]
    pub(super) fn lock(&self) -> Guard<'_, K, S> {
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
    pub(super) fn open(&self) -> Result<Guard<'_, K, S>, ClosedError> {
        let guard = self.lock();
        if guard.is_open() {
            Ok(guard)
        } else {
            Err(guard.closed())
        }
    }

    /// What counts as silence for a reader with this gap.
    pub(super) fn silence(&self, gap: Gap) -> Silence<'_> {
        Silence {
            shared: &self.shared,
            gap,
        }
    }

    /// The tick of the deadline.
    pub(super) fn tick(&self, deadline: Timestamp) -> u64 {
        self.shared.ticks.round_up_timestamp(deadline)
    }
}

impl<K, S: Payload> Guard<'_, K, S> {
    /// Whether timers can be set: neither is the stream dropped, nor has the actor ended.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.has_stream && !self.set().hints.is_ended()
    }

    /// Why it is not [open](Self::is_open).
    #[cold]
    pub(super) fn closed(&self) -> ClosedError {
        if !self.has_stream {
            ClosedError::StreamDropped
        } else if self.set().shared.end.was_shut_down() {
            ClosedError::Shutdown
        } else {
            ClosedError::RuntimeEnded
        }
    }

    /// Whether the stream ends once nothing more is due.
    pub(super) fn is_finished(&self) -> bool {
        let in_hand = self.in_hand.as_ref().map_or(0, InHand::len);
        !self.is_open() || (!self.has_handles && self.len() + in_hand == 0)
    }

    /// Tells the actor of the set, under a key that no other set has. Returns `false` if the actor
    /// has ended: then nobody else may have said so to the reader.
    #[must_use]
    pub(super) fn register(&mut self) -> bool {
        let set = self.set();
        let key = set.shared.set_keys.draw();
        let register = Request::Register(key, Arc::clone(&set.hints));
        let Ok(wake_by) = set.shared.enqueue_for(key, NEVER, register.into()) else {
            return false;
        };
        self.key = Some(key);
        self.wake(wake_by);
        true
    }

    /// Takes everything out at once. The actor forgets the set.
    pub(super) fn take_all(&mut self) -> Taken<K, S> {
        self.count_ended(Event::KeyedDrained, self.len());
        self.kept.clear();
        if let Some(in_hand) = &mut self.in_hand {
            in_hand.supersede_all();
        }
        let taken = Taken {
            table: std::mem::replace(&mut self.table, Table::new()),
            _repeats: std::mem::take(&mut self.repeats),
        };
        if let Some(key) = self.key.take() {
            // An error means that the actor has ended.
            let forget = Request::Forget(key).into();
            if let Ok(wake_by) = self.set().shared.enqueue_for(key, NEVER, forget) {
                // It may have nothing else left to do, and end.
                self.wake(wake_by.min(WakeBy::Now));
            }
        }
        taken
    }

    /// Counts the end of timers, which left the set.
    pub(super) fn count_ended(&self, event: Event, n: usize) {
        self.counters.add(event, n as u64);
        self.set().shared.unreserve(n);
    }
}

/// All timers of a set, and what else takes time to free.
pub(super) struct Taken<K, S: Payload> {
    pub(super) table: Table<K, S>,
    _repeats: BTreeMap<u32, Repeat<K, S>>,
}

impl<K, S: Payload> State<K, S> {
    /// How many timers there are.
    pub(super) fn len(&self) -> usize {
        self.table.in_use() - self.kept.len()
    }

    /// The number of the next arming.
    #[inline]
    pub(super) fn next_number(&mut self) -> NonZeroU64 {
        self.number = self.number.saturating_add(1);
        self.number
    }

    /// Takes a timer out. Its slot has to be vacated, or kept.
    pub(super) fn remove(&mut self, index: u32) -> Option<Timer<K, S>> {
        self.repeats.remove(&index);
        self.table.take(index, S::KEYED)
    }
}

/// Exists while there is a handle that could set a timer.
pub(crate) struct Handles<K, S: Payload, H = ()> {
    pub(crate) set: Arc<Set<K, S>>,
    /// Hashes the keys of keyed timers.
    pub(super) hasher: H,
    /// Keeps the actor running.
    _wheel: Arc<Alive>,
}

impl<K, S: Payload, H> Handles<K, S, H> {
    pub(crate) fn new(set: &Arc<Set<K, S>>, hasher: H, wheel: &Arc<Alive>) -> Self {
        Handles {
            set: Arc::clone(set),
            hasher,
            _wheel: Arc::clone(wheel),
        }
    }
}

impl<K, S: Payload, H> Drop for Handles<K, S, H> {
    /// The last handle was dropped.
    fn drop(&mut self) {
        let mut guard = self.set.lock();
        guard.has_handles = false;
        // No timer is set any more.
        guard.vacate_kept();
        drop(guard);
        self.set.hints.wake();
    }
}

impl<K, S: Payload> Set<K, S> {
    /// Shows the set as its handle `name`. A closure that runs while the set is locked may show it
    /// too.
    pub(crate) fn fmt_as(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct(name);
        if let Some(state) = try_lock(&self.state) {
            let is_closed = !state.has_stream || self.hints.is_ended();
            shown
                .field("len", &state.len())
                .field("is_closed", &is_closed);
        } else {
            shown.field("state", &format_args!("<locked>"));
        }
        shown.finish_non_exhaustive()
    }
}

impl<K, S: Payload> fmt::Debug for Set<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_as("Set", f)
    }
}
