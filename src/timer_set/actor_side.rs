//! The actor's half of a set: it processes dirty indices and expirations, and delivers.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicU32, Ordering};

use super::ledger::Ended;
use super::lock::Mark;
use super::table::{Timer, Whereabouts};
use super::{BATCH, Expired, Guard, KEPT, Payload, Phase, Set, State};
use crate::panic::{catch_panic, drop_caught, wake};
use crate::shared::timer_set::{Batch, Contended, Due, Patience, SetWheel, TimerSet};
use crate::shared::turn::Turn;
use crate::tick::{NEVER, Timestamp};

/// Logged when a repeating timer cannot be cloned.
const CLONE: &str = "the Clone of a repeating timer panicked: the timer is removed";

impl<K, S> TimerSet for Set<K, S>
where
    K: Send + 'static,
    S: Payload<Value: Send, Rules: Send + Sync> + Send + 'static,
{
    fn number(&self) -> &AtomicU32 {
        &self.number
    }

    fn earliest(&self) -> u64 {
        self.earliest.load(Ordering::SeqCst)
    }

    fn take_dirty(&self, batch: &mut Batch, patience: Patience) -> Result<bool, Contended> {
        (self.state).take_dirty(batch, patience, State::is_over)
    }

    fn process(
        &self,
        indices: &[u32],
        earliest: u64,
        turn: &Turn<'_>,
        wheel: &mut dyn SetWheel,
        patience: Patience,
    ) -> Result<bool, Contended> {
        debug_assert!(indices.len() <= BATCH as usize, "one hold of the lock");
        let mut state = self.state.lock_for_actor(self, patience)?;
        for &index in indices {
            assert_in_time(&mut state, index, earliest);
            self.process_index(&mut state, index, turn, wheel);
            state.assert_slot(index, |deadline| self.tick(deadline));
        }
        Ok(state.is_over())
    }

    fn process_expirations(
        &self,
        indices: &[u32],
        turn: &Turn<'_>,
        wheel: &mut dyn SetWheel,
        patience: Patience,
    ) -> Result<bool, Contended> {
        debug_assert!(indices.len() <= BATCH as usize, "one hold of the lock");
        // The heap may have to move, which it does while the set is not locked.
        wheel.due().reserve(indices.len());
        let mut state = self.state.lock_for_actor(self, patience)?;
        for &index in indices {
            self.process_expiration(&mut state, index, turn, wheel);
            state.assert_slot(index, |deadline| self.tick(deadline));
        }
        Ok(state.is_over())
    }

    fn deliver(
        &self,
        before: u64,
        limit: &mut usize,
        turn: &Turn<'_>,
        wheel: &mut dyn SetWheel,
        patience: Patience,
    ) -> Result<bool, Contended> {
        let mut lost = Vec::new();
        let mut news = false;
        let mut state = self.state.lock_for_actor(self, patience)?;
        if state.phase != Phase::Open {
            // Nobody receives; the thread that closed the set takes its timers out.
            wheel.due().clear();
        }
        while *limit > 0 {
            let Some(&Reverse(due)) = wheel.due().peek().filter(|due| due.0.tick < before) else {
                break;
            };
            *limit -= 1;
            wheel.due().pop();
            news |= self.deliver_one(&mut state, due, turn, wheel, &mut lost);
            state.assert_slot(due.index, |deadline| self.tick(deadline));
        }
        let is_over = state.is_over();
        let receiver = if news || state.is_finished() {
            state.receiver.take()
        } else {
            None
        };
        drop(state);
        wake(receiver);
        if wheel.due().is_empty() {
            wheel.due().shrink_to(KEPT);
        }
        for timer in lost {
            drop_caught([timer.key]);
            drop_caught([timer.value]);
        }
        Ok(is_over)
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
    /// The tick at which the timer is due, as far as that is known now.
    fn due_tick(&self, timer: &Timer<K, S>, turn: &Turn<'_>) -> u64 {
        self.tick(timer.value.due(timer.deadline, turn.now, &self.rules))
    }

    /// Makes the wheel agree with an index that was dirty.
    fn process_index(
        &self,
        state: &mut State<K, S>,
        index: u32,
        turn: &Turn<'_>,
        wheel: &mut dyn SetWheel,
    ) {
        state.table.change(index, |slot| {
            slot.location.set_mark(Mark::Clean);
            let tick = (slot.timer.as_ref()).map(|timer| self.due_tick(timer, turn));
            match (slot.location.get(), tick) {
                (Whereabouts::Nowhere, None) => slot.scheduled = NEVER,
                (Whereabouts::Nowhere, Some(tick)) => put_on_wheel(slot, index, tick, wheel),
                (Whereabouts::OnWheel(node), None) => {
                    wheel.remove(node);
                    slot.location.set(Whereabouts::Nowhere);
                    slot.scheduled = NEVER;
                }
                (Whereabouts::OnWheel(node), Some(tick)) => {
                    let on_wheel = wheel.tick(node);
                    slot.scheduled = tick.min(on_wheel);
                    if tick < on_wheel {
                        wheel.reschedule(node, tick);
                    }
                }
                // Its delivery reads the deadline again.
                (Whereabouts::Due, _) => {}
            }
        });
    }

    /// The wheel has reached this index, and its node is gone.
    fn process_expiration(
        &self,
        state: &mut State<K, S>,
        index: u32,
        turn: &Turn<'_>,
        wheel: &mut dyn SetWheel,
    ) {
        let due = state.table.change(index, |slot| {
            slot.location.set(Whereabouts::Nowhere);
            slot.scheduled = NEVER;
            let timer = slot.timer.as_ref()?;
            let tick = self.due_tick(timer, turn);
            if tick > turn.tick {
                turn.rescheduled();
                put_on_wheel(slot, index, tick, wheel);
                return None;
            }
            let order = timer.order;
            slot.location.set(Whereabouts::Due);
            slot.scheduled = tick;
            Some(Due { tick, order, index })
        });
        wheel.due().extend(due.flatten().map(Reverse));
    }

    /// Delivers the timer of an entry that was taken off the heap, if it still counts and expires. True if it was
    /// delivered.
    fn deliver_one(
        &self,
        state: &mut State<K, S>,
        due: Due,
        turn: &Turn<'_>,
        wheel: &mut dyn SetWheel,
        lost: &mut Vec<Timer<K, S>>,
    ) -> bool {
        let expires = state.table.change(due.index, |slot| {
            let timer = (slot.timer.as_ref()).filter(|timer| timer.order == due.order)?;
            if slot.location.get() != Whereabouts::Due {
                return None;
            }
            slot.location.set(Whereabouts::Nowhere);
            slot.scheduled = NEVER;
            let mut tick = self.due_tick(timer, turn);
            if tick <= due.tick {
                let deadline = (timer.value).expire(timer.deadline, turn.now, &self.rules);
                if deadline.is_some() {
                    return deadline.map(Ok);
                }
                // It was touched in the meantime.
                tick = self.due_tick(timer, turn).max(turn.tick + 1);
            }
            if tick > turn.tick {
                turn.rescheduled();
                put_on_wheel(slot, due.index, tick, wheel);
                return None;
            }
            // It was touched and is due nevertheless: it takes its new place in the order.
            slot.location.set(Whereabouts::Due);
            slot.scheduled = tick;
            Some(Err(Due { tick, ..due }))
        });
        match expires.flatten() {
            None => false,
            Some(Err(again)) => {
                wheel.due().push(Reverse(again));
                false
            }
            Some(Ok(deadline)) => {
                turn.fired(deadline);
                self.expire(state, due.index, deadline, turn, wheel, lost)
            }
        }
    }

    /// Delivers a timer that expires to the stream, and arms it again if it repeats.
    fn expire(
        &self,
        state: &mut State<K, S>,
        index: u32,
        deadline: Timestamp,
        turn: &Turn<'_>,
        wheel: &mut dyn SetWheel,
        lost: &mut Vec<Timer<K, S>>,
    ) -> bool {
        let repeats = !state.repeats.is_empty() && state.repeats.contains_key(&index);
        let (key, value, missed) = if repeats {
            let Some(repeated) = self.repeat(state, index, deadline, turn, wheel) else {
                // Its clone panicked.
                lost.extend(state.remove(index, |_| {}));
                state.ledger.ended(Ended::Removed);
                return false;
            };
            repeated
        } else {
            let Some(timer) = state.remove(index, |_| {}) else {
                return false;
            };
            state.ledger.ended(Ended::Fired);
            (timer.key, timer.value.into_value(), 0)
        };
        state.delivered.push(Expired {
            key,
            value,
            deadline: self.shared.ticks.instant(deadline),
            missed,
        });
        true
    }

    /// Arms a repeating timer for the next multiple of its period that has not passed. Returns copies of its key and
    /// value for this expiration, and how many periods are skipped. `None` when copying panicked.
    fn repeat(
        &self,
        state: &mut State<K, S>,
        index: u32,
        deadline: Timestamp,
        turn: &Turn<'_>,
        wheel: &mut dyn SetWheel,
    ) -> Option<(K, S::Value, u64)> {
        let repeat = state.repeats.get(&index)?;
        let timer = state.table.timer(index)?;
        let (key, value) = catch_panic(CLONE, || (repeat.clone)(&timer.key, &timer.value))?;
        let late = turn.now.nanos().saturating_sub(deadline.nanos()).max(0);
        let missed = late / repeat.period;
        let next = deadline.plus(repeat.period.saturating_mul(missed.saturating_add(1)));
        let order = state.next_order();
        state.table.change(index, |slot| {
            if let Some(timer) = &mut slot.timer {
                timer.deadline = next;
                timer.order = order;
            }
            put_on_wheel(slot, index, self.tick(next), wheel);
        });
        state.ledger.repeated();
        Some((key, value, missed.unsigned_abs()))
    }
}

/// Asserts L4 of an index in the actor's batch, which is not needed before tick `earliest`.
fn assert_in_time<K, S: Payload>(guard: &mut Guard<'_, K, S>, index: u32, earliest: u64) {
    if !cfg!(debug_assertions) {
        return;
    }
    let (state, outbox) = guard.split();
    let earliest = earliest.min(outbox.earliest());
    if let Some(slot) = state.table.get(index) {
        // One that is due or clean has been processed since.
        let is_left =
            slot.location.get() != Whereabouts::Due && slot.location.mark() != Mark::Clean;
        let is_in_time = slot.scheduled >= earliest || !is_left;
        assert!(is_in_time, "L4: index {index}");
    }
}

/// Puts an index that is nowhere on the wheel, unless its timer is never due.
fn put_on_wheel<K, S>(
    slot: &mut super::table::Slot<K, S>,
    index: u32,
    tick: u64,
    wheel: &mut dyn SetWheel,
) {
    slot.scheduled = tick;
    if tick != NEVER {
        let node = wheel.insert(tick, index);
        slot.location.set(Whereabouts::OnWheel(node));
    }
}
