//! What the actor does with a set: it files what was noted, looks at what the wheel has reached, and delivers what is
//! due.

use std::cmp::Reverse;
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::AtomicU32;

use super::Expired;
use super::book::{Place, Timer};
use super::set::{Fired, Phase, Ripe, Set, State};
use super::stored::Stored;
use crate::metrics::KeyedCounts;
use crate::panic::{catch_panic, drop_caught, wake};
use crate::shared::mailbox::QUEUE_BOUND;
use crate::shared::turn::{Shelf, Turn};
use crate::tick::Timestamp;

/// A set as the actor sees it, whatever its key and value are.
pub(crate) trait AnySet: Send + Sync + fmt::Debug {
    /// The actor's number for the set; 0 when it has none. The actor's note to itself.
    fn number(&self) -> &AtomicU32;

    /// Files the slots that were noted, at most `limit`, the first ones first. Returns how many that were, and how many
    /// are left.
    fn attend(&self, limit: usize, turn: &Turn<'_>, lent: &mut dyn Shelf) -> (usize, usize);

    /// The wheel has reached these slots.
    fn look(&self, slots: &[u32], turn: &Turn<'_>, lent: &mut dyn Shelf);

    /// Delivers what is due before tick `before`, at most `limit`.
    fn deliver(
        &self,
        before: u64,
        limit: &mut usize,
        turn: &Turn<'_>,
        lent: &mut dyn Shelf,
    ) -> Delivered;

    /// The actor ends: there will be no more expirations.
    fn close(&self);

    /// Whether no timer will ever be set in it again, and none is pending.
    fn is_over(&self) -> bool;

    /// What it has counted.
    fn counts(&self) -> KeyedCounts;
}

/// What a delivery has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivered {
    /// Nothing waits to be delivered.
    All,
    /// What is left belongs to a tick that the wheel has not handed out in full.
    Unripe,
    /// The limit was reached.
    More,
}

impl<K, S> AnySet for Set<K, S>
where
    K: Hash + Eq + Send + 'static,
    S: Stored,
{
    fn number(&self) -> &AtomicU32 {
        &self.number
    }

    fn attend(&self, limit: usize, turn: &Turn<'_>, lent: &mut dyn Shelf) -> (usize, usize) {
        let mut state = self.lock();
        let n = state.notes.len().min(limit);
        for _ in 0..n {
            if let Some(slot) = state.notes.pop_front() {
                self.attend_slot(&mut state, slot, turn, lent);
            }
        }
        let left = state.notes.len();
        state.queued = left > 0;
        if left == 0 {
            state.notes.shrink_to(QUEUE_BOUND);
        }
        if left == 0 && state.ripe.is_empty() {
            // Every slot that the actor knew of and that holds no timer has been taken off the wheel by now.
            state.book.give_back_if_empty();
        }
        (n, left)
    }

    fn look(&self, slots: &[u32], turn: &Turn<'_>, lent: &mut dyn Shelf) {
        let mut state = self.lock();
        for &slot in slots {
            *state.book.place(slot) = Place::NOWHERE;
            let Some((tick, timer)) = self.due(&mut state, slot, turn) else {
                continue;
            };
            if tick <= turn.tick {
                state.ripen(slot, tick, timer.order);
            } else {
                turn.rescheduled();
                state.file(slot, tick, lent);
            }
        }
    }

    fn deliver(
        &self,
        before: u64,
        limit: &mut usize,
        turn: &Turn<'_>,
        lent: &mut dyn Shelf,
    ) -> Delivered {
        let mut lost = Vec::new();
        let mut freed = 0;
        let mut state = self.lock();
        let fired_before = state.fired.len();
        let left = loop {
            let Some(&Reverse(ripe)) = state.ripe.peek() else {
                break Delivered::All;
            };
            if state.phase != Phase::Open {
                // Nobody reads, and whoever closed the set takes its timers out.
                state.ripe.clear();
                break Delivered::All;
            }
            if ripe.tick >= before {
                break Delivered::Unripe;
            }
            if *limit == 0 {
                break Delivered::More;
            }
            *limit -= 1;
            state.ripe.pop();
            let slot = ripe.slot;
            if *state.book.place(slot) != Place::RIPE {
                // It was moved to before this, and has been looked at there.
                continue;
            }
            *state.book.place(slot) = Place::NOWHERE;
            let Some((tick, timer)) = self.due(&mut state, slot, turn) else {
                continue;
            };
            if tick > turn.tick {
                turn.rescheduled();
                state.file(slot, tick, lent);
            } else if (tick, timer.order) != (ripe.tick, ripe.order) {
                // Set or moved anew meanwhile, and due all the same: to its place in the order.
                state.ripen(slot, tick, timer.order);
            } else {
                turn.fired(turn.now.since(timer.deadline));
                freed += self.fire(&mut state, slot, timer, turn, lent, &mut lost);
            }
        };
        let news = state.fired.len() > fired_before || state.is_finished();
        let receiver = if news { state.receiver.take() } else { None };
        self.shared.free(freed);
        drop(state);
        wake(receiver);
        for (key, value) in lost {
            drop_caught([key]);
            drop_caught([value]);
        }
        left
    }

    fn close(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Ended;
        }
        let receiver = state.receiver.take();
        drop(state);
        if S::CLAIMED {
            // Who watches them should know.
            self.end_all();
        }
        wake(receiver);
    }

    fn is_over(&self) -> bool {
        let state = self.lock();
        state.book.len() == 0 && (!state.has_handles || state.phase != Phase::Open)
    }

    fn counts(&self) -> KeyedCounts {
        self.lock().counts
    }
}

impl<K, S> Set<K, S>
where
    K: Hash + Eq + Send + 'static,
    S: Stored,
{
    /// The timer in the slot, if there is one, with its deadline and the tick as they are known now.
    fn due(&self, state: &mut State<K, S>, slot: u32, turn: &Turn<'_>) -> Option<(u64, Timer)> {
        let mut timer = *state.book.timer(slot)?;
        let (_, value) = state.book.get(slot)?;
        timer.deadline = value.due(timer.deadline, turn.now, &self.rules);
        Some((self.shared.ticks.deadline_of(timer.deadline), timer))
    }

    /// Makes the wheel agree with the slot, which was noted.
    fn attend_slot(
        &self,
        state: &mut State<K, S>,
        slot: u32,
        turn: &Turn<'_>,
        lent: &mut dyn Shelf,
    ) {
        *state.book.noted(slot) = false;
        let place = *state.book.place(slot);
        let Some((tick, _)) = self.due(state, slot, turn) else {
            if let Some(node) = place.node() {
                lent.remove(node);
                *state.book.place(slot) = Place::NOWHERE;
            }
            return;
        };
        match place.node() {
            None if place == Place::NOWHERE => state.file(slot, tick, lent),
            // It waits to be delivered, and is looked at then.
            None => {}
            Some(node) => {
                let scheduled = lent.tick(node).min(tick);
                if scheduled == tick {
                    lent.reschedule(node, tick);
                }
                if let Some(timer) = state.book.timer(slot) {
                    timer.scheduled = scheduled;
                }
            }
        }
    }

    /// Delivers a timer that is due; returns how many places that frees.
    fn fire(
        &self,
        state: &mut State<K, S>,
        slot: u32,
        timer: Timer,
        turn: &Turn<'_>,
        lent: &mut dyn Shelf,
        lost: &mut Vec<(K, S)>,
    ) -> usize {
        if S::CLAIMED {
            let order = timer.order;
            state.fired.push_back(Fired::Candidate { slot, order });
            return 0;
        }
        let repeats = !state.repeats.is_empty() && state.repeats.contains_key(&slot);
        let copied = if repeats {
            state.repeat(slot, timer, turn)
        } else {
            None
        };
        let freed = usize::from(copied.is_none());
        let pair = if let Some((pair, next)) = copied {
            state.file(slot, self.shared.ticks.deadline_of(next), lent);
            Some(pair)
        } else {
            let (taken, _) = state.take_out(slot);
            match taken {
                Some((key, value, _)) if repeats => {
                    // Its clone panicked.
                    state.counts.removed += 1;
                    lost.push((key, value));
                    None
                }
                taken => taken.map(|(key, value, _)| (key, value.into_value())),
            }
        };
        if let Some((key, value)) = pair {
            state.counts.fired += 1;
            state.fired.push_back(Fired::Expired(Expired {
                key,
                value,
                deadline: self.shared.ticks.instant(timer.deadline),
            }));
        }
        freed
    }
}

impl<K: Hash + Eq, S: Stored> State<K, S> {
    /// The slot came off the wheel, and is due: it waits to be delivered.
    fn ripen(&mut self, slot: u32, tick: u64, order: u64) {
        if let Some(timer) = self.book.timer(slot) {
            timer.scheduled = tick;
        }
        *self.book.place(slot) = Place::RIPE;
        self.ripe.push(Reverse(Ripe { tick, order, slot }));
    }

    /// Arms a repeating timer for its next time; returns copies of its key and value for this one, and the next
    /// deadline.
    ///
    /// Times that have passed meanwhile are left out. `None` when copying panicked.
    fn repeat(
        &mut self,
        slot: u32,
        timer: Timer,
        turn: &Turn<'_>,
    ) -> Option<((K, S::Value), Timestamp)> {
        let repeat = self.repeats.get(&slot)?;
        let (key, value) = self.book.get(slot)?;
        let pair = catch_panic("the Clone of a repeating timer", || {
            (repeat.clone)(key, value)
        })?;
        let period = repeat.period_nanos;
        let late = turn.now.nanos().saturating_sub(timer.deadline.nanos());
        let missed = late.max(0) / period;
        let next = (timer.deadline).plus(period.saturating_mul(missed.saturating_add(1)));
        let order = self.next_order();
        self.write_deadline(slot, next, order);
        self.counts.set += 1;
        Some((pair, next))
    }
}
