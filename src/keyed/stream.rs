//! A set as the source of a stream of expirations.

use std::fmt;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use super::error::TryRecvError;
use super::expired::{Cause, Expired};
use super::in_hand::Dispatched;
use super::payload::Payload;
use super::receipt::{Reader, Receipt};
use super::set::{BATCH, Set};
use super::unexpired::Unexpired;
use crate::shared::hearing::Hearing;

/// How often a poll locks the set at most.
const HOLDS_PER_POLL: usize = 16;

/// Whether a watch with this key and value may expire for this reason.
pub(crate) type Veto<'a, K, V> = dyn FnMut(&K, &mut V, Cause) -> bool + 'a;

/// The source of a stream of expirations: a set with any payload.
pub(crate) trait ExpirationSource<K, V>:
    Dispatched<K, V> + Send + Sync + fmt::Debug
{
    /// The next expiration; `None` when there will be no more.
    fn poll_recv(
        &self,
        reader: &mut Reader,
        cx: &mut Context<'_>,
        may_expire: &mut Veto<'_, K, V>,
    ) -> Poll<Option<Expired<K, V>>>;

    /// Appends what is due to `out`, at most `limit`. It ends when nothing is due, though the wheel
    /// may reach more meanwhile.
    fn recv_more(&self, reader: &mut Reader, limit: usize, out: &mut Vec<Expired<K, V>>) -> usize;

    fn try_recv(&self, reader: &mut Reader) -> Result<Expired<K, V>, TryRecvError>;

    /// The timers that were not received when the actor ended.
    fn unexpired(&self) -> Vec<Unexpired<K, V>>;

    /// The stream is dropped: drops every timer of the set.
    fn close(&self);
}

impl<K, S> ExpirationSource<K, S::Value> for Set<K, S>
where
    K: Send,
    S: Payload<Value: Send> + Send,
{
    fn poll_recv(
        &self,
        reader: &mut Reader,
        cx: &mut Context<'_>,
        may_expire: &mut Veto<'_, K, S::Value>,
    ) -> Poll<Option<Expired<K, S::Value>>> {
        self.poll_receive(reader, cx.waker(), may_expire)
    }

    fn recv_more(
        &self,
        reader: &mut Reader,
        limit: usize,
        out: &mut Vec<Expired<K, S::Value>>,
    ) -> usize {
        let before = out.len();
        loop {
            let most = (limit - (out.len() - before)).min(BATCH as usize);
            // Not under the lock.
            out.reserve(most);
            let receipt = self.receive(reader, most, &mut |_, _, _| true, |expired| {
                out.push(expired);
            });
            if receipt != Receipt::More || out.len() - before == limit {
                return out.len() - before;
            }
        }
    }

    fn try_recv(&self, reader: &mut Reader) -> Result<Expired<K, S::Value>, TryRecvError> {
        let mut received = None;
        loop {
            let receipt = self.receive(reader, 1, &mut |_, _, _| true, |expired| {
                received = Some(expired);
            });
            match (received.take(), receipt) {
                (Some(expired), _) => return Ok(expired),
                (None, Receipt::More) => {}
                // It is asked for now.
                (None, Receipt::Unheard) => reader.hearing = Hearing::Over,
                (None, Receipt::Empty) => return Err(TryRecvError::Empty),
                (None, Receipt::Finished) => return Err(TryRecvError::Closed),
            }
        }
    }

    fn unexpired(&self) -> Vec<Unexpired<K, S::Value>> {
        self.take_unreceived()
    }

    fn close(&self) {
        Set::close(self);
    }
}

impl<K, S: Payload> Set<K, S> {
    /// Takes out what is due first, or leaves the waker behind.
    pub(super) fn poll_receive(
        &self,
        reader: &mut Reader,
        waker: &Waker,
        may_expire: &mut Veto<'_, K, S::Value>,
    ) -> Poll<Option<Expired<K, S::Value>>> {
        let mut received = None;
        for _ in 0..HOLDS_PER_POLL {
            let receipt = self.receive(reader, 1, may_expire, |expired| received = Some(expired));
            if received.is_some() {
                return Poll::Ready(received);
            }
            match receipt {
                Receipt::Finished => return Poll::Ready(None),
                Receipt::Unheard => {
                    let longest = Duration::from_nanos(self.shortest_idle.load(Ordering::Relaxed));
                    ready!(reader.hearing.poll(longest, waker));
                }
                Receipt::Empty if self.hints.wait(waker) => return Poll::Pending,
                // What is new may be due.
                Receipt::Empty | Receipt::More => {}
            }
        }
        // Others run first.
        waker.wake_by_ref();
        Poll::Pending
    }
}
