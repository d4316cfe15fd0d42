//! The stand-ins that the loom models of the protocols between threads share.
//!
//! `RUSTFLAGS="--cfg tickwheel_loom" cargo test --profile models --lib model` runs them. [loom]
//! takes each through every interleaving of its threads, and through every value that a load of an
//! atomic may return. It treats sequentially consistent accesses as acquire and release, so the
//! models hold by the mutexes of queues and entries. The entry, the mailbox and the wheel are the
//! real ones. Actor, handle and task are small stand-ins, because the real ones are Tokio's or rest
//! on it:
//!
//! | here | stands for |
//! |---|---|
//! | [`Actor`] | `actor/task.rs`, for sleeping futures: each method does what its namesake does, with the real `actor/sleep_wheel.rs`; a turn has no bounds |
//! | [`Shared`] | `shared/state.rs`, `Sleep::reset`, and of `sleep/pool.rs` one pool, which all threads share |
//! | [`ActorNotifier`] | `shared/signal.rs`, which keeps one signal and has a model of its own |
//! | [`Wakes`] | a task: it counts how often it is woken |
//!
//! A model *steps* the actor: it takes one turn while another thread does something, and the model
//! then inspects the result. The explorer (`src/model/explore`) drives the real actor with all
//! parts together. It knows sequentially consistent accesses only, so what the parts tell each
//! other is sequentially consistent, or under a lock.
//!
//! A model that would take more than some seconds bounds the number of preemptions, and says so.
//! `LOOM_MAX_PREEMPTIONS` in the environment bounds all.
//!
//! [loom]: https://docs.rs/loom

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use loom::thread;

use crate::actor::sleep_wheel::SleepWheel;
use crate::shared::entry::{ActorAction, Disarmed, Entry, EntryArc, Expiration, Phase};
use crate::shared::mailbox::{Lane, Lanes, Mailbox, Notifier};
use crate::sync::{Mutex, lock};

pub(crate) type SleepEntry = Entry<()>;

/// Put a node for the entry on the wheel at this tick.
pub(crate) type Command = (EntryArc<SleepEntry>, u64);

/// Takes `model` through every interleaving with at most this many preemptions.
pub(crate) fn check(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(preemptions);
    builder.check(model);
}

/// It keeps a permit for the actor.
#[derive(Debug, Default)]
pub(crate) struct ActorNotifier {
    state: Mutex<NotifierState>,
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

    pub(crate) fn take_permit(&self) -> bool {
        mem::take(&mut lock(&self.state).permit)
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

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) mailbox: Mailbox<Command, ActorNotifier>,
    /// Cancelled entries, with the tick at which each was scheduled then.
    pool: Mutex<Vec<(u64, EntryArc<SleepEntry>)>>,
}

impl Shared {
    /// Makes this many queues; every thread uses the first.
    pub(crate) fn new(queues: usize) -> Arc<Self> {
        Arc::new(Shared {
            mailbox: Mailbox::new(queues, ActorNotifier::default()),
            pool: Mutex::default(),
        })
    }

    pub(crate) fn notifier(&self) -> &ActorNotifier {
        self.mailbox.notifier()
    }

    pub(crate) fn arm(&self, entry: &EntryArc<SleepEntry>, tick: u64, waker: Waker) -> bool {
        let told = (entry.arm(tick, waker)).map(|action| self.act(entry, action));
        if told == Some(false) {
            drop(entry.close());
        }
        told == Some(true)
    }

    /// Resets an armed sleep as `Sleep::reset` does. Returns the phase it was in.
    pub(crate) fn reset(&self, entry: &EntryArc<SleepEntry>, tick: u64) -> Phase {
        let (was, action) = entry.move_to(tick);
        if was == Phase::Armed && !self.act(entry, action) {
            wake(entry.close());
        }
        was
    }

    fn act(&self, entry: &EntryArc<SleepEntry>, action: ActorAction) -> bool {
        match action {
            ActorAction::None => true,
            ActorAction::Enqueue(tick) | ActorAction::EnqueueEarlier(tick) => {
                let command = (EntryArc::clone(entry), tick);
                self.mailbox.push(0, tick, command).is_ok()
            }
        }
    }

    /// Drops an armed sleep while the pool has room. Returns the phase that ended.
    pub(crate) fn give(&self, entry: EntryArc<SleepEntry>) -> Phase {
        let disarmed = entry.try_disarm().unwrap_or_else(|| entry.disarm());
        let Disarmed { was, scheduled, .. } = disarmed;
        lock(&self.pool).push((scheduled, entry));
        was
    }

    /// An entry of the pool that is scheduled early enough for `deadline`, else a new one.
    pub(crate) fn take(&self, deadline: u64) -> EntryArc<SleepEntry> {
        let mut pool = lock(&self.pool);
        let at = pool
            .iter()
            .position(|&(scheduled, _)| scheduled <= deadline);
        at.map_or_else(
            || EntryArc::new(Entry::new(())),
            |at| pool.swap_remove(at).1,
        )
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
    backlog: Lanes<Command>,
    /// The deadlines of the sleeps that fired.
    fired: Vec<u64>,
}

impl Actor {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Actor {
            shared: Arc::clone(shared),
            sleeps: SleepWheel::new(16),
            backlog: Lanes::new(),
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

    pub(crate) fn turn(&mut self, now: u64) {
        self.shared.mailbox.take_all(&mut self.backlog);
        while let Some((entry, tick)) = self.backlog.pop() {
            self.sleeps.schedule(entry, tick);
        }
        self.advance(now);
        // The next turns.
        while self.sleeps.contended() > 0 {
            thread::yield_now();
            if let Some(processed) = self.sleeps.retry_next(|()| 0) {
                self.processed(processed, now);
            }
            self.advance(now);
        }
    }

    /// The ticks of the commands and nodes that there are for the entry.
    pub(crate) fn ticks_of(&mut self, entry: &EntryArc<SleepEntry>) -> Vec<u64> {
        self.shared.mailbox.take_all(&mut self.backlog);
        let commands: Vec<_> = std::iter::from_fn(|| self.backlog.pop()).collect();
        let wheel = &self.sleeps.wheel;
        let nodes = (0..wheel.indices()).filter_map(|index| {
            let is_it = wheel.get(index).is_some_and(|e| EntryArc::ptr_eq(e, entry));
            wheel.tick_of(index).filter(|_| is_it)
        });
        let queued = commands.iter().filter(|(e, _)| EntryArc::ptr_eq(e, entry));
        let ticks = queued.map(|&(_, tick)| tick).chain(nodes).collect();
        for (entry, tick) in commands {
            self.backlog.lane(Lane::Soon).push(tick, (entry, tick));
        }
        ticks
    }

    /// Takes stale nodes off the wheel.
    pub(crate) fn sweep(&mut self, unless_armed: bool) {
        let (left, _locked) = self.sleeps.sweep(0, u32::MAX, unless_armed);
        assert_eq!(left, None);
    }

    fn advance(&mut self, until: u64) {
        let mut budget = usize::MAX;
        while self.sleeps.step(until, &mut budget) {
            while let Some(processed) = self.sleeps.process_next(|()| 0) {
                self.processed(processed, until);
            }
        }
    }

    fn processed(&mut self, sleep: Expiration, until: u64) {
        if let Expiration::Fire { deadline, waker } = sleep {
            assert!(deadline <= until, "fired early, at {until}");
            self.fired.push(deadline);
            wake(waker);
        }
    }

    /// Ends like the drop of the actor.
    pub(crate) fn close(mut self) {
        self.shared.mailbox.close(&mut self.backlog);
        while let Some((entry, _)) = self.backlog.pop() {
            wake(entry.close());
        }
        for entry in self.sleeps.drain() {
            wake(entry.close());
        }
    }
}
