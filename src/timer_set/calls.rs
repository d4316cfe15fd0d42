//! The calls of the handles of a set.

use std::borrow::Borrow;
use std::hash::Hash;
use std::mem;
use std::sync::Arc;

use tokio::time::Instant;

use super::ledger::Ended;
use super::table::{Slot, Timer, hash_of};
use super::{Closed, Payload, Phase, Plain, Repeat, Set, SetTimerError};
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
                slot.schedule_by(outbox, index, tick);
                Some(replaced.0)
            });
            state.ledger.replaced();
            (index, replaced, Some(key))
        } else {
            if !state.ledger.set() {
                drop(guard);
                return Err(SetTimerError::Full(key, value));
            }
            let timer = Timer {
                deadline,
                order,
                key,
                value: Plain(value),
            };
            let (index, slot) = state.table.insert_keyed(hash, timer);
            slot.schedule_by(outbox, index, tick);
            (index, None, None)
        };
        if let Some(repeat) = repeat {
            state.repeats.insert(index, repeat);
        } else if !state.repeats.is_empty() {
            state.repeats.remove(&index);
        }
        state.assert_slot(index, |deadline| self.tick(deadline));
        drop(guard);
        // A panic in the drop of the key does not keep the answer from the caller.
        drop_caught(unused_key);
        Ok(replaced)
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
            slot.schedule_by(outbox, index, tick);
        }
        state.ledger.moved();
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
        let vacated = |index, slot: &mut Slot<K, _>| slot.vacated(outbox, index);
        let found = (state.table).find_and_remove(hash, |other| other.borrow() == key, vacated);
        let Some((index, Timer { key, value, .. })) = found else {
            return Ok(None);
        };
        state.repeats.remove(&index);
        state.ledger.ended(Ended::Removed);
        state.assert_slot(index, |deadline| self.tick(deadline));
        drop(guard);
        drop_caught([key]);
        Ok(Some(value.0))
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
        if !state.ledger.set() {
            drop(guard);
            return Err(SetTimerError::Full(key, value));
        }
        let index = state.table.take_vacant();
        let (value, result) = make(value, index);
        let tick = self.tick(value.due(deadline, now, &self.rules));
        let timer = Timer {
            deadline,
            order: state.next_order(),
            key,
            value,
        };
        let slot = state.table.fill(index, 0, timer);
        slot.schedule_by(outbox, index, tick);
        Ok(result)
    }

    /// Removes the timer at an index if `is_meant` is true of its value, and drops its key and value.
    pub(crate) fn forget(&self, index: u32, is_meant: impl FnOnce(&S) -> bool) {
        let mut guard = self.lock();
        let (state, outbox) = guard.split();
        if !(state.table.timer(index)).is_some_and(|timer| is_meant(&timer.value)) {
            return;
        }
        let taken = state.take_out(outbox, index);
        state.ledger.ended(Ended::Removed);
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
