//! The half of a sleeping future that it shares with the actor: its deadline, its waker, and its
//! [bound](Bound), which decides when the actor has to be notified.
//!
//! # The operations
//!
//! An entry has one **owner** at a time, a sleeping future or a thread's pool of cancelled entries,
//! and one **actor**.
//!
//! | | by | effect |
//! |---|---|---|
//! | [`arm`](Entry::arm), [`move_to`](Entry::move_to) | owner | writes the deadline; the actor needs a command only if it lies before `scheduled` |
//! | [`poll`](Entry::poll) | owner | keeps the waker of the last poll, and no other |
//! | [`disarm`](Entry::disarm) | owner | cancels: takes the waker out, without a command |
//! | [`try_arm`](Entry::try_arm), [`try_disarm`](Entry::try_disarm) | owner | the same where that takes neither a wait for the lock nor a command; else nothing |
//! | [`release`](Entry::release) | owner | releases the entry: the actor has to take it off the wheel |
//! | [`register`](Entry::register) | actor | the entry came out of a queue: schedules or deregisters it, as its state says |
//! | [`process_expiration`](Entry::process_expiration) | actor | the wheel reached `scheduled` |
//! | [`deregister_unarmed`](Entry::deregister_unarmed) | actor | no handle is left: takes the entry off the wheel unless it is armed |
//! | [`evict`](Entry::evict) | actor | the clock is virtual: takes the entry off the wheel, and disarms it |
//! | [`close`](Entry::close) | actor | the actor ends |
//!
//! The owner may be preempted while it has the lock. An actor that waits for it delays every timer
//! of the wheel (P11): it was seen to wait for 180 ms where threads that reset their sleeps in a
//! loop outnumbered the cores. So the actor only tries to lock, for a moment. An entry that is
//! locked it processes [again](crate::actor::sleep_wheel) in its next turn. It waits in `evict`,
//! which takes place in tests, and in `close`, at its end.
//!
//! Each operation is one critical section over [`State`], so they are ordered, and each preserves
//! the invariants:
//!
//! 1. The bound's, with the deadline of an armed entry as the tick that its owner wants.
//! 2. There is a waker only while armed. A change of the phase takes the waker out in the same
//!    critical section. So a future that was dropped is not woken, and one that fires is woken
//!    once.
//! 3. No code of a user runs under the lock. Wakers are cloned before it is taken. Wakers that are
//!    taken out are returned, and the caller wakes or drops them last. So a waker whose clone or
//!    drop panics leaves no entry half changed.
//!
//! A cancelled entry that is scheduled early enough can be armed again without a command: the
//! [`pool`](crate::sleep::pool) keeps such entries for each thread.

use std::mem;
use std::task::Waker;

use crate::shared::bound::{ActorAction, Bound, WheelOp};
use crate::sync::SpinMutex;
use crate::tick::NEVER;
use crate::wheel::BareWheel;

#[cfg(all(test, tickwheel_loom))]
mod model;
#[cfg(all(test, not(tickwheel_loom)))]
mod tests;

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
    /// Invariant 2: `Some` only while armed.
    waker: Option<Waker>,
    bound: Bound,
    phase: Phase,
}

/// The phase of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No task waits.
    Idle,
    /// A task waits for the deadline.
    Armed,
    /// The deadline was reached, and the waker was taken out to be woken.
    Fired,
    /// The entry has no owner; the actor has to take it off the wheel.
    Released,
    /// The actor has ended; the owner has to use another timer.
    Closed,
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

/// The action that the actor must take on an entry that came off the wheel.
#[derive(Debug)]
#[must_use]
pub(crate) enum Expiration {
    /// It fired at its deadline; wake this waker.
    Fire { deadline: u64, waker: Option<Waker> },
    /// It was moved: schedule it at this tick.
    Reschedule(u64),
    /// It is not armed: drop it.
    Deregister,
    /// Its owner has locked it, and it has not changed: process it again.
    Contended,
}

impl<H> Entry<H> {
    /// An idle entry that is on no wheel.
    pub(crate) fn new(context: H) -> Self {
        Entry {
            context,
            state: SpinMutex::new(State {
                deadline: NEVER,
                waker: None,
                bound: Bound::NEW,
                phase: Phase::Idle,
            }),
        }
    }

    #[inline]
    pub(crate) fn context(&self) -> &H {
        &self.context
    }

    // --- the owner ---

    /// Arms an entry that is not armed for `deadline`. `None` if it is closed.
    pub(crate) fn arm(&self, deadline: u64, waker: Waker) -> Option<ActorAction> {
        let mut state = self.state.lock();
        if state.phase == Phase::Closed {
            return None;
        }
        Some(state.arm(deadline, waker))
    }

    /// Like [`arm`](Self::arm), if that takes no command. Gives the waker back if it does, if the
    /// entry is closed, and if the actor has locked it.
    #[inline]
    pub(crate) fn try_arm(&self, deadline: u64, waker: Waker) -> Result<(), Waker> {
        let Some(mut state) = self.state.try_lock() else {
            return Err(waker);
        };
        if matches!(state.phase, Phase::Closed) || state.bound.scheduled > deadline {
            return Err(waker);
        }
        // The bound holds for this deadline, too.
        state.set(deadline, waker);
        Ok(())
    }

    /// Changes the deadline of an armed entry. Returns the phase it was in. An entry in another
    /// phase is not changed, and has to be armed.
    #[inline]
    pub(crate) fn move_to(&self, deadline: u64) -> (Phase, ActorAction) {
        let mut state = self.state.lock();
        let was = state.phase;
        if was != Phase::Armed {
            return (was, ActorAction::None);
        }
        state.deadline = deadline;
        (was, state.bound.require(deadline))
    }

    /// Makes `waker` the one to be woken if the entry is armed. Returns the phase, and a waker to
    /// drop.
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
            scheduled: state.bound.scheduled,
            waker: state.waker.take(),
        }
    }

    /// Like [`disarm`](Self::disarm), if the entry is armed. `None` if it is not, and if the actor
    /// has locked it.
    #[inline]
    pub(crate) fn try_disarm(&self) -> Option<Disarmed> {
        let mut state = self.state.try_lock()?;
        if !matches!(state.phase, Phase::Armed) {
            return None;
        }
        state.phase = Phase::Idle;
        Some(Disarmed {
            was: Phase::Armed,
            scheduled: state.bound.scheduled,
            waker: state.waker.take(),
        })
    }

    /// Releases a disarmed entry. It is never armed again, so it has to leave the wheel now.
    pub(crate) fn release(&self) -> ActorAction {
        let mut state = self.state.lock();
        if state.phase == Phase::Closed {
            return ActorAction::None;
        }
        state.phase = Phase::Released;
        state.bound.release()
    }

    // --- the actor ---

    /// The entry came out of a queue. `None` if the owner has locked it.
    pub(crate) fn register<T>(&self, wheel: &BareWheel<T>) -> Option<WheelOp> {
        let mut state = self.state.try_lock_spinning()?;
        let want = state.want();
        Some(state.bound.agree(want, wheel))
    }

    /// The wheel reached the entry's node, which is gone now. `now` is the current tick.
    ///
    /// `later` gives the tick to which an entry that would fire was put off: touching an idle timer
    /// does not change its entry. It must not call back into the entry.
    pub(crate) fn process_expiration<T>(
        &self,
        now: u64,
        wheel: &BareWheel<T>,
        later: impl FnOnce() -> u64,
    ) -> Expiration {
        let Some(mut state) = self.state.try_lock_spinning() else {
            return Expiration::Contended;
        };
        if state.phase == Phase::Armed && state.deadline <= now {
            state.deadline = state.deadline.max(later());
        }
        let want = state.want();
        match state.bound.reached(want, now, wheel) {
            Some(deadline) if deadline <= now => {
                state.phase = Phase::Fired;
                let waker = state.waker.take();
                Expiration::Fire { deadline, waker }
            }
            Some(tick) => Expiration::Reschedule(tick),
            None => Expiration::Deregister,
        }
    }

    /// The actor takes the entry off the wheel, armed or not, because another timer serves sleeps
    /// from now on. Returns the waker of a task that waits: it finds the entry idle, and arms
    /// another timer.
    pub(crate) fn evict(&self) -> Option<Waker> {
        let mut state = self.state.lock();
        state.bound.leave();
        if state.phase == Phase::Armed {
            state.phase = Phase::Idle;
        }
        state.waker.take()
    }

    /// The actor ends, or has ended. Returns the waker of a task that waits.
    pub(crate) fn close(&self) -> Option<Waker> {
        let mut state = self.state.lock();
        state.bound = Bound::NEW;
        if state.phase == Phase::Fired {
            return None;
        }
        state.phase = Phase::Closed;
        state.waker.take()
    }

    /// The actor takes the entry off the wheel unless a task waits for it. Returns whether it does.
    ///
    /// An entry that its owner has locked stays: the owner arms it, or releases it, since it can be
    /// pooled no more.
    pub(crate) fn deregister_unarmed(&self) -> bool {
        let Some(mut state) = self.state.try_lock_spinning() else {
            return false;
        };
        if state.phase == Phase::Armed {
            return false;
        }
        state.bound.leave();
        true
    }
}

#[cfg(test)]
impl<H> Entry<H> {
    /// Locks it, as an owner that is preempted does.
    pub(crate) fn hold(&self) -> impl Drop + '_ {
        self.state.lock()
    }
}

impl State {
    /// Arms an entry that has no waker.
    #[inline]
    fn arm(&mut self, deadline: u64, waker: Waker) -> ActorAction {
        self.set(deadline, waker);
        self.bound.require(deadline)
    }

    #[inline]
    fn set(&mut self, deadline: u64, waker: Waker) {
        debug_assert!(self.waker.is_none(), "invariant 2");
        // `None` needs no drop.
        mem::forget(self.waker.replace(waker));
        self.phase = Phase::Armed;
        self.deadline = deadline;
    }

    fn want(&self) -> Option<u64> {
        match self.phase {
            Phase::Armed => Some(self.deadline),
            Phase::Idle | Phase::Fired => Some(NEVER),
            Phase::Released | Phase::Closed => None,
        }
    }
}
