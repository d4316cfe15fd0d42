//! The half of a sleeping future that it shares with the actor.
//!
//! # The idea
//!
//! The wheel holds a lower bound; the entry holds the truth. An entry knows the tick it is to fire at (`deadline`) and
//! the tick at which the actor is certain to look at it (`filed`). While it is armed,
//!
//! > `filed <= deadline`
//!
//! and that is all correctness needs: at `filed` the actor looks, and fires the entry, files it again, or lets it go.
//!
//! # Who does what
//!
//! An entry has one **owner** at a time, a sleeping future or a thread's cache of spare entries, and one **actor**.
//!
//! | | by | does |
//! |---|---|---|
//! | [`arm`](Entry::arm), [`move_to`](Entry::move_to) | owner | writes the deadline; needs the actor only if it lies before `filed` |
//! | [`poll`](Entry::poll) | owner | keeps the waker of the last poll, and only that one |
//! | [`disarm`](Entry::disarm) | owner | cancels: takes the waker out. The actor is not told |
//! | [`abandon`](Entry::abandon) | owner | gives the entry up: the actor is told to take it off the wheel |
//! | [`attend`](Entry::attend) | actor | the entry came out of a queue: files it where its state asks for |
//! | [`look`](Entry::look) | actor | the wheel reached `filed` |
//! | [`let_go`](Entry::let_go) | actor | nobody is left to arm it anew: takes it off the wheel unless it is armed |
//! | [`close`](Entry::close) | actor | there will be no more looks |
//!
//! Each is one critical section over [`State`], so they happen in some order, and each leaves the invariants intact:
//!
//! 1. Armed implies `filed <= deadline`, and an actor that is going to look by `filed`: the entry lies on the wheel at
//!    `filed` or before it, or it is in a queue (`queued`) whose submitter has followed the wake rule for `filed`.
//! 2. `queued` is true from before the entry is pushed until the actor has taken it out: it is in a queue at most once.
//! 3. There is a waker only while armed. Whoever changes the phase takes it out in the same critical section; so a
//!    future that was dropped is not woken, and a fired one is woken once.
//!
//! Hence **moving later and cancelling cost no message**, and a cancelled entry whose `filed` is soon enough can be
//! armed anew without one: [`cache`](crate::cache) keeps such entries for each thread.
//!
//! Wakers are cloned before the lock is taken, and woken and dropped after it is released: no code of a user runs
//! under it.

use std::mem;
use std::task::Waker;

use crate::sync::BriefMutex;
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
    home: H,
    state: BriefMutex<State>,
}

#[derive(Debug)]
struct State {
    /// The tick to fire at. Means something while armed.
    deadline: u64,
    /// The actor looks at this tick or before it; `NEVER` when no look is due.
    filed: u64,
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
    Abandoned,
    /// The actor is gone; the owner has to find another timer.
    Closed,
}

/// What an owner has to say to the actor after changing an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Tell {
    /// Nothing: it will look in time.
    Nothing,
    /// The entry is queued already, but is needed earlier now: follow the wake rule again, for this tick.
    Sooner(u64),
    /// Queue the entry, then follow the wake rule for this tick.
    Queue(u64),
}

/// What the actor has to do with an entry that came out of a queue.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Attend {
    /// Nothing: it lies where it should, or nowhere, as it should.
    Keep,
    /// File it at this tick, in the node that was announced.
    Insert(u64),
    /// Move this node of the wheel to this tick.
    Refile(u32, u64),
    /// Take this node off the wheel.
    Remove(u32),
}

/// What the actor has to do with an entry that came off the wheel.
#[derive(Debug)]
#[must_use]
pub(crate) enum Look {
    /// It fired at its deadline; wake this waker.
    Fire { deadline: u64, waker: Option<Waker> },
    /// It was moved: file it at this tick, in the node that was announced.
    File(u64),
    /// It is not armed: drop it.
    LetGo,
}

impl<H> Entry<H> {
    /// An idle entry that is on no wheel.
    pub(crate) fn new(home: H) -> Self {
        Entry {
            home,
            state: BriefMutex::new(State {
                deadline: NEVER,
                filed: NEVER,
                waker: None,
                node: NO_NODE,
                phase: Phase::Idle,
                queued: false,
            }),
        }
    }

    pub(crate) fn home(&self) -> &H {
        &self.home
    }

    // --- the owner ---

    /// Arms the entry for `deadline`; `None` when it is closed.
    pub(crate) fn arm(&self, deadline: u64, waker: Waker) -> Option<Tell> {
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
    pub(crate) fn move_to(&self, deadline: u64) -> (Phase, Tell) {
        let mut state = self.state.lock();
        let was = state.phase;
        let tell = if was == Phase::Armed {
            state.deadline = deadline;
            state.tell()
        } else {
            Tell::Nothing
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
        let filed = state.filed;
        drop(state);
        drop(waker);
        (was, filed)
    }

    /// Gives a disarmed entry up. Nobody will arm it again, so it should leave the wheel now.
    pub(crate) fn abandon(&self) -> Tell {
        let mut state = self.state.lock();
        if state.phase == Phase::Closed {
            return Tell::Nothing;
        }
        state.phase = Phase::Abandoned;
        if state.queued || state.filed == NEVER {
            return Tell::Nothing;
        }
        state.queued = true;
        Tell::Queue(NEVER)
    }

    // --- the actor ---

    /// The entry came out of a queue. `next` is the node that the wheel would file it in; `tick_of` looks up the tick of
    /// a node, and must not call back into the entry.
    pub(crate) fn attend(&self, next: u32, tick_of: impl FnOnce(u32) -> Option<u64>) -> Attend {
        let mut state = self.state.lock();
        state.queued = false;
        let node = (state.node != NO_NODE).then_some(state.node);
        let filed = node.and_then(|node| Some((node, tick_of(node)?)));
        let here = filed.map_or(NEVER, |(_, tick)| tick);
        match state.phase {
            Phase::Armed if state.deadline < here => {
                state.filed = state.deadline;
                if let Some((node, _)) = filed {
                    return Attend::Refile(node, state.deadline);
                }
                state.node = next;
                Attend::Insert(state.deadline)
            }
            Phase::Armed | Phase::Idle | Phase::Fired => {
                state.filed = here;
                Attend::Keep
            }
            Phase::Abandoned | Phase::Closed => {
                state.filed = NEVER;
                state.node = NO_NODE;
                filed.map_or(Attend::Keep, |(node, _)| Attend::Remove(node))
            }
        }
    }

    /// The wheel reached the entry's node, which is gone now; `now` is the current tick, `next` the node that the wheel
    /// would file it in again.
    ///
    /// If the entry would fire, `later` is asked for a tick up to which it has been put off meanwhile: idle timers are
    /// touched without the entry being told. It must not call back into the entry.
    pub(crate) fn look(&self, now: u64, next: u32, later: impl FnOnce() -> u64) -> Look {
        let mut state = self.state.lock();
        state.node = NO_NODE;
        if state.phase == Phase::Armed && state.deadline <= now {
            state.deadline = state.deadline.max(later());
        }
        if state.phase != Phase::Armed || state.deadline == NEVER {
            state.filed = NEVER;
            return Look::LetGo;
        }
        if state.deadline <= now {
            state.filed = NEVER;
            state.phase = Phase::Fired;
            return Look::Fire {
                deadline: state.deadline,
                waker: state.waker.take(),
            };
        }
        state.filed = state.deadline;
        state.node = next;
        Look::File(state.deadline)
    }

    /// There will be no more looks. Returns the waker of an owner that waits.
    pub(crate) fn close(&self) -> Option<Waker> {
        let mut state = self.state.lock();
        state.filed = NEVER;
        state.queued = false;
        if state.phase == Phase::Fired {
            return None;
        }
        state.phase = Phase::Closed;
        state.waker.take()
    }

    /// Ends the actor's looks at an entry for which nobody waits; false when somebody does.
    pub(crate) fn let_go(&self) -> bool {
        let mut state = self.state.lock();
        if state.phase == Phase::Armed {
            return false;
        }
        state.filed = NEVER;
        state.node = NO_NODE;
        true
    }
}

impl State {
    /// Restores invariant 1 after the deadline was written.
    fn tell(&mut self) -> Tell {
        if self.filed <= self.deadline {
            return Tell::Nothing;
        }
        self.filed = self.deadline;
        if mem::replace(&mut self.queued, true) {
            Tell::Sooner(self.deadline)
        } else {
            Tell::Queue(self.deadline)
        }
    }
}
