//! The one task, or thread, that owns the wheel.
//!
//! Everything reaches it as a [command](crate::command). It awaits nothing but its own signal and its own sleep, never
//! a consumer; it does not tick; and a turn of it is bounded, so that neither a flood of commands nor a storm of
//! expirations starves the other, or the rest of the runtime.
//!
//! It ends when it is told to, or when no handle is left and nothing is armed. However it ends, also when its runtime
//! is dropped under it, it closes what it holds: sleeping futures wake up and go on with Tokio's own timer, keyed
//! timers go back to their stream.

mod barrier;
mod sets;
mod sleeps;
#[cfg(all(test, not(tickwheel_loom)))]
mod tests;

use std::future::{Future, poll_fn};
use std::mem;
use std::num::NonZeroU32;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use barrier::Barrier;
use sets::{Attended, Sets};
use sleeps::Sleeps;
use tokio::time::{self, Instant};
use tracing::Instrument;

use crate::bell::Bell;
use crate::command::Command;
use crate::entry::{Attend, Look};
use crate::keyed::AnySet;
use crate::metrics::add;
use crate::shared::{Shared, SleepEntry};
use crate::shield::wake;
use crate::turn::Turn;
use crate::wheel::Wheel;

/// How many commands, and how many noted slots of a set, a turn applies.
const COMMANDS_PER_TURN: usize = 4096;

/// How many timers a turn looks at.
const LOOKS_PER_TURN: usize = 512;

/// How many of them it takes off the wheel at a time.
const BATCH: usize = 64;

/// What it counts as having looked at when all there was to do at a tick was to file timers on lower levels.
const REFILING_COST: usize = LOOKS_PER_TURN / 4;

/// The actor looks at the clock at least this often while it waits for a timer; Tokio's reaches about two years.
const LONGEST_SLEEP: Duration = Duration::from_secs(86_400 * 365);

/// How often it complains of being late.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Names a timer on the wheel: whose it is, and which of theirs.
#[derive(Debug, Clone, Copy)]
struct Item {
    owner: NonZeroU32,
    slot: u32,
}

/// The owner of sleeping futures. The sets are numbered from the next one on.
const SLEEPS: NonZeroU32 = NonZeroU32::MIN;

/// See the module.
#[derive(Debug)]
pub(crate) struct Actor {
    shared: Arc<Shared>,
    wheel: Wheel<Item>,
    /// The sleeping futures that are on the wheel.
    sleeps: Sleeps,
    sets: Sets,
    /// Commands taken from the mailbox, the next one last.
    inbox: Vec<Command>,
    /// Sets that noted more while they were attended to; for the next inbox.
    again: Vec<Command>,
    /// How often the inbox was filled.
    rounds: u64,
    /// The ticks at which it was filled the last time and the time before.
    filled: u64,
    filled_before: u64,
    barrier: Barrier,
    /// The wheel's items that a turn looks at; kept for its memory.
    due: Vec<Item>,
    timer: Option<Pin<Box<time::Sleep>>>,
    /// How far the search for cancelled sleeps has come that begins when the last handle is dropped.
    sweep: Option<usize>,
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
            wheel: Wheel::new(slots),
            sleeps: Sleeps::default(),
            sets: Sets::default(),
            inbox: Vec::new(),
            again: Vec::new(),
            rounds: 0,
            filled: 0,
            filled_before: 0,
            barrier: Barrier::default(),
            due: Vec::new(),
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
        if let Bell::Thread(this) = self.shared.mailbox.signal() {
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
        if more || !self.shared.mailbox.park(self.wheel.next_wake()) {
            return Step::Again;
        }
        if is_orphaned && self.wheel.is_empty() {
            return Step::End;
        }
        add(&self.shared.metrics.0.wake_ups, 1);
        Step::Wait
    }

    /// When the wheel next has something to do; `None` when it is empty.
    fn next_look(&self) -> Option<Instant> {
        let tick = self.wheel.next_wake()?;
        let now = Instant::now();
        let far = now.checked_add(LONGEST_SLEEP).unwrap_or(now);
        let at = self.shared.ticks.begin(tick);
        Some(at.map_or(far, |at| at.min(far)))
    }

    /// Waits for the signal, or for the tick at which the wheel has something to do.
    async fn wait(&mut self) {
        let Bell::Task(signal) = self.shared.mailbox.signal() else {
            return;
        };
        match (self.next_look(), &mut self.timer) {
            // No Tokio timer is armed while the wheel is empty.
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
        let turn = Turn::new(now, shared.ticks.stamp(began), &shared.metrics.0);

        let left_in_inbox = self.apply(&turn);
        // What is left in the inbox was submitted after it had been filled the time before, and is due then at the
        // earliest: up to there nothing can be overtaken.
        let until = if left_in_inbox {
            self.filled_before.saturating_sub(1)
        } else {
            self.barrier.applied(self.rounds, now);
            now
        };
        let sweeping = self.sweep();
        let left_on_wheel = self.advance(until, &turn);
        // Of the tick at which the wheel stopped there may be more to come.
        let before = self.wheel.now() + u64::from(!left_on_wheel);
        let left_to_deliver = self.sets.deliver(before, &turn, &mut self.wheel);
        if !left_to_deliver {
            self.barrier.fired(before);
        }

        turn.end(began.elapsed());
        self.warn_if_late(turn.latest(), began);
        left_in_inbox
            || !self.again.is_empty()
            || sweeping
            || left_on_wheel
            || left_to_deliver
            || !self.barrier.is_empty()
    }

    // --- commands ---

    /// Applies commands; true when some are left in the inbox.
    fn apply(&mut self, turn: &Turn<'_>) -> bool {
        if self.inbox.is_empty() {
            self.shared.mailbox.take(&mut self.inbox);
            self.inbox.append(&mut self.again);
            self.inbox.reverse();
            self.rounds += 1;
            self.filled_before = self.filled;
            self.filled = turn.tick;
        }
        let mut budget = COMMANDS_PER_TURN;
        while budget > 0 {
            let Some(command) = self.inbox.pop() else {
                return false;
            };
            budget -= 1;
            add(&self.shared.metrics.0.commands, 1);
            match command {
                Command::Sleep(entry) => self.attend_sleep(entry),
                Command::Set(set) => budget = self.attend_set(set, budget + 1, turn),
                Command::Settle(done) => self.barrier.add(self.rounds, done),
                Command::Orphaned => self.sweep = Some(0),
                Command::Shutdown => self.must_end = true,
            }
        }
        !self.inbox.is_empty()
    }

    fn attend_sleep(&mut self, entry: Arc<SleepEntry>) {
        let token = entry.node().and_then(|node| self.wheel.token_at(node));
        let on_wheel = token.and_then(|token| self.wheel.tick_of(token));
        match (entry.attend(on_wheel), token) {
            (Attend::Keep, _) | (Attend::Remove, None) => {}
            (Attend::File(tick), Some(token)) => {
                self.wheel.refile(token, tick);
            }
            (Attend::File(tick), None) => self.file_sleep(entry, tick),
            (Attend::Remove, Some(token)) => {
                if let Some(item) = self.wheel.remove(token) {
                    self.sleeps.remove(item.slot);
                }
            }
        }
    }

    fn file_sleep(&mut self, entry: Arc<SleepEntry>, tick: u64) {
        let slot = self.sleeps.next();
        let owner = SLEEPS;
        let token = self.wheel.insert(tick, Item { owner, slot });
        entry.set_node(Some(token.index()));
        self.sleeps.insert(entry);
    }

    /// Attends to at most `budget` of the slots that the set has noted; returns what is left of the budget.
    fn attend_set(&mut self, set: Arc<dyn AnySet>, budget: usize, turn: &Turn<'_>) -> usize {
        let attended = self.sets.attend(&set, budget, turn, &mut self.wheel);
        match attended {
            Attended::All(n) => budget.saturating_sub(n.max(1)),
            Attended::Enough(n) => {
                self.again.push(Command::Set(set));
                budget.saturating_sub(n)
            }
            Attended::Part => {
                self.inbox.push(Command::Set(set));
                0
            }
        }
    }

    /// Takes cancelled sleeps off the wheel, once nobody is left to use their entries again.
    fn sweep(&mut self) -> bool {
        let Some(from) = self.sweep else {
            return false;
        };
        let until = from + COMMANDS_PER_TURN;
        for slot in from..until.min(self.sleeps.numbers()) {
            let Some(entry) = self.sleeps.get(slot) else {
                continue;
            };
            let slot = u32::try_from(slot).unwrap_or(u32::MAX);
            let token = entry.node().and_then(|node| self.wheel.token_at(node));
            if entry.let_go() {
                token.and_then(|token| self.wheel.remove(token));
                self.sleeps.remove(slot);
            }
        }
        let left = until < self.sleeps.numbers();
        self.sweep = left.then_some(until);
        left
    }

    // --- time ---

    /// Looks at what the wheel has by tick `until`; true when there is more.
    ///
    /// It takes one tick at a time: a sleep that turns out to have been moved is filed again before the next one is
    /// looked at, and does not overtake what is due between its old deadline and its new one.
    fn advance(&mut self, until: u64, turn: &Turn<'_>) -> bool {
        if until < self.wheel.now() {
            // The wheel went further in an earlier turn. What is filed under its tick since then is as late as what is
            // still in the inbox, and waits for it.
            return true;
        }
        let mut budget = LOOKS_PER_TURN;
        while let Some(tick) = self.wheel.next_wake().filter(|&tick| tick <= until) {
            if budget == 0 {
                return true;
            }
            let mut due = mem::take(&mut self.due);
            due.extend(self.wheel.advance(tick, budget.min(BATCH)));
            let cost = if due.is_empty() {
                REFILING_COST
            } else {
                due.len()
            };
            budget = budget.saturating_sub(cost);
            // Sleeps fire here, with the wheel at rest: a waker may drop or arm others.
            let mut rest = &due[..];
            while let Some(first) = rest.first() {
                let n = rest.iter().take_while(|i| i.owner == first.owner).count();
                let (run, others) = rest.split_at(n);
                rest = others;
                if first.owner == SLEEPS {
                    for item in run {
                        self.look_at_sleep(item.slot, turn);
                    }
                } else {
                    self.sets.look(run, turn, &mut self.wheel);
                }
            }
            due.clear();
            self.due = due;
        }
        // Only time moves on.
        let none = self.wheel.advance(until, 1).next();
        debug_assert!(none.is_none(), "nothing is due by then any more");
        false
    }

    fn look_at_sleep(&mut self, slot: u32, turn: &Turn<'_>) {
        let Some(entry) = self.sleeps.remove(slot) else {
            return;
        };
        let later = || entry.home().put_off_to(turn.now);
        match entry.look(self.wheel.now(), later) {
            Look::Fire { deadline, waker } => {
                let due = self.shared.ticks.begin(deadline);
                let due = due.map_or(turn.now, |due| self.shared.ticks.stamp(due));
                turn.fired_sleep(turn.now.since(due));
                wake(waker);
            }
            Look::File(tick) => {
                turn.refiled();
                self.file_sleep(entry, tick);
            }
            Look::LetGo => {}
        }
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
        shared.mailbox.close(&mut self.inbox);
        let close = |entry: Arc<SleepEntry>| wake(entry.close());
        for command in self.inbox.drain(..) {
            if let Command::Sleep(entry) = command {
                close(entry);
            }
        }
        self.sleeps.drain().for_each(close);
        for set in shared.close_sets() {
            set.close();
        }
        shared.end();
    }
}
