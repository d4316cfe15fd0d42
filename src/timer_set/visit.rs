//! The actor's half of a set: it processes indices that the wheel has reached, and delivers.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::table::Timer;
use super::{BATCH, Copied, Expired, Guard, Payload, Set};
use crate::metrics::Event;
use crate::panic::{drop_pair, report, wake};
use crate::shared::note::{Note, SetKey};
use crate::shared::timer_set::{Due, DueTimers, TimerSet};
use crate::shared::turn::Turn;
use crate::tick::{NEVER, Timestamp};

/// Logged when a repeating timer cannot be cloned.
const CLONE: &str = "the Clone of a repeating timer panicked: the timer is removed";

impl<K, S> TimerSet for Set<K, S>
where
    K: Send + 'static,
    S: Payload<Value: Send> + Send + 'static,
{
    fn visit(
        &self,
        due: &mut DueTimers,
        before: u64,
        limit: usize,
        notes: &mut Vec<Note>,
        turn: &Turn<'_>,
    ) -> Option<usize> {
        let limit = limit.min(BATCH as usize);
        // They may have to move, which they do while the set is not locked.
        due.found.reserve(due.reached.len().min(limit));
        notes.reserve(limit);
        let mut visit = Visit {
            guard: self.guard(self.state.try_lock_for_actor()?),
            due,
            notes,
            turn,
            failed: Vec::new(),
        };
        if !visit.guard.is_open {
            // The stream is closed; the thread that closed the set takes its timers out.
            visit.due.found.clear();
        }
        let (processed, has_delivered) = visit.run(before, limit);
        let Visit {
            mut guard, failed, ..
        } = visit;
        let receiver = if has_delivered || guard.is_finished() {
            guard.receiver.take()
        } else {
            None
        };
        drop(guard);
        wake(receiver);
        for failed in failed {
            report(CLONE, failed.panic);
            drop_pair(failed.timer.key, failed.timer.value);
            drop_pair(failed.copied.0, failed.copied.1);
        }
        Some(processed)
    }

    fn give_back(self: Arc<Self>) -> Option<SetKey> {
        Arc::into_inner(self)?.lock().set_key.take()
    }

    fn vacate_kept(&self) {
        self.lock().vacate_kept();
    }

    fn close(&self) {
        let mut state = self.lock();
        state.is_open = false;
        let receiver = state.receiver.take();
        drop(state);
        if !S::KEYED {
            // Touches of what is watched return false from now on.
            self.end_all();
        }
        wake(receiver);
    }
}

/// A visit, while the set is locked.
struct Visit<'a, K, S: Payload> {
    guard: Guard<'a, K, S>,
    due: &'a mut DueTimers,
    notes: &'a mut Vec<Note>,
    turn: &'a Turn<'a>,
    /// To be logged and dropped when the set is not locked.
    failed: Vec<FailedCopy<K, S>>,
}

/// A timer whose `Clone` panicked, what that had copied, and what it panicked with.
struct FailedCopy<K, S: Payload> {
    timer: Timer<K, S>,
    copied: Copied<K, S::Value>,
    panic: Box<dyn Any + Send>,
}

impl<K, S: Payload> Visit<'_, K, S> {
    /// Returns how many it has processed, at most `limit`, and whether it has delivered any.
    fn run(&mut self, before: u64, limit: usize) -> (usize, bool) {
        let mut has_delivered = false;
        let mut processed = 0;
        // All reached indices first: one of them may be due earliest.
        while processed < limit {
            let Some(index) = self.due.reached.pop() else {
                break;
            };
            processed += 1;
            self.process_reached(index);
        }
        while processed < limit {
            let first = self.due.found.peek_mut();
            let Some(first) = first.filter(|first| first.0.tick < before) else {
                break;
            };
            processed += 1;
            let Reverse(first) = PeekMut::pop(first);
            has_delivered |= self.deliver(first);
        }
        (processed, has_delivered)
    }

    /// The wheel has reached this index. Its timer is found due, or is scheduled again (N3).
    fn process_reached(&mut self, index: u32) {
        let tick = self.tick_of_reached(index);
        self.notes.extend(self.guard.next_note(index, tick));
    }

    /// The tick for which the index has to be scheduled again; `NEVER` if it is not.
    fn tick_of_reached(&mut self, index: u32) -> u64 {
        let (set, state) = (self.guard.set(), &mut *self.guard);
        if !state.is_open {
            // Nothing fires any more.
            return NEVER;
        }
        let Some(slot) = state.table.get_mut(index) else {
            return NEVER;
        };
        let Some(timer) = &slot.timer else {
            if let Some(kept) = state.kept.iter().position(|kept| kept.index == index) {
                state.kept.remove(kept);
                state.table.vacate(index);
            }
            return NEVER;
        };
        let due = set.due(&timer.value, timer.deadline, self.turn.now);
        let tick = set.tick(due);
        if tick <= self.turn.tick {
            let number = timer.number;
            self.due.found.push(Reverse(Due {
                tick,
                number,
                index,
            }));
            slot.set_scheduled(Timestamp::NEVER);
            return NEVER;
        }
        if tick != NEVER {
            self.turn.rescheduled();
        }
        slot.set_scheduled(due);
        tick
    }

    /// Delivers a timer that was found due, if it still counts and expires. True if it was
    /// delivered.
    fn deliver(&mut self, found: Due) -> bool {
        let set = self.guard.set();
        let Some(slot) = self.guard.table.get(found.index) else {
            return false;
        };
        let timer = slot.timer.as_ref();
        let Some(timer) = timer.filter(|timer| timer.number == found.number) else {
            return false;
        };
        debug_assert!(slot.scheduled() == Timestamp::NEVER, "N6");
        let now = self.turn.now;
        let is_due = set.tick(set.due(&timer.value, timer.deadline, now)) <= found.tick;
        let expires = if is_due {
            timer.value.expire(timer.deadline, now, set.idle)
        } else {
            None
        };
        let Some((deadline, cause)) = expires else {
            // It was touched in the meantime. If it is due nevertheless, it takes its new place in
            // the order.
            self.process_reached(found.index);
            return false;
        };
        let Some((key, value, missed)) = self.take_or_rearm(found.index, deadline) else {
            return false;
        };
        self.turn.fired(deadline);
        let expired = Expired {
            key,
            value,
            deadline: set.shared.ticks.instant(deadline),
            missed,
            cause,
        };
        // The order alone counts.
        self.guard.delivered.push(NEVER, expired);
        true
    }

    /// Takes out a timer that expires, or arms it again if it repeats. Returns key and value to
    /// deliver, and how many periods are skipped. `None` when copying them panicked.
    fn take_or_rearm(&mut self, index: u32, deadline: Timestamp) -> Option<(K, S::Value, u64)> {
        let mut copied = (None, None);
        let panic = match self.repeat(index, deadline, &mut copied) {
            Ok(Some(missed)) => return Some((copied.0?, copied.1?, missed)),
            Ok(None) => None,
            Err(panic) => Some(panic),
        };
        let timer = self.guard.remove(index)?;
        // It has no node (N3).
        self.guard.table.vacate(index);
        let Some(panic) = panic else {
            self.guard.count_ended(Event::KeyedFired, 1);
            return Some((timer.key, timer.value.into_value(), 0));
        };
        self.guard.count_ended(Event::KeyedRemoved, 1);
        self.failed.push(FailedCopy {
            timer,
            copied,
            panic,
        });
        None
    }

    /// Copies a repeating timer, and arms it for the next multiple of its period that has not
    /// passed. Returns how many periods are skipped, or what its `Clone` panicked with; `None` if
    /// the timer does not repeat.
    fn repeat(
        &mut self,
        index: u32,
        deadline: Timestamp,
        copied: &mut Copied<K, S::Value>,
    ) -> Result<Option<u64>, Box<dyn Any + Send>> {
        let (set, state) = (self.guard.set(), &mut *self.guard);
        let repeat = state.repeats.get(&index);
        let (Some((_, repeat)), Some(timer)) = (repeat, state.table.timer(index)) else {
            return Ok(None);
        };
        let clone = || (repeat.clone)(&timer.key, &timer.value, copied);
        catch_unwind(AssertUnwindSafe(clone))?;
        let late = self.turn.now.nanos().saturating_sub(deadline.nanos());
        let missed = late.max(0) / repeat.period;
        let next = deadline.plus(repeat.period.saturating_mul(missed.saturating_add(1)));
        let number = state.next_number();
        if let Some(slot) = state.table.get_mut(index) {
            if let Some(timer) = &mut slot.timer {
                timer.deadline = next;
                timer.number = number;
            }
            slot.set_scheduled(next);
        }
        self.notes.extend(state.next_note(index, set.tick(next)));
        state.counters.add(Event::KeyedRepeated, 1);
        Ok(Some(missed.unsigned_abs()))
    }
}
