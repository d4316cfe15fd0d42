//! The stand-ins that the loom models of the protocols between threads share, and the models of all parts together.
//!
//! `RUSTFLAGS="--cfg tickwheel_loom" cargo test --profile models --lib model` runs them. [loom] takes each through every
//! interleaving of its threads, and through every value that a load of an atomic may return. It treats sequentially
//! consistent accesses as acquire and release, so the models hold by the mutexes of queues and entries. The entry, the
//! mailbox and the wheel are the real ones. Actor, handle, clock and task are small stand-ins, because the real ones are
//! Tokio's or rest on it:
//!
//! | here | stands for |
//! |---|---|
//! | [`Actor`] | `actor/task.rs`, for sleeping futures: each method does what its namesake does, with the real `actor/sleep_wheel.rs`; a turn has no bounds |
//! | [`Shared`] | `shared/state.rs`, `Sleep::reset`, and of `sleep/pool.rs` one pool, which all threads share |
//! | [`ActorNotifier`] | Tokio's `Notify`, which keeps one permit, and the timer the actor waits on |
//! | [`Wakes`], [`Sleeper`] | a task: one counts how often it is woken, the other blocks until it is |
//!
//! The models of one part *step* the actor: it takes one turn while another thread does something,
//! and the model then inspects the result. The models of all parts together, in `joint`, let it
//! *run*, and time passes only when a model says so. An actor that waits for a later tick than it
//! should then waits forever, and loom reports a deadlock.
//!
//! A model that would take more than some seconds bounds the number of preemptions, and says so. `LOOM_MAX_PREEMPTIONS`
//! in the environment bounds all.
//!
//! [loom]: https://docs.rs/loom

mod joint;

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::task::{Wake, Waker};

use crate::actor::sleep_wheel::SleepWheel;
use crate::shared::bound::ActorAction;
use crate::shared::entry::{Disarmed, Entry, Expiration, Phase};
use crate::shared::mailbox::{Backlog, Mailbox, Notifier};
use crate::sync::{Mutex, lock};
use crate::tick::NEVER;
use crate::wheel::Step;
use loom::sync::Condvar;
use loom::sync::atomic::{AtomicBool, Ordering};

pub(crate) type SleepEntry = Entry<()>;

/// Takes `model` through every interleaving with at most this many preemptions.
pub(crate) fn check(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(preemptions);
    builder.check(model);
}

/// The actor waits on it for a permit, which is kept, or for a tick.
#[derive(Debug, Default)]
pub(crate) struct ActorNotifier {
    state: Mutex<NotifierState>,
    changed: Condvar,
    /// The clock. Its atomic is not loom's, so reading it orders nothing.
    now: AtomicU64,
}

#[derive(Debug, Default)]
struct NotifierState {
    permit: bool,
    notified: usize,
}

impl Notifier for ActorNotifier {
    fn notify(&self) {
        let mut state = lock(&self.state);
        state.permit = true;
        state.notified += 1;
        self.changed.notify_one();
    }
}

impl ActorNotifier {
    /// Whether a permit waits for the actor.
    pub(crate) fn has_permit(&self) -> bool {
        lock(&self.state).permit
    }

    /// How often the actor was notified.
    pub(crate) fn notified(&self) -> usize {
        lock(&self.state).notified
    }

    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::SeqCst)
    }

    /// Time passes until `tick`.
    pub(crate) fn pass(&self, tick: u64) {
        self.now.store(tick, Ordering::SeqCst);
        let _state = lock(&self.state);
        self.changed.notify_one();
    }

    /// Waits for the permit, or for the tick.
    pub(crate) fn wait(&self, until: Option<u64>) {
        let mut state = lock(&self.state);
        while !mem::take(&mut state.permit) && until.is_none_or(|tick| self.now() < tick) {
            state = self.changed.wait(state).expect("not poisoned");
        }
    }
}

/// A task that counts how often it is woken.
#[derive(Debug, Default)]
pub(crate) struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Wakes {
    pub(crate) fn task() -> (Arc<Self>, Waker) {
        let wakes = Arc::<Self>::default();
        (Arc::clone(&wakes), Waker::from(wakes))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// A task that can block until it is woken.
#[derive(Debug, Default)]
pub(crate) struct Sleeper {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        *lock(&self.woken) = true;
        self.changed.notify_one();
    }
}

impl Sleeper {
    pub(crate) fn task() -> (Arc<Self>, Waker) {
        let sleeper = Arc::<Self>::default();
        (Arc::clone(&sleeper), Waker::from(sleeper))
    }

    /// Blocks until it has been woken. If that does not happen loom reports a deadlock.
    pub(crate) fn wait(&self) {
        let mut woken = lock(&self.woken);
        while !mem::take(&mut *woken) {
            woken = self.changed.wait(woken).expect("not poisoned");
        }
    }
}

#[derive(Debug)]
pub(crate) enum Command {
    Sleep(Arc<SleepEntry>),
    Orphaned,
    Shutdown,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) mailbox: Mailbox<Command, ActorNotifier>,
    orphaned: AtomicBool,
    /// Cancelled entries, with the tick at which each was scheduled then.
    pool: Mutex<Vec<(u64, Arc<SleepEntry>)>>,
}

impl Shared {
    /// Makes this many queues; every thread uses the first.
    pub(crate) fn new(queues: usize) -> Arc<Self> {
        Arc::new(Shared {
            mailbox: Mailbox::new(queues, ActorNotifier::default()),
            orphaned: AtomicBool::new(false),
            pool: Mutex::default(),
        })
    }

    pub(crate) fn notifier(&self) -> &ActorNotifier {
        self.mailbox.notifier()
    }

    pub(crate) fn arm(&self, entry: &Arc<SleepEntry>, tick: u64, waker: Waker) -> bool {
        let told = (entry.arm(tick, waker)).map(|action| self.act(entry, action));
        if told == Some(false) {
            drop(entry.close());
        }
        told == Some(true)
    }

    /// Resets an armed sleep as `Sleep::reset` does. Returns the phase it was in.
    pub(crate) fn reset(&self, entry: &Arc<SleepEntry>, tick: u64) -> Phase {
        let (was, action) = entry.move_to(tick);
        if was == Phase::Armed && !self.act(entry, action) {
            wake(entry.close());
        }
        was
    }

    fn act(&self, entry: &Arc<SleepEntry>, action: ActorAction) -> bool {
        match action {
            ActorAction::None => {}
            ActorAction::Wake(tick) => self.mailbox.announce(0, tick),
            ActorAction::Enqueue(tick) => {
                let command = Command::Sleep(Arc::clone(entry));
                return self.mailbox.push(0, tick, command).is_ok();
            }
        }
        true
    }

    fn is_orphaned(&self) -> bool {
        self.orphaned.load(Ordering::Acquire)
    }

    /// Drops an armed sleep while the pool has room. Returns the phase that ended.
    pub(crate) fn give(&self, entry: Arc<SleepEntry>) -> Phase {
        let disarmed = entry.try_disarm().unwrap_or_else(|| entry.disarm());
        let Disarmed { was, scheduled, .. } = disarmed;
        if self.is_orphaned() {
            self.release(&entry);
        } else {
            lock(&self.pool).push((scheduled, entry));
        }
        was
    }

    /// An entry of the pool that is scheduled early enough for `deadline`, else a new one.
    pub(crate) fn take(&self, deadline: u64) -> Arc<SleepEntry> {
        let mut pool = lock(&self.pool);
        let at = pool
            .iter()
            .position(|&(scheduled, _)| scheduled <= deadline);
        at.map_or_else(|| Arc::new(Entry::new(())), |at| pool.swap_remove(at).1)
    }

    pub(crate) fn release(&self, entry: &Arc<SleepEntry>) {
        let action = match entry.release() {
            ActorAction::Enqueue(_) if self.is_orphaned() => ActorAction::Enqueue(0),
            action => action,
        };
        self.act(entry, action);
    }

    pub(crate) fn orphan(&self) {
        self.orphaned.store(true, Ordering::Release);
        self.send_now(Command::Orphaned);
    }

    pub(crate) fn shutdown(&self) {
        self.send_now(Command::Shutdown);
    }

    fn send_now(&self, command: Command) {
        if self.mailbox.enqueue(0, NEVER, command).is_ok() {
            self.mailbox.wake_by(0);
        }
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[derive(Debug)]
pub(crate) struct Actor {
    shared: Arc<Shared>,
    sleeps: SleepWheel<()>,
    backlog: Backlog<Command>,
    sweeping: bool,
    must_end: bool,
    /// The deadlines of the sleeps that fired.
    fired: Vec<u64>,
}

impl Actor {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Actor {
            shared: Arc::clone(shared),
            sleeps: SleepWheel::new(16),
            backlog: Backlog::new(),
            sweeping: false,
            must_end: false,
            fired: Vec::new(),
        }
    }

    pub(crate) fn fired(&self) -> &[u64] {
        &self.fired
    }

    pub(crate) fn now(&self) -> u64 {
        self.sleeps.wheel.now()
    }

    pub(crate) fn next_wake(&self) -> Option<u64> {
        self.sleeps.wheel.next_wake()
    }

    /// Runs until a command ends it, until no handle and no armed sleep is left, or until `enough` sleeps have fired. Then
    /// it closes its entries.
    pub(crate) fn run(mut self, enough: usize) {
        loop {
            self.shared.mailbox.awake();
            let now = self.shared.notifier().now();
            self.turn(now);
            if self.must_end || self.fired.len() >= enough {
                break;
            }
            let is_orphaned = self.shared.is_orphaned();
            if !self.shared.mailbox.park(self.sleeps.wheel.next_wake()) {
                continue;
            }
            if is_orphaned && self.is_unused() {
                break;
            }
            self.shared.notifier().wait(self.sleeps.wheel.next_wake());
        }
        self.close();
    }

    /// Whether nothing is armed.
    fn is_unused(&self) -> bool {
        self.sleeps.wheel.is_empty()
    }

    pub(crate) fn turn(&mut self, now: u64) {
        self.apply();
        self.sweep();
        self.advance(now);
    }

    /// Takes the queued commands, and returns how many of them are for the entry.
    pub(crate) fn fetch(&mut self, entry: &Arc<SleepEntry>) -> usize {
        self.shared.mailbox.take(&mut self.backlog);
        let is_it =
            |command: &&Command| matches!(command, Command::Sleep(e) if Arc::ptr_eq(e, entry));
        let commands: Vec<_> = std::iter::from_fn(|| self.backlog.pop()).collect();
        let times = commands.iter().filter(is_it).count();
        for command in commands {
            self.backlog.push(0, command);
        }
        times
    }

    fn apply(&mut self) {
        self.shared.mailbox.take(&mut self.backlog);
        while let Some(command) = self.backlog.pop() {
            match command {
                Command::Sleep(entry) => self.sleeps.register(entry),
                Command::Orphaned => self.sweeping = true,
                Command::Shutdown => self.must_end = true,
            }
        }
    }

    /// The tick at which the wheel has the entry.
    pub(crate) fn tick_of(&self, entry: &Arc<SleepEntry>) -> Option<u64> {
        let wheel = &self.sleeps.wheel;
        let is_it = |&index: &u32| wheel.get(index).is_some_and(|e| Arc::ptr_eq(e, entry));
        wheel.tick_of((0..wheel.indices()).find(is_it)?)
    }

    fn sweep(&mut self) {
        if mem::take(&mut self.sweeping) {
            self.deregister_unarmed();
        }
    }

    /// The search for cancelled sleeps.
    pub(crate) fn deregister_unarmed(&mut self) {
        let left = self.sleeps.deregister_unarmed(0, u32::MAX);
        assert_eq!(left, None);
    }

    fn advance(&mut self, until: u64) {
        let mut budget = usize::MAX;
        loop {
            match self.sleeps.step(until, &mut budget) {
                Step::Batch => {}
                Step::More => {
                    assert!(until < self.sleeps.wheel.now());
                    return;
                }
                Step::Done => return,
            }
            while let Some(processed) = self.sleeps.process_next(|()| 0) {
                if let Expiration::Fire { deadline, waker } = processed {
                    assert!(deadline <= until, "fired early, at {until}");
                    self.fired.push(deadline);
                    wake(waker);
                }
            }
        }
    }

    /// Ends like the drop of the actor.
    pub(crate) fn close(mut self) {
        self.shared.mailbox.close(&mut self.backlog);
        while let Some(command) = self.backlog.pop() {
            if let Command::Sleep(entry) = command {
                wake(entry.close());
            }
        }
        for entry in self.sleeps.drain() {
            wake(entry.close());
        }
    }
}
