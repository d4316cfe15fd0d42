//! The calls of the handles of a set.

use std::borrow::Borrow;
use std::hash::Hash;
use std::sync::Arc;

use tokio::time::Instant;

use super::ledger::Ended;
use super::table::{Timer, hash_of};
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
        let mut state = self.lock();
        if state.phase != Phase::Open {
            drop(state);
            return Err(SetTimerError::Closed(key, value));
        }
        let found = state.table.find(hash, |other| *other == key);
        let (index, unused) = if let Some(index) = found {
            let order = state.next_order();
            let replaced = state.table.timer_mut(index).map(|timer| {
                timer.deadline = deadline;
                timer.order = order;
                std::mem::replace(&mut timer.value, Plain(value)).0
            });
            state.ledger.replaced();
            (index, (replaced, Some(key)))
        } else {
            if !state.ledger.set() {
                drop(state);
                return Err(SetTimerError::Full(key, value));
            }
            let timer = Timer {
                deadline,
                order: state.next_order(),
                key,
                value: Plain(value),
            };
            (state.table.insert_keyed(hash, timer), (None, None))
        };
        if let Some(repeat) = repeat {
            state.repeats.insert(index, repeat);
        } else if !state.repeats.is_empty() {
            state.repeats.remove(&index);
        }
        let tick = self.tick(deadline);
        state.schedule_by(index, tick);
        state.assert_slot(index, |deadline| self.tick(deadline));
        drop(state);
        let (replaced, key) = unused;
        // The answer is the caller's, whatever the drop of the key does.
        drop_caught(key);
        Ok(replaced)
    }

    /// Moves a timer. False when there is none under this key.
    pub(crate) fn move_to<Q>(&self, key: &Q, deadline: Timestamp) -> Result<bool, Closed>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = hash_of(&self.hasher, key);
        let mut state = self.open()?;
        let Some(index) = state.table.find(hash, |other| other.borrow() == key) else {
            return Ok(false);
        };
        let order = state.next_order();
        if let Some(timer) = state.table.timer_mut(index) {
            timer.deadline = deadline;
            timer.order = order;
        }
        state.ledger.moved();
        let tick = self.tick(deadline);
        state.schedule_by(index, tick);
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
        let mut state = self.open()?;
        let Some(index) = state.table.find(hash, |other| other.borrow() == key) else {
            return Ok(None);
        };
        let taken = state.take_out(index);
        state.ledger.ended(Ended::Removed);
        state.assert_slot(index, |deadline| self.tick(deadline));
        drop(state);
        Ok(taken.map(|Timer { key, value, .. }| {
            drop_caught([key]);
            value.0
        }))
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
    /// Adds a timer that is known by its index alone. `make` makes what is stored, and what is returned, once there is
    /// room.
    pub(crate) fn add<R>(
        &self,
        key: K,
        value: S::Value,
        deadline: Timestamp,
        now: Timestamp,
        make: impl FnOnce(S::Value, u32) -> (S, R),
    ) -> Result<R, SetTimerError<K, S::Value>> {
        let mut state = self.lock();
        if state.phase != Phase::Open {
            drop(state);
            return Err(SetTimerError::Closed(key, value));
        }
        if !state.ledger.set() {
            drop(state);
            return Err(SetTimerError::Full(key, value));
        }
        let index = state.table.take_vacant();
        let (value, result) = make(value, index);
        let tick = self.tick(value.due(deadline, now, &self.rules));
        let order = state.next_order();
        state.table.fill(
            index,
            Timer {
                deadline,
                order,
                key,
                value,
            },
        );
        state.schedule_by(index, tick);
        Ok(result)
    }

    /// Removes the timer at an index, if it is the one that is meant, and drops its key and value.
    pub(crate) fn forget(&self, index: u32, is_meant: impl FnOnce(&S) -> bool) {
        let mut state = self.lock();
        if !(state.table.timer(index)).is_some_and(|timer| is_meant(&timer.value)) {
            return;
        }
        let taken = state.take_out(index);
        state.ledger.ended(Ended::Removed);
        let receiver = if state.is_finished() {
            state.receiver.take()
        } else {
            None
        };
        drop(state);
        wake(receiver);
        if let Some(Timer { key, value, .. }) = taken {
            drop_caught([key]);
            drop_caught([value]);
        }
    }
}

/// Exists while a handle of the set does that could set a timer.
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
        let mut state = self.lock();
        state.has_handles = false;
        let receiver = state.receiver.take();
        // The actor may know the set, perhaps only until now.
        state.need(NEVER);
        drop(state);
        wake(receiver);
    }
}
