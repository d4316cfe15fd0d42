//! The actor's half of a set: it processes dirty indices and expirations, and delivers.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};

use super::table::{Slot, Timer};
use super::{BATCH, Cause, Expired, Guard, KEPT, Payload, Phase, Set, State};
use crate::metrics::Event;
use crate::panic::{catch_panic, drop_caught, wake};
use crate::shared::bound::{Reached, Want};
use crate::shared::timer_set::{Batch, Contended, Due, DueHeap, Item, LockMode, TimerSet, Timers};
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

    fn take_dirty(&self, batch: &mut Batch, lock_mode: LockMode) -> Result<bool, Contended> {
        (self.state).take_dirty(batch, lock_mode, State::is_over)
    }

    fn process(
        &self,
        indices: &[u32],
        earliest: u64,
        turn: &Turn<'_>,
        wheel: &mut Timers,
        lock_mode: LockMode,
    ) -> Result<bool, Contended> {
        debug_assert!(indices.len() <= BATCH as usize, "one hold of the lock");
        let mut state = self.state.lock_for_actor(self, lock_mode)?;
        for &index in indices {
            assert_in_time(&mut state, index, earliest);
            state.table.change(index, |slot| {
                let want = self.want(slot, turn);
                (slot.bound.agree(want, wheel)).apply(wheel, self.item(index));
            });
            state.assert_slot(index, |deadline| self.tick(deadline));
        }
        Ok(state.is_over())
    }

    fn process_expirations(
        &self,
        indices: &[u32],
        turn: &Turn<'_>,
        wheel: &mut Timers,
        due: &mut DueHeap,
        lock_mode: LockMode,
    ) -> Result<bool, Contended> {
        debug_assert!(indices.len() <= BATCH as usize, "one hold of the lock");
        // The heap may have to move, which it does while the set is not locked.
        due.reserve(indices.len());
        let mut state = self.state.lock_for_actor(self, lock_mode)?;
        for &index in indices {
            state.table.change(index, |slot| {
                let want = self.want(slot, turn);
                self.reached(slot, index, want, turn, wheel, due);
            });
            state.assert_slot(index, |deadline| self.tick(deadline));
        }
        Ok(state.is_over())
    }

    fn deliver(
        &self,
        before: u64,
        limit: &mut usize,
        turn: &Turn<'_>,
        wheel: &mut Timers,
        due: &mut DueHeap,
        lock_mode: LockMode,
    ) -> Result<bool, Contended> {
        let mut lost = Vec::new();
        let mut news = false;
        let mut state = self.state.lock_for_actor(self, lock_mode)?;
        if state.phase != Phase::Open {
            // The stream is closed; the thread that closed the set takes its timers out.
            due.clear();
        }
        while *limit > 0 {
            let Some(first) = due.peek_mut().filter(|first| first.0.tick < before) else {
                break;
            };
            *limit -= 1;
            let Reverse(first) = PeekMut::pop(first);
            news |= self.deliver_one(&mut state, first, turn, wheel, due, &mut lost);
            state.assert_slot(first.index, |deadline| self.tick(deadline));
        }
        let is_over = state.is_over();
        let receiver = if news || state.is_finished() {
            state.receiver.take()
        } else {
            None
        };
        drop(state);
        wake(receiver);
        if due.is_empty() {
            due.shrink_to(KEPT);
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

    /// The slot's demand on the wheel.
    fn want(&self, slot: &Slot<K, S>, turn: &Turn<'_>) -> Want {
        let timer = slot.timer.as_ref();
        timer.map_or(Want::Nothing, |timer| Want::At(self.due_tick(timer, turn)))
    }

    /// An index on the wheel.
    fn item(&self, index: u32) -> Item {
        let set = NonZeroU32::new(self.number.load(Ordering::Relaxed));
        let set = set.expect("the actor numbers a set before it processes it");
        Item { set, index }
    }

    /// The wheel has reached this slot, and its node is gone. It goes back to the wheel or onto the heap, as it wants.
    fn reached(
        &self,
        slot: &mut Slot<K, S>,
        index: u32,
        want: Want,
        turn: &Turn<'_>,
        wheel: &mut Timers,
        due: &mut DueHeap,
    ) {
        match (slot.bound.reached(want, turn.tick, wheel), &slot.timer) {
            (Reached::Due(tick), &Some(Timer { order, .. })) => {
                due.push(Reverse(Due { tick, order, index }));
            }
            (Reached::Again(tick), _) => {
                turn.rescheduled();
                wheel.insert(tick, self.item(index));
            }
            _ => {}
        }
    }

    /// Delivers the timer of an entry that was taken off the heap, if it still counts and expires. True if it was
    /// delivered.
    fn deliver_one(
        &self,
        state: &mut State<K, S>,
        entry: Due,
        turn: &Turn<'_>,
        wheel: &mut Timers,
        due: &mut DueHeap,
        lost: &mut Vec<Timer<K, S>>,
    ) -> bool {
        let expires = state.table.change(entry.index, |slot| {
            let timer = (slot.timer.as_ref()).filter(|timer| timer.order == entry.order)?;
            let mut tick = self.due_tick(timer, turn);
            if tick <= entry.tick {
                let reached = (timer.value).expire(timer.deadline, turn.now, &self.rules);
                if reached.is_some() {
                    return reached;
                }
                // It was touched in the meantime.
                tick = self.due_tick(timer, turn).max(turn.tick + 1);
            }
            // If it was touched and is due nevertheless, it takes its new place in the order.
            self.reached(slot, entry.index, Want::At(tick), turn, wheel, due);
            None
        });
        let Some(reached) = expires.flatten() else {
            return false;
        };
        turn.fired(reached.0);
        self.expire(state, entry.index, reached, turn, wheel, lost)
    }

    /// Delivers a timer that expires to the stream, and arms it again if it repeats.
    fn expire(
        &self,
        state: &mut State<K, S>,
        index: u32,
        (deadline, cause): (Timestamp, Cause),
        turn: &Turn<'_>,
        wheel: &mut Timers,
        lost: &mut Vec<Timer<K, S>>,
    ) -> bool {
        let repeats = !state.repeats.is_empty() && state.repeats.contains_key(&index);
        let (key, value, missed) = if repeats {
            let Some(repeated) = self.repeat(state, index, deadline, turn, wheel) else {
                // Its clone panicked.
                lost.extend(state.remove(index, |_| {}));
                self.count_ended(state, Event::KeyedRemoved, 1);
                return false;
            };
            repeated
        } else {
            let Some(timer) = state.remove(index, |_| {}) else {
                return false;
            };
            self.count_ended(state, Event::KeyedFired, 1);
            (timer.key, timer.value.into_value(), 0)
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

    /// Arms a repeating timer for the next multiple of its period that has not passed. Returns copies of its key and
    /// value for this expiration, and how many periods are skipped. `None` when copying panicked.
    fn repeat(
        &self,
        state: &mut State<K, S>,
        index: u32,
        deadline: Timestamp,
        turn: &Turn<'_>,
        wheel: &mut Timers,
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
            // It has not passed.
            let want = Want::At(self.tick(next).max(turn.tick + 1));
            if let Reached::Again(tick) = slot.bound.reached(want, turn.tick, wheel) {
                wheel.insert(tick, self.item(index));
            }
        });
        state.counters.add(Event::KeyedRepeated, 1);
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
        // One that is not queued has been processed since.
        let is_in_time = slot.bound.scheduled() >= earliest || !slot.bound.is_queued();
        assert!(is_in_time, "L4: index {index}");
    }
}
