//! The handles' half of a set: the calls that set, move, read and remove timers.

use std::borrow::Borrow;
use std::hash::Hash;
use std::mem;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use tokio::time::Instant;

use super::error::{ClosedError, SetTimerError};
use super::payload::{Payload, Plain};
use super::set::{BATCH, Guard, Repeat, Set};
use super::table::{Timer, hash_of};
use crate::clock;
use crate::metrics::Event;
use crate::panic::{drop_caught, drop_pair};
use crate::shared::stalls::Gap;
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
        self.shared.check_clock();
        let hash = hash_of(&self.hasher, &key);
        let mut guard = self.lock();
        if !guard.is_open() {
            return Err(SetTimerError::Closed(key, value, guard.closed()));
        }
        let found = guard.table.find(hash, |other| *other == key);
        let Some(index) = found else {
            let index = guard.add(hash, key, Plain(value), deadline, deadline)?;
            guard.set_repeat(index, repeat);
            return Ok(None);
        };
        guard.rearm(index, deadline);
        guard.set_repeat(index, repeat);
        let timer = guard.table.timer_mut(index);
        let replaced = timer.map(|timer| mem::replace(&mut timer.value, Plain(value)).0);
        guard.counters.add(Event::KeyedReplaced, 1);
        drop(guard);
        // The caller gets its result even if the drop of the key panics.
        drop_caught([key]);
        Ok(replaced)
    }

    /// Sets a timer under a key that has none. Returns key and value if it has one.
    pub(crate) fn set_if_absent(
        &self,
        key: K,
        value: V,
        deadline: Timestamp,
    ) -> Result<Option<(K, V)>, SetTimerError<K, V>> {
        self.shared.check_clock();
        let hash = hash_of(&self.hasher, &key);
        let mut guard = self.lock();
        if !guard.is_open() {
            return Err(SetTimerError::Closed(key, value, guard.closed()));
        }
        if guard.table.find(hash, |other| *other == key).is_some() {
            return Ok(Some((key, value)));
        }
        guard.add(hash, key, Plain(value), deadline, deadline)?;
        Ok(None)
    }

    /// Moves a timer. Returns `false` if there is none under this key.
    pub(crate) fn move_to<Q>(&self, key: &Q, deadline: Timestamp) -> Result<bool, ClosedError>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.shared.check_clock();
        let hash = hash_of(&self.hasher, key);
        let mut guard = self.open()?;
        let Some(index) = guard.table.find(hash, |other| other.borrow() == key) else {
            return Ok(false);
        };
        guard.rearm(index, deadline);
        guard.counters.add(Event::KeyedMoved, 1);
        Ok(true)
    }

    /// Removes a timer.
    pub(crate) fn remove<Q>(&self, key: &Q) -> Result<Option<V>, ClosedError>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = hash_of(&self.hasher, key);
        let mut guard = self.open()?;
        let Some(index) = guard.table.find(hash, |other| other.borrow() == key) else {
            return Ok(None);
        };
        let Some(Timer { key, value, .. }) = guard.take_out(index, Event::KeyedRemoved) else {
            return Ok(None);
        };
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
        self.read(key, |timer| read(&timer.value.0))
    }

    /// The deadline of a timer.
    pub(crate) fn deadline<Q>(&self, key: &Q) -> Option<Instant>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let deadline = self.read(key, |timer| timer.deadline)?;
        Some(self.shared.ticks.instant(deadline))
    }

    fn read<Q, R>(&self, key: &Q, read: impl FnOnce(&Timer<K, Plain<V>>) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = hash_of(&self.hasher, key);
        let state = self.lock();
        let index = state.table.find(hash, |other| other.borrow() == key)?;
        Some(read(state.table.timer(index)?))
    }
}

impl<K, S: Payload> Guard<'_, K, S> {
    /// The timer at an index repeats or does not.
    fn set_repeat(&mut self, index: u32, repeat: Option<Repeat<K, S>>) {
        match repeat {
            Some(repeat) => self.repeats.insert(index, repeat),
            None => self.repeats.remove(&index),
        };
    }

    /// Adds a timer, in a kept slot or another one. If timers are found by their keys, its key has
    /// none. Returns its index.
    #[inline]
    fn add(
        &mut self,
        hash: u32,
        key: K,
        value: S,
        deadline: Timestamp,
        now: Timestamp,
    ) -> Result<u32, SetTimerError<K, S::Value>> {
        if !self.set().shared.reserve() {
            return Err(SetTimerError::Full(key, value.into_value()));
        }
        self.counters.add(Event::KeyedAdded, 1);
        let due = value.due(deadline, now, &self.set().silence(Gap::default()));
        let number = self.next_number();
        let timer = Timer {
            deadline,
            number,
            key,
            value,
        };
        let kept = if S::KEYED { self.take_kept(due) } else { None };
        let index = if let Some(kept) = kept {
            self.table.fill(kept, hash, timer);
            kept
        } else {
            let index = self.table.insert(hash, timer, due);
            if due != Timestamp::NEVER {
                self.note(index, self.set().tick(due));
            }
            index
        };
        if S::KEYED {
            self.table.add_key(hash, index);
        }
        Ok(index)
    }
}

impl<K, V> Set<K, Plain<V>> {
    /// All indices of now, in parts that one hold of the lock visits. Timers that are set meanwhile
    /// extend the table, and must not keep a visit going.
    pub(super) fn batches(&self) -> impl Iterator<Item = Range<u32>> + use<K, V> {
        let end = self.lock().table.end();
        let batch = move |from: u32| from..end.min(from.saturating_add(BATCH));
        (0..end).step_by(BATCH as usize).map(batch)
    }

    /// Removes the timers for which `keep` is false. Timers that are pending throughout are visited
    /// once each.
    pub(crate) fn retain(
        &self,
        mut keep: impl FnMut(&K, &mut V, Instant) -> bool,
    ) -> Result<(), ClosedError> {
        drop(self.open()?);
        let mut removed = Vec::with_capacity(BATCH as usize);
        for indices in self.batches() {
            let mut guard = self.open()?;
            let mut visit = |index| {
                let Some(timer) = guard.table.timer_mut(index) else {
                    return;
                };
                let deadline = self.shared.ticks.instant(timer.deadline);
                if !keep(&timer.key, &mut timer.value.0, deadline) {
                    removed.extend(guard.take_out(index, Event::KeyedRemoved));
                }
            };
            // The timers that were removed before `keep` panics are dropped as well.
            let visited = catch_unwind(AssertUnwindSafe(|| indices.for_each(&mut visit)));
            drop(guard);
            for Timer { key, value, .. } in removed.drain(..) {
                drop_pair(key, value);
            }
            if let Err(panic) = visited {
                resume_unwind(panic);
            }
        }
        Ok(())
    }
}

impl<K, S: Payload> Set<K, S> {
    /// Adds a timer that is not found by its key. Returns its index.
    pub(crate) fn add(
        &self,
        key: K,
        value: S,
        deadline: Timestamp,
        now: Timestamp,
    ) -> Result<u32, SetTimerError<K, S::Value>> {
        self.shared.check_clock();
        let mut guard = self.lock();
        if !guard.is_open() {
            return Err(SetTimerError::Closed(
                key,
                value.into_value(),
                guard.closed(),
            ));
        }
        guard.add(0, key, value, deadline, now)
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
        if !guard.is_open() {
            return false;
        }
        let timer = guard.table.timer_mut(index);
        if !timer.is_some_and(|timer| decide(&mut timer.value)) {
            return false;
        }
        guard.rearm(index, now);
        true
    }

    /// Removes the timer at an index if `is_meant` is true of its value, and drops its key and
    /// value.
    pub(crate) fn forget(&self, index: u32, is_meant: impl FnOnce(&S) -> bool) {
        let mut guard = self.lock();
        if !(guard.table.timer(index)).is_some_and(|timer| is_meant(&timer.value)) {
            return;
        }
        let taken = guard.take_out(index, Event::KeyedRemoved);
        let is_finished = guard.is_finished();
        drop(guard);
        if is_finished {
            self.hints.wake();
        }
        if let Some(Timer { key, value, .. }) = taken {
            drop_pair(key, value);
        }
    }
}
