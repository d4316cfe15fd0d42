//! The wheel of the sleeping futures: the actor's half of the protocol in
//! [`entry`](crate::shared::entry). The models of that protocol drive this too.
//!
//! The actor does not wait for the lock of an entry. One that is locked waits in a list, and is
//! [tried again](SleepWheel::retry_next) in the next turn. It delays no other sleep: the order of
//! ticks does not hold for a sleep that its owner changes while it is due. A sweep leaves the node
//! of an entry that is locked, and counts it as stale once more.

use std::collections::VecDeque;
use std::hint::black_box;
use std::iter;
use std::task::Waker;

use crate::shared::entry::{Entry, EntryArc, Expiration, is_stale};
use crate::tick::NEVER;
use crate::wheel::BareWheel;

/// How many entries a sweep fetches into the processor's cache before it checks the first of them.
const FETCHED: u32 = 16;

/// See the module. The wheel holds the entries themselves.
#[derive(Debug)]
pub(crate) struct SleepWheel<H> {
    /// Others only read it.
    pub(crate) wheel: BareWheel<EntryArc<Entry<H>>>,
    /// The entries that are being processed; kept for its memory.
    due: Vec<EntryArc<Entry<H>>>,
    /// Those that their owners had locked.
    contended: VecDeque<Contended<H>>,
}

/// An entry that its owner had locked when the actor came to process it.
#[derive(Debug)]
struct Contended<H> {
    entry: EntryArc<Entry<H>>,
    /// The tick of the wheel at that time.
    since: u64,
}

impl<H> SleepWheel<H> {
    pub(crate) fn new(slots: usize) -> Self {
        SleepWheel {
            wheel: BareWheel::new(slots),
            due: Vec::new(),
            contended: VecDeque::new(),
        }
    }

    /// Puts a node for the entry on the wheel.
    pub(crate) fn schedule(&mut self, entry: EntryArc<Entry<H>>, tick: u64) {
        self.wheel.insert(tick, entry);
    }

    /// Takes a [step](BareWheel::step) towards tick `until`.
    /// [`process_next`](Self::process_next) processes the entries that it has reached.
    #[must_use]
    pub(crate) fn step(&mut self, until: u64, budget: &mut usize) -> bool {
        let is_taken = self.wheel.step(until, &mut self.due, budget);
        self.due.iter().for_each(fetch);
        // They are taken from the end.
        self.due.reverse();
        is_taken
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
        entry: EntryArc<Entry<H>>,
        later: impl FnOnce(&H) -> u64,
    ) -> Expiration {
        let later = || later(entry.context());
        let expiration = entry.process_expiration(self.wheel.now(), later);
        match expiration {
            Expiration::Reschedule(tick) => {
                self.wheel.insert(tick, entry);
            }
            Expiration::Contended => self.contended.push_back(Contended { entry, since }),
            Expiration::Fire { .. } | Expiration::Deregister => {}
        }
        expiration
    }

    /// How many entries have to be tried again.
    pub(crate) fn contended(&self) -> usize {
        self.contended.len()
    }

    /// No sleep is to be tried again that was due before this tick; `NEVER` if none is.
    pub(crate) fn contended_since(&self) -> u64 {
        // Those that are tried again keep their order, so the first one has waited longest.
        (self.contended.front()).map_or(NEVER, |first| first.since)
    }

    /// Tries the next of these entries. Returns what became of it.
    pub(crate) fn retry_next(&mut self, later: impl FnOnce(&H) -> u64) -> Option<Expiration> {
        let Contended { entry, since } = self.contended.pop_front()?;
        Some(self.process(since, entry, later))
    }

    /// Takes stale nodes off the wheel; if `unless_armed`, also those of entries that no task waits
    /// for. It checks `indices` indices, the first ones from `from` on in memory that is in use.
    /// Returns the next one to check, and how many nodes it left because their entries are locked.
    pub(crate) fn sweep(
        &mut self,
        from: u32,
        indices: u32,
        unless_armed: bool,
    ) -> (Option<u32>, usize) {
        let Some(from) = self.wheel.next_in_use(from) else {
            return (None, 0);
        };
        let now = self.wheel.now();
        let end = from.saturating_add(indices).min(self.wheel.indices());
        let mut locked = 0;
        for first in (from..end).step_by(FETCHED as usize) {
            let part = first..end.min(first.saturating_add(FETCHED));
            let entries = part.clone().filter_map(|index| self.wheel.get(index));
            entries.for_each(fetch);
            for index in part {
                let node = self.wheel.get(index).zip(self.wheel.tick_of(index));
                let Some((entry, tick)) = node else {
                    continue;
                };
                match is_stale(entry, tick, now, unless_armed) {
                    Some(true) => drop(self.wheel.remove(index)),
                    Some(false) => {}
                    None => locked += 1,
                }
            }
        }
        (self.wheel.next_in_use(end), locked)
    }

    /// Takes the entries off the wheel for which `is_evicted`. Returns the wakers of the tasks
    /// that wait for them.
    pub(crate) fn evict(&mut self, is_evicted: impl Fn(&H) -> bool) -> Vec<Waker> {
        let mut wakers = Vec::new();
        let mut next = 0;
        while let Some(index) = self.wheel.next_in_use(next) {
            next = index + 1;
            let entry = self.wheel.get(index);
            if let Some(entry) = entry.filter(|entry| is_evicted(entry.context())) {
                wakers.extend(entry.evict());
                self.wheel.remove(index);
            }
        }
        wakers
    }

    /// Takes all entries out.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = EntryArc<Entry<H>>> + '_ {
        let (wheel, mut next) = (&mut self.wheel, 0);
        let on_wheel = iter::from_fn(move || {
            loop {
                let index = wheel.next_in_use(next)?;
                next = index + 1;
                if let Some(entry) = wheel.remove(index) {
                    return Some(entry);
                }
            }
        });
        let contended = self.contended.drain(..).map(|contended| contended.entry);
        self.due.drain(..).chain(contended).chain(on_wheel)
    }
}

/// Makes the processor fetch the entry's memory, which is not in its caches when there are many
/// entries. The waits for entries that are fetched one after the other overlap; those for their
/// locks do not. Without it, half a million sleepers on two workers took 1.11 times the CPU time.
pub(crate) fn fetch<H>(entry: &EntryArc<Entry<H>>) {
    black_box(EntryArc::strong_count(entry));
}
