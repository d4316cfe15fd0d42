//! The handles' half of a set: the calls that set, move, read and remove timers.

use std::borrow::Borrow;
use std::hash::Hash;
use std::mem;
use std::sync::Arc;

use tokio::time::Instant;

use super::table::{Slot, Timer, hash_of};
use super::{BATCH, Closed, Payload, Phase, Plain, Repeat, Set, SetTimerError};
use crate::clock;
use crate::metrics::Event;
use crate::panic::{drop_caught, wake};
use crate::tick::{NEVER, Timestamp};

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
        let tick = self.tick(deadline);
        let mut guard = self.lock();
        let (state, outbox) = guard.split();
        if state.phase != Phase::Open {
            drop(guard);
            return Err(SetTimerError::Closed(key, value));
        }
        let found = state.table.find(hash, |other| *other == key);
        let order = state.next_order();
        let (index, replaced, unused_key) = if let Some(index) = found {
            let slot = state.table.slot_mut(index);
            let replaced = slot.and_then(|slot| {
                let timer = slot.timer.as_mut()?;
                timer.deadline = deadline;
                timer.order = order;
                let replaced = mem::replace(&mut timer.value, Plain(value));
                outbox.require(index, &mut slot.bound, tick);
                Some(replaced.0)
            });
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
            let index = (state.table).insert_keyed(hash, timer, |index, slot| {
                outbox.require(index, &mut slot.bound, tick);
            });
            (index, None, None)
        };
        if let Some(repeat) = repeat {
            state.repeats.insert(index, repeat);
        } else if !state.repeats.is_empty() {
            state.repeats.remove(&index);
        }
        state.assert_slot(index, |deadline| self.tick(deadline));
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
        let tick = self.tick(deadline);
        let mut guard = self.lock();
        let (state, outbox) = guard.split();
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
        let index = (state.table).insert_keyed(hash, timer, |index, slot| {
            outbox.require(index, &mut slot.bound, tick);
        });
        state.assert_slot(index, |deadline| self.tick(deadline));
        Ok(None)
    }

    /// Moves a timer. Returns `false` if there is none under this key.
    pub(crate) fn move_to<Q>(&self, key: &Q, deadline: Timestamp) -> Result<bool, Closed>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = hash_of(&self.hasher, key);
        let tick = self.tick(deadline);
        let mut guard = self.open()?;
        let (state, outbox) = guard.split();
        let Some(index) = state.table.find(hash, |other| other.borrow() == key) else {
            return Ok(false);
        };
        let order = state.next_order();
        if let Some(slot) = state.table.slot_mut(index) {
            if let Some(timer) = &mut slot.timer {
                timer.deadline = deadline;
                timer.order = order;
            }
            outbox.require(index, &mut slot.bound, tick);
        }
        state.counters.add(Event::KeyedMoved, 1);
        state.assert_slot(index, |deadline| self.tick(deadline));
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
        let (state, outbox) = guard.split();
        let vacated = |index, slot: &mut Slot<K, _>| outbox.release(index, &mut slot.bound);
        let found = (state.table).find_and_remove(hash, |other| other.borrow() == key, vacated);
        let Some((index, Timer { key, value, .. })) = found else {
            return Ok(None);
        };
        state.repeats.remove(&index);
        self.count_ended(state, Event::KeyedRemoved, 1);
        state.assert_slot(index, |deadline| self.tick(deadline));
        drop(guard);
        drop_caught([key]);
        Ok(Some(value.0))
    }

    /// A clone of the value of a timer.
    pub(crate) fn get<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
        V: Clone,
    {
        let hash = hash_of(&self.hasher, key);
        self.state.read(|state| {
            let index = state.table.find(hash, |other| other.borrow() == key)?;
            Some(state.table.timer(index)?.value.0.clone())
        })
    }

    /// The deadline of a timer.
    pub(crate) fn deadline<Q>(&self, key: &Q) -> Option<Instant>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = hash_of(&self.hasher, key);
        let deadline = self.state.read(|state| {
            let index = state.table.find(hash, |other| other.borrow() == key)?;
            Some(state.table.timer(index)?.deadline)
        })?;
        Some(self.shared.ticks.instant(deadline))
    }
}

impl<K, V> Set<K, Plain<V>> {
    /// Removes the timers for which `keep` is false. Timers that are pending throughout are visited once each.
    pub(crate) fn retain(
        &self,
        mut keep: impl FnMut(&K, &mut V, Instant) -> bool,
    ) -> Result<(), Closed> {
        // Timers that are set meanwhile extend the table, and must not keep this call going.
        let end = self.open()?.table.end();
        // Declared before the guard, so that the timers are dropped after it, also when `keep` panics.
        let mut removed = Vec::with_capacity(BATCH as usize);
        let mut next = 0;
        while next < end {
            let until = end.min(next.saturating_add(BATCH));
            let mut guard = self.open()?;
            let (state, outbox) = guard.split();
            for index in next..until {
                let slot = state.table.slot_mut(index);
                let Some(timer) = slot.and_then(|slot| slot.timer.as_mut()) else {
                    continue;
                };
                let deadline = self.shared.ticks.instant(timer.deadline);
                if keep(&timer.key, &mut timer.value.0, deadline) {
                    continue;
                }
                removed.extend(state.take_out(outbox, index));
                self.count_ended(state, Event::KeyedRemoved, 1);
                state.assert_slot(index, |deadline| self.tick(deadline));
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
    /// Adds a timer without a key of its own. Once there is room, `make` makes the stored value and the result.
    pub(crate) fn add<R>(
        &self,
        key: K,
        value: S::Value,
        deadline: Timestamp,
        now: Timestamp,
        make: impl FnOnce(S::Value, u32) -> (S, R),
    ) -> Result<R, SetTimerError<K, S::Value>> {
        let mut guard = self.lock();
        let (state, outbox) = guard.split();
        if state.phase != Phase::Open {
            drop(guard);
            return Err(SetTimerError::Closed(key, value));
        }
        if !self.count_new(state) {
            drop(guard);
            return Err(SetTimerError::Full(key, value));
        }
        let (value, result) = make(value, state.table.next_index());
        let tick = self.tick(value.due(deadline, now, &self.rules));
        let timer = Timer {
            deadline,
            order: state.next_order(),
            key,
            value,
        };
        (state.table).insert(0, timer, |index, slot| {
            outbox.require(index, &mut slot.bound, tick);
        });
        Ok(result)
    }

    /// Reads the value of the timer at an index.
    pub(crate) fn read_value<R>(
        &self,
        index: u32,
        read: impl FnOnce(&S) -> Option<R>,
    ) -> Option<R> {
        self.state
            .read(|state| read(&state.table.timer(index)?.value))
    }

    /// Makes the timer at an index due now, if `decide` says so of its value. Returns whether it does.
    pub(crate) fn expire_now(&self, index: u32, decide: impl FnOnce(&mut S) -> bool) -> bool {
        let now = self.shared.ticks.timestamp(clock::now());
        let tick = self.tick(now);
        let mut guard = self.lock();
        let (state, outbox) = guard.split();
        if state.phase != Phase::Open {
            return false;
        }
        let order = state.next_order();
        let Some(slot) = state.table.slot_mut(index) else {
            return false;
        };
        let Some(timer) = &mut slot.timer else {
            return false;
        };
        if !decide(&mut timer.value) {
            return false;
        }
        timer.deadline = now;
        timer.order = order;
        outbox.require(index, &mut slot.bound, tick);
        state.assert_slot(index, |deadline| self.tick(deadline));
        true
    }

    /// Removes the timer at an index if `is_meant` is true of its value, and drops its key and value.
    pub(crate) fn forget(&self, index: u32, is_meant: impl FnOnce(&S) -> bool) {
        let mut guard = self.lock();
        let (state, outbox) = guard.split();
        if !(state.table.timer(index)).is_some_and(|timer| is_meant(&timer.value)) {
            return;
        }
        let taken = state.take_out(outbox, index);
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
        let (state, outbox) = guard.split();
        state.has_handles = false;
        let receiver = state.receiver.take();
        // The actor drops the set if it knows it and no timer is left.
        outbox.need(NEVER);
        drop(guard);
        wake(receiver);
    }
}
