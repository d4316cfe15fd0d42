//! The stream's half of a set: it takes what was delivered.

use std::fmt;
use std::iter;
use std::mem;
use std::num::NonZeroU64;
use std::task::{Context, Poll, Waker};

use super::{BATCH, Delivered, Expired, Payload, Phase, Set, State, TryRecvError};
use crate::panic::{drop_pair, drop_replaced};

/// The source of a stream of expirations: a set with any payload.
pub(crate) trait Source<K, V>: Send + Sync + fmt::Debug {
    /// Puts at most `limit` expirations into `out`; ready with how many. Zero when there will be no
    /// more.
    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        limit: usize,
        out: &mut dyn Receiver<Expired<K, V>>,
    ) -> Poll<usize>;

    fn try_recv(&self) -> Result<Expired<K, V>, TryRecvError>;

    /// The timers that had not expired when the actor ended.
    fn unexpired(&self) -> Vec<Expired<K, V>>;

    /// The stream was dropped: drops every timer of the set.
    fn close_unread(&self);
}

/// A place for expirations. It makes room before the set is locked.
pub(crate) trait Receiver<T> {
    /// Makes room for `more` items.
    fn reserve(&mut self, more: usize);
    fn push(&mut self, item: T);
}

impl<T> Receiver<T> for Vec<T> {
    fn reserve(&mut self, more: usize) {
        self.reserve(more);
    }

    fn push(&mut self, item: T) {
        self.push(item);
    }
}

impl<T> Receiver<T> for Option<T> {
    fn reserve(&mut self, _: usize) {}

    fn push(&mut self, item: T) {
        *self = Some(item);
    }
}

impl<K, S> Source<K, S::Value> for Set<K, S>
where
    K: Send,
    S: Payload<Value: Send, Rules: Send + Sync> + Send,
{
    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        limit: usize,
        out: &mut dyn Receiver<Expired<K, S::Value>>,
    ) -> Poll<usize> {
        let poll = || self.poll_taking(cx.waker(), Waker::clone, limit, out);
        self.resource.poll(poll)
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
        if self.lock().phase != Phase::Ended {
            return Vec::new();
        }
        self.take_all(NonZeroU64::MAX)
    }

    fn close_unread(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Unread;
        }
        state.release_all();
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
    /// Takes what was delivered, or leaves a clone of the waker behind.
    pub(super) fn poll_taking(
        &self,
        consumer: &Waker,
        clone: impl Fn(&Waker) -> Waker,
        limit: usize,
        out: &mut dyn Receiver<Expired<K, S::Value>>,
    ) -> Poll<usize> {
        let mut waker = None;
        loop {
            out.reserve(limit.min(BATCH as usize));
            let mut state = self.lock();
            let taken = state.take_delivered(limit, out);
            if taken > 0 || state.is_finished() {
                drop(state);
                return Poll::Ready(taken + self.take_more(limit - taken, taken, out));
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

    /// Takes further batches after a full one. It ends at the first that is not full, so that an
    /// actor that delivers meanwhile cannot keep the consumer busy forever.
    fn take_more(
        &self,
        limit: usize,
        first: usize,
        out: &mut dyn Receiver<Expired<K, S::Value>>,
    ) -> usize {
        let mut taken = 0;
        let mut last = first;
        while last == BATCH as usize && taken < limit {
            out.reserve((limit - taken).min(BATCH as usize));
            last = self.lock().take_delivered(limit - taken, out);
            taken += last;
        }
        taken
    }
}

impl<K, S: Payload> State<K, S> {
    /// Takes at most a batch of what was delivered.
    pub(super) fn take_delivered(
        &mut self,
        limit: usize,
        out: &mut dyn Receiver<Expired<K, S::Value>>,
    ) -> usize {
        let mut taken = 0;
        while taken < limit.min(BATCH as usize) {
            let Some(expired) = self.delivered.pop() else {
                break;
            };
            out.push(expired);
            taken += 1;
        }
        taken
    }
}
