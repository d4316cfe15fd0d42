//! The wheel of the sleeping futures.
//!
//! Half of the protocol in [`entry`](crate::shared::entry): what its table gives to the actor. The models of that protocol
//! drive this too.

use std::hint::black_box;
use std::sync::Arc;
use std::task::Waker;

use crate::actor::advance::advance;
use crate::shared::entry::{Entry, Expiration, Register};
use crate::wheel::Wheel;

/// See the module. The wheel holds the entries themselves; each knows its node.
#[derive(Debug)]
pub(crate) struct SleepWheel<H> {
    wheel: Wheel<Arc<Entry<H>>>,
    /// Those that are being looked at; kept for its memory.
    due: Vec<Arc<Entry<H>>>,
}

/// What became of an entry that was looked at and armed.
#[derive(Debug)]
pub(crate) enum Processed {
    /// It fired at its deadline; this waker is to be woken.
    Fired { deadline: u64, waker: Option<Waker> },
    /// It had been put off, and is filed again.
    Rescheduled,
}

impl<H> SleepWheel<H> {
    pub(crate) fn new(slots: usize) -> Self {
        SleepWheel {
            wheel: Wheel::new(slots),
            due: Vec::new(),
        }
    }

    pub(crate) fn wheel(&self) -> &Wheel<Arc<Entry<H>>> {
        &self.wheel
    }

    /// Attends to an entry that came out of a queue.
    pub(crate) fn attend(&mut self, entry: Arc<Entry<H>>) {
        match entry.register(self.wheel.next_index(), |node| self.tick(node)) {
            Register::Keep => {}
            Register::Insert(tick) => {
                self.wheel.insert(tick, entry);
            }
            Register::Reschedule(node, tick) => {
                if let Some(token) = self.wheel.token_at(node) {
                    self.wheel.reschedule(token, tick);
                }
            }
            Register::Deregister(node) => {
                let token = self.wheel.token_at(node);
                token.and_then(|token| self.wheel.remove(token));
            }
        }
    }

    /// Looks at the entries that are filed by `until`, as far as the budget goes; true when there is more. An entry that
    /// would fire is put off to the tick that `later` gives, if that is later.
    ///
    /// It takes one tick at a time: one that turns out to have been moved is filed again before the next one is looked
    /// at, and does not overtake what is due between its old deadline and its new one.
    pub(crate) fn advance(
        &mut self,
        until: u64,
        budget: &mut usize,
        mut later: impl FnMut(&H) -> u64,
        mut looked: impl FnMut(Processed),
    ) -> bool {
        advance(
            &mut self.wheel,
            &mut self.due,
            until,
            budget,
            |wheel, due| {
                due.iter().for_each(fetch);
                // They fire here, with the wheel at rest: a waker may drop or arm others.
                for entry in due.drain(..) {
                    match entry.process_expiration(wheel.now(), wheel.next_index(), || {
                        later(entry.origin())
                    }) {
                        Expiration::Fire { deadline, waker } => {
                            looked(Processed::Fired { deadline, waker })
                        }
                        Expiration::Reschedule(tick) => {
                            wheel.insert(tick, entry);
                            looked(Processed::Rescheduled);
                        }
                        Expiration::Deregister => {}
                    }
                }
            },
        )
    }

    /// Takes cancelled sleeps off the wheel, of those at `from` and the next places; returns where to go on. For when
    /// nobody is left to use their entries again.
    pub(crate) fn deregister_unarmed(&mut self, from: u32, places: u32) -> Option<u32> {
        let end = from.saturating_add(places);
        for index in from..end.min(self.wheel.indices()) {
            let Some(token) = self.wheel.token_at(index) else {
                continue;
            };
            if self
                .wheel
                .get(token)
                .is_some_and(|entry| entry.deregister_unarmed())
            {
                self.wheel.remove(token);
            }
        }
        (end < self.wheel.indices()).then_some(end)
    }

    /// Takes all of them out.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Arc<Entry<H>>> + '_ {
        let tokens = (0..self.wheel.indices()).filter_map(|index| {
            let token = self.wheel.token_at(index)?;
            self.wheel.remove(token)
        });
        self.due.drain(..).chain(tokens)
    }

    /// The tick the node is filed under.
    fn tick(&self, node: u32) -> Option<u64> {
        self.wheel.tick_of(self.wheel.token_at(node)?)
    }
}

/// Has the processor fetch the entry's memory, which is far away when there are many: the waits for several that are
/// fetched one after the other overlap, those for locks do not.
pub(crate) fn fetch<H>(entry: &Arc<Entry<H>>) {
    black_box(Arc::strong_count(entry));
}
