//! The handles' half of a set: the calls that set, move, read and remove timers.

use std::borrow::Borrow;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use tokio::time::Instant;

use super::error::{ClosedError, SetTimerError};
use super::payload::{Payload, Plain};
use super::set::{BATCH, Guard, Repeat, Set};
use super::table::Timer;
use super::update::TimerMut;
use crate::clock;
use crate::metrics::Event;
use crate::panic::{drop_caught, drop_pair};
use crate::shared::stalls::Gap;
use crate::tick::Timestamp;

impl<K: Eq, V> Set<K, Plain<V>> {
    /// Sets a timer. Returns the value that it replaces.
    pub(crate) fn set(
        &self,
        hash: u32,
        key: K,
        value: V,
        deadline: Timestamp,
        repeat: Option<Repeat<K, Plain<V>>>,
    ) -> Result<Option<V>, SetTimerError<K, V>> {
        self.set_or(
            hash,
            key,
            value,
            deadline,
            repeat,
            |timer, key, value, repeat| {
                let replaced = timer.replace(value, deadline, repeat);
                // The caller gets its result even if the drop of the key panics.
                drop_caught([key]);
                replaced
            },
        )
    }

    /// Sets a timer under a key that has none, or calls `other` with the one it has.
    pub(crate) fn set_or<R>(
        &self,
        hash: u32,
        key: K,
        value: V,
        deadline: Timestamp,
        repeat: Option<Repeat<K, Plain<V>>>,
        other: impl FnOnce(TimerMut<'_, K, V>, K, V, Option<Repeat<K, Plain<V>>>) -> R,
    ) -> Result<Option<R>, SetTimerError<K, V>> {
        self.shared.check_clock();
        let mut guard = self.lock();
        if !guard.is_open() {
            return Err(SetTimerError::Closed(key, value, guard.closed()));
        }
        if let Some(index) = guard.table.find(hash, |other| *other == key) {
            return Ok(Some(other(TimerMut::new(guard, index), key, value, repeat)));
        }
        let index = guard.add(hash, key, Plain(value), deadline, deadline)?;
        guard.set_repeat(index, repeat);
        Ok(None)
    }

    /// Calls `update` with the timer under a key.
    #[inline]
    pub(crate) fn update<Q, R>(
        &self,
        hash: u32,
        key: &Q,
        update: impl FnOnce(TimerMut<'_, K, V>) -> R,
    ) -> Result<Option<R>, ClosedError>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let guard = self.open()?;
        let found = guard.table.find(hash, |other| other.borrow() == key);
        Ok(found.map(|index| update(TimerMut::new(guard, index))))
    }

    /// Moves a timer. Returns `false` if there is none under this key.
    pub(crate) fn move_to<Q>(
        &self,
        hash: u32,
        key: &Q,
        deadline: Timestamp,
    ) -> Result<bool, ClosedError>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.shared.check_clock();
        let moved = self.update(hash, key, |mut timer| timer.move_to(deadline))?;
        Ok(moved.is_some())
    }

    /// Removes a timer.
    pub(crate) fn remove<Q>(&self, hash: u32, key: &Q) -> Result<Option<V>, ClosedError>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let mut guard = self.open()?;
        let found = guard.table.find(hash, |other| other.borrow() == key);
        let superseded = guard.in_hand(hash, |other| other.borrow() == key);
        guard.supersede(superseded);
        Ok(found.map(|index| TimerMut::new(guard, index).remove()))
    }

    /// Reads the value of a timer.
    pub(crate) fn get_with<Q, R>(&self, hash: u32, key: &Q, read: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.read(hash, key, |timer| read(&timer.value.0))
    }

    /// The deadline of a timer.
    pub(crate) fn deadline<Q>(&self, hash: u32, key: &Q) -> Option<Instant>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let deadline = self.read(hash, key, |timer| timer.deadline)?;
        Some(self.shared.ticks.instant(deadline))
    }

    fn read<Q, R>(
        &self,
        hash: u32,
        key: &Q,
        read: impl FnOnce(&Timer<K, Plain<V>>) -> R,
    ) -> Option<R>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let state = self.lock();
        let index = state.table.find(hash, |other| other.borrow() == key)?;
        Some(read(state.table.timer(index)?))
    }
}

impl<K, S: Payload> Guard<'_, K, S> {
    /// The timer at an index repeats or does not.
    pub(super) fn set_repeat(&mut self, index: u32, repeat: Option<Repeat<K, S>>) {
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
        let superseded = self.in_hand_of(hash, &key);
        if !self.set().shared.reserve() {
            return Err(SetTimerError::Full(key, value.into_value()));
        }
        self.supersede(superseded);
        Ok(self.add_reserved(hash, key, value, deadline, now))
    }

    /// Adds a timer for which there is room. Returns its index.
    #[inline]
    pub(super) fn add_reserved(
        &mut self,
        hash: u32,
        key: K,
        value: S,
        deadline: Timestamp,
        now: Timestamp,
    ) -> u32 {
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
        index
    }
}

impl<K, S: Payload> Set<K, S> {
    /// All indices of now, in parts that one hold of the lock visits. Timers that are set meanwhile
    /// extend the table, and must not keep a visit going.
    pub(super) fn batches(&self) -> impl Iterator<Item = Range<u32>> + use<K, S> {
        let end = self.lock().table.end();
        let batch = move |from: u32| from..end.min(from.saturating_add(BATCH));
        (0..end).step_by(BATCH as usize).map(batch)
    }
}

impl<K, V> Set<K, Plain<V>> {
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

    /// Makes the timer at an index due now, if `decide` says so of its value, its deadline and now.
    /// Returns whether it does.
    pub(crate) fn rearm_now(
        &self,
        index: u32,
        decide: impl FnOnce(&mut S, Timestamp, Timestamp) -> bool,
    ) -> bool {
        let now = self.shared.ticks.timestamp(clock::now());
        let mut guard = self.lock();
        if !guard.is_open() {
            return false;
        }
        let timer = guard.table.timer_mut(index);
        if !timer.is_some_and(|timer| decide(&mut timer.value, timer.deadline, now)) {
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
