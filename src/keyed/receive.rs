//! What the stream of a set does: it takes what was delivered.

use std::hash::Hash;
use std::mem;
use std::task::{Context, Poll};

use tokio::time::Instant;

use super::Expired;
use super::set::{Fired, Phase, Set, State};
use super::stored::{Claim, Stored};
use crate::panic::{catch_panic, drop_caught};
use crate::shared::entry::Notify;
use crate::tick::Timestamp;

/// Where a stream takes its expirations from, whatever is kept for a value.
pub(crate) trait Source<K, V>: Send + Sync + std::fmt::Debug {
    /// Hands at most `limit` expirations out; ready with how many. Zero when there will be none any more.
    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        limit: usize,
        out: &mut dyn FnMut(Expired<K, V>),
    ) -> Poll<usize>;

    fn try_recv(&self) -> Result<Expired<K, V>, Empty>;

    /// What is left after the end.
    fn unexpired(&self) -> Vec<Expired<K, V>>;

    /// The stream was dropped: so is everything in the set.
    fn unread(&self);
}

/// Why there is no expiration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Empty {
    ForNow,
    Finished,
}

impl<K, S> Source<K, S::Value> for Set<K, S>
where
    K: Hash + Eq + Send + 'static,
    S: Stored,
{
    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        limit: usize,
        out: &mut dyn FnMut(Expired<K, S::Value>),
    ) -> Poll<usize> {
        let mut state = self.lock();
        let known = (state.receiver.as_ref()).is_some_and(|waker| waker.will_wake(cx.waker()));
        let (mut polled, mut tell) = self.poll_state(&mut state, limit, out);
        if polled.is_pending() && !known {
            // A waker is cloned and dropped while the set is not locked.
            drop(state);
            let mut waker = Some(cx.waker().clone());
            state = self.lock();
            let (again, told) = self.poll_state(&mut state, limit, out);
            polled = again;
            if told != Notify::None {
                tell = told;
            }
            if polled.is_pending() {
                mem::swap(&mut state.receiver, &mut waker);
            }
            drop(state);
            catch_panic("the drop of a waker", || drop(waker));
        } else {
            drop(state);
        }
        self.tell(tell);
        polled
    }

    fn try_recv(&self) -> Result<Expired<K, S::Value>, Empty> {
        let mut one = None;
        let mut state = self.lock();
        let (polled, tell) = self.poll_state(&mut state, 1, &mut |expired| one = Some(expired));
        drop(state);
        self.tell(tell);
        one.ok_or(match polled {
            Poll::Pending => Empty::ForNow,
            Poll::Ready(_) => Empty::Finished,
        })
    }

    fn unexpired(&self) -> Vec<Expired<K, S::Value>> {
        if self.lock().phase != Phase::Ended {
            return Vec::new();
        }
        self.take_all(u64::MAX)
    }

    fn unread(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Unread;
        }
        let receiver = state.receiver.take();
        let fired = mem::take(&mut state.fired);
        drop(state);
        catch_panic("the drop of a waker", || drop(receiver));
        drop_caught(fired);
        drop_caught(self.take_all(u64::MAX));
    }
}

impl<K, S> Set<K, S>
where
    K: Hash + Eq + Send + 'static,
    S: Stored,
{
    fn poll_state(
        &self,
        state: &mut State<K, S>,
        limit: usize,
        out: &mut dyn FnMut(Expired<K, S::Value>),
    ) -> (Poll<usize>, Notify) {
        let mut n = 0;
        let mut tell = Notify::None;
        // Only those that claim at the last moment need to know when that is.
        let now = (S::CLAIMED && !state.fired.is_empty()).then(Instant::now);
        let now = now.map_or(Timestamp::NEVER, |now| self.shared.ticks.timestamp(now));
        while n < limit {
            let expired = match state.fired.pop_front() {
                None => break,
                Some(Fired::Expired(expired)) => expired,
                Some(Fired::Candidate { slot, order }) => {
                    match self.claim(state, slot, order, now) {
                        Ok(expired) => expired,
                        Err(Notify::None) => continue,
                        Err(told) => {
                            // Queueing it the first time is what must not be forgotten.
                            if !matches!(tell, Notify::Enqueue(_)) {
                                tell = told;
                            }
                            continue;
                        }
                    }
                }
            };
            out(expired);
            n += 1;
        }
        let finished = state.fired.is_empty() && state.is_finished();
        let polled = if n > 0 || finished {
            Poll::Ready(n)
        } else {
            Poll::Pending
        };
        (polled, tell)
    }

    /// Takes a candidate out of the set if it expires; else sees to it that it is looked at again.
    fn claim(
        &self,
        state: &mut State<K, S>,
        slot: u32,
        order: u64,
        now: Timestamp,
    ) -> Result<Expired<K, S::Value>, Notify> {
        let Some(&mut timer) = state.book.timer(slot) else {
            return Err(Notify::None);
        };
        if timer.order != order {
            return Err(Notify::None);
        }
        let claimed = state
            .book
            .get(slot)
            .map(|(_, value)| value.claim(timer.deadline, now, &self.rules));
        let Some(Claim::Expired(due)) = claimed else {
            return Err(state.note(slot, 0));
        };
        let (taken, tell) = state.take_out(slot);
        let Some((key, value, _)) = taken else {
            return Err(tell);
        };
        state.counts.fired += 1;
        self.shared.free(1);
        Ok(Expired {
            key,
            value: value.into_value(),
            deadline: self.shared.ticks.instant(due),
        })
    }
}
