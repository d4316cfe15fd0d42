//! What the handles of a set do: they write the timer, and tell the actor if it would look too late.

use std::hash::Hash;

use tokio::time::Instant;

use super::Expired;
use super::book::{Timer, hash_of};
use super::error::{Closed, SetTimerError};
use super::set::{Phase, Repeat, Set};
use super::stored::{Plain, Stored};
use crate::panic::{drop_caught, wake};
use crate::tick::{NEVER, Timestamp};

impl<K, V> Set<K, Plain<V>>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    pub(super) fn set(
        &self,
        key: K,
        value: V,
        deadline: Timestamp,
        repeat: Option<Repeat<K, Plain<V>>>,
    ) -> Result<(), SetTimerError<K, V>> {
        let Some(hash) = hash_of(&self.hasher, &key) else {
            drop_caught([key]);
            drop_caught([value]);
            return Ok(());
        };
        let mut state = self.lock();
        if state.phase != Phase::Open {
            drop(state);
            return Err(SetTimerError::Closed(key, value));
        }
        let order = state.next_order();
        let (slot, old) = if let Some(slot) = state.book.find(hash, &key) {
            let old = state.book.replace_value(slot, Plain(value));
            state.write_deadline(slot, deadline, order);
            state.counts.replaced += 1;
            (slot, Some((key, old)))
        } else {
            if !self.shared.reserve() {
                drop(state);
                return Err(SetTimerError::Full(key, value));
            }
            let timer = Timer {
                deadline,
                scheduled: NEVER,
                order,
            };
            let slot = state.book.insert(hash, key, Plain(value), timer);
            (slot, None)
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
            drop_caught([key]);
            drop_caught(value);
        }
        Ok(())
    }

    pub(super) fn move_to(&self, key: &K, deadline: Timestamp) -> Result<(), Closed> {
        let hash = hash_of(&self.hasher, key);
        let mut state = self.open()?;
        let Some(slot) = hash.and_then(|hash| state.book.find(hash, key)) else {
            return Ok(());
        };
        let order = state.next_order();
        state.write_deadline(slot, deadline, order);
        state.counts.moved += 1;
        let tell = state.needed(slot, self.shared.ticks.deadline_of(deadline));
        drop(state);
        self.tell(tell);
        Ok(())
    }

    pub(super) fn remove(&self, key: &K) -> Result<Option<(K, V)>, Closed> {
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
        Ok(taken.map(|(key, Plain(value), _)| (key, value)))
    }

    pub(super) fn deadline(&self, key: &K) -> Result<Option<Instant>, Closed> {
        let hash = hash_of(&self.hasher, key);
        let mut state = self.open()?;
        let slot = hash.and_then(|hash| state.book.find(hash, key));
        let timer = slot.and_then(|slot| state.book.timer(slot).copied());
        drop(state);
        Ok(timer.map(|timer| self.shared.ticks.instant(timer.deadline)))
    }

    pub(super) fn drain(&self) -> Result<Vec<Expired<K, V>>, Closed> {
        let armed_by = self.open()?.order;
        Ok(self.take_all(armed_by))
    }
}

impl<K, S> Set<K, S>
where
    K: Hash + Eq + Send + 'static,
    S: Stored,
{
    /// Adds a timer that is known by its slot alone; `make` makes what is stored, and what is returned, once there is
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
        if !self.shared.reserve() {
            drop(state);
            return Err(SetTimerError::Full(key, value));
        }
        let (stored, result) = make(value, state.book.next_slot());
        let due = stored.due(deadline, now, &self.rules);
        let timer = Timer {
            deadline,
            scheduled: NEVER,
            order: state.next_order(),
        };
        let slot = state.book.insert_unkeyed(key, stored, timer);
        state.counts.set += 1;
        let tell = state.needed(slot, self.shared.ticks.deadline_of(due));
        drop(state);
        self.tell(tell);
        Ok(result)
    }

    /// Removes the timer in a slot, if it is the one that is meant, and drops its key and value.
    pub(crate) fn forget(&self, slot: u32, is_meant: impl FnOnce(&S) -> bool) {
        let mut state = self.lock();
        if !(state.book.get(slot)).is_some_and(|(_, value)| is_meant(value)) {
            return;
        }
        let (taken, tell) = state.take_out(slot);
        let n = usize::from(taken.is_some());
        state.counts.removed += n as u64;
        self.shared.free(n);
        let receiver = if state.is_finished() {
            state.receiver.take()
        } else {
            None
        };
        drop(state);
        wake(receiver);
        self.tell(tell);
        if let Some((key, value, _)) = taken {
            drop_caught([key]);
            drop_caught([value]);
        }
    }

    /// The last handle was dropped.
    pub(crate) fn handles_gone(&self) {
        let mut state = self.lock();
        state.has_handles = false;
        let receiver = state.receiver.take();
        // The actor has it on its list, perhaps only until now.
        let tell = state.queue(NEVER);
        drop(state);
        wake(receiver);
        self.tell(tell);
    }
}
