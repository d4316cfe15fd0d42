//! The actor: its turns, and its waits between them.
//!
//! Everything reaches it as a [command](crate::shared::command). It awaits its own notification and
//! its own timer, never a consumer, and has no periodic tick. The driver of that timer [runs the
//! turn](super::hosted) that is due then. Its turns are bounded, so that neither a flood of
//! commands nor a storm of expirations starves the other, or the rest of the runtime.
//!
//! # A turn
//!
//! 1. It reads the clock. If its [backlog](super::backlog) has nothing that is needed soon, it
//!    moves everything that is queued in the [mailbox](crate::shared::mailbox) there.
//! 2. It applies commands from the backlog, a bounded number, those first that are needed soon.
//! 3. It fires timers that are due, a bounded number. If commands are left, in the backlog or the
//!    mailbox, it stops before the earliest tick by which one of them is needed. So a timer fires
//!    before those that are due after it even if its command is not applied yet (P4), and waits for
//!    no command that is needed later (P11). A command that is pushed after step 1 is not due
//!    before the tick of this turn, or [counts](crate::shared::mailbox) as due when it was pushed.
//! 4. If it has a backlog, and there is no storm of timers, it goes on with step 1 for the length
//!    of a [slice](Slice), and no longer than other tasks have kept the actor waiting. A runtime
//!    with one thread gives the actor one turn for each round of its tasks. If they send more
//!    commands in a round than step 2 applies, the backlog grows from turn to turn, and new timers
//!    wait behind it (P11): then slices grow. With half of the thread's time the actor keeps up,
//!    since sending a command takes longer than applying it. After a single burst slices stay
//!    short, so the actor works it off between the turns of other tasks.
//!
//! If something is left to do the actor lets other tasks run and takes the next turn. Otherwise it
//! [parks](crate::shared::mailbox::Mailbox::park), and waits for the next tick of its wheels or a
//! notification.
//!
//! It ends by a command, or when no handle is left and nothing is armed. Then it [closes](end) what
//! it holds.

mod end;
#[cfg(all(test, not(any(tickwheel_loom, tickwheel_shuttle))))]
mod tests;

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::backlog::{Backlog, COMMANDS_PER_TURN, Deferred};
use super::lateness::{Lateness, Pause};
use super::sleep_wheel::SleepWheel;
use super::timer::ActorTimer;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task;
use tokio::time::Instant;
use tracing::Instrument;

use crate::clock;
use crate::keyed::node::KeyedWheel;
use crate::metrics::Event;
use crate::panic::{WOKEN, catch_panic, wake};
use crate::shared::command::{Command, Request};
use crate::shared::entry::Expiration;
use crate::shared::turn::Turn;
use crate::shared::{Shared, SleepContext};
use crate::sync::IN_EXPLORER;

/// How many places for a node a turn sweeps.
const SWEPT_PER_TURN: u32 = if IN_EXPLORER { 2 } else { 4096 };

/// How many sleeps, keyed timers, ends of sets, and emptied chunks of places a turn processes.
const ITEMS_PER_TURN: usize = if IN_EXPLORER { 2 } else { 256 };

/// How many indices of keyed timers a turn reaches.
const INDICES_PER_TURN: usize = if IN_EXPLORER { 2 } else { 2048 };

/// How many nodes of forgotten sets a turn takes off the wheel.
const NODES_PER_TURN: usize = if IN_EXPLORER { 2 } else { 8192 };

/// How many tasks that settle a turn wakes.
const SETTLED_PER_TURN: usize = if IN_EXPLORER { 1 } else { 256 };

/// How long a turn goes on with a backlog that does not grow.
const SHORTEST_SLICE: Duration = Duration::from_micros(500);

/// The longest time in which a turn applies commands.
const LONGEST_SLICE: Duration = Duration::from_millis(100);

/// The longest wait on Tokio's timer, which reaches about two years.
const LONGEST_SLEEP: Duration = Duration::from_secs(86_400 * 365);

/// See the module.
#[derive(Debug)]
pub(crate) struct Actor {
    shared: Arc<Shared>,
    /// The sleeping futures, and the keyed timers. They have a wheel each: an item that is one or
    /// the other would take 16 bytes instead of 8.
    sleeps: SleepWheel<Arc<SleepContext>>,
    keyed: KeyedWheel,
    backlog: Backlog,
    /// The tasks that [settle](crate::TimerWheel::settle), and the tick by which everything has to
    /// have fired for each. These do not decrease.
    settling: VecDeque<(u64, oneshot::Sender<()>)>,
    timer: ActorTimer,
    sweep: Sweep,
    must_end: bool,
    pause: Pause,
    lateness: Lateness,
    slice: Slice,
}

/// How long a turn goes on with a backlog.
#[derive(Debug)]
struct Slice {
    length: Duration,
    /// How many commands were taken the last time.
    taken: usize,
}

impl Slice {
    /// So many commands are taken. A slice becomes longer while more are taken each time.
    fn begin(&mut self, taken: usize) {
        if taken <= COMMANDS_PER_TURN {
            self.length = SHORTEST_SLICE;
        } else if self.taken > COMMANDS_PER_TURN && taken > self.taken {
            self.length = LONGEST_SLICE.min(self.length * 2);
        }
        self.taken = taken;
    }
}

/// Where the actor is with taking [stale](crate::shared::stale) nodes off the wheel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sweep {
    None,
    /// The commands are applied that were pushed before it began.
    Waiting,
    /// This is the next index to check.
    At(u32),
}

/// The actor's next action after a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Let other tasks run, and take the next turn.
    Again,
    /// Wait for a tick or a notification.
    Wait,
    End,
}

impl Actor {
    pub(crate) fn new(shared: Arc<Shared>, slots: usize, timer: ActorTimer) -> Self {
        let pause = Pause::Yielded(shared.ticks.origin());
        Actor {
            shared,
            sleeps: SleepWheel::new(slots),
            keyed: KeyedWheel::new(slots),
            backlog: Backlog::new(),
            settling: VecDeque::new(),
            timer,
            sweep: Sweep::None,
            must_end: false,
            pause,
            lateness: Lateness::new(),
            slice: Slice {
                length: SHORTEST_SLICE,
                taken: 0,
            },
        }
    }

    /// Runs as a task of this runtime until a command ends it, or until no handle and no armed
    /// timer is left. The `driver`'s waker [polls it](super::hosted).
    ///
    /// Each poll enters the runtime: a `block_on` may keep another one entered, which perhaps no
    /// thread drives.
    pub(crate) async fn run(mut self, driver: Waker, runtime: Handle) {
        let span = tracing::debug_span!("tickwheel", wheel = %self.shared.name);
        let run = async move {
            // The task polls first, before a driver does.
            let task = task::try_id();
            loop {
                match self.step() {
                    Step::Again => {
                        let notifier = self.shared.mailbox.notifier();
                        notifier.yield_to_others(task::try_id() == task).await;
                    }
                    Step::Wait => self.wait(&driver).await,
                    Step::End => break,
                }
            }
        };
        let mut run = pin!(run.instrument(span));
        poll_fn(|cx| {
            let _entered = runtime.enter();
            run.as_mut().poll(cx)
        })
        .await;
    }

    /// Takes a turn, and says what to do after it.
    pub(crate) fn step(&mut self) -> Step {
        self.shared.mailbox.publish_awake();
        let (more, ended) = self.turn();
        self.pause = Pause::Yielded(ended);
        if self.must_end {
            return Step::End;
        }
        // This is read before the queues are checked: the check then finds every timer that was
        // armed by a handle.
        let is_orphaned = self.shared.is_orphaned();
        let until = self.next_wake();
        if more || !self.shared.mailbox.park(until) {
            return Step::Again;
        }
        self.pause = Pause::Waited { from: ended, until };
        if is_orphaned && self.is_unused() {
            return Step::End;
        }
        self.shared.metrics.0.actor.add(Event::WakeUp, 1);
        Step::Wait
    }

    /// Whether nothing is armed.
    fn is_unused(&self) -> bool {
        self.sleeps.wheel.is_empty() && self.shared.keyed_pending() == 0
    }

    /// The tick at which a wheel next has something to do; `None` when both are empty.
    fn next_wake(&self) -> Option<u64> {
        earlier(self.sleeps.wheel.next_wake(), self.keyed.wheel.next_wake())
    }

    /// The instant at which the tick begins for which the actor waits.
    pub(crate) fn next_turn(&self) -> Option<Instant> {
        let Pause::Waited { from, until } = self.pause else {
            return None;
        };
        Some(self.begin(until?, from))
    }

    /// The instant for which the actor will probably wait then. Tokio's timers elapse at whole
    /// milliseconds, and so the ticks of the next one do not count.
    fn turn_after_next(&self) -> Option<Instant> {
        let Pause::Waited { from, until } = self.pause else {
            return None;
        };
        let millisecond = self.shared.ticks.whole_ticks(Duration::from_millis(1));
        let tick = until?.saturating_add(millisecond);
        let sleeps = self.sleeps.wheel.next_wake_after(tick);
        let after_next = earlier(sleeps, self.keyed.wheel.next_wake_after(tick));
        after_next.map(|tick| self.begin(tick, from))
    }

    /// When this tick begins, or the latest instant that Tokio's timer reaches from `from`.
    fn begin(&self, tick: u64, from: Instant) -> Instant {
        let far = from.checked_add(LONGEST_SLEEP).unwrap_or(from);
        self.shared.ticks.begin(tick).map_or(far, |at| at.min(far))
    }

    /// Waits for a notification, or for the tick at which a wheel has something to do.
    async fn wait(&mut self, driver: &Waker) {
        let shared = &self.shared;
        let notifier = shared.mailbox.notifier();
        let (next, after_next) = (self.next_turn(), self.turn_after_next());
        let can_pause = shared.clock.can_pause();
        (self.timer).set(next, after_next, can_pause, &shared.name);
        let timer = &mut self.timer;
        poll_fn(|cx| {
            if notifier.poll_notified(cx).is_ready() {
                return Poll::Ready(());
            }
            // Its thread must not poll Tokio's timers, which go with the runtime.
            let precise = if can_pause { cx.waker() } else { driver };
            timer.poll_elapsed(precise, &mut Context::from_waker(driver))
        })
        .await;
    }

    /// Does a bounded amount of work. Returns whether some is left, and when the turn ended.
    fn turn(&mut self) -> (bool, Instant) {
        let span = tracing::trace_span!("turn");
        let _in_span = span.enter();
        let shared = Arc::clone(&self.shared);
        let began = clock::now();
        let others_took = self.lateness.begin(self.pause, began, &shared);
        if self.backlog.is_empty() {
            self.backlog.take(&shared.mailbox);
            self.slice.begin(self.backlog.len());
        }
        let slice = others_took.min(self.slice.length);
        let mut turn = Turn::new(shared.ticks.timestamp(began), &shared);
        turn.until = began + self.slice.length;
        // On a paused clock no time passes here.
        let has_time = || clock::now().saturating_duration_since(began) < slice;
        loop {
            turn.armed_after = self.lateness.armed_after;
            let had_backlog = !self.backlog.is_empty();
            let is_done = self.pass(&turn);
            let catches_up = (had_backlog || !self.backlog.is_empty())
                && turn.count() < ITEMS_PER_TURN
                && has_time();
            if !catches_up {
                let ended = clock::now();
                let took = ended.duration_since(began);
                turn.end(took);
                self.lateness.end(&turn, took, is_done);
                return (!is_done || self.has_work_left(), ended);
            }
            turn.go_on(shared.ticks.timestamp(clock::now()));
        }
    }

    /// Takes steps 1 to 3 of a turn. Returns whether everything has fired that is due.
    fn pass(&mut self, turn: &Turn<'_>) -> bool {
        self.shared.mailbox.set_clock(turn.tick);
        self.backlog.take(&self.shared.mailbox);
        let earliest_queued = self.shared.mailbox.earliest();
        self.apply_commands(turn);
        self.finish_deferred(turn.tick);
        let earliest = self.backlog.earliest().min(earliest_queued);
        let fired_before = self.fire(earliest.min(turn.tick.saturating_add(1)), turn);
        self.sweep();
        self.keyed.dismantle(NODES_PER_TURN, &self.shared.set_keys);
        fired_before > turn.tick
    }

    /// Whether there is work beside timers that are due.
    fn has_work_left(&self) -> bool {
        !self.backlog.is_empty()
            || self.backlog.has_deferred()
            || !self.settling.is_empty()
            || self.sweep != Sweep::None
            || self.sleeps.wheel.has_spare()
            || self.keyed.has_work_left()
    }

    // --- commands ---

    /// Applies commands of the backlog, as many as a turn may before it fires timers.
    fn apply_commands(&mut self, turn: &Turn<'_>) {
        let mut applied = 0;
        let is_in_time = || clock::now() < turn.until;
        while applied == 0 || is_in_time() {
            let Some(mut block) = self.backlog.next_block(applied) else {
                break;
            };
            applied += block.len();
            while let Some(command) = block.pop_front() {
                self.apply(command);
            }
            self.backlog.recycle(block);
        }
        turn.metrics().actor.add(Event::Command, applied as u64);
    }

    fn apply(&mut self, command: Command) {
        match command {
            Command::Note { set, index, tick } => self.keyed.apply(set, index, tick),
            Command::Sleep { entry, tick } => self.sleeps.schedule(entry, tick),
            Command::Request(request) => self.serve(*request),
        }
    }

    fn serve(&mut self, request: Request) {
        match request {
            Request::Settle(done) => self.backlog.defer(Deferred::Settle(done)),
            Request::Register(set, hints) => self.keyed.register(set, hints),
            Request::Forget(set) => self.keyed.forget(set),
            // The turn looks at the count.
            Request::Sweep => {}
            Request::Evict => self.backlog.defer(Deferred::Evict),
            // Cancelled entries are not used again.
            Request::Orphaned => self.begin_sweep(),
            Request::Shutdown => {
                self.shared.end.shut_down();
                self.must_end = true;
            }
        }
    }

    /// Does the work that has waited until commands were applied, as much as a turn may.
    fn finish_deferred(&mut self, tick: u64) {
        for _ in 0..ITEMS_PER_TURN {
            let Some(work) = self.backlog.passed() else {
                return;
            };
            match work {
                Deferred::Settle(done) => self.settling.push_back((tick, done)),
                Deferred::Sweep => self.sweep = Sweep::At(0),
                Deferred::Evict => self.evict(),
            }
        }
    }

    /// The clock is virtual: takes the sleeps off the wheel, and the nodes of removed keyed timers.
    /// Idle timers stay.
    ///
    /// This is not bounded, and waits for locks: it takes place once, in tests.
    fn evict(&mut self) {
        // Commands that were pushed meanwhile make stale nodes.
        self.begin_sweep();
        let wakers = (self.sleeps).evict(|context: &Arc<SleepContext>| context.clock.is_none());
        for waker in wakers {
            wake(Some(waker));
        }
        self.keyed.evict();
    }

    // --- stale nodes ---

    /// Goes on with a sweep, or begins one if too many nodes are stale.
    fn sweep(&mut self) {
        let shared = &self.shared;
        if let Sweep::At(index) = self.sweep {
            let (next, locked) = (self.sleeps).sweep(index, SWEPT_PER_TURN, shared.is_orphaned());
            shared.stale.0.count_again(locked);
            self.sweep = next.map_or(Sweep::None, Sweep::At);
        }
        let wheel = &self.sleeps.wheel;
        let limit = shared.stale_limit(wheel.len(), wheel.places());
        if shared.stale.0.is_over(limit) && self.sweep == Sweep::None {
            self.begin_sweep();
        }
    }

    fn begin_sweep(&mut self) {
        let _counted = self.shared.stale.0.begin_sweep();
        self.backlog.defer(Deferred::Sweep);
        self.sweep = Sweep::Waiting;
    }

    // --- time ---

    /// Fires timers that are due before a tick, and then wakes tasks that settle. Returns the tick
    /// before which every timer has fired.
    fn fire(&mut self, before: u64, turn: &Turn<'_>) -> u64 {
        let Some(until) = before.checked_sub(1) else {
            return 0;
        };
        let sleeps = self.fire_sleeps(until, turn);
        let told = &self.shared.told_before.0;
        let (keyed, reached) = (self.keyed).fire(until, INDICES_PER_TURN, turn.armed_after, told);
        turn.reached(reached);
        let fired_before = sleeps.min(keyed);
        self.wake_settled(fired_before);
        if let Some(tick) = fired_before.checked_sub(1) {
            (self.lateness).has_fired(tick, turn.now, &self.shared.ticks);
        }
        fired_before
    }

    /// Everything has fired that is due before this tick.
    fn wake_settled(&mut self, fired_before: u64) {
        for _ in 0..SETTLED_PER_TURN {
            let first = self.settling.front();
            if first.is_none_or(|&(tick, _)| tick >= fired_before) {
                return;
            }
            let Some((_, done)) = self.settling.pop_front() else {
                return;
            };
            // An error means that the task does not wait any more.
            catch_panic(WOKEN, || done.send(()));
        }
    }

    /// Processes the sleeps that are scheduled by tick `until`. Returns the tick before which every
    /// sleep has fired.
    fn fire_sleeps(&mut self, until: u64, turn: &Turn<'_>) -> u64 {
        let later = |context: &Arc<SleepContext>| context.put_off_to(turn.now);
        for _ in 0..self.sleeps.contended() {
            if let Some(processed) = self.sleeps.retry_next(later) {
                self.processed(processed, turn);
            }
        }
        let mut budget = ITEMS_PER_TURN;
        while self.sleeps.step(until, &mut budget) {
            while let Some(processed) = self.sleeps.process_next(later) {
                self.processed(processed, turn);
            }
        }
        let fired_before = self.sleeps.wheel.done_before(until);
        fired_before.min(self.sleeps.contended_since())
    }

    fn processed(&self, sleep: Expiration, turn: &Turn<'_>) {
        match sleep {
            Expiration::Fire { deadline, waker } => {
                turn.metrics().actor.add(Event::SleepFired, 1);
                turn.fired(self.shared.ticks.begin_timestamp(deadline));
                wake(waker);
            }
            Expiration::Reschedule(_) => turn.rescheduled(),
            Expiration::Deregister | Expiration::Contended => {}
        }
    }
}

/// The earlier one of two ticks, where there are any.
fn earlier(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}
