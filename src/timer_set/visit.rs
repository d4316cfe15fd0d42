//! The actor's half of a set: it processes indices that the wheel has reached, and delivers.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;

use super::table::{Lag, Timer};
use super::{BATCH, Cause, Expired, KEPT, Payload, Phase, Set, State};
use crate::metrics::Event;
use crate::panic::{catch_panic, drop_caught, wake};
use crate::shared::timer_set::{Contended, Due, TimerSet, Visit};
use crate::tick::{NEVER, Timestamp};

/// Logged when a repeating timer cannot be cloned.
const CLONE: &str = "the Clone of a repeating timer panicked: the timer is removed";

impl<K, S> TimerSet for Set<K, S>
where
    K: Send + 'static,
    S: Payload<Value: Send, Rules: Send + Sync> + Send + 'static,
{
    fn visit(&self, mut visit: Visit<'_>) -> Result<(), Contended> {
        // The heap may have to move, which it does while the set is not locked.
        visit.due.reserve(visit.reached.len().min(BATCH as usize));
        let mut lost = Vec::new();
        let mut news = false;
        let mut guard = self.guard(self.state.try_lock_for_actor().ok_or(Contended)?);
        let state = &mut *guard;
        if state.phase != Phase::Open {
            // The stream is closed; the thread that closed the set takes its timers out.
            visit.reached.clear();
            visit.due.clear();
        }
        let mut budget = (*visit.limit).min(BATCH as usize);
        *visit.limit -= budget;
        // One that was reached late may be due before all others.
        while budget > 0 {
            let Some(index) = visit.reached.pop() else {
                break;
            };
            budget -= 1;
            self.process_reached(state, index, 0, &mut visit);
        }
        while budget > 0 {
            let first = visit.due.peek_mut();
            let Some(first) = first.filter(|first| first.0.tick < visit.before) else {
                break;
            };
            budget -= 1;
            let Reverse(first) = PeekMut::pop(first);
            news |= self.deliver_one(state, first, &mut visit, &mut lost);
        }
        *visit.limit += budget;
        let receiver = if news || state.is_finished() {
            state.receiver.take()
        } else {
            None
        };
        drop(guard);
        wake(receiver);
        if visit.due.is_empty() {
            visit.due.shrink_to(KEPT);
        }
        for timer in lost {
            drop_caught([timer.key]);
            drop_caught([timer.value]);
        }
        Ok(())
    }

    fn close(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Ended;
        }
        let receiver = state.receiver.take();
        drop(state);
        if !S::KEYED {
            // Touches of what is watched return false from now on.
            self.end_all();
        }
        wake(receiver);
    }
}

impl<K, S: Payload> Set<K, S> {
    /// The wheel has reached this index. Its timer is found due, or is scheduled again, not before
    /// the tick `earliest` (N3).
    fn process_reached(
        &self,
        state: &mut State<K, S>,
        index: u32,
        earliest: u64,
        visit: &mut Visit<'_>,
    ) {
        let number = state.next_number();
        let Some(slot) = state.table.get_mut(index) else {
            return visit.wheel.place(index, number, NEVER);
        };
        let Some(timer) = &slot.timer else {
            let kept = state.kept.iter().position(|kept| kept.index == index);
            if let Some(kept) = kept {
                state.kept.remove(kept);
                state.table.vacate(index);
            }
            return visit.wheel.place(index, number, NEVER);
        };
        let due = timer.value.due(timer.deadline, visit.turn.now, &self.rules);
        let mut tick = self.tick(due).max(earliest);
        slot.lag = Lag::UNKNOWN;
        if tick <= visit.turn.tick {
            let order = timer.order;
            visit.due.push(Reverse(Due { tick, order, index }));
            tick = NEVER;
        } else if tick != NEVER {
            visit.turn.rescheduled();
            if tick > earliest {
                slot.lag = Lag::between(due, timer.deadline);
            }
        }
        visit.wheel.place(index, number, tick);
    }

    /// Delivers the timer of an entry that was taken off the heap, if it still counts and expires.
    /// True if it was delivered.
    fn deliver_one(
        &self,
        state: &mut State<K, S>,
        entry: Due,
        visit: &mut Visit<'_>,
        lost: &mut Vec<Timer<K, S>>,
    ) -> bool {
        let timer = state.table.timer(entry.index);
        let Some(timer) = timer.filter(|timer| timer.order == entry.order) else {
            return false;
        };
        let now = visit.turn.now;
        let due = timer.value.due(timer.deadline, now, &self.rules);
        if self.tick(due) > entry.tick {
            // It was touched in the meantime. If it is due nevertheless, it takes its new place in
            // the order.
            self.process_reached(state, entry.index, 0, visit);
            return false;
        }
        let Some(reached) = timer.value.expire(timer.deadline, now, &self.rules) else {
            self.process_reached(state, entry.index, visit.turn.tick + 1, visit);
            return false;
        };
        visit.turn.fired(reached.0);
        self.expire(state, entry.index, reached, visit, lost)
    }

    /// Delivers a timer that expires to the stream, and arms it again if it repeats.
    fn expire(
        &self,
        state: &mut State<K, S>,
        index: u32,
        (deadline, cause): (Timestamp, Cause),
        visit: &mut Visit<'_>,
        lost: &mut Vec<Timer<K, S>>,
    ) -> bool {
        let repeats = !state.repeats.is_empty() && state.repeats.contains_key(&index);
        let repeated = if repeats {
            let repeated = self.repeat(state, index, deadline, visit);
            if repeated.is_none() {
                // Its clone panicked.
                lost.extend(state.remove(index));
                state.table.vacate(index);
                self.count_ended(state, Event::KeyedRemoved, 1);
            }
            repeated
        } else {
            state.remove(index).map(|timer| {
                // It has no node (N3).
                state.table.vacate(index);
                self.count_ended(state, Event::KeyedFired, 1);
                (timer.key, timer.value.into_value(), 0)
            })
        };
        let Some((key, value, missed)) = repeated else {
            return false;
        };
        let expired = Expired {
            key,
            value,
            deadline: self.shared.ticks.instant(deadline),
            missed,
            cause,
        };
        // The order alone counts.
        state.delivered.push(NEVER, expired);
        true
    }

    /// Arms a repeating timer for the next multiple of its period that has not passed. Returns
    /// copies of its key and value for this expiration, and how many periods are skipped. `None`
    /// when copying panicked.
    fn repeat(
        &self,
        state: &mut State<K, S>,
        index: u32,
        deadline: Timestamp,
        visit: &mut Visit<'_>,
    ) -> Option<(K, S::Value, u64)> {
        let (_, repeat) = state.repeats.get(&index)?;
        let timer = state.table.timer(index)?;
        let (key, value) = catch_panic(CLONE, || (repeat.clone)(&timer.key, &timer.value))?;
        let late = visit.turn.now.nanos().saturating_sub(deadline.nanos());
        let missed = late.max(0) / repeat.period;
        let next = deadline.plus(repeat.period.saturating_mul(missed.saturating_add(1)));
        let (order, number) = (state.next_order(), state.next_number());
        if let Some(slot) = state.table.get_mut(index) {
            slot.lag = Lag::between(next, next);
            if let Some(timer) = &mut slot.timer {
                timer.deadline = next;
                timer.order = order;
            }
        }
        visit.wheel.place(index, number, self.tick(next));
        state.counters.add(Event::KeyedRepeated, 1);
        Some((key, value, missed.unsigned_abs()))
    }
}
