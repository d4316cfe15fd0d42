//! The receipt: the reader looks at the indices that the wheel has reached, and decides.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::due::{Due, DueTimers};
use super::expired::Expired;
use super::hint::{Hints, Reach};
use super::in_hand::Ticket;
use super::payload::Payload;
use super::set::{BATCH, Copied, Guard, Set};
use super::stream::Veto;
use super::table::{Look, Timer};
use crate::clock;
use crate::metrics::Event;
use crate::panic::{drop_caught, drop_pair, report};
use crate::shared::Shared;
use crate::shared::hearing::Hearing;
use crate::shared::stalls::{Gap, SHORTEST};
use crate::tick::{Timestamp, nanos};

/// Logged when a key or value cannot be cloned, of a repeating timer or for a dispatch.
const CLONE: &str = "the Clone of a key or value panicked: the timer is removed";

/// Emptied lists keep memory for this many.
const KEPT_CAPACITY: usize = 256;

/// What the reader of a set was told, and has found.
#[derive(Debug)]
pub(crate) struct Reader {
    /// The indices that it has to look at.
    pub(super) hints: VecDeque<u32>,
    /// Empty; kept for its memory.
    taken: Vec<u32>,
    due: DueTimers,
    reach: Reach,
    /// The time at which it learned that.
    now: Timestamp,
    /// Before it decides about watches that were found due.
    pub(super) hearing: Hearing,
    /// From when it was last woken until it was polled, where that took long.
    gap: Gap,
    /// What a dispatch has received last.
    pub(super) ticket: Ticket,
}

impl Reader {
    pub(super) fn new() -> Self {
        Reader {
            hints: VecDeque::new(),
            taken: Vec::new(),
            due: DueTimers::default(),
            reach: Reach::default(),
            now: Timestamp::MIN,
            hearing: Hearing::None,
            gap: Gap::default(),
            ticket: Ticket::default(),
        }
    }

    /// Takes over what the actor has told since, once it has decided about those that had a
    /// hearing.
    fn fetch(&mut self, hints: &Hints, shared: &Shared) {
        let armed_after = self.reach.armed_after;
        let mut woken = None;
        let (taken, reach, told) = (&mut self.taken, &mut self.reach, &shared.told_before.0);
        if !matches!(self.hearing, Hearing::None) || !hints.take(taken, reach, told, &mut woken) {
            return;
        }
        if !(self.hints.is_empty() && self.due.is_empty()) {
            // It counts for those too.
            self.reach.armed_after = armed_after;
        }
        self.now = shared.ticks.timestamp(clock::now());
        self.hints.extend(self.taken.drain(..));
        self.taken.shrink_to(KEPT_CAPACITY);
        if let Some(tick) = woken {
            let woken = shared.ticks.begin_timestamp(tick).after_origin();
            self.was_woken(woken);
        }
    }

    /// The actor has woken it at `woken`, and it is polled now.
    fn was_woken(&mut self, woken: u64) {
        let polled = self.now.after_origin();
        if polled.saturating_sub(woken) > nanos(SHORTEST) {
            // The actor may have been late by less than a stall itself.
            let could_run = woken.saturating_sub(nanos(SHORTEST));
            let gap = Gap::between(could_run, polled, clock::is_virtual);
            self.gap = gap.unwrap_or(self.gap);
        }
    }

    /// Calls code of a user about a timer that was found due. If it unwinds, the timer is still due
    /// (K3).
    fn or_due<R>(&mut self, found: Due, user_code: impl FnOnce() -> R) -> R {
        match catch_unwind(AssertUnwindSafe(user_code)) {
            Ok(result) => result,
            Err(panic) => {
                self.due.push(found);
                resume_unwind(panic);
            }
        }
    }

    /// Frees the memory of lists that have become empty.
    fn free_spare(&mut self) {
        if self.hints.is_empty() {
            self.hints.shrink_to(KEPT_CAPACITY);
        }
        self.due.free_spare();
    }
}

/// What one hold of the lock has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Receipt {
    /// It has touched as many timers as it may.
    More,
    /// Watches are due, and have to have a hearing first.
    Unheard,
    /// Nothing more is due.
    Empty,
    /// Nothing more is due, nor ever will be.
    Finished,
}

/// A timer whose `Clone` panicked.
struct Failed<K, S: Payload> {
    timer: Timer<K, S>,
    /// What had been copied.
    copied: Copied<K, S::Value>,
    in_hand: Option<K>,
    panic: Box<dyn Any + Send>,
}

impl<K, S: Payload> Set<K, S> {
    /// One hold of the lock: looks at indices, then takes out timers that are due, at most `limit`.
    pub(super) fn receive(
        &self,
        reader: &mut Reader,
        limit: usize,
        may_expire: &mut Veto<'_, K, S::Value>,
        mut out: impl FnMut(Expired<K, S::Value>),
    ) -> Receipt {
        reader.fetch(&self.hints, &self.shared);
        // They may have to move, which they do while the set is not locked.
        reader.due.reserve(reader.hints.len().min(BATCH as usize));
        let mut failed = Vec::new();
        let mut guard = self.lock();
        let receipt = guard.receive(reader, limit, may_expire, &mut failed, &mut out);
        drop(guard);
        reader.free_spare();
        for failed in failed {
            report(CLONE, failed.panic);
            drop_pair(failed.timer.key, failed.timer.value);
            drop_pair(failed.copied.0, failed.copied.1);
            drop_caught(failed.in_hand);
        }
        receipt
    }
}

impl<K, S: Payload> Guard<'_, K, S> {
    fn receive(
        &mut self,
        reader: &mut Reader,
        mut limit: usize,
        may_expire: &mut Veto<'_, K, S::Value>,
        failed: &mut Vec<Failed<K, S>>,
        out: &mut impl FnMut(Expired<K, S::Value>),
    ) -> Receipt {
        for _ in 0..BATCH {
            // One of the indices may be due first.
            if let Some(index) = reader.hints.pop_front() {
                if let Some(due) = self.look_at(index, reader) {
                    reader.due.push(due);
                }
                continue;
            }
            if limit == 0 {
                return Receipt::More;
            }
            let before = reader.reach.before;
            if !S::KEYED && !reader.hearing.is_over() && reader.due.is_any(before) {
                return Receipt::Unheard;
            }
            let Some(due) = reader.due.pop(before) else {
                reader.hearing = Hearing::None;
                // In this order: the actor says what is due before it ends.
                let is_finished = self.is_finished();
                return if self.set().hints.has_news() {
                    Receipt::More
                } else if is_finished {
                    Receipt::Finished
                } else {
                    Receipt::Empty
                };
            };
            if let Some(expired) = self.decide(due, reader, may_expire, failed) {
                limit -= 1;
                out(expired);
            }
        }
        Receipt::More
    }

    /// The wheel has reached this index, perhaps for a timer that was there before. Returns its
    /// timer if that is due by then. One that is due later gets a note.
    fn look_at(&mut self, index: u32, reader: &Reader) -> Option<Due> {
        let (set, tick) = (self.set(), reader.reach.tick);
        let state = &mut **self;
        let slot = state.table.get_mut(index)?;
        let Some(timer) = &slot.timer else {
            if let Some(kept) = state.kept.iter().position(|kept| *kept == index) {
                state.kept.remove(kept);
                state.table.vacate(index);
            }
            return None;
        };
        let now = set.shared.ticks.begin_timestamp(tick);
        let silence = set.silence(reader.gap);
        let due = timer.value.due(timer.deadline, now, &silence);
        match slot.look(due, tick, &set.shared.ticks) {
            Look::Due { tick, number } => {
                return Some(Due {
                    tick,
                    number,
                    index,
                });
            }
            Look::Later(tick) => {
                state.counters.add(Event::Rescheduled, 1);
                self.note(index, tick);
            }
            Look::Nothing => {}
        }
        None
    }

    /// Decides about a timer that was found due. `None` if it is no more, or its copy failed.
    fn decide(
        &mut self,
        found: Due,
        reader: &mut Reader,
        may_expire: &mut Veto<'_, K, S::Value>,
        failed: &mut Vec<Failed<K, S>>,
    ) -> Option<Expired<K, S::Value>> {
        let set = self.set();
        let is_found = |timer: &&Timer<K, S>| timer.number == found.number;
        self.table.timer(found.index).filter(is_found)?;
        if self.in_hand.is_some() && reader.or_due(found, || self.waits_for_handler(found.index)) {
            return None;
        }
        let timer = self.table.timer_mut(found.index)?;
        debug_assert!(found.tick < reader.reach.before, "K5: its tick is complete");
        let now = set.shared.ticks.begin_timestamp(reader.reach.tick);
        let silence = set.silence(reader.gap);
        let due = timer.value.due(timer.deadline, now, &silence);
        let mut may_expire = |value: &mut S::Value, cause| may_expire(&timer.key, value, cause);
        let expire = || {
            let is_due = set.tick(due) <= found.tick;
            let (value, deadline) = (&mut timer.value, &mut timer.deadline);
            is_due.then(|| value.expire(deadline, now, &silence, &mut may_expire))?
        };
        let Some((deadline, cause)) = reader.or_due(found, expire) else {
            // It was touched in the meantime, or kept. If it is due nevertheless, it takes its new
            // place in the order.
            if let Some(due) = self.look_at(found.index, reader) {
                reader.due.push(due);
            }
            return None;
        };
        let (key, value, missed) =
            self.take_or_rearm(found.index, deadline, &mut reader.ticket, failed)?;
        let late_since = deadline.max(reader.reach.armed_after);
        let lateness = reader.now.since(late_since);
        set.shared.metrics.0.lateness.record(lateness);
        Some(Expired {
            key,
            value,
            deadline: set.shared.ticks.instant(deadline),
            missed,
            cause,
        })
    }

    /// Takes out a timer that expires, or arms it again if it repeats. Returns key and value, and
    /// how many periods are skipped. `None` when copying them panicked.
    fn take_or_rearm(
        &mut self,
        index: u32,
        deadline: Timestamp,
        ticket: &mut Ticket,
        failed: &mut Vec<Failed<K, S>>,
    ) -> Option<(K, S::Value, u64)> {
        let (mut copied, mut in_hand) = ((None, None), None);
        let repeated = self.copy_for_hand(index).and_then(|key| {
            in_hand = key;
            self.repeat(index, deadline, &mut copied)
        });
        if let Ok(missed) = &repeated {
            *ticket = self.take_in_hand(index, in_hand.take(), missed.is_some());
        }
        let panic = match repeated {
            Ok(Some(missed)) => return Some((copied.0?, copied.1?, missed)),
            Ok(None) => None,
            Err(panic) => Some(panic),
        };
        let timer = self.remove(index)?;
        // It has no node.
        self.table.vacate(index);
        let Some(panic) = panic else {
            self.count_ended(Event::KeyedFired, 1);
            return Some((timer.key, timer.value.into_value(), 0));
        };
        self.count_ended(Event::KeyedRemoved, 1);
        failed.push(Failed {
            timer,
            copied,
            in_hand,
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
        let set = self.set();
        let state = &mut **self;
        let repeat = state.repeats.get(&index);
        let (Some(repeat), Some(timer)) = (repeat, state.table.timer(index)) else {
            return Ok(None);
        };
        let clone = || (repeat.clone)(&timer.key, &timer.value, copied);
        catch_unwind(AssertUnwindSafe(clone))?;
        let now = set.shared.ticks.timestamp(clock::now());
        let missed = (set.shared.ticks).missed_periods(deadline, repeat.period, now);
        let next = deadline.plus(repeat.period.saturating_mul(missed.saturating_add(1)));
        let number = state.next_number();
        if let Some(slot) = state.table.get_mut(index) {
            slot.scheduled = next;
            if let Some(timer) = &mut slot.timer {
                timer.deadline = next;
                timer.number = number;
            }
        }
        state.counters.add(Event::KeyedRepeated, 1);
        self.note(index, set.tick(next));
        Ok(Some(missed.unsigned_abs()))
    }
}
