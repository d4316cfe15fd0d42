//! The explorer's world: a virtual clock, and parties that wait.
//!
//! Every thread of a schedule is a *party*. All waiting that is not for one of the crate's locks
//! goes through [`wait`], so the world knows when all parties wait. Time passes only then, or when
//! a party [moves it](advance). It jumps to the earliest instant that a party waits for. Before a
//! jump the world checks that no party waits longer than it should: a lost wake-up shows there. A
//! schedule in which all parties wait for nothing is stuck and has failed.
//!
//! Shuttle's threads are coroutines on one thread, so the world is plain data of that thread. It
//! has no lock. Waking a party is the only operation in this module at which another party may run.

use std::cell::RefCell;
use std::fmt::Display;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use shuttle::thread::{self, JoinHandle, Thread};
use tokio::time::Instant;

use crate::actor::{Actor, Step};
use crate::clock;

pub(super) const TICK: Duration = Duration::from_millis(1);

/// The actor's party.
const ACTOR: usize = 0;

/// Checks that no party waits too long when time is about to jump to an instant, or when all wait
/// forever (`None`).
type Check = Rc<dyn Fn(Option<Duration>) -> Result<(), String>>;

#[derive(Default)]
struct World {
    parties: Vec<Party>,
    /// The begin and the end of each jump of time.
    jumps: Vec<(Duration, Duration)>,
    check: Option<Check>,
    failure: Option<String>,
    /// The events of the schedule, if they are to be shown.
    trace: Option<Vec<String>>,
}

struct Party {
    name: String,
    thread: Option<Thread>,
    state: State,
    permit: bool,
    /// The instant at which it stops waiting.
    until: Option<Duration>,
    /// It must not wait beyond the tick of this instant.
    must_by: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Waiting,
    Gone,
}

std::thread_local! {
    static WORLD: RefCell<World> = RefCell::default();
    static TRACING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

fn with<R>(f: impl FnOnce(&mut World) -> R) -> R {
    WORLD.with(|world| f(&mut world.borrow_mut()))
}

/// Begins a new world at time zero; the calling thread is its first party after the actor.
pub(super) fn begin(tracing: bool) {
    clock::set(Duration::ZERO);
    TRACING.set(tracing);
    let old = with(|world| {
        let new = World {
            trace: tracing.then(Vec::new),
            parties: vec![
                Party::new("actor", None),
                Party::new("main", Some(thread::current())),
            ],
            ..World::default()
        };
        std::mem::replace(world, new)
    });
    // Dropping the check of a failed schedule would call into an execution that is over.
    std::mem::forget(old.check);
}

/// The reason why the schedule failed, if it did, and its trace.
pub(super) fn failure() -> (Option<String>, Vec<String>) {
    with(|world| (world.failure.take(), world.trace.take().unwrap_or_default()))
}

/// Sets the check to make before time jumps.
pub(super) fn set_check(check: impl Fn(Option<Duration>) -> Result<(), String> + 'static) {
    with(|world| world.check = Some(Rc::new(check)));
}

/// Ends the checks before jumps.
pub(super) fn drop_check() {
    let check = with(|world| world.check.take());
    drop(check);
}

impl Party {
    fn new(name: &str, thread: Option<Thread>) -> Self {
        Party {
            name: name.to_owned(),
            thread,
            state: State::Running,
            permit: false,
            until: None,
            must_by: None,
        }
    }
}

/// A thread that is part of the schedule.
#[derive(Debug, Clone, Copy)]
pub(super) struct Me(usize);

/// The party of the thread that began the world.
pub(super) const MAIN: Me = Me(1);

/// Fails the schedule. The caller stops here, and all others at their next wait. Shuttle then finds
/// a deadlock, and leaves every stack as it is; unwinding the stacks would run code that has just
/// failed.
pub(super) fn fail(why: impl Display) -> ! {
    let why = why.to_string();
    with(|world| {
        world.failure.get_or_insert(why);
    });
    stop()
}

fn stop() -> ! {
    loop {
        thread::park();
    }
}

fn has_failed() -> bool {
    with(|world| world.failure.is_some())
}

/// Adds a line to the trace, if there is one.
pub(super) fn note(me: Me, what: impl FnOnce() -> String) {
    if TRACING.get() {
        let what = what();
        with(|world| {
            let name = &world.parties[me.0].name;
            let line = format!("{:>10.1?} {name:<10} {what}", clock::elapsed());
            world.trace.get_or_insert_default().push(line);
        });
    }
}

/// Starts a party.
pub(super) fn spawn(name: &str, run: impl FnOnce(Me) + Send + 'static) -> JoinHandle<()> {
    let me = with(|world| {
        world.parties.push(Party::new(name, None));
        Me(world.parties.len() - 1)
    });
    start(me, run)
}

fn start(me: Me, run: impl FnOnce(Me) + Send + 'static) -> JoinHandle<()> {
    thread::spawn(move || {
        with(|world| world.parties[me.0].thread = Some(thread::current()));
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(me))) {
            fail(format!("{} panicked: {}", name(me), message(&*panic)));
        }
        leave(me);
    })
}

fn name(me: Me) -> String {
    with(|world| world.parties[me.0].name.clone())
}

fn message(panic: &dyn std::any::Any) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "no message".to_owned())
}

/// The party has ended: wakes the main party, which may wait for that.
fn leave(me: Me) {
    note(me, || "leaves".to_owned());
    with(|world| world.parties[me.0].state = State::Gone);
    signal(MAIN.0);
}

/// The main party waits until every party but the actor has ended.
pub(super) fn wait_for_all_but_the_actor() {
    wait_until(|world| {
        world
            .parties
            .iter()
            .skip(MAIN.0 + 1)
            .all(|p| p.state == State::Gone)
    });
}

/// The main party waits until the actor has ended.
pub(super) fn wait_for_the_actor() {
    wait_until(|world| world.parties[ACTOR].state == State::Gone);
}

fn wait_until(is_so: impl Fn(&mut World) -> bool) {
    while !with(&is_so) {
        wait(MAIN, None);
    }
}

impl World {
    fn every_party_waits(&self) -> bool {
        self.parties.iter().all(|p| p.state != State::Running)
    }

    /// The parties that wait for an instant that has come.
    fn woken_by_time(&mut self) -> Vec<usize> {
        let now = clock::elapsed();
        let is_due = |p: &Party| p.state == State::Waiting && p.until.is_some_and(|at| at <= now);
        (0..self.parties.len())
            .filter(|&at| is_due(&self.parties[at]))
            .collect()
    }
}

/// Resumes a party that waits, so that it checks its condition again.
fn wake_up(party: usize) {
    let thread = with(|world| {
        let party = &mut world.parties[party];
        if party.state == State::Waiting {
            party.state = State::Running;
            party.thread.clone()
        } else {
            None
        }
    });
    if let Some(thread) = thread {
        thread.unpark();
    }
}

/// Wakes a party, or makes its next wait return at once.
fn signal(party: usize) {
    with(|world| world.parties[party].permit = true);
    wake_up(party);
}

/// Moves time on.
pub(super) fn advance(me: Me, by: Duration) {
    note(me, || format!("time passes: {by:?}"));
    clock::set(clock::elapsed() + by);
    time_has_passed();
}

fn time_has_passed() {
    for party in with(World::woken_by_time) {
        wake_up(party);
    }
}

/// Waits to be woken, or until an instant.
pub(super) fn wait(me: Me, until: Option<Duration>) {
    loop {
        if has_failed() {
            stop();
        }
        let every_party_waits = with(|world| {
            let party = &mut world.parties[me.0];
            let is_over =
                std::mem::take(&mut party.permit) || until.is_some_and(|at| at <= clock::elapsed());
            if is_over {
                party.state = State::Running;
                return None;
            }
            party.state = State::Waiting;
            party.until = until;
            Some(world.every_party_waits())
        });
        match every_party_waits {
            None => return,
            Some(false) => thread::park(),
            Some(true) => jump(me),
        }
    }
}

/// Waits for this long.
pub(super) fn rest(me: Me, time: Duration) {
    let until = clock::elapsed() + time;
    while clock::elapsed() < until {
        wait(me, Some(until));
    }
}

/// Moves time, when all parties wait, to the first instant that one of them waits for.
fn jump(me: Me) {
    let (target, check) = with(|world| {
        let waiting = world.parties.iter().filter(|p| p.state == State::Waiting);
        let target = waiting.filter_map(|p| p.until).min();
        (target, world.check.clone())
    });
    let now = clock::elapsed();
    if let Some(why) = with(|world| world.overdue(now, target)) {
        fail(why);
    }
    // This party counts as running until it has woken the others. The check and the waking let
    // other parties run, and none of them may find that all wait.
    with(|world| world.parties[me.0].state = State::Running);
    let checked = check.map_or(Ok(()), |check| check(target));
    if let Err(why) = checked {
        fail(why);
    }
    let goes_on = with(|world| {
        let others = world
            .parties
            .iter()
            .enumerate()
            .filter(|&(at, _)| at != me.0);
        let somebody_runs = others.into_iter().any(|(_, p)| p.state == State::Running);
        world.parties[me.0].permit || somebody_runs
    });
    if goes_on {
        return;
    }
    let Some(target) = target else {
        let who = with(|world| {
            let waiting = world.parties.iter().filter(|p| p.state != State::Gone);
            waiting
                .map(|p| p.name.clone())
                .collect::<Vec<_>>()
                .join(", ")
        });
        fail(format!(
            "stuck: these wait, and nothing will wake them: {who}"
        ));
    };
    note(me, || {
        format!("every party waits: time jumps to {target:?}")
    });
    with(|world| world.jumps.push((now, target)));
    clock::set(target);
    time_has_passed();
}

impl World {
    /// The failure of a party that waits longer than it must, if there is one.
    fn overdue(&self, now: Duration, target: Option<Duration>) -> Option<String> {
        let waiting = self.parties.iter().filter(|p| p.state == State::Waiting);
        waiting.into_iter().find_map(|p| {
            let must_by = tick_of(p.must_by?);
            let name = &p.name;
            is_too_late(must_by, now, target).then(|| {
                format!(
                    "{name} waits for what is due at {must_by:?}; {}",
                    then(now, target)
                )
            })
        })
    }
}

/// Whether an event due at `due` is overdue, or would be skipped by the jump.
pub(super) fn is_too_late(due: Duration, now: Duration, target: Option<Duration>) -> bool {
    due <= now || target.is_none_or(|target| due < target)
}

/// Describes the jump.
pub(super) fn then(now: Duration, target: Option<Duration>) -> String {
    match target {
        Some(target) => format!("every party waits at {now:?} until {target:?}"),
        None => format!("every party waits at {now:?} forever"),
    }
}

/// The begin of the tick that an instant is rounded up to.
pub(super) fn tick_of(at: Duration) -> Duration {
    let ticks = at.as_nanos().div_ceil(TICK.as_nanos());
    TICK * u32::try_from(ticks).expect("some hours are few ticks")
}

/// Fails the schedule if an instant within a jump was the deadline: the timer came late.
pub(super) fn check_was_on_time(what: impl Display, due: Instant) {
    let due = tick_of(since_begin(due));
    let jumps = with(|world| world.jumps.clone());
    if let Some((from, to)) = jumps.into_iter().find(|&(from, to)| from < due && due < to) {
        fail(format!(
            "{what} was due at {due:?}, and time jumped from {from:?} to {to:?}"
        ));
    }
}

/// An instant of the virtual clock, as the time since its begin.
pub(super) fn since_begin(at: Instant) -> Duration {
    let now = clock::now();
    if at >= now {
        clock::elapsed() + (at - now)
    } else {
        clock::elapsed().saturating_sub(now - at)
    }
}

// --- tasks ---

/// A task's waker.
struct Task {
    party: usize,
    panics: bool,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        signal(self.party);
        // A second panic would abort the process, and with it the exploration.
        if self.panics && !std::thread::panicking() {
            // `panic!` would print.
            resume_unwind(Box::new("a waker of the explorer's panicked"));
        }
    }
}

/// How a party waits for a future.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wait {
    /// The waker panics after it has woken the task.
    pub(super) panics: bool,
    /// Each poll passes another waker, as it does for a future that moves between tasks. The crate
    /// has to clone it, and releases its locks for that.
    pub(super) fresh: bool,
    /// The party must stop waiting by the tick of this instant.
    pub(super) must_by: Option<Duration>,
}

/// Polls the future until it is ready.
pub(super) fn block_on<F: Future>(me: Me, how: Wait, future: F) -> F::Output {
    let new_waker = || {
        Waker::from(Arc::new(Task {
            party: me.0,
            panics: how.panics,
        }))
    };
    let mut waker = new_waker();
    let mut future = pin!(future);
    loop {
        if how.fresh {
            waker = new_waker();
        }
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        with(|world| world.parties[me.0].must_by = how.must_by);
        wait(me, None);
        with(|world| world.parties[me.0].must_by = None);
    }
}

// --- the actor ---

/// Notifies the actor: see `Builder::start_explored`.
pub(super) fn notify_actor() {
    signal(ACTOR);
}

/// Starts the thread that drives the actor.
pub(super) fn drive(actor: Actor) -> JoinHandle<()> {
    start(Me(ACTOR), move |me| {
        let mut actor = actor;
        loop {
            let step = catch_unwind(AssertUnwindSafe(|| actor.step()));
            note(me, || format!("took a turn: {step:?}"));
            match step {
                Ok(Step::Again) => thread::yield_now(),
                Ok(Step::Wait) => wait(me, actor.next_turn().map(since_begin)),
                Ok(Step::End) => break,
                Err(panic) => fail(format!(
                    "the actor panicked in its turn: {}",
                    message(&*panic)
                )),
            }
            if has_failed() {
                stop();
            }
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(actor))) {
            fail(format!(
                "the actor panicked at its end: {}",
                message(&*panic)
            ));
        }
    })
}
