//! The stream's half of a set.

use std::fmt;
use std::num::NonZeroU64;
use std::task::{Context, Poll, Waker};

use super::expire::Step;
use super::{BATCH, Expired, Payload, Set, TryRecvError};
use crate::panic::drop_pair;
use crate::sync::lock;

/// How often a poll locks the set at most.
const HOLDS_PER_POLL: usize = 16;

/// The source of a stream of expirations: a set with any payload.
pub(crate) trait ExpirationSource<K, V>: Send + Sync + fmt::Debug {
    /// The next expiration; `None` when there will be no more.
    fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<Option<Expired<K, V>>>;

    /// Appends what is due to `out`, at most `limit`. It ends at the first hold that is not full, so
    /// that an actor that reaches more meanwhile cannot keep the consumer busy forever.
    fn recv_more(&self, limit: usize, out: &mut Vec<Expired<K, V>>) -> usize;

    fn try_recv(&self) -> Result<Expired<K, V>, TryRecvError>;

    /// The timers that had not expired when the actor ended.
    fn unexpired(&self) -> Vec<Expired<K, V>>;

    /// The stream was dropped: drops every timer of the set.
    fn close_unread(&self);
}

impl<K, S> ExpirationSource<K, S::Value> for Set<K, S>
where
    K: Send,
    S: Payload<Value: Send> + Send,
{
    fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<Option<Expired<K, S::Value>>> {
        let poll = || self.poll_taking(cx.waker());
        self.resource.poll(poll)
    }

    fn recv_more(&self, limit: usize, out: &mut Vec<Expired<K, S::Value>>) -> usize {
        let before = out.len();
        let mut reader = lock(&self.reader);
        loop {
            let most = (limit - (out.len() - before)).min(BATCH as usize);
            // Not under the lock.
            out.reserve(most);
            reader.fetch(&self.reached, &self.shared.ticks);
            let step = self.step(&mut reader, most, |expired| out.push(expired));
            if matches!(step, Step::Nothing { .. }) || out.len() - before == limit {
                return out.len() - before;
            }
        }
    }

    fn try_recv(&self) -> Result<Expired<K, S::Value>, TryRecvError> {
        let mut reader = lock(&self.reader);
        let mut received = None;
        loop {
            reader.fetch(&self.reached, &self.shared.ticks);
            let step = self.step(&mut reader, 1, |expired| received = Some(expired));
            match (received.take(), step) {
                (Some(expired), _) => return Ok(expired),
                (None, Step::Nothing { .. }) if self.reached.has_some() => {}
                (None, Step::Nothing { is_finished: true }) => return Err(TryRecvError::Closed),
                (None, Step::Nothing { .. }) => return Err(TryRecvError::Empty),
                (None, _) => {}
            }
        }
    }

    fn unexpired(&self) -> Vec<Expired<K, S::Value>> {
        if self.lock().is_open {
            return Vec::new();
        }
        self.take_all(NonZeroU64::MAX)
    }

    fn close_unread(&self) {
        let mut state = self.lock();
        state.is_open = false;
        state.vacate_kept();
        drop(state);
        lock(&self.reader).clear();
        for Expired { key, value, .. } in self.take_all(NonZeroU64::MAX) {
            drop_pair(key, value);
        }
    }
}

impl<K, S: Payload> Set<K, S> {
    /// Takes out what is due first, or leaves a clone of the waker behind.
    pub(super) fn poll_taking(&self, waker: &Waker) -> Poll<Option<Expired<K, S::Value>>> {
        let mut reader = lock(&self.reader);
        let (mut is_registered, mut received) = (false, None);
        for _ in 0..HOLDS_PER_POLL {
            reader.fetch(&self.reached, &self.shared.ticks);
            #[cfg(feature = "_yield")]
            let limit = usize::from(reader.may_decide());
            #[cfg(not(feature = "_yield"))]
            let limit = 1;
            let step = self.step(&mut reader, limit, |expired| received = Some(expired));
            if let Some(expired) = received {
                return Poll::Ready(Some(expired));
            }
            let Step::Nothing { is_finished } = step else {
                #[cfg(feature = "_yield")]
                if !reader.has_yielded && reader.is_late(super::LATE) {
                    reader.has_yielded = true;
                    break;
                }
                continue;
            };
            #[cfg(feature = "_yield")]
            {
                reader.has_yielded = false;
            }
            if self.reached.has_some() {
                continue;
            }
            if is_finished {
                return Poll::Ready(None);
            }
            if is_registered {
                return Poll::Pending;
            }
            // The next round sees what is reached meanwhile.
            self.reached.wait(waker);
            is_registered = true;
        }
        drop(reader);
        // Others run first.
        waker.wake_by_ref();
        Poll::Pending
    }
}
