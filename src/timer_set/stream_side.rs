//! The stream's half of a set: it takes what was delivered.

use std::fmt;
use std::iter;
use std::mem;
use std::num::NonZeroU64;
use std::task::{Context, Poll, Waker};

use super::{BATCH, Delivered, Expired, Payload, Set, TryRecvError};
use crate::panic::{drop_pair, drop_replaced};

/// The source of a stream of expirations: a set with any payload.
pub(crate) trait ExpirationSource<K, V>: Send + Sync + fmt::Debug {
    /// The next expiration; `None` when there will be no more.
    fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<Option<Expired<K, V>>>;

    /// Appends what has been delivered to `out`, at most `limit`. It ends at the first batch that
    /// is not full, so that an actor that delivers meanwhile cannot keep the consumer busy forever.
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
        let poll = || self.poll_taking(cx.waker(), Waker::clone);
        self.resource.poll(poll)
    }

    fn recv_more(&self, limit: usize, out: &mut Vec<Expired<K, S::Value>>) -> usize {
        let before = out.len();
        loop {
            let most = (limit - (out.len() - before)).min(BATCH as usize);
            // Not under the lock.
            out.reserve(most);
            let mut state = self.lock();
            let taken = (0..most).map_while(|_| state.delivered.pop());
            let length = out.len();
            out.extend(taken);
            drop(state);
            if out.len() < length + most || most == 0 {
                return out.len() - before;
            }
        }
    }

    fn try_recv(&self) -> Result<Expired<K, S::Value>, TryRecvError> {
        let mut state = self.lock();
        match state.delivered.pop() {
            Some(expired) => Ok(expired),
            None if state.is_finished() => Err(TryRecvError::Closed),
            None => Err(TryRecvError::Empty),
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
        let receiver = state.receiver.take();
        let mut delivered = mem::replace(&mut state.delivered, Delivered::new());
        drop(state);
        drop_replaced(receiver);
        let pending = self.take_all(NonZeroU64::MAX);
        for Expired { key, value, .. } in iter::from_fn(|| delivered.pop()).chain(pending) {
            drop_pair(key, value);
        }
    }
}

impl<K, S: Payload> Set<K, S> {
    /// Takes what was delivered first, or leaves a clone of the waker behind.
    pub(super) fn poll_taking(
        &self,
        consumer: &Waker,
        clone: impl Fn(&Waker) -> Waker,
    ) -> Poll<Option<Expired<K, S::Value>>> {
        let mut waker = None;
        loop {
            let mut state = self.lock();
            let expired = state.delivered.pop();
            if expired.is_some() || state.is_finished() {
                return Poll::Ready(expired);
            }
            let knows = |receiver: &Waker| receiver.will_wake(consumer);
            if state.receiver.as_ref().is_some_and(knows) {
                return Poll::Pending;
            }
            if let Some(waker) = waker {
                let replaced = state.receiver.replace(waker);
                drop(state);
                drop_replaced(replaced);
                return Poll::Pending;
            }
            // Clones the waker while the set is not locked. The next round takes what is delivered
            // meanwhile.
            drop(state);
            waker = Some(clone(consumer));
        }
    }
}
