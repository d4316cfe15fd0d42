//! The wheel of the sleeping futures: the actor's half of the protocol in
//! [`entry`](crate::shared::entry). The models of that protocol drive this too.

use std::hint::black_box;
use std::sync::Arc;
use std::task::Waker;

use crate::shared::entry::{Entry, Expiration};
use crate::wheel::{BareWheel, Step};

/// See the module. The wheel holds the entries themselves; each knows its node.
#[derive(Debug)]
pub(crate) struct SleepWheel<H> {
    /// Others only read it.
    pub(crate) wheel: BareWheel<Arc<Entry<H>>>,
    /// The entries that are being processed; kept for its memory.
    due: Vec<Arc<Entry<H>>>,
}

impl<H> SleepWheel<H> {
    pub(crate) fn new(slots: usize) -> Self {
        SleepWheel {
            wheel: BareWheel::new(slots),
            due: Vec::new(),
        }
    }

    /// Processes an entry that came out of the mailbox.
    pub(crate) fn register(&mut self, entry: Arc<Entry<H>>) {
        (entry.register(&self.wheel)).apply(&mut self.wheel, entry);
    }

    /// Takes a step towards tick `until`. After [`Step::Batch`],
    /// [`process_next`](Self::process_next) processes the entries that the step has reached.
    pub(crate) fn step(&mut self, until: u64, budget: &mut usize) -> Step {
        let step = self.wheel.step(until, &mut self.due, budget);
        if step == Step::Batch {
            self.due.iter().for_each(fetch);
            // They are taken from the end.
            self.due.reverse();
        }
        step
    }

    /// Processes the next entry that the last step has reached; `None` when there is none left. An
    /// entry that would fire is put off to the tick that `later` gives, if that is later.
    ///
    /// The wheel is not borrowed any more when the waker is woken, which may drop or arm other
    /// sleeps.
    pub(crate) fn process_next(&mut self, later: impl FnOnce(&H) -> u64) -> Option<Expiration> {
        let entry = self.due.pop()?;
        let later = || later(entry.context());
        let expiration = entry.process_expiration(self.wheel.now(), &self.wheel, later);
        if let Expiration::Reschedule(tick) = expiration {
            self.wheel.insert(tick, entry);
        }
        Some(expiration)
    }

    /// Takes cancelled sleeps off the wheel, once no handle is left to use their entries again. It
    /// checks `indices` indices from `from` on, and returns the next one to check.
    pub(crate) fn deregister_unarmed(&mut self, from: u32, indices: u32) -> Option<u32> {
        let end = from.saturating_add(indices);
        for index in from..end.min(self.wheel.indices()) {
            let entry = self.wheel.get(index);
            if entry.is_some_and(|entry| entry.deregister_unarmed()) {
                self.wheel.remove(index);
            }
        }
        (end < self.wheel.indices()).then_some(end)
    }

    /// Takes the entries off the wheel for which `is_to_leave`. Returns the wakers of the tasks
    /// that wait for them.
    pub(crate) fn evict(&mut self, is_to_leave: impl Fn(&H) -> bool) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for index in 0..self.wheel.indices() {
            let entry = self.wheel.get(index);
            if let Some(entry) = entry.filter(|entry| is_to_leave(entry.context())) {
                wakers.extend(entry.evict());
                self.wheel.remove(index);
            }
        }
        wakers
    }

    /// Takes all entries out.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Arc<Entry<H>>> + '_ {
        let on_wheel = (0..self.wheel.indices()).filter_map(|index| self.wheel.remove(index));
        self.due.drain(..).chain(on_wheel)
    }
}

/// Makes the processor fetch the entry's memory, which is not in its caches when there are many
/// entries. The waits for entries that are fetched one after the other overlap; those for their
/// locks do not. Without it, half a million sleepers on two workers took 1.11 times the CPU time.
pub(crate) fn fetch<H>(entry: &Arc<Entry<H>>) {
    black_box(Arc::strong_count(entry));
}
