//! The expirations that a [dispatch](super::dispatch) has in hand: their handlers run.
//!
//! A key is in hand once at most. A timer of such a key that is due stays in its set until the
//! handler has finished. Removing the key, or setting it again, *supersedes* what is in hand: then
//! the handler sets no timer.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use hashbrown::HashTable;

use super::key_index::spread;
use super::payload::Payload;
use super::receipt::Reader;
use super::set::{Guard, Set};
use crate::panic::drop_caught;

/// What a set needs to do with the keys that are in hand.
pub(crate) struct KeyCalls<K> {
    pub(super) clone: fn(&K) -> K,
    pub(super) eq: fn(&K, &K) -> bool,
}

/// Finds what is in hand.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ticket {
    hash: u32,
    number: u64,
}

struct Handled<K> {
    ticket: Ticket,
    key: K,
    is_superseded: bool,
    /// Where a timer of the key was found due meanwhile.
    due: Option<u32>,
}

/// See the module.
pub(super) struct InHand<K> {
    calls: KeyCalls<K>,
    handled: HashTable<Handled<K>>,
    last: u64,
}

impl<K> InHand<K> {
    pub(super) fn len(&self) -> usize {
        self.handled.len()
    }

    /// The ticket of the key with this hash for which `matches` is true.
    fn find(&self, hash: u32, matches: impl Fn(&K) -> bool) -> Option<Ticket> {
        let matches = |handled: &Handled<K>| matches(&handled.key);
        Some(self.handled.find(spread(hash), matches)?.ticket)
    }

    fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Handled<K>> {
        let is = |handled: &Handled<K>| handled.ticket.number == ticket.number;
        self.handled.find_mut(spread(ticket.hash), is)
    }

    fn add(&mut self, hash: u32, key: K, is_superseded: bool) -> Ticket {
        self.last += 1;
        let number = self.last;
        let ticket = Ticket { hash, number };
        let handled = Handled {
            ticket,
            key,
            is_superseded,
            due: None,
        };
        let hash_of = |handled: &Handled<K>| spread(handled.ticket.hash);
        self.handled.insert_unique(spread(hash), handled, hash_of);
        ticket
    }

    fn remove(&mut self, ticket: Ticket) -> Option<Handled<K>> {
        let is = |handled: &Handled<K>| handled.ticket.number == ticket.number;
        let found = self.handled.find_entry(spread(ticket.hash), is).ok()?;
        Some(found.remove().0)
    }

    /// All timers are removed.
    pub(super) fn supersede_all(&mut self) {
        for handled in &mut self.handled {
            handled.is_superseded = true;
        }
    }
}

impl<K, S: Payload> Guard<'_, K, S> {
    /// What is in hand of the key with this hash for which `matches` is true.
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
        let handled = (self.in_hand.as_mut()).and_then(|in_hand| in_hand.get_mut(ticket));
        if let Some(handled) = handled {
            handled.is_superseded = true;
        }
    }

    /// The timer at an index is due. Returns whether it has to wait until a handler has finished.
    pub(super) fn waits_for_handler(&mut self, index: u32) -> bool {
        let state = &mut **self;
        let (Some(in_hand), Some(slot)) = (&mut state.in_hand, state.table.get(index)) else {
            return false;
        };
        let Some(timer) = &slot.timer else {
            return false;
        };
        let eq = in_hand.calls.eq;
        let ticket = in_hand.find(slot.hash, |key| eq(key, &timer.key));
        let Some(handled) = ticket.and_then(|ticket| in_hand.get_mut(ticket)) else {
            return false;
        };
        handled.due = Some(index);
        true
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
        let Some(key) = key else {
            return Ticket::default();
        };
        let ticket = in_hand.add(slot.hash, key, repeats);
        self.set().shared.reserve_beyond();
        ticket
    }
}

/// What a dispatch needs of its set.
pub(crate) trait Dispatched<K, V> {
    /// From now on [`ticket`](Reader::ticket) is that of what was received last.
    fn begin_dispatch(&self, calls: KeyCalls<K>);

    /// A handler has finished, and wants its timer to be set again or not.
    fn end_handler(&self, reader: &mut Reader, ticket: Ticket, again: Option<(V, Duration)>);

    /// Nothing is in hand any more.
    fn end_dispatch(&self, reader: &mut Reader);
}

impl<K, S: Payload> Dispatched<K, S::Value> for Set<K, S> {
    fn begin_dispatch(&self, calls: KeyCalls<K>) {
        let in_hand = InHand {
            calls,
            handled: HashTable::new(),
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
        let handled = (guard.in_hand.as_mut()).and_then(|in_hand| in_hand.remove(ticket));
        let Some(handled) = handled else { return };
        reader.hints.extend(handled.due);
        let again = match again {
            Some((value, deadline)) if !handled.is_superseded => {
                guard.add_reserved(ticket.hash, handled.key, value, deadline, deadline);
                return;
            }
            again => again,
        };
        drop(guard);
        self.shared.unreserve(1);
        drop_caught([handled.key]);
        drop_caught(again);
    }

    fn end_dispatch(&self, reader: &mut Reader) {
        let in_hand = self.lock().in_hand.take();
        let Some(in_hand) = in_hand else { return };
        self.shared.unreserve(in_hand.len());
        for handled in in_hand.handled {
            reader.hints.extend(handled.due);
            drop_caught([handled.key]);
        }
    }
}
