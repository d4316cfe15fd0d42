//! The half of a sleeping future that it shares with the actor.
//!
//! # The idea
//!
//! The wheel holds a lower bound; the entry holds the truth. An entry knows the tick at which it has to fire (`deadline`)
//! and the tick by which the actor is certain to process it (`scheduled`). While it is armed,
//!
//! > `scheduled <= deadline`
//!
//! and correctness needs nothing else: at `scheduled` the actor fires the entry, reschedules it, or deregisters it.
//!
//! # The operations
//!
//! An entry has one **owner** at a time, a sleeping future or a thread's pool of cancelled entries, and one **actor**.
//!
//! | | by | effect |
//! |---|---|---|
//! | [`arm`](Entry::arm), [`move_to`](Entry::move_to) | owner | writes the deadline; the actor needs a command only if it lies before `scheduled` |
//! | [`poll`](Entry::poll) | owner | keeps the waker of the last poll, and no other |
//! | [`disarm`](Entry::disarm) | owner | cancels: takes the waker out, without a command |
//! | [`try_arm`](Entry::try_arm), [`try_disarm`](Entry::try_disarm) | owner | the same where that takes neither a wait for the lock nor a command; else nothing |
//! | [`release`](Entry::release) | owner | gives the entry up: the actor has to take it off the wheel |
//! | [`register`](Entry::register) | actor | the entry came out of a queue: schedules or deregisters it, as its state says |
//! | [`process_expiration`](Entry::process_expiration) | actor | the wheel reached `scheduled` |
//! | [`deregister_unarmed`](Entry::deregister_unarmed) | actor | no handle is left: takes the entry off the wheel unless it is armed |
//! | [`evict`](Entry::evict) | actor | the clock is virtual: takes the entry off the wheel, and disarms it |
//! | [`close`](Entry::close) | actor | the actor ends |
//!
//! Each operation is one critical section over [`State`], so they are ordered, and each preserves the invariants:
//!
//! 1. Armed implies `scheduled <= deadline`, and an actor that processes the entry by `scheduled`: the entry lies on the
//!    wheel at `scheduled` or before it, or it is in a queue (`queued`) and its owner has followed the wake rule for
//!    `scheduled`.
//! 2. `queued` is true from before the entry is pushed until the actor has taken it out: an entry is in a queue at most
//!    once.
//! 3. There is a waker only while armed. A change of the phase takes the waker out in the same critical section. So a
//!    future that was dropped is not woken, and one that fires is woken once.
//! 4. No code of a user runs under the lock. Wakers are cloned before it is taken. Wakers that are taken out are returned,
//!    and the caller wakes or drops them last. So a waker whose clone or drop panics leaves no entry half changed.
//!
//! Hence **moving later and cancelling send no command**; each takes the entry's lock. A cancelled entry whose
//! `scheduled` is early enough can be armed again without a command: the [`pool`](crate::sleep::pool) keeps such entries
//! for each thread.

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
    context: H,
    state: SpinMutex<State>,
}

#[derive(Debug)]
struct State {
    /// The tick to fire at. It has no meaning unless armed.
    deadline: u64,
    /// The actor processes the entry at this tick or before it; `NEVER` when it is not going to.
    scheduled: u64,
    /// Invariant 3: `Some` only while armed.
    waker: Option<Waker>,
    /// The wheel's node for this entry. Only the actor reads and writes it.
    node: u32,
    phase: Phase,
    /// Invariant 2: it is in a queue.
    queued: bool,
}

/// Where an entry is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No task waits.
    Idle,
    /// A task waits for the deadline.
    Armed,
    /// The deadline was reached, and the waker was taken out to be woken.
    Fired,
    /// It has no owner; the actor has to take it off the wheel.
    Released,
    /// The actor is gone; the owner has to find another timer.
    Closed,
}

/// The action that an owner must take after changing an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Notify {
    /// Nothing: the actor processes the entry in time.
    None,
    /// The entry is queued already, but is needed earlier now: follow the wake rule again, for this tick.
    Wake(u64),
    /// Queue the entry, then follow the wake rule for this tick.
    Enqueue(u64),
}

/// The state of an entry when it was disarmed.
#[derive(Debug)]
#[must_use]
pub(crate) struct Disarmed {
    pub(crate) was: Phase,
    /// The tick by which the actor processes the entry; `NEVER` if it is not going to.
    pub(crate) scheduled: u64,
    /// The caller drops it last, because its drop may panic.
    pub(crate) waker: Option<Waker>,
}

/// The action that the actor must take on an entry that came out of the mailbox.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Register {
    /// Nothing: it is scheduled early enough, or does not have to be.
    Keep,
    /// Schedule it at this tick, in the node that was announced.
    Insert(u64),
    /// Move this node of the wheel to this tick.
    Reschedule(u32, u64),
    /// Take this node off the wheel.
    Deregister(u32),
}

/// The action that the actor must take on an entry that came off the wheel.
#[derive(Debug)]
#[must_use]
pub(crate) enum Expiration {
    /// It fired at its deadline; wake this waker.
    Fire { deadline: u64, waker: Option<Waker> },
    /// It was moved: schedule it at this tick, in the node that was announced.
    Reschedule(u64),
    /// It is not armed: drop it.
    Deregister,
}

impl<H> Entry<H> {
    /// An idle entry that is on no wheel.
    pub(crate) fn new(context: H) -> Self {
        Entry {
            context,
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

    #[inline]
    pub(crate) fn context(&self) -> &H {
        &self.context
    }

    // --- the owner ---

    /// Arms an entry that is not armed for `deadline`. `None` if it is closed.
    pub(crate) fn arm(&self, deadline: u64, waker: Waker) -> Option<Notify> {
        let mut state = self.state.lock();
        if state.phase == Phase::Closed {
            return None;
        }
        state.arm(deadline, waker);
        Some(state.notify())
    }

    /// Like [`arm`](Self::arm), if that takes no command. Gives the waker back if it does, if the entry is closed, and if
    /// the actor has locked it.
    #[inline]
    pub(crate) fn try_arm(&self, deadline: u64, waker: Waker) -> Result<(), Waker> {
        let Some(mut state) = self.state.try_lock() else {
            return Err(waker);
        };
        if state.phase == Phase::Closed || state.scheduled > deadline {
            return Err(waker);
        }
        state.arm(deadline, waker);
        Ok(())
    }

    /// Changes the deadline of an armed entry. Returns the phase it was in. An entry in another phase is not changed, and
    /// has to be armed.
    #[inline]
    pub(crate) fn move_to(&self, deadline: u64) -> (Phase, Notify) {
        let mut state = self.state.lock();
        let was = state.phase;
        let notify = if was == Phase::Armed {
            state.deadline = deadline;
            state.notify()
        } else {
            Notify::None
        };
        (was, notify)
    }

    /// Makes `waker` the one to be woken if the entry is armed. Returns the phase, and a waker to drop.
    pub(crate) fn poll(&self, waker: &Waker) -> (Phase, Option<Waker>) {
        {
            let state = self.state.lock();
            let same = state.waker.as_ref().is_some_and(|w| w.will_wake(waker));
            if state.phase != Phase::Armed || same {
                return (state.phase, None);
            }
        }
        let mut waker = Some(waker.clone());
        let mut state = self.state.lock();
        if state.phase == Phase::Armed {
            mem::swap(&mut state.waker, &mut waker);
        }
        (state.phase, waker)
    }

    pub(crate) fn phase(&self) -> Phase {
        self.state.lock().phase
    }

    /// Cancels.
    pub(crate) fn disarm(&self) -> Disarmed {
        let mut state = self.state.lock();
        let was = state.phase;
        if was != Phase::Closed {
            state.phase = Phase::Idle;
        }
        Disarmed {
            was,
            scheduled: state.scheduled,
            waker: state.waker.take(),
        }
    }

    /// Like [`disarm`](Self::disarm), if the entry is armed. `None` if it is not, and if the actor has locked it.
    #[inline]
    pub(crate) fn try_disarm(&self) -> Option<Disarmed> {
        let mut state = self.state.try_lock()?;
        if state.phase != Phase::Armed {
            return None;
        }
        state.phase = Phase::Idle;
        Some(Disarmed {
            was: Phase::Armed,
            scheduled: state.scheduled,
            waker: state.waker.take(),
        })
    }

    /// Gives up a disarmed entry. It is never armed again, so it has to leave the wheel now.
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

    /// The entry came out of a queue. `next` is the node in which the wheel would insert it. `tick_of` gives the tick of a
    /// node, and must not call back into the entry.
    pub(crate) fn register(&self, next: u32, tick_of: impl FnOnce(u32) -> Option<u64>) -> Register {
        let mut state = self.state.lock();
        state.queued = false;
        let node = (state.node != NO_NODE).then_some(state.node);
        let on_wheel = node.and_then(|node| Some((node, tick_of(node)?)));
        let scheduled = on_wheel.map_or(NEVER, |(_, tick)| tick);
        match state.phase {
            Phase::Armed if state.deadline < scheduled => {
                state.scheduled = state.deadline;
                if let Some((node, _)) = on_wheel {
                    return Register::Reschedule(node, state.deadline);
                }
                state.node = next;
                Register::Insert(state.deadline)
            }
            Phase::Armed | Phase::Idle | Phase::Fired => {
                state.scheduled = scheduled;
                Register::Keep
            }
            Phase::Released | Phase::Closed => {
                state.scheduled = NEVER;
                state.node = NO_NODE;
                on_wheel.map_or(Register::Keep, |(node, _)| Register::Deregister(node))
            }
        }
    }

    /// The wheel reached the entry's node, which is gone now. `now` is the current tick, `next` the node in which the
    /// wheel would insert the entry again.
    ///
    /// `later` gives the tick to which an entry that would fire was put off: touching an idle timer does not change its
    /// entry. It must not call back into the entry.
    pub(crate) fn process_expiration(
        &self,
        now: u64,
        next: u32,
        later: impl FnOnce() -> u64,
    ) -> Expiration {
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

    /// The actor takes the entry off the wheel, armed or not, because another timer serves sleeps from now on. Returns the
    /// waker of a task that waits: it finds the entry idle, and arms another timer.
    pub(crate) fn evict(&self) -> Option<Waker> {
        let mut state = self.state.lock();
        state.scheduled = NEVER;
        state.node = NO_NODE;
        if state.phase == Phase::Armed {
            state.phase = Phase::Idle;
        }
        state.waker.take()
    }

    /// The actor ends, or has ended. Returns the waker of a task that waits.
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

    /// The actor takes the entry off the wheel unless a task waits for it. Returns whether it does.
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
    /// Writes the deadline and the waker. Invariant 1 is up to the caller.
    #[inline]
    fn arm(&mut self, deadline: u64, waker: Waker) {
        debug_assert!(self.waker.is_none(), "invariant 3");
        // `None` needs no drop.
        mem::forget(self.waker.replace(waker));
        self.phase = Phase::Armed;
        self.deadline = deadline;
    }

    /// Restores invariant 1 after the deadline was written.
    fn notify(&mut self) -> Notify {
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
