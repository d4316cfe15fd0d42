//! The half of a sleeping future that it shares with the actor: its deadline, its waker, and the
//! tick by which the actor processes it.
//!
//! # The idea
//!
//! The wheel holds a lower bound; the entry holds the truth. The entry knows its real deadline, and
//! a tick by which the actor is going to process it, `scheduled`. While it is armed `scheduled` is
//! not later than the deadline, and correctness needs nothing else: at `scheduled` the entry fires,
//! is scheduled again, or leaves the wheel. Hence **moving later and cancelling send no command**.
//!
//! A command names an entry and a tick, and the actor puts a *node* for them on its wheel without a
//! look at the entry: its memory lies in the cache of another core. So an entry that is scheduled
//! earlier gets a second node, and one that its owner drops keeps its nodes. Such nodes are
//! *stale*: [`is_stale`] tells which ones are. The actor drops a stale node when it reaches it, and
//! [sweeps](super::stale) them off the wheel when there are too many.
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
//! | [`release`](Entry::release) | owner | releases the entry: its nodes are stale from now on |
//! | dropping a reference | owner | if that leaves one node alone, it is stale from now on |
//! | [`process_expiration`](Entry::process_expiration) | actor | the wheel reached a node |
//! | [`is_stale`] | actor | a sweep came to a node |
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
//! * **E1** An armed entry with a deadline is scheduled at its deadline or before.
//! * **E2** An entry that is scheduled at a tick has a node there, or a command with that tick is
//!   in a queue, or its owner pushes one before it does anything else, or the actor is to try it
//!   again. A tick that has passed counts as the wheel's current one. An actor that ends closes the
//!   entry instead.
//! * **E3** A node whose tick is before `scheduled` is stale. So is one whose tick is after
//!   `scheduled`, unless the wheel has reached that tick: it is then processed in time for both.
//!   So is a node that alone holds its entry: it cannot be armed any more.
//! * **E4** There is a waker while it is armed, and at no other time. A change of the phase takes
//!   the waker out in the same critical section. So a future that was dropped is not woken, and one
//!   that fires is woken once.
//! * **E5** No code of a user runs under the lock. Wakers are cloned before it is taken. Wakers
//!   that are taken out are returned, and the caller wakes or drops them last. So a waker whose
//!   clone or drop panics leaves no entry half changed.
//!
//! E1 and E2 give the promise: the actor reaches a node of an armed entry by the deadline. It may
//! have two nodes for one tick. The first one that it reaches leaves the second one stale.
//!
//! A cancelled entry that is scheduled early enough can be armed again without a command: the
//! [`pool`](crate::sleep::pool) keeps such entries for each thread.

use std::mem;
use std::task::Waker;

use crate::sync::SpinMutex;
use crate::tick::NEVER;

/// Counts the references to an entry. The standard library's also counts weak ones, of which there
/// are none.
#[cfg(not(tickwheel_loom))]
pub(crate) use triomphe::Arc as EntryArc;

/// The count is loom's in the models.
#[cfg(tickwheel_loom)]
pub(crate) use loom::sync::Arc as EntryArc;

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
    /// The actor processes the entry at this tick or before it; `NEVER` when it is not going to.
    scheduled: u64,
    wait: Wait,
}

/// The phase, and what belongs to it.
///
/// It takes no more than the deadline and the waker: a waker has a value that tells it from none,
/// and then the phase lies in the place of the deadline.
#[derive(Debug)]
enum Wait {
    /// A task waits for the tick `deadline`.
    Armed { deadline: u64, waker: Waker },
    /// The phase is another one.
    No(Phase),
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
    /// The actor has ended; the owner has to use another timer.
    Closed,
}

/// The action that an owner must take after it has armed or moved an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum ActorAction {
    /// Nothing: the actor processes the entry in time.
    None,
    /// Push a command for this tick.
    Enqueue(u64),
    /// Push a command for this tick. The entry was scheduled for a later one: that node is stale.
    EnqueueEarlier(u64),
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

/// The action that the actor must take on an entry when the wheel has reached a node of it.
#[derive(Debug)]
#[must_use]
pub(crate) enum Expiration {
    /// It fired at its deadline; wake this waker.
    Fire { deadline: u64, waker: Option<Waker> },
    /// It was moved: schedule it at this tick.
    Reschedule(u64),
    /// The node was stale, or the entry is not armed: drop it.
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
                scheduled: NEVER,
                wait: Wait::No(Phase::Idle),
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
        if state.is_closed() {
            return None;
        }
        state.set(deadline, waker);
        Some(state.require(deadline))
    }

    /// Like [`arm`](Self::arm), if that takes no command. Gives the waker back if it does, if the
    /// entry is closed, and if the actor has locked it.
    #[inline]
    pub(crate) fn try_arm(&self, deadline: u64, waker: Waker) -> Result<(), Waker> {
        let Some(mut state) = self.state.try_lock() else {
            return Err(waker);
        };
        if state.is_closed() || state.scheduled > deadline {
            return Err(waker);
        }
        state.set(deadline, waker);
        Ok(())
    }

    /// Changes the deadline of an armed entry. Returns the phase it was in. An entry in another
    /// phase is not changed, and has to be armed.
    #[inline]
    pub(crate) fn move_to(&self, deadline: u64) -> (Phase, ActorAction) {
        let mut state = self.state.lock();
        match &mut state.wait {
            Wait::No(phase) => return (*phase, ActorAction::None),
            Wait::Armed { deadline: old, .. } => *old = deadline,
        }
        (Phase::Armed, state.require(deadline))
    }

    /// Makes `waker` the one to be woken if the entry is armed. Returns the phase, and a waker to
    /// drop.
    pub(crate) fn poll(&self, waker: &Waker) -> (Phase, Option<Waker>) {
        match &self.state.lock().wait {
            Wait::No(phase) => return (*phase, None),
            Wait::Armed { waker: old, .. } if old.will_wake(waker) => return (Phase::Armed, None),
            Wait::Armed { .. } => {}
        }
        let mut waker = waker.clone();
        let mut state = self.state.lock();
        if let Wait::Armed { waker: old, .. } = &mut state.wait {
            mem::swap(old, &mut waker);
        }
        (state.phase(), Some(waker))
    }

    pub(crate) fn phase(&self) -> Phase {
        self.state.lock().phase()
    }

    /// Cancels.
    pub(crate) fn disarm(&self) -> Disarmed {
        let mut state = self.state.lock();
        let was = state.phase();
        let to = match was {
            Phase::Closed => Phase::Closed,
            _ => Phase::Idle,
        };
        Disarmed {
            was,
            scheduled: state.scheduled,
            waker: state.end_wait(to),
        }
    }

    /// Like [`disarm`](Self::disarm), if the entry is armed. `None` if it is not, and if the actor
    /// has locked it.
    #[inline]
    pub(crate) fn try_disarm(&self) -> Option<Disarmed> {
        let mut state = self.state.try_lock()?;
        if !matches!(state.wait, Wait::Armed { .. }) {
            return None;
        }
        Some(Disarmed {
            was: Phase::Armed,
            scheduled: state.scheduled,
            waker: state.end_wait(Phase::Idle),
        })
    }

    /// Releases a disarmed entry, which is never armed again. Returns whether that leaves a stale
    /// node, or a command for one.
    pub(crate) fn release(&self) -> bool {
        mem::replace(&mut self.state.lock().scheduled, NEVER) != NEVER
    }

    // --- the actor ---

    /// The wheel reached a node of the entry, which is gone now. `now` is the wheel's tick.
    ///
    /// `later` gives the tick to which an entry that would fire was put off: touching an idle timer
    /// does not change its entry. It must not call back into the entry.
    pub(crate) fn process_expiration(&self, now: u64, later: impl FnOnce() -> u64) -> Expiration {
        let Some(mut state) = self.state.try_lock_spinning() else {
            return Expiration::Contended;
        };
        if state.scheduled > now {
            return Expiration::Deregister;
        }
        state.scheduled = NEVER;
        let Wait::Armed { deadline, .. } = &mut state.wait else {
            return Expiration::Deregister;
        };
        if *deadline <= now {
            *deadline = (*deadline).max(later());
        }
        match *deadline {
            NEVER => Expiration::Deregister,
            deadline if deadline <= now => {
                let waker = state.end_wait(Phase::Fired);
                Expiration::Fire { deadline, waker }
            }
            deadline => {
                state.scheduled = deadline;
                Expiration::Reschedule(deadline)
            }
        }
    }

    /// Whether a node at `tick` is stale by its tick.
    fn is_stale_at(&self, tick: u64, now: u64, unless_armed: bool) -> Option<bool> {
        let mut state = self.state.try_lock_spinning()?;
        if unless_armed && state.phase() != Phase::Armed {
            state.scheduled = NEVER;
        }
        Some(tick < state.scheduled || (tick > state.scheduled && tick > now))
    }

    /// The actor takes the entry off the wheel, armed or not, because another timer serves sleeps
    /// from now on. Returns the waker of a task that waits: it finds the entry idle, and arms
    /// another timer.
    pub(crate) fn evict(&self) -> Option<Waker> {
        let mut state = self.state.lock();
        state.scheduled = NEVER;
        match state.wait {
            Wait::Armed { .. } => state.end_wait(Phase::Idle),
            Wait::No(_) => None,
        }
    }

    /// The actor ends, or has ended. Returns the waker of a task that waits.
    pub(crate) fn close(&self) -> Option<Waker> {
        let mut state = self.state.lock();
        state.scheduled = NEVER;
        match state.phase() {
            Phase::Fired => None,
            _ => state.end_wait(Phase::Closed),
        }
    }
}

#[cfg(test)]
impl<H> Entry<H> {
    /// Locks it, as an owner that is preempted does.
    pub(crate) fn hold(&self) -> impl Drop + '_ {
        self.state.lock()
    }
}

/// Whether the node at `tick` that holds this entry is stale (E3), on a wheel that has reached
/// `now`. If `unless_armed`, an entry that no task waits for takes all of its nodes off the wheel.
/// `None` if its owner has locked it.
pub(crate) fn is_stale<H>(
    entry: &EntryArc<Entry<H>>,
    tick: u64,
    now: u64,
    unless_armed: bool,
) -> Option<bool> {
    // No other thread has a reference to clone, so the count does not rise.
    if EntryArc::strong_count(entry) == 1 {
        return Some(true);
    }
    entry.is_stale_at(tick, now, unless_armed)
}

/// Drops the owner's reference to a disarmed entry that is scheduled: its nodes are stale from now
/// on (E3).
pub(crate) fn drop_scheduled<H>(entry: EntryArc<Entry<H>>) {
    // Besides this reference there is that of its node. With more nodes none is alone, and it has
    // to be released. No other thread can clone it, so the count is not too low.
    if EntryArc::strong_count(&entry) > 2 {
        entry.release();
    }
    drop(entry);
}

impl State {
    #[inline]
    fn phase(&self) -> Phase {
        match self.wait {
            Wait::Armed { .. } => Phase::Armed,
            Wait::No(phase) => phase,
        }
    }

    #[inline]
    fn is_closed(&self) -> bool {
        matches!(self.wait, Wait::No(Phase::Closed))
    }

    /// Arms what is not armed.
    #[inline]
    fn set(&mut self, deadline: u64, waker: Waker) {
        debug_assert!(self.phase() != Phase::Armed, "E4");
        // No waker was there to be dropped.
        mem::forget(mem::replace(
            &mut self.wait,
            Wait::Armed { deadline, waker },
        ));
    }

    /// Goes into another phase than armed. Returns the waker if it was armed.
    #[inline]
    fn end_wait(&mut self, to: Phase) -> Option<Waker> {
        match mem::replace(&mut self.wait, Wait::No(to)) {
            Wait::Armed { waker, .. } => Some(waker),
            Wait::No(_) => None,
        }
    }

    /// The entry was armed or moved: the actor has to process it by `tick`.
    #[inline]
    fn require(&mut self, tick: u64) -> ActorAction {
        if self.scheduled <= tick {
            return ActorAction::None;
        }
        match mem::replace(&mut self.scheduled, tick) {
            NEVER => ActorAction::Enqueue(tick),
            _ => ActorAction::EnqueueEarlier(tick),
        }
    }
}
