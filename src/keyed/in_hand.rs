//! The expirations that a [dispatch](super::dispatch) has in hand: their handlers run.
//!
//! A key is in hand once at most. A timer of such a key that is due stays in its set until the
//! handler has finished. Removing the key, or setting it again, *supersedes* what is in hand: then
//! the handler sets no timer.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::payload::Payload;
use super::receipt::Reader;
use super::set::{Guard, Set};
use crate::panic::drop_caught;

/// What a set needs to do with the keys that are in hand.
pub(crate) struct KeyCalls<K> {
    pub(super) clone: fn(&K) -> K,
    pub(super) eq: fn(&K, &K) -> bool,
}

/// Identifies an expiration in hand: the hash of its key, and a number that no other one has.
pub(crate) type Ticket = (u32, u64);

struct Handled<K> {
    key: K,
    is_superseded: bool,
    /// Where a timer of the key was found due meanwhile.
    due: Option<u32>,
}

/// See the module.
pub(super) struct InHand<K> {
    calls: KeyCalls<K>,
    handled: BTreeMap<Ticket, Handled<K>>,
    last: u64,
}

impl<K> InHand<K> {
    pub(super) fn len(&self) -> usize {
        self.handled.len()
    }

    /// The ticket of the key with this hash for which `matches` is true.
    fn find(&self, hash: u32, matches: impl Fn(&K) -> bool) -> Option<Ticket> {
        let mut same_hash = self.handled.range((hash, 0)..=(hash, u64::MAX));
        Some(*same_hash.find(|(_, handled)| matches(&handled.key))?.0)
    }

    /// All timers are removed.
    pub(super) fn supersede_all(&mut self) {
        for handled in self.handled.values_mut() {
            handled.is_superseded = true;
        }
    }
}

impl<K, S: Payload> Guard<'_, K, S> {
    /// The ticket of the key with this hash for which `matches` is true, if it is in hand.
    #[inline]
    pub(super) fn in_hand(&self, hash: u32, matches: impl Fn(&K) -> bool) -> Option<Ticket> {
        self.in_hand.as_ref()?.find(hash, matches)
    }

    #[inline]
    pub(super) fn in_hand_of(&self, hash: u32, key: &K) -> Option<Ticket> {
        let in_hand = self.in_hand.as_ref()?;
        in_hand.find(hash, |other| (in_hand.calls.eq)(other, key))
    }

    #[inline]
    pub(super) fn supersede(&mut self, ticket: Option<Ticket>) {
        let Some(ticket) = ticket else { return };
        let in_hand = self.in_hand.as_mut();
        if let Some(handled) = in_hand.and_then(|in_hand| in_hand.handled.get_mut(&ticket)) {
            handled.is_superseded = true;
        }
    }

    /// The timer at an index is due. Returns whether it has to wait until a handler has finished.
    pub(super) fn waits_for_handler(&mut self, index: u32) -> bool {
        let state = &mut **self;
        let (Some(in_hand), Some(slot)) = (&mut state.in_hand, state.table.get(index)) else {
            return false;
        };
        let key = slot.timer.as_ref().map(|timer| &timer.key);
        let is = |handled: &K| key.is_some_and(|key| (in_hand.calls.eq)(handled, key));
        let ticket = in_hand.find(slot.hash, is);
        let waits_for = ticket.and_then(|ticket| in_hand.handled.get_mut(&ticket));
        waits_for.map(|handled| handled.due = Some(index)).is_some()
    }

    /// Copies the key of a timer that a dispatch receives.
    pub(super) fn copy_for_hand(&self, index: u32) -> Result<Option<K>, Box<dyn Any + Send>> {
        let (Some(in_hand), Some(timer)) = (&self.in_hand, self.table.timer(index)) else {
            return Ok(None);
        };
        catch_unwind(AssertUnwindSafe(|| (in_hand.calls.clone)(&timer.key))).map(Some)
    }

    /// A dispatch receives the timer at an index. One that repeats is armed again already.
    pub(super) fn take_in_hand(&mut self, index: u32, key: Option<K>, repeats: bool) -> Ticket {
        let state = &mut **self;
        let (Some(in_hand), Some(slot)) = (&mut state.in_hand, state.table.get(index)) else {
            return Ticket::default();
        };
        in_hand.last += 1;
        let ticket = (slot.hash, in_hand.last);
        if let Some(key) = key {
            let handled = Handled {
                key,
                is_superseded: repeats,
                due: None,
            };
            in_hand.handled.insert(ticket, handled);
            self.set().shared.reserve_beyond();
        }
        ticket
    }
}

/// What a dispatch needs of its set.
pub(crate) trait Dispatched<K, V> {
    /// From now on [`ticket`](Reader::ticket) is that of what was received last.
    fn begin_dispatch(&self, reader: &mut Reader, calls: KeyCalls<K>);

    /// A handler has finished, and wants its timer to be set again or not.
    fn end_handler(&self, reader: &mut Reader, ticket: Ticket, again: Option<(V, Duration)>);

    /// Nothing is in hand any more.
    fn end_dispatch(&self, reader: &mut Reader);
}

impl<K, S: Payload> Dispatched<K, S::Value> for Set<K, S> {
    fn begin_dispatch(&self, reader: &mut Reader, calls: KeyCalls<K>) {
        // The one before may have been forgotten.
        self.end_dispatch(reader);
        let in_hand = InHand {
            calls,
            handled: BTreeMap::new(),
            last: 0,
        };
        self.lock().in_hand = S::KEYED.then_some(in_hand);
    }

    fn end_handler(
        &self,
        reader: &mut Reader,
        ticket: Ticket,
        again: Option<(S::Value, Duration)>,
    ) {
        let deadline = |delay| self.shared.ticks.timestamp_after(delay);
        let again = again.and_then(|(value, delay)| Some((S::again(value)?, deadline(delay))));
        let mut guard = self.lock();
        let handled = (guard.in_hand.as_mut()).and_then(|in_hand| in_hand.handled.remove(&ticket));
        let Some(handled) = handled else { return };
        let left = match again {
            Some((value, deadline)) if !handled.is_superseded => {
                guard.add_reserved(ticket.0, handled.key, value, deadline, deadline);
                None
            }
            again => Some((handled.key, again)),
        };
        drop(guard);
        reader.hints.extend(handled.due);
        if let Some((key, again)) = left {
            self.shared.unreserve(1);
            drop_caught([key]);
            drop_caught(again);
        }
    }

    fn end_dispatch(&self, reader: &mut Reader) {
        let in_hand = self.lock().in_hand.take();
        let Some(in_hand) = in_hand else { return };
        self.shared.unreserve(in_hand.len());
        for handled in in_hand.handled.into_values() {
            reader.hints.extend(handled.due);
            drop_caught([handled.key]);
        }
    }
}
