//! The wheel of the sleeping futures: the actor's half of the protocol in
//! [`entry`](crate::shared::entry). The models of that protocol drive this too.
//!
//! The actor does not wait for the lock of an entry. One that is locked waits in a list, and is
//! [tried again](SleepWheel::retry_next) in the next turn. It delays no other sleep: the order of
//! ticks does not hold for a sleep that its owner changes while it is due. An entry that the wheel
//! has reached is processed before a command for it, which would else move a node that is gone
//! (B5).

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;
use std::task::Waker;

use crate::shared::entry::{Entry, Expiration};
use crate::tick::NEVER;
use crate::wheel::{BareWheel, Step};

/// See the module. The wheel holds the entries themselves; each knows its node.
#[derive(Debug)]
pub(crate) struct SleepWheel<H> {
    /// Others only read it.
    pub(crate) wheel: BareWheel<Arc<Entry<H>>>,
    /// The entries that are being processed; kept for its memory.
    due: Vec<Arc<Entry<H>>>,
    /// Those that their owners had locked.
    contended: VecDeque<Contended<H>>,
}

/// An entry that its owner had locked when the actor came to process it.
#[derive(Debug)]
struct Contended<H> {
    entry: Arc<Entry<H>>,
    /// The tick of the wheel at that time.
    since: u64,
    /// The wheel had reached it; else it came out of the mailbox.
    is_reached: bool,
}

impl<H> SleepWheel<H> {
    pub(crate) fn new(slots: usize) -> Self {
        SleepWheel {
            wheel: BareWheel::new(slots),
            due: Vec::new(),
            contended: VecDeque::new(),
        }
    }

    /// Processes an entry that came out of the mailbox.
    pub(crate) fn register(&mut self, entry: Arc<Entry<H>>) {
        let since = self.wheel.now();
        self.register_since(since, entry);
    }

    fn register_since(&mut self, since: u64, entry: Arc<Entry<H>>) {
        let mut contended = self.contended.iter();
        let is_behind = contended.any(|c| c.is_reached && Arc::ptr_eq(&c.entry, &entry));
        let op = if is_behind {
            None
        } else {
            entry.register(&self.wheel)
        };
        match op {
            Some(op) => op.apply(&mut self.wheel, entry),
            None => self.contended.push_back(Contended {
                entry,
                since,
                is_reached: false,
            }),
        }
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
        Some(self.process(self.wheel.now(), entry, later))
    }

    #[inline]
    fn process(
        &mut self,
        since: u64,
        entry: Arc<Entry<H>>,
        later: impl FnOnce(&H) -> u64,
    ) -> Expiration {
        let later = || later(entry.context());
        let expiration = entry.process_expiration(self.wheel.now(), &self.wheel, later);
        match expiration {
            Expiration::Reschedule(tick) => {
                self.wheel.insert(tick, entry);
            }
            Expiration::Contended => self.contended.push_back(Contended {
                entry,
                since,
                is_reached: true,
            }),
            Expiration::Fire { .. } | Expiration::Deregister => {}
        }
        expiration
    }

    /// How many entries have to be tried again.
    pub(crate) fn contended(&self) -> usize {
        self.contended.len()
    }

    /// Every sleep before this tick has fired that is to be tried again; `NEVER` if there is none.
    pub(crate) fn contended_since(&self) -> u64 {
        let since = self.contended.iter().map(|contended| contended.since);
        since.min().unwrap_or(NEVER)
    }

    /// Tries the next of these entries. Returns what became of it, if the wheel had reached it.
    pub(crate) fn retry_next(&mut self, later: impl FnOnce(&H) -> u64) -> Option<Expiration> {
        let Contended {
            entry,
            since,
            is_reached,
        } = self.contended.pop_front()?;
        if is_reached {
            return Some(self.process(since, entry, later));
        }
        self.register_since(since, entry);
        None
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
        let contended = self.contended.drain(..).map(|contended| contended.entry);
        self.due.drain(..).chain(contended).chain(on_wheel)
    }
}

/// Makes the processor fetch the entry's memory, which is not in its caches when there are many
/// entries. The waits for entries that are fetched one after the other overlap; those for their
/// locks do not. Without it, half a million sleepers on two workers took 1.11 times the CPU time.
pub(crate) fn fetch<H>(entry: &Arc<Entry<H>>) {
    black_box(Arc::strong_count(entry));
}
