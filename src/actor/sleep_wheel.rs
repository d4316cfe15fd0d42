//! The wheel of the sleeping futures: the actor's half of the protocol in [`entry`](crate::shared::entry). The models of
//! that protocol drive this too.

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
    /// The entries that are being processed; kept for its memory.
    due: Vec<Arc<Entry<H>>>,
}

/// The outcome for an armed entry whose scheduled tick was reached.
#[derive(Debug)]
pub(crate) enum Processed {
    /// It fired at its deadline; this waker is to be woken.
    Fired { deadline: u64, waker: Option<Waker> },
    /// Its deadline had moved to later, and it was rescheduled.
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

    /// Processes an entry that came out of the mailbox.
    pub(crate) fn register(&mut self, entry: Arc<Entry<H>>) {
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

    /// Processes the entries that are scheduled by `until`, as far as the budget goes; true when there may be more. An
    /// entry that would fire is put off to the tick that `later` gives, if that is later.
    ///
    /// It takes one tick at a time: an entry that turns out to have been moved is rescheduled before the next tick is
    /// processed, and does not overtake what is due between its old deadline and its new one.
    pub(crate) fn advance(
        &mut self,
        until: u64,
        budget: &mut usize,
        mut later: impl FnMut(&H) -> u64,
        mut processed: impl FnMut(Processed),
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
                        later(entry.context())
                    }) {
                        Expiration::Fire { deadline, waker } => {
                            processed(Processed::Fired { deadline, waker });
                        }
                        Expiration::Reschedule(tick) => {
                            wheel.insert(tick, entry);
                            processed(Processed::Rescheduled);
                        }
                        Expiration::Deregister => {}
                    }
                }
            },
        )
    }

    /// Takes cancelled sleeps off the wheel, of those at so many indices from `from` on; returns where to go on. For when
    /// nobody is left to use their entries again.
    pub(crate) fn deregister_unarmed(&mut self, from: u32, indices: u32) -> Option<u32> {
        let end = from.saturating_add(indices);
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

    /// The tick at which the node is scheduled.
    fn tick(&self, node: u32) -> Option<u64> {
        self.wheel.tick_of(self.wheel.token_at(node)?)
    }
}

/// Has the processor fetch the entry's memory, which is far away when there are many. The waits for several entries that
/// are fetched one after the other overlap; those for their locks do not. Without it, half a million sleepers on two workers
/// took 1.11 times the CPU time.
pub(crate) fn fetch<H>(entry: &Arc<Entry<H>>) {
    black_box(Arc::strong_count(entry));
}
