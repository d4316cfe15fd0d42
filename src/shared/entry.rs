//! The half of a sleeping future that it shares with the actor.
//!
//! # The idea
//!
//! The wheel holds a lower bound; the entry holds the truth. An entry knows the tick it is to fire at (`deadline`) and
//! the tick at which the actor is certain to look at it (`scheduled`). While it is armed,
//!
//! > `scheduled <= deadline`
//!
//! and that is all correctness needs: at `scheduled` the actor looks, and fires the entry, files it again, or lets it go.
//!
//! # Who does what
//!
//! An entry has one **owner** at a time, a sleeping future or a thread's cache of spare entries, and one **actor**.
//!
//! | | by | does |
//! |---|---|---|
//! | [`arm`](Entry::arm), [`move_to`](Entry::move_to) | owner | writes the deadline; needs the actor only if it lies before `scheduled` |
//! | [`poll`](Entry::poll) | owner | keeps the waker of the last poll, and only that one |
//! | [`disarm`](Entry::disarm) | owner | cancels: takes the waker out. The actor is not told |
//! | [`release`](Entry::release) | owner | gives the entry up: the actor is told to take it off the wheel |
//! | [`attend`](Entry::attend) | actor | the entry came out of a queue: files it where its state asks for |
//! | [`look`](Entry::look) | actor | the wheel reached `scheduled` |
//! | [`deregister_unarmed`](Entry::deregister_unarmed) | actor | nobody is left to arm it anew: takes it off the wheel unless it is armed |
//! | [`close`](Entry::close) | actor | there will be no more looks |
//!
//! Each is one critical section over [`State`], so they happen in some order, and each leaves the invariants intact:
//!
//! 1. Armed implies `scheduled <= deadline`, and an actor that is going to look by `scheduled`: the entry lies on the wheel at
//!    `scheduled` or before it, or it is in a queue (`queued`) whose submitter has followed the wake rule for `scheduled`.
//! 2. `queued` is true from before the entry is pushed until the actor has taken it out: it is in a queue at most once.
//! 3. There is a waker only while armed. Whoever changes the phase takes it out in the same critical section; so a
//!    future that was dropped is not woken, and a fired one is woken once.
//!
//! Hence **moving later and cancelling cost no message**, and a cancelled entry whose `scheduled` is soon enough can be
//! armed anew without one: [`cache`](crate::sleep::pool) keeps such entries for each thread.
//!
//! Wakers are cloned before the lock is taken, and woken and dropped after it is released: no code of a user runs
//! under it.

use std::mem;
use std::task::Waker;

use crate::sync::SpinMutex;
use crate::tick::NEVER;

#[cfg(all(test, tickwheel_loom))]
mod model;
#[cfg(all(test, not(tickwheel_loom)))]
mod tests;

/// The node of an entry that is not on the wheel.
const NO_NODE: u32 = u32::MAX;

/// See the module. `H` is how the owner reaches the actor; the protocol does not use it.
#[derive(Debug)]
pub(crate) struct Entry<H> {
    origin: H,
    state: SpinMutex<State>,
}

#[derive(Debug)]
struct State {
    /// The tick to fire at. Means something while armed.
    deadline: u64,
    /// The actor looks at this tick or before it; `NEVER` when no look is due.
    scheduled: u64,
    /// Invariant 3: some only while armed.
    waker: Option<Waker>,
    /// The wheel's node for this entry. The actor's note to itself; nobody else reads it.
    node: u32,
    phase: Phase,
    /// Invariant 2: it is in a queue.
    queued: bool,
}

/// Where an entry is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nobody waits.
    Idle,
    /// Somebody waits for the deadline.
    Armed,
    /// The deadline was reached, and the waker taken to be woken.
    Fired,
    /// Nobody owns it; it waits for the actor to take it off the wheel.
    Released,
    /// The actor is gone; the owner has to find another timer.
    Closed,
}

/// What an owner has to say to the actor after changing an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Notify {
    /// Nothing: it will look in time.
    None,
    /// The entry is queued already, but is needed earlier now: follow the wake rule again, for this tick.
    Wake(u64),
    /// Queue the entry, then follow the wake rule for this tick.
    Enqueue(u64),
}

/// What the actor has to do with an entry that came out of a queue.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Register {
    /// Nothing: it lies where it should, or nowhere, as it should.
    Keep,
    /// File it at this tick, in the node that was announced.
    Insert(u64),
    /// Move this node of the wheel to this tick.
    Reschedule(u32, u64),
    /// Take this node off the wheel.
    Deregister(u32),
}

/// What the actor has to do with an entry that came off the wheel.
#[derive(Debug)]
#[must_use]
pub(crate) enum Expiration {
    /// It fired at its deadline; wake this waker.
    Fire { deadline: u64, waker: Option<Waker> },
    /// It was moved: file it at this tick, in the node that was announced.
    Reschedule(u64),
    /// It is not armed: drop it.
    Deregister,
}

impl<H> Entry<H> {
    /// An idle entry that is on no wheel.
    pub(crate) fn new(origin: H) -> Self {
        Entry {
            origin,
            state: SpinMutex::new(State {
                deadline: NEVER,
                scheduled: NEVER,
                waker: None,
                node: NO_NODE,
                phase: Phase::Idle,
                queued: false,
            }),
        }
    }

    pub(crate) fn origin(&self) -> &H {
        &self.origin
    }

    // --- the owner ---

    /// Arms the entry for `deadline`; `None` when it is closed.
    pub(crate) fn arm(&self, deadline: u64, waker: Waker) -> Option<Notify> {
        let mut state = self.state.lock();
        if state.phase == Phase::Closed {
            return None;
        }
        let replaced = state.waker.replace(waker);
        state.phase = Phase::Armed;
        state.deadline = deadline;
        let tell = state.tell();
        drop(state);
        drop(replaced);
        Some(tell)
    }

    /// Changes the deadline of an entry that is armed. Returns the phase it was in: any other becomes, or stays, one
    /// that has to be armed.
    pub(crate) fn move_to(&self, deadline: u64) -> (Phase, Notify) {
        let mut state = self.state.lock();
        let was = state.phase;
        let tell = if was == Phase::Armed {
            state.deadline = deadline;
            state.tell()
        } else {
            Notify::None
        };
        (was, tell)
    }

    /// The phase, after making `waker` the one to be woken if the entry is armed.
    pub(crate) fn poll(&self, waker: &Waker) -> Phase {
        {
            let state = self.state.lock();
            let same = state.waker.as_ref().is_some_and(|w| w.will_wake(waker));
            if state.phase != Phase::Armed || same {
                return state.phase;
            }
        }
        let mut waker = Some(waker.clone());
        let phase = {
            let mut state = self.state.lock();
            if state.phase == Phase::Armed {
                mem::swap(&mut state.waker, &mut waker);
            }
            state.phase
        };
        drop(waker);
        phase
    }

    pub(crate) fn phase(&self) -> Phase {
        self.state.lock().phase
    }

    /// Cancels. Returns the phase that ended, and the tick at which the actor is going to look.
    pub(crate) fn disarm(&self) -> (Phase, u64) {
        let mut state = self.state.lock();
        let waker = state.waker.take();
        let was = state.phase;
        if was != Phase::Closed {
            state.phase = Phase::Idle;
        }
        let scheduled = state.scheduled;
        drop(state);
        drop(waker);
        (was, scheduled)
    }

    /// Gives a disarmed entry up. Nobody will arm it again, so it should leave the wheel now.
    pub(crate) fn release(&self) -> Notify {
        let mut state = self.state.lock();
        if state.phase == Phase::Closed {
            return Notify::None;
        }
        state.phase = Phase::Released;
        if state.queued || state.scheduled == NEVER {
            return Notify::None;
        }
        state.queued = true;
        Notify::Enqueue(NEVER)
    }

    // --- the actor ---

    /// The entry came out of a queue. `next` is the node that the wheel would file it in; `tick_of` looks up the tick of
    /// a node, and must not call back into the entry.
    pub(crate) fn attend(&self, next: u32, tick_of: impl FnOnce(u32) -> Option<u64>) -> Register {
        let mut state = self.state.lock();
        state.queued = false;
        let node = (state.node != NO_NODE).then_some(state.node);
        let scheduled = node.and_then(|node| Some((node, tick_of(node)?)));
        let here = scheduled.map_or(NEVER, |(_, tick)| tick);
        match state.phase {
            Phase::Armed if state.deadline < here => {
                state.scheduled = state.deadline;
                if let Some((node, _)) = scheduled {
                    return Register::Reschedule(node, state.deadline);
                }
                state.node = next;
                Register::Insert(state.deadline)
            }
            Phase::Armed | Phase::Idle | Phase::Fired => {
                state.scheduled = here;
                Register::Keep
            }
            Phase::Released | Phase::Closed => {
                state.scheduled = NEVER;
                state.node = NO_NODE;
                scheduled.map_or(Register::Keep, |(node, _)| Register::Deregister(node))
            }
        }
    }

    /// The wheel reached the entry's node, which is gone now; `now` is the current tick, `next` the node that the wheel
    /// would file it in again.
    ///
    /// If the entry would fire, `later` is asked for a tick up to which it has been put off meanwhile: idle timers are
    /// touched without the entry being told. It must not call back into the entry.
    pub(crate) fn look(&self, now: u64, next: u32, later: impl FnOnce() -> u64) -> Expiration {
        let mut state = self.state.lock();
        state.node = NO_NODE;
        if state.phase == Phase::Armed && state.deadline <= now {
            state.deadline = state.deadline.max(later());
        }
        if state.phase != Phase::Armed || state.deadline == NEVER {
            state.scheduled = NEVER;
            return Expiration::Deregister;
        }
        if state.deadline <= now {
            state.scheduled = NEVER;
            state.phase = Phase::Fired;
            return Expiration::Fire {
                deadline: state.deadline,
                waker: state.waker.take(),
            };
        }
        state.scheduled = state.deadline;
        state.node = next;
        Expiration::Reschedule(state.deadline)
    }

    /// There will be no more looks. Returns the waker of an owner that waits.
    pub(crate) fn close(&self) -> Option<Waker> {
        let mut state = self.state.lock();
        state.scheduled = NEVER;
        state.queued = false;
        if state.phase == Phase::Fired {
            return None;
        }
        state.phase = Phase::Closed;
        state.waker.take()
    }

    /// Ends the actor's looks at an entry for which nobody waits; false when somebody does.
    pub(crate) fn deregister_unarmed(&self) -> bool {
        let mut state = self.state.lock();
        if state.phase == Phase::Armed {
            return false;
        }
        state.scheduled = NEVER;
        state.node = NO_NODE;
        true
    }
}

impl State {
    /// Restores invariant 1 after the deadline was written.
    fn tell(&mut self) -> Notify {
        if self.scheduled <= self.deadline {
            return Notify::None;
        }
        self.scheduled = self.deadline;
        if mem::replace(&mut self.queued, true) {
            Notify::Wake(self.deadline)
        } else {
            Notify::Enqueue(self.deadline)
        }
    }
}
