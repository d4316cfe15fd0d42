//! The one task, or thread, that owns the wheel.
//!
//! Everything reaches it as a [command](crate::shared::command). It awaits nothing but its own signal and its own sleep, never
//! a consumer; it does not tick; and a turn of it is bounded, so that neither a flood of commands nor a storm of
//! expirations starves the other, or the rest of the runtime.
//!
//! It ends when it is told to, or when no handle is left and nothing is armed. However it ends, also when its runtime
//! is dropped under it, it closes what it holds: sleeping futures wake up and go on with Tokio's own timer, keyed
//! timers go back to their stream.

#[cfg(test)]
mod tests;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use super::barrier::Barrier;
use super::keyed_wheel::KeyedWheel;
use tokio::time::{self, Instant};
use tracing::Instrument;

use crate::actor::sleep_wheel::{Processed, SleepWheel, fetch};
use crate::metrics::add;
use crate::panic::wake;
use crate::shared::command::Command;
use crate::shared::mailbox::Backlog;
use crate::shared::notifier::ActorNotifier;
use crate::shared::turn::Turn;
use crate::shared::{Origin, Shared};

/// How many commands, and how many noted slots of a set, a turn applies.
pub(super) const COMMANDS_PER_TURN: usize = 4096;

/// How many places of a wheel a turn searches for cancelled sleeps.
const PLACES_PER_TURN: u32 = 4096;

/// How many sleeps, and how many keyed timers, a turn looks at.
pub(super) const LOOKS_PER_TURN: usize = 256;

/// How many commands are fetched into the processor's cache before the first of them is applied.
const FETCHED: usize = 16;

/// The actor looks at the clock at least this often while it waits for a timer; Tokio's reaches about two years.
const LONGEST_SLEEP: Duration = Duration::from_secs(86_400 * 365);

/// How often it complains of being late.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub(crate) struct Actor {
    shared: Arc<Shared>,
    /// The sleeping futures, and the keyed timers: a wheel for each.
    sleeps: SleepWheel<Arc<Origin>>,
    sets: KeyedWheel,
    /// Commands taken from the mailbox.
    backlog: Backlog<Command>,
    /// How often the backlog was filled.
    rounds: u64,
    /// The ticks at which it was filled the last time and the time before.
    filled: u64,
    filled_before: u64,
    barrier: Barrier,
    timer: Option<Pin<Box<time::Sleep>>>,
    /// How far the search for cancelled sleeps has come that begins when the last handle is dropped.
    sweep: Option<u32>,
    must_end: bool,
    warned: Option<Instant>,
}

/// What to do after a turn.
enum Step {
    /// There is more to do, once others have had their turn.
    Again,
    /// Wait until there is.
    Wait,
    End,
}

impl Actor {
    pub(crate) fn new(shared: Arc<Shared>, slots: usize) -> Self {
        Actor {
            shared,
            sleeps: SleepWheel::new(slots),
            sets: KeyedWheel::new(slots),
            backlog: Backlog::new(),
            rounds: 0,
            filled: 0,
            filled_before: 0,
            barrier: Barrier::default(),
            timer: None,
            sweep: None,
            must_end: false,
            warned: None,
        }
    }

    /// Runs as a task until told to end, or until no handle and no armed timer is left.
    pub(crate) async fn run(mut self) {
        let span = tracing::debug_span!("tickwheel", wheel = %self.shared.name);
        async move {
            loop {
                match self.step() {
                    Step::Again => tokio::task::yield_now().await,
                    Step::Wait => self.wait().await,
                    Step::End => break,
                }
            }
        }
        .instrument(span)
        .await;
    }

    /// Runs on this thread, which is to do nothing else, as [`run`](Self::run) does on a task.
    pub(crate) fn run_on_thread(mut self) {
        let span = tracing::debug_span!("tickwheel", wheel = %self.shared.name);
        let _in_span = span.enter();
        if let ActorNotifier::Thread(this) = self.shared.mailbox.notifier() {
            this.get_or_init(thread::current);
        }
        loop {
            match self.step() {
                Step::Again => thread::yield_now(),
                Step::Wait => self.wait_on_thread(),
                Step::End => break,
            }
        }
    }

    /// Takes a turn, and says what to do after it.
    fn step(&mut self) -> Step {
        self.shared.mailbox.awake();
        let more = self.turn();
        if self.must_end {
            return Step::End;
        }
        // Asked before the look into the queues, which then finds all that was armed while there was a handle.
        let is_orphaned = self.shared.is_orphaned();
        if more || !self.shared.mailbox.park(self.next_wake()) {
            return Step::Again;
        }
        if is_orphaned && self.is_unused() {
            return Step::End;
        }
        add(&self.shared.metrics.0.wake_ups, 1);
        Step::Wait
    }

    /// Nothing is armed.
    fn is_unused(&self) -> bool {
        self.sleeps.wheel().is_empty() && self.sets.is_empty()
    }

    /// The tick at which a wheel next has something to do; `None` when both are empty.
    fn next_wake(&self) -> Option<u64> {
        let wakes = [self.sleeps.wheel().next_wake(), self.sets.next_wake()];
        wakes.into_iter().flatten().min()
    }

    /// When that tick begins.
    fn next_look(&self) -> Option<Instant> {
        let tick = self.next_wake()?;
        let now = Instant::now();
        let far = now.checked_add(LONGEST_SLEEP).unwrap_or(now);
        let at = self.shared.ticks.begin(tick);
        Some(at.map_or(far, |at| at.min(far)))
    }

    /// Waits for the signal, or for the tick at which a wheel has something to do.
    async fn wait(&mut self) {
        let ActorNotifier::Task(signal) = self.shared.mailbox.notifier() else {
            return;
        };
        match (self.next_look(), &mut self.timer) {
            // No Tokio timer is armed while the wheels are empty.
            (None, timer) => *timer = None,
            (Some(at), Some(timer)) if timer.deadline() == at && !timer.is_elapsed() => {}
            (Some(at), Some(timer)) => timer.as_mut().reset(at),
            (Some(at), timer) => *timer = Some(Box::pin(time::sleep_until(at))),
        }
        let timer = &mut self.timer;
        let mut signal = pin!(signal.notified());
        poll_fn(|cx| {
            if signal.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            match timer {
                Some(timer) => timer.as_mut().poll(cx),
                None => Poll::Pending,
            }
        })
        .await;
    }

    /// As [`wait`](Self::wait), on a thread of its own.
    fn wait_on_thread(&self) {
        match self.next_look() {
            None => thread::park(),
            Some(at) => thread::park_timeout(at.saturating_duration_since(Instant::now())),
        }
    }

    /// Does a bounded amount of what there is to do; true when something is left.
    fn turn(&mut self) -> bool {
        let span = tracing::trace_span!("turn");
        let _in_span = span.enter();
        let shared = Arc::clone(&self.shared);
        let began = Instant::now();
        let now = shared.ticks.now(began);
        let turn = Turn::new(now, shared.ticks.timestamp(began), &shared.metrics.0);

        let left_in_inbox = self.apply(&turn);
        // What is left in the backlog was submitted after it had been filled the time before, and is due then at the
        // earliest: up to there nothing can be overtaken.
        let until = if left_in_inbox {
            self.filled_before.saturating_sub(1)
        } else {
            self.barrier.applied(self.rounds, now);
            now
        };
        let sweeping = self.sweep();
        let sleeps_left = self.look_at_sleeps(until, &turn);
        let timers_left = self.sets.advance(until, &mut { LOOKS_PER_TURN }, &turn);
        // Of the tick at which a wheel stopped there may be more to come.
        let sleeps_before = self.sleeps.wheel().now() + u64::from(!sleeps_left);
        let timers_before = self.sets.now() + u64::from(!timers_left);
        let left_to_deliver = self.sets.deliver(timers_before, &turn);
        if !left_to_deliver {
            self.barrier.fired(sleeps_before.min(timers_before));
        }

        turn.end(began.elapsed());
        self.warn_if_late(turn.latest(), began);
        left_in_inbox
            || sweeping
            || sleeps_left
            || timers_left
            || left_to_deliver
            || !self.barrier.is_empty()
            || self.sleeps.wheel().has_spare()
            || self.sets.has_spare()
    }

    // --- commands ---

    /// Applies commands; true when some are left in the backlog.
    fn apply(&mut self, turn: &Turn<'_>) -> bool {
        if self.backlog.is_empty() {
            self.shared.mailbox.take(&mut self.backlog);
            self.rounds += 1;
            self.filled_before = self.filled;
            self.filled = turn.tick;
        }
        let mut budget = COMMANDS_PER_TURN;
        let mut fetched = 0;
        loop {
            if self.sets.process(&mut budget, turn) {
                return true;
            }
            if budget == 0 {
                return !self.backlog.is_empty();
            }
            if fetched == 0 {
                fetched = FETCHED;
                self.fetch();
            }
            fetched -= 1;
            let Some(command) = self.backlog.pop() else {
                return false;
            };
            budget -= 1;
            add(&self.shared.metrics.0.commands, 1);
            match command {
                Command::Sleep(entry) => self.sleeps.attend(entry),
                Command::Set(set) => self.sets.receive(&set, turn),
                Command::Settle(done) => self.barrier.add(self.rounds, done),
                Command::Orphaned => self.sweep = Some(0),
                Command::Shutdown => self.must_end = true,
            }
        }
    }

    /// Has the entries of the next commands fetched.
    fn fetch(&self) {
        for command in self.backlog.next().take(FETCHED) {
            if let Command::Sleep(entry) = command {
                fetch(entry);
            }
        }
    }

    /// Takes cancelled sleeps off the wheel, once nobody is left to use their entries again.
    fn sweep(&mut self) -> bool {
        let Some(from) = self.sweep else {
            return false;
        };
        self.sweep = self.sleeps.deregister_unarmed(from, PLACES_PER_TURN);
        self.sweep.is_some()
    }

    // --- time ---

    /// Looks at the sleeps that are filed by tick `until`; true when there is more.
    fn look_at_sleeps(&mut self, until: u64, turn: &Turn<'_>) -> bool {
        let ticks = &self.shared.ticks;
        let later = |origin: &Arc<Origin>| origin.put_off_to(turn.now);
        let looked = |looked| match looked {
            Processed::Fired { deadline, waker } => {
                let due = ticks.begin(deadline);
                let due = due.map_or(turn.now, |due| ticks.timestamp(due));
                turn.fired_sleep(turn.now.since(due));
                wake(waker);
            }
            Processed::Rescheduled => turn.rescheduled(),
        };
        self.sleeps
            .advance(until, &mut { LOOKS_PER_TURN }, later, looked)
    }

    fn warn_if_late(&mut self, lateness: Duration, now: Instant) {
        let too_soon = |warned: Instant| now.duration_since(warned) < WARNING_INTERVAL;
        if lateness > self.shared.late_warning && !self.warned.is_some_and(too_soon) {
            self.warned = Some(now);
            tracing::warn!(
                wheel = %self.shared.name,
                ?lateness,
                "timers fire late: the runtime is kept from running its tasks"
            );
        }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let shared = Arc::clone(&self.shared);
        shared.mailbox.close(&mut self.backlog);
        while let Some(command) = self.backlog.pop() {
            if let Command::Sleep(entry) = command {
                wake(entry.close());
            }
        }
        for entry in self.sleeps.drain() {
            wake(entry.close());
        }
        for set in shared.close_sets() {
            set.close();
        }
        shared.end();
    }
}
