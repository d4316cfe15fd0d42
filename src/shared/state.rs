//! The state that all handles of one wheel share with its actor.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::clock::{self, CAN_PAUSE, ClockPolicy};
use crate::keyed::hint::ToldBefore;
use crate::keyed::set_key::{SetKey, SetKeys};
use crate::metrics::Metrics;
use crate::shared::command::{Command, CommandMailbox, Request};
use crate::shared::end::End;
use crate::shared::entry::{ActorAction, Entry, EntryArc};
use crate::shared::mailbox::WakeBy;
use crate::shared::notifier::ActorNotifier;
use crate::shared::sleep_context::{SleepContext, Spread};
use crate::shared::stale::{self, STALE_BATCH, StaleNodes};
use crate::shared::stalls::Stalls;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{CachePadded, IN_EXPLORER, thread_number};
use crate::tick::{NEVER, Ticks};

/// The most keyed timers a wheel can have, over all of its sets.
pub(crate) const MAX_KEYED: usize = 1 << 29;

/// The entry of a sleeping future.
pub(crate) type SleepEntry = Entry<Arc<SleepContext>>;

/// One wheel, as its handles, futures and actor see it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) name: String,
    pub(crate) ticks: Ticks,
    pub(crate) late_warning: Duration,
    pub(crate) mailbox: CommandMailbox,
    pub(crate) metrics: CachePadded<Metrics>,
    pub(crate) clock: ClockPolicy,
    warned_of_clock: AtomicBool,
    orphaned: AtomicBool,
    pub(crate) end: End,
    max_keyed: usize,
    /// The number of pending keyed timers, over all sets.
    keyed_pending: CachePadded<AtomicUsize>,
    pub(crate) set_keys: SetKeys,
    pub(crate) told_before: CachePadded<ToldBefore>,
    pub(crate) stale: CachePadded<StaleNodes>,
    pub(crate) stalls: Arc<Stalls>,
    pub(super) idle_spread: CachePadded<Spread>,
}

/// Keeps the wheel's actor running. All handles of the wheel share one, and its drop notifies the
/// actor that none is left.
#[derive(Debug)]
pub(crate) struct Alive {
    pub(crate) shared: Arc<Shared>,
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.shared.orphan();
    }
}

/// The parts of a [`Shared`].
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) name: String,
    pub(crate) ticks: Ticks,
    pub(crate) late_warning: Duration,
    pub(crate) max_keyed: usize,
    pub(crate) notifier: ActorNotifier,
    pub(crate) clock: ClockPolicy,
}

impl Shared {
    pub(crate) fn new(config: Config) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let cores = if IN_EXPLORER { 2 } else { cores };
        Shared {
            name: config.name,
            ticks: config.ticks,
            late_warning: config.late_warning,
            mailbox: CommandMailbox::new(cores, config.notifier),
            metrics: CachePadded::default(),
            clock: config.clock,
            warned_of_clock: AtomicBool::new(false),
            orphaned: AtomicBool::new(false),
            end: End::default(),
            max_keyed: config.max_keyed,
            keyed_pending: CachePadded::default(),
            set_keys: SetKeys::new(),
            told_before: CachePadded::default(),
            stale: CachePadded::default(),
            stalls: Arc::default(),
            idle_spread: CachePadded::default(),
        }
    }

    /// Warns, once, if this thread has another clock than the actor. Deadlines of one clock are
    /// meaningless on another.
    #[inline]
    pub(crate) fn check_clock(&self) {
        if CAN_PAUSE && !self.warned_of_clock.load(Ordering::Relaxed) && self.clock.is_foreign() {
            self.warn_of_clock();
        }
    }

    #[cold]
    fn warn_of_clock(&self) {
        if !self.warned_of_clock.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                wheel = %self.name,
                "the wheel is used from outside its runtime while a clock is paused: its timers do not follow the clock here"
            );
        }
    }

    /// Whether this is the actor's runtime, and its clock is virtual or has been. Once it is found
    /// to be, the sleeps on the wheel leave it, unless they are to stay.
    pub(crate) fn detect_virtual_clock(&self) -> bool {
        self.clock.find_virtual(|| {
            if !self.clock.sleeps_on_wheel() {
                // An error means that the actor has ended, and has closed them.
                let _ = self.send_now(Request::Evict);
            }
        })
    }

    /// Whether the clock of the actor's runtime is virtual or has been, as far as this thread can
    /// find out, which may be another one.
    pub(crate) fn is_on_virtual_clock(&self) -> bool {
        self.detect_virtual_clock() || self.clock.was_found_virtual()
    }

    // --- the actor's end ---

    #[inline]
    pub(crate) fn is_ended(&self) -> bool {
        self.end.is_ended()
    }

    // --- sleeping futures ---

    /// Arms the entry. Returns `false` if the actor has ended; the entry is closed then.
    #[inline]
    pub(crate) fn arm(&self, entry: &EntryArc<SleepEntry>, tick: u64, waker: Waker) -> bool {
        let Some(action) = entry.arm(entry.context().first_visit(tick), waker) else {
            return false;
        };
        let is_running = self.act(entry, action);
        if !is_running {
            // The caller's own waker needs no wake: its poll returns the result.
            drop(entry.close());
        }
        is_running
    }

    pub(super) fn tick_now(&self) -> u64 {
        self.ticks.tick_at(self.ticks.timestamp(clock::now()))
    }

    /// Takes the action that a change of the entry requires. Returns `false` if the actor has
    /// ended; the caller should then [close](Entry::close) the entry.
    #[inline]
    pub(crate) fn act(&self, entry: &EntryArc<SleepEntry>, action: ActorAction) -> bool {
        let (ActorAction::Enqueue(tick) | ActorAction::EnqueueEarlier(tick)) = action else {
            return true;
        };
        if matches!(action, ActorAction::EnqueueEarlier(_)) {
            self.count_stale(1);
        }
        let entry = EntryArc::clone(entry);
        self.send(tick, Command::Sleep { entry, tick }).is_ok()
    }

    /// A thread has left so many stale nodes on the wheel.
    #[cold]
    pub(crate) fn count_stale(&self, nodes: usize) {
        if self.stale.0.add(nodes) {
            // An error means that the actor has ended.
            let _ = self.send_now(Request::Sweep);
        }
    }

    /// How many stale nodes a thread may leave before it adds them up. It asks after it has left
    /// one. Without a handle, and under a virtual clock, the [limit](Self::stale_limit) is low.
    #[inline]
    pub(crate) fn stale_batch(&self) -> usize {
        if self.is_orphaned() || self.is_on_virtual_clock() {
            1
        } else {
            STALE_BATCH
        }
    }

    /// How many of so many nodes may be stale, on a wheel with memory for so many `places`.
    ///
    /// A virtual clock would move to the tick of a stale node, so there it is none. Once the last
    /// handle is dropped, stale nodes alone must not keep the actor alive.
    pub(crate) fn stale_limit(&self, nodes: usize, places: usize) -> usize {
        if self.clock.was_found_virtual() {
            0
        } else if self.is_orphaned() {
            nodes / 2
        } else {
            stale::limit(nodes, places)
        }
    }

    /// Whether no handle is left. Entries of dropped sleeps then leave the wheel instead of waiting
    /// to be used again.
    #[inline]
    pub(crate) fn is_orphaned(&self) -> bool {
        self.orphaned.load(Ordering::SeqCst)
    }

    /// The last handle was dropped.
    fn orphan(&self) {
        self.orphaned.store(true, Ordering::SeqCst);
        // An error means that the actor has ended already.
        let _ = self.send_now(Request::Orphaned);
    }

    // --- keyed timers ---

    /// Counts one more keyed timer. Returns `false`, and counts nothing, at the limit.
    pub(crate) fn reserve(&self) -> bool {
        if self.max_keyed < MAX_KEYED {
            let room = |pending| (pending < self.max_keyed).then_some(pending + 1);
            return (self.keyed_pending.0)
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, room)
                .is_ok();
        }
        let has_room = self.keyed_pending.0.fetch_add(1, Ordering::Relaxed) < MAX_KEYED;
        if !has_room {
            self.unreserve(1);
        }
        has_room
    }

    /// Counts one more, limit or not: an expiration in hand, which may become a timer again.
    pub(crate) fn reserve_beyond(&self) {
        self.keyed_pending.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts keyed timers that have ended.
    pub(crate) fn unreserve(&self, timers: usize) {
        let pending = self.keyed_pending.0.fetch_sub(timers, Ordering::SeqCst);
        if pending == timers && self.is_orphaned() {
            // An error means that the actor has ended.
            let _ = self.send_now(Request::Orphaned);
        }
    }

    /// How many keyed timers are pending.
    pub(crate) fn keyed_pending(&self) -> usize {
        self.keyed_pending.0.load(Ordering::SeqCst)
    }

    // --- commands ---

    /// Queues a command that is needed by `tick`. The caller must then wake the actor as this says.
    /// Returns the command if the actor has ended.
    pub(crate) fn enqueue(&self, tick: u64, command: Command) -> Result<WakeBy, Command> {
        self.mailbox.enqueue(thread_number(), tick, command)
    }

    /// Queues a command about a set, behind those before. Otherwise like
    /// [`enqueue`](Self::enqueue).
    pub(crate) fn enqueue_for(
        &self,
        set: SetKey,
        tick: u64,
        command: Command,
    ) -> Result<WakeBy, Command> {
        self.mailbox.enqueue(set.position(), tick, command)
    }

    /// Sends a command that is needed by `tick`. Returns it if the actor has ended.
    pub(crate) fn send(&self, tick: u64, command: impl Into<Command>) -> Result<(), Command> {
        self.mailbox.wake(self.enqueue(tick, command.into())?);
        Ok(())
    }

    /// Sends a command that the actor should apply now. No timer waits for it.
    pub(crate) fn send_now(&self, request: Request) -> Result<(), Command> {
        let wake_by = self.enqueue(NEVER, request.into())?;
        self.mailbox.wake(wake_by.min(WakeBy::Now));
        Ok(())
    }
}
