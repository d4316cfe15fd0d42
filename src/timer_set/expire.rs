//! The reader decides: it looks at the indices that the wheel has reached, and takes out the timers
//! that are due, in order.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::table::Timer;
use super::{BATCH, Copied, Expired, Guard, Payload, Set};
use crate::clock;
use crate::metrics::Event;
use crate::panic::{drop_pair, report};
use crate::shared::reached::{Reached, Until};
use crate::tick::{NEVER, Ticks, Timestamp};

/// Logged when a repeating timer cannot be cloned.
const CLONE: &str = "the Clone of a repeating timer panicked: the timer is removed";

/// An empty heap keeps memory for this many.
const KEPT_CAPACITY: usize = 256;

/// What the reader of a set has been told, and has found.
#[derive(Debug)]
pub(super) struct Reader {
    /// Indices that the wheel has reached, to look at.
    reached: Vec<u32>,
    /// Timers that were found due, the first to expire at the front.
    due: VecDeque<Due>,
    /// Those of them that were found behind others that expire later, the first one on top.
    behind: BinaryHeap<Reverse<Due>>,
    until: Until,
    /// When it was told.
    now: Timestamp,
    #[cfg(feature = "_yield")]
    pub(super) has_yielded: bool,
}

/// A timer that was found due. It counts if it still has this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    deadline: Timestamp,
    number: NonZeroU64,
    index: u32,
}

impl Reader {
    pub(super) fn new() -> Self {
        Reader {
            reached: Vec::new(),
            due: VecDeque::new(),
            behind: BinaryHeap::new(),
            until: Until::default(),
            now: Timestamp::MIN,
            #[cfg(feature = "_yield")]
            has_yielded: false,
        }
    }

    /// Takes over what the actor has told, once all of it was looked at.
    pub(super) fn fetch(&mut self, reached: &Reached, ticks: &Ticks) {
        if self.reached.is_empty()
            && let Some(until) = reached.take(&mut self.reached)
        {
            self.until = until;
            self.now = ticks.timestamp(clock::now());
            // The first one is popped first.
            self.reached.reverse();
        }
    }

    fn push(&mut self, due: Due) {
        if self.due.back().is_none_or(|last| *last < due) {
            self.due.push_back(due);
        } else {
            self.behind.push(Reverse(due));
        }
    }

    /// The first one, if its deadline is not after `by`.
    fn pop(&mut self, by: Timestamp) -> Option<Due> {
        let behind = self.behind.peek().map(|Reverse(due)| due);
        let is_behind =
            behind.is_some_and(|behind| self.due.front().is_none_or(|first| behind < first));
        let first = if is_behind { behind } else { self.due.front() };
        if first?.deadline > by {
            return None;
        }
        if is_behind {
            Some(self.behind.pop()?.0)
        } else {
            self.due.pop_front()
        }
    }

    /// The first deadline is so long ago.
    #[cfg(feature = "_yield")]
    pub(super) fn is_late(&self, by: std::time::Duration) -> bool {
        (self.due.front()).is_some_and(|first| self.now.since(first.deadline) > by)
    }

    /// Whether it takes timers out now: it has looked at what was reached, and is not late.
    #[cfg(feature = "_yield")]
    pub(super) fn may_decide(&self) -> bool {
        self.has_yielded || (self.reached.is_empty() && !self.is_late(super::LATE))
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }
}

/// What one hold of the lock has come to.
pub(super) enum Step {
    /// It has touched as many timers as it may.
    Again,
    /// It has taken as many as it was to take.
    Taken,
    /// Nothing more is due. Whether the stream is finished.
    Nothing { is_finished: bool },
}

/// What becomes of a timer that was found due.
enum Decision<K, V> {
    Expired(Expired<K, V>),
    /// It was due, and has another place in the order now.
    Again(Due),
    /// It is not due any more, or its copy failed.
    Not,
}

/// A timer whose `Clone` panicked, what that had copied, and what it panicked with.
struct FailedCopy<K, S: Payload> {
    timer: Timer<K, S>,
    copied: Copied<K, S::Value>,
    panic: Box<dyn Any + Send>,
}

impl<K, S: Payload> Set<K, S> {
    /// One hold of the lock: looks at reached indices, then takes out at most `limit` timers.
    pub(super) fn step(
        &self,
        reader: &mut Reader,
        limit: usize,
        mut take: impl FnMut(Expired<K, S::Value>),
    ) -> Step {
        // It may have to move, which it does while the set is not locked.
        let found = reader.reached.len().min(BATCH as usize);
        reader.due.reserve(found);
        reader.behind.reserve(found);
        let mut failed = Vec::new();
        let mut guard = self.lock();
        let ticks = &self.shared.ticks;
        let by = ticks.begin_timestamp(reader.until.before.saturating_sub(1));
        let (mut left, mut taken) = (BATCH, 0);
        while left > 0
            && let Some(index) = reader.reached.pop()
        {
            left -= 1;
            if let Some(due) = guard.look_at(index, reader.until.reached) {
                reader.push(due);
            }
        }
        let step = loop {
            if left == 0 {
                break Step::Again;
            }
            if taken == limit {
                break Step::Taken;
            }
            left -= 1;
            let Some(first) = reader.pop(by) else {
                break Step::Nothing {
                    is_finished: guard.is_finished(),
                };
            };
            match guard.decide(first, reader.until.reached, reader.now, &mut failed) {
                Decision::Expired(expired) => {
                    taken += 1;
                    take(expired);
                }
                Decision::Again(due) => reader.push(due),
                Decision::Not => {}
            }
        };
        drop(guard);
        if reader.due.is_empty() {
            reader.due.shrink_to(KEPT_CAPACITY);
            reader.behind.shrink_to(KEPT_CAPACITY);
        }
        for failed in failed {
            report(CLONE, failed.panic);
            drop_pair(failed.timer.key, failed.timer.value);
            drop_pair(failed.copied.0, failed.copied.1);
        }
        step
    }
}

impl<K, S: Payload> Guard<'_, K, S> {
    /// The wheel has reached this index, perhaps for a timer that was there before. Returns its
    /// timer if that is due. One that is due later gets a note.
    fn look_at(&mut self, index: u32, tick: u64) -> Option<Due> {
        let (set, state) = (self.after.set, &mut *self.state);
        let slot = state.table.get_mut(index)?;
        let Some(timer) = &slot.timer else {
            if let Some(kept) = state.kept.iter().position(|kept| kept.index == index) {
                state.kept.remove(kept);
                state.table.vacate(index);
            }
            return None;
        };
        let now = set.shared.ticks.begin_timestamp(tick);
        let due = set.due(&timer.value, timer.deadline, now);
        let due_tick = set.tick(due);
        if due_tick <= tick {
            let number = timer.number;
            slot.scheduled = Timestamp::NEVER;
            return Some(Due {
                deadline: due,
                number,
                index,
            });
        }
        slot.scheduled = due;
        if due_tick != NEVER {
            state.counters.add(Event::Rescheduled, 1);
            self.note(index, due_tick);
        }
        None
    }

    /// Decides about a timer that was found due.
    fn decide(
        &mut self,
        first: Due,
        tick: u64,
        read_at: Timestamp,
        failed: &mut Vec<FailedCopy<K, S>>,
    ) -> Decision<K, S::Value> {
        let set = self.after.set;
        let timer = self.table.timer(first.index);
        let Some(timer) = timer.filter(|timer| timer.number == first.number) else {
            return Decision::Not;
        };
        let now = set.shared.ticks.begin_timestamp(tick);
        let due = set.due(&timer.value, timer.deadline, now);
        let expires = if due <= first.deadline {
            timer.value.expire(timer.deadline, now, set.idle)
        } else {
            None
        };
        let Some((deadline, cause)) = expires else {
            // It was touched in the meantime.
            let due = self.look_at(first.index, tick);
            return due.map_or(Decision::Not, Decision::Again);
        };
        let Some((key, value, missed)) = self.take_or_rearm(first.index, deadline, failed) else {
            return Decision::Not;
        };
        set.shared
            .metrics
            .0
            .lateness
            .record(read_at.since(deadline));
        Decision::Expired(Expired {
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
        failed: &mut Vec<FailedCopy<K, S>>,
    ) -> Option<(K, S::Value, u64)> {
        let mut copied = (None, None);
        let panic = match self.repeat(index, deadline, &mut copied) {
            Ok(Some(missed)) => return Some((copied.0?, copied.1?, missed)),
            Ok(None) => None,
            Err(panic) => Some(panic),
        };
        let timer = self.remove(index)?;
        self.table.vacate(index);
        let Some(panic) = panic else {
            self.count_ended(Event::KeyedFired, 1);
            return Some((timer.key, timer.value.into_value(), 0));
        };
        self.count_ended(Event::KeyedRemoved, 1);
        failed.push(FailedCopy {
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
        let (set, state) = (self.after.set, &mut *self.state);
        let repeat = state.repeats.get(&index);
        let (Some((_, repeat)), Some(timer)) = (repeat, state.table.timer(index)) else {
            return Ok(None);
        };
        let clone = || (repeat.clone)(&timer.key, &timer.value, copied);
        catch_unwind(AssertUnwindSafe(clone))?;
        let now = set.shared.ticks.timestamp(clock::now());
        let late = now.nanos().saturating_sub(deadline.nanos());
        let missed = late.max(0) / repeat.period;
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
