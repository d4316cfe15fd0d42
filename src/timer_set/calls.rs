//! The handles' half of a set: the calls that set, move, read and remove timers.

use std::borrow::Borrow;
use std::hash::Hash;
use std::mem;
use std::sync::Arc;

use tokio::time::Instant;

use super::table::{Timer, hash_of};
use super::{BATCH, Closed, Payload, Phase, Plain, Repeat, Set, SetTimerError, State};
use crate::clock;
use crate::metrics::Event;
use crate::panic::{drop_caught, wake};
use crate::tick::Timestamp;

impl<K: Hash + Eq, V> Set<K, Plain<V>> {
    /// Sets a timer. Returns the value that it replaces.
    pub(crate) fn set(
        &self,
        key: K,
        value: V,
        deadline: Timestamp,
        repeat: Option<Repeat<K, Plain<V>>>,
    ) -> Result<Option<V>, SetTimerError<K, V>> {
        let hash = hash_of(&self.hasher, &key);
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.phase != Phase::Open {
            drop(guard);
            return Err(SetTimerError::Closed(key, value));
        }
        let found = state.table.find(hash, |other| *other == key);
        let order = state.next_order();
        let (index, replaced, unused_key) = if let Some(index) = found {
            self.rearm(state, index, deadline, order);
            let timer = state
                .table
                .get_mut(index)
                .and_then(|slot| slot.timer.as_mut());
            let replaced = timer.map(|timer| mem::replace(&mut timer.value, Plain(value)).0);
            state.counters.add(Event::KeyedReplaced, 1);
            (index, replaced, Some(key))
        } else {
            if !self.count_new(state) {
                drop(guard);
                return Err(SetTimerError::Full(key, value));
            }
            let timer = Timer {
                deadline,
                order,
                key,
                value: Plain(value),
            };
            (self.insert_named(state, hash, timer), None, None)
        };
        if let Some(repeat) = repeat {
            state.repeats.insert(index, (order, repeat));
        } else if !state.repeats.is_empty() {
            state.repeats.remove(&index);
        }
        drop(guard);
        // The caller gets its result even if the drop of the key panics.
        drop_caught(unused_key);
        Ok(replaced)
    }

    /// Sets a timer under a key that has none. Returns key and value if it has one.
    pub(crate) fn set_if_absent(
        &self,
        key: K,
        value: V,
        deadline: Timestamp,
    ) -> Result<Option<(K, V)>, SetTimerError<K, V>> {
        let hash = hash_of(&self.hasher, &key);
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.phase != Phase::Open {
            return Err(SetTimerError::Closed(key, value));
        }
        if state.table.find(hash, |other| *other == key).is_some() {
            return Ok(Some((key, value)));
        }
        if !self.count_new(state) {
            return Err(SetTimerError::Full(key, value));
        }
        let timer = Timer {
            deadline,
            order: state.next_order(),
            key,
            value: Plain(value),
        };
        self.insert_named(state, hash, timer);
        Ok(None)
    }

    /// Adds a timer under its key, which has none.
    #[inline]
    fn insert_named(
        &self,
        state: &mut State<K, Plain<V>>,
        hash: u32,
        timer: Timer<K, Plain<V>>,
    ) -> u32 {
        let due = timer.deadline;
        let kept = state.take_kept(due);
        let index = self.insert(state, kept, hash, timer, due);
        state.table.name(hash, index);
        index
    }

    /// Moves a timer. Returns `false` if there is none under this key.
    pub(crate) fn move_to<Q>(&self, key: &Q, deadline: Timestamp) -> Result<bool, Closed>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = hash_of(&self.hasher, key);
        let mut guard = self.open()?;
        let state = &mut *guard;
        let Some(index) = state.table.find(hash, |other| other.borrow() == key) else {
            return Ok(false);
        };
        let order = state.next_order();
        self.rearm(state, index, deadline, order);
        state.counters.add(Event::KeyedMoved, 1);
        Ok(true)
    }

    /// Removes a timer.
    pub(crate) fn remove<Q>(&self, key: &Q) -> Result<Option<V>, Closed>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = hash_of(&self.hasher, key);
        let mut guard = self.open()?;
        let state = &mut *guard;
        let Some(index) = state.table.find(hash, |other| other.borrow() == key) else {
            return Ok(None);
        };
        let Some(Timer { key, value, .. }) = self.take_out(state, index) else {
            return Ok(None);
        };
        self.count_ended(state, Event::KeyedRemoved, 1);
        drop(guard);
        drop_caught([key]);
        Ok(Some(value.0))
    }

    /// Reads the value of a timer.
    pub(crate) fn get_with<Q, R>(&self, key: &Q, read: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = hash_of(&self.hasher, key);
        let state = self.lock();
        let index = state.table.find(hash, |other| other.borrow() == key)?;
        Some(read(&state.table.timer(index)?.value.0))
    }

    /// The deadline of a timer.
    pub(crate) fn deadline<Q>(&self, key: &Q) -> Option<Instant>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = hash_of(&self.hasher, key);
        let state = self.lock();
        let index = state.table.find(hash, |other| other.borrow() == key)?;
        let deadline = state.table.timer(index)?.deadline;
        Some(self.shared.ticks.instant(deadline))
    }
}

impl<K, V> Set<K, Plain<V>> {
    /// Removes the timers for which `keep` is false. Timers that are pending throughout are visited
    /// once each.
    pub(crate) fn retain(
        &self,
        mut keep: impl FnMut(&K, &mut V, Instant) -> bool,
    ) -> Result<(), Closed> {
        // Timers that are set meanwhile extend the table, and must not keep this call going.
        let end = self.open()?.table.end();
        // Declared before the guard, so that the timers are dropped after it, also when `keep`
        // panics.
        let mut removed = Vec::with_capacity(BATCH as usize);
        let mut next = 0;
        while next < end {
            let until = end.min(next.saturating_add(BATCH));
            let mut guard = self.open()?;
            let state = &mut *guard;
            for index in next..until {
                let slot = state.table.get_mut(index);
                let Some(timer) = slot.and_then(|slot| slot.timer.as_mut()) else {
                    continue;
                };
                let deadline = self.shared.ticks.instant(timer.deadline);
                if keep(&timer.key, &mut timer.value.0, deadline) {
                    continue;
                }
                removed.extend(self.take_out(state, index));
                self.count_ended(state, Event::KeyedRemoved, 1);
            }
            drop(guard);
            for Timer { key, value, .. } in removed.drain(..) {
                drop_caught([key]);
                drop_caught([value]);
            }
            next = until;
        }
        Ok(())
    }
}

impl<K, S: Payload> Set<K, S> {
    /// Adds a timer without a key of its own. Once there is room, `make` makes the stored value and
    /// the result.
    pub(crate) fn add<R>(
        &self,
        key: K,
        value: S::Value,
        deadline: Timestamp,
        now: Timestamp,
        make: impl FnOnce(S::Value, u32) -> (S, R),
    ) -> Result<R, SetTimerError<K, S::Value>> {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.phase != Phase::Open {
            drop(guard);
            return Err(SetTimerError::Closed(key, value));
        }
        if !self.count_new(state) {
            drop(guard);
            return Err(SetTimerError::Full(key, value));
        }
        let (value, result) = make(value, state.table.next_index());
        let due = value.due(deadline, now, &self.rules);
        let timer = Timer {
            deadline,
            order: state.next_order(),
            key,
            value,
        };
        self.insert(state, None, 0, timer, due);
        Ok(result)
    }

    /// Reads the value of the timer at an index.
    pub(crate) fn read_value<R>(
        &self,
        index: u32,
        read: impl FnOnce(&S) -> Option<R>,
    ) -> Option<R> {
        read(&self.lock().table.timer(index)?.value)
    }

    /// Makes the timer at an index due now, if `decide` says so of its value. Returns whether it
    /// does.
    pub(crate) fn expire_now(&self, index: u32, decide: impl FnOnce(&mut S) -> bool) -> bool {
        let now = self.shared.ticks.timestamp(clock::now());
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.phase != Phase::Open {
            return false;
        }
        let order = state.next_order();
        let Some(slot) = state.table.get_mut(index) else {
            return false;
        };
        if !(slot.timer.as_mut()).is_some_and(|timer| decide(&mut timer.value)) {
            return false;
        }
        self.rearm(state, index, now, order);
        true
    }

    /// Removes the timer at an index if `is_meant` is true of its value, and drops its key and
    /// value.
    pub(crate) fn forget(&self, index: u32, is_meant: impl FnOnce(&S) -> bool) {
        let mut guard = self.lock();
        let state = &mut *guard;
        if !(state.table.timer(index)).is_some_and(|timer| is_meant(&timer.value)) {
            return;
        }
        let taken = self.take_out(state, index);
        self.count_ended(state, Event::KeyedRemoved, 1);
        let receiver = if state.is_finished() {
            state.receiver.take()
        } else {
            None
        };
        drop(guard);
        wake(receiver);
        if let Some(Timer { key, value, .. }) = taken {
            drop_caught([key]);
            drop_caught([value]);
        }
    }
}

/// Exists while there is a handle that could set a timer.
pub(crate) struct Handles(Arc<dyn HasHandles>);

trait HasHandles: Send + Sync {
    /// The last handle was dropped.
    fn handles_gone(&self);
}

impl Handles {
    pub(crate) fn of<K, S>(set: &Arc<Set<K, S>>) -> Self
    where
        K: Send + 'static,
        S: Payload<Value: Send, Rules: Send + Sync> + Send + 'static,
    {
        Handles(Arc::clone(set) as Arc<dyn HasHandles>)
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        self.0.handles_gone();
    }
}

impl<K, S> HasHandles for Set<K, S>
where
    K: Send,
    S: Payload<Value: Send, Rules: Send + Sync> + Send,
{
    fn handles_gone(&self) {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.has_handles = false;
        let receiver = state.receiver.take();
        // No timer is set any more.
        self.release_all(state);
        drop(guard);
        wake(receiver);
    }
}
