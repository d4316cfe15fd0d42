//! How the actor's task is notified, by a [signal](super::signal).
//!
//! # Where the actor's task is queued
//!
//! Timers fire while the actor runs, so its task must never be queued where it waits for a task
//! that blocks (P17). A worker of a multi-thread runtime has two such places, both out of the other
//! workers' reach.
//!
//! * *The LIFO slot.* A task that is woken from a worker goes into that worker's slot, to run next,
//!   and no other worker steals from it. A task that arms the earliest timer notifies the actor so.
//!   It may then block its worker, for a computation or a synchronous call, and the actor waits for
//!   as long. Hence [`notify`](Notifier::notify) spawns an empty task after it has woken the actor
//!   from a worker of the actor's own runtime. The empty task takes the slot, and thereby pushes
//!   the actor into the worker's queue; Tokio then wakes another worker, if one is idle, which
//!   steals it. If yet another task takes the slot in between, that one has pushed the actor out
//!   already. A task may have entered another runtime, which hides whose worker it runs on, so a
//!   thread with another current runtime spawns the empty task too.
//! * *The deferred tasks.* [`yield_now`](tokio::task::yield_now) keeps a task on a private list of
//!   its worker until that has run its local queue or polls the drivers. The queue holds the very
//!   tasks that the actor has just woken, any of which may block. Hence the actor wakes itself
//!   between turns and returns `Pending` once: see
//!   [`yield_to_others`](ActorNotifier::yield_to_others).
//!   A task that is woken while it runs goes to the back of the queue, where others can steal it.
//!   One that a driver wakes goes into the LIFO slot, and an empty task pushes it out as above.
//!
//! Both measures are needed: an actor that waits is notified, one that has more to do yields.
//!
//! A runtime with one worker has no other to steal tasks. There `yield_now` is better, since it
//! lets the drivers run between turns, and a notification costs no task. But it takes a task: a
//! driver that runs a turn may have woken the deferred tasks already, as Tokio's alternative timer
//! does, and would then park with a new one on the list. From threads that are no workers the actor
//! goes into the runtime's common queue, which all workers serve.
//!
//! The empty task costs some tenths of a microsecond, when the actor is notified, which is rare by
//! the [wake rule](crate::shared::mailbox), and when a turn in a driver leaves work.
//!
//! # When it was notified
//!
//! A notification records its time: from then on the actor could have run. A delay of the actor
//! after that is [no delay of the timers](crate::actor) that are armed later.

use std::future::poll_fn;
// Not loom's, nor the explorer's: neither runs a task.
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::{Handle, Id, RuntimeFlavor};
use tokio::time::Instant;

use crate::clock;
use crate::shared::mailbox::Notifier;
use crate::shared::signal::Signal;
use crate::tick::nanos;

/// Stores one notification: if it comes while the actor does not wait, its next wait ends at once.
#[derive(Debug)]
pub(crate) struct ActorNotifier {
    signal: Signal,
    /// The actor's runtime, if it has several workers.
    several_workers: Option<Id>,
    /// The handle of that runtime. `None` once the actor has ended: the handle would keep the
    /// runtime's drivers and their file descriptors open after the runtime is dropped. It is locked
    /// only to be cloned or taken.
    runtime: Mutex<Option<Handle>>,
    last: LastNotified,
    /// The explorer's function; its own thread drives the actor.
    #[cfg(tickwheel_shuttle)]
    explored: Option<fn()>,
}

/// The time of the last notification. It orders nothing: the signal does, or the unparking.
#[derive(Debug)]
pub(crate) struct LastNotified {
    origin: Instant,
    /// Nanoseconds from there, zero if there was none. Not loom's, nor the explorer's: reading it
    /// is no step of a protocol.
    nanos: AtomicU64,
}

impl LastNotified {
    fn new() -> Self {
        LastNotified {
            origin: clock::now(),
            nanos: AtomicU64::new(0),
        }
    }

    fn set(&self) {
        let after = clock::now().saturating_duration_since(self.origin);
        self.nanos.store(nanos(after), Ordering::Relaxed);
    }

    fn get(&self) -> Option<Instant> {
        let nanos = self.nanos.load(Ordering::Relaxed);
        let after = (nanos > 0).then_some(Duration::from_nanos(nanos));
        self.origin.checked_add(after?)
    }
}

impl ActorNotifier {
    /// For a task of this runtime.
    pub(crate) fn new(runtime: &Handle) -> Self {
        let has_several = runtime.runtime_flavor() == RuntimeFlavor::MultiThread
            && runtime.metrics().num_workers() > 1;
        ActorNotifier {
            several_workers: has_several.then(|| runtime.id()),
            runtime: Mutex::new(has_several.then(|| runtime.clone())),
            ..Self::without_runtime()
        }
    }

    /// For an actor that is no task.
    fn without_runtime() -> Self {
        ActorNotifier {
            signal: Signal::new(),
            several_workers: None,
            runtime: Mutex::new(None),
            last: LastNotified::new(),
            #[cfg(tickwheel_shuttle)]
            explored: None,
        }
    }

    /// For an actor that the explorer drives.
    #[cfg(all(test, tickwheel_shuttle))]
    pub(crate) fn explored(notify: fn()) -> Self {
        ActorNotifier {
            explored: Some(notify),
            ..Self::without_runtime()
        }
    }

    /// For a test without an actor.
    #[cfg(all(test, not(tickwheel_shuttle)))]
    pub(crate) fn of_nobody() -> Self {
        Self::without_runtime()
    }

    /// When the actor was last notified.
    pub(crate) fn last_notified(&self) -> Option<Instant> {
        self.last.get()
    }

    /// The actor has ended.
    pub(crate) fn actor_ended(&self) {
        // Not while it is locked: this may be the last handle, and its drop runs a user's code.
        let runtime = self.runtime().take();
        drop(runtime);
        drop(self.signal.unregister());
    }
}

impl Notifier for ActorNotifier {
    fn notify(&self) {
        #[cfg(tickwheel_shuttle)]
        if let Some(notify) = self.explored {
            return notify();
        }
        self.last.set();
        self.signal.set();
        self.leave_lifo_slot();
    }
}

impl ActorNotifier {
    /// Pushes the actor out of the LIFO slot, where there is one: see the module.
    fn leave_lifo_slot(&self) {
        if self.several_workers.is_none() {
            return;
        }
        // Each worker has a current runtime.
        let here = Handle::try_current().ok();
        let runtime = match here {
            Some(here) if Some(here.id()) != self.several_workers => self.runtime().clone(),
            here => here,
        };
        if let Some(runtime) = runtime {
            drop(runtime.spawn(async {}));
        }
    }

    fn runtime(&self) -> MutexGuard<'_, Option<Handle>> {
        (self.runtime.lock()).unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the notification that came, or waits for one.
    pub(crate) fn poll_notified(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.signal.poll(cx)
    }

    /// Lets other tasks run between two turns. `in_task` says whether the actor's task calls it,
    /// and not a driver.
    pub(crate) async fn yield_to_others(&self, in_task: bool) {
        if self.several_workers.is_none() && in_task {
            return tokio::task::yield_now().await;
        }
        // This queues the actor's task where its worker finds it, and others can steal it: see the
        // module.
        let mut has_yielded = false;
        poll_fn(|cx| {
            if has_yielded {
                return Poll::Ready(());
            }
            has_yielded = true;
            cx.waker().wake_by_ref();
            if !in_task {
                self.leave_lifo_slot();
            }
            Poll::Pending
        })
        .await;
    }
}
