//! Runs a script against the library and the oracle.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tickwheel::{Sleep, TimerWheel};
use tokio::time::{self, Instant};
use tokio_test::task::{self, Spawn};

use super::ops::{Op, Setup, TASKS};
use super::oracle::{Counts, Model, NEVER, Polled, Stage, fires_at};
use crate::support::builder;
use crate::support::script_time::{LAST, Nanos, ScriptClock, Span, nanos, to_duration};

/// The greatest number of sleeps at once.
const MAX_LIVE: usize = 12;

/// For how many dropped sleeps the tasks are still checked.
const MAX_LIVE_GONE: usize = 16;

/// A sleep and its tasks. A dropped sleep leaves its tasks, which must not be woken any more.
struct Case {
    sleep: Option<Sleep>,
    tasks: [Spawn<()>; TASKS],
    model: Model,
}

struct Run {
    wheel: TimerWheel,
    clock: ScriptClock,
    live: Vec<Case>,
    gone: Vec<Case>,
    counts: Counts,
}

pub(crate) fn run(setup: &Setup, script: &[Op]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    // A script is one task. Its many polls must not use up the cooperative budget.
    runtime.block_on(tokio::task::coop::unconstrained(async {
        time::advance(setup.offset).await;
        let builder = builder().tick(setup.tick).slots(setup.slots);
        let mut run = Run {
            wheel: builder.start().expect("it is within bounds"),
            clock: ScriptClock::start(setup.tick),
            live: Vec::new(),
            gone: Vec::new(),
            counts: Counts::default(),
        };
        for &op in script {
            run.apply(op).await;
            run.check();
        }
        run.finish(setup.shuts_down).await;
    }));
}

impl Run {
    fn fires_at(&self, model: &Model) -> Nanos {
        fires_at(model.deadline, nanos(self.clock.tick))
    }

    /// When the first of the waiting sleeps fires.
    fn earliest(&self) -> Option<Nanos> {
        let models = self.live.iter().map(|case| &case.model);
        let waiting = models.filter(|model| model.waits().is_some() && model.deadline < NEVER);
        waiting.map(|model| self.fires_at(model)).min()
    }

    fn span(&self, span: Span) -> Duration {
        self.clock.length(span, || self.earliest())
    }

    /// The deadline as the wheel keeps it.
    fn deadline(&self, at: Option<Instant>) -> Nanos {
        at.map_or(NEVER, |at| self.clock.nanos(at).min(NEVER))
    }

    fn named(&self, name: u8) -> Option<usize> {
        usize::from(name).checked_rem(self.live.len())
    }

    async fn apply(&mut self, op: Op) {
        match op {
            Op::Make(span) => {
                let delay = self.span(span);
                let deadline = self.deadline(Instant::now().checked_add(delay));
                let sleep = self.wheel.sleep(delay);
                self.make(sleep, deadline);
            }
            Op::MakeAt(span) => {
                if let Some(at) = Instant::now().checked_add(self.span(span)) {
                    self.make_at(at);
                }
            }
            Op::MakePast(span) => {
                if let Some(at) = Instant::now().checked_sub(self.span(span)) {
                    self.make_at(at);
                }
            }
            Op::Poll(name, task) => {
                if let Some(at) = self.named(name) {
                    self.poll(at, usize::from(task) % TASKS);
                }
            }
            Op::Reset(name, span) => {
                if let Some(at) = Instant::now().checked_add(self.span(span)) {
                    self.reset(name, at);
                }
            }
            Op::ResetPast(name, span) => {
                if let Some(at) = Instant::now().checked_sub(self.span(span)) {
                    self.reset(name, at);
                }
            }
            Op::ResetSame(name) => {
                let at = self.named(name).and_then(|at| self.live[at].sleep.as_ref());
                if let Some(at) = at.map(Sleep::deadline) {
                    self.reset(name, at);
                }
            }
            Op::Drop(name) => {
                if let Some(at) = self.named(name) {
                    self.drop_sleep(at);
                }
            }
            Op::Advance(span) => {
                let by = self.span(span).min(to_duration(LAST - self.clock.now()));
                time::advance(by).await;
                self.catch_up();
            }
            Op::Settle => self.settle().await,
            Op::Yield => {
                tokio::task::yield_now().await;
                self.catch_up();
            }
            Op::Wait(name) => {
                if let Some(at) = self.named(name) {
                    self.wait(at).await;
                }
            }
        }
    }

    fn make_at(&mut self, at: Instant) {
        let deadline = self.deadline(Some(at));
        let sleep = self.wheel.sleep_until(at);
        assert_eq!(sleep.deadline(), at);
        self.make(sleep, deadline);
    }

    fn make(&mut self, sleep: Sleep, deadline: Nanos) {
        self.counts.made += 1;
        self.live.push(Case {
            sleep: Some(sleep),
            tasks: [task::spawn(()), task::spawn(()), task::spawn(())],
            model: Model::new(deadline),
        });
        if self.live.len() > MAX_LIVE {
            self.drop_sleep(0);
        }
    }

    fn poll(&mut self, at: usize, task: usize) {
        let now = self.clock.now();
        let case = &mut self.live[at];
        let sleep = case.sleep.as_mut().expect("it is live");
        let polled = case.tasks[task].enter(|cx, _| Pin::new(sleep).poll(cx));
        case.model.woken[task] = false;
        let expected = case.model.poll(now);
        let is_as_expected = match expected {
            Polled::Ready => polled.is_ready(),
            Polled::Pending => polled.is_pending(),
        };
        assert!(is_as_expected, "{polled:?} at {now}: {:?}", case.model);
        match polled {
            Poll::Ready(()) if case.model.is_elapsed() => case.model.stage = Stage::Done,
            Poll::Ready(()) => {
                case.model.stage = Stage::Done;
                self.counts.fired += 1;
            }
            Poll::Pending => case.model.stage = Stage::Waiting(task),
        }
    }

    fn reset(&mut self, name: u8, to: Instant) {
        let Some(at) = self.named(name) else { return };
        let deadline = self.deadline(Some(to));
        let case = &mut self.live[at];
        let sleep = case.sleep.as_mut().expect("it is live");
        Pin::new(&mut *sleep).reset(to);
        assert_eq!(sleep.deadline(), to);
        case.model.deadline = deadline;
        match case.model.stage {
            Stage::Waiting(_) => self.counts.moved += 1,
            Stage::New | Stage::Reset => case.model.stage = Stage::Reset,
            Stage::Fired | Stage::Done => {
                case.model.stage = Stage::Reset;
                self.counts.made += 1;
            }
        }
    }

    fn drop_sleep(&mut self, at: usize) {
        let mut case = self.live.remove(at);
        case.sleep = None;
        if !case.model.is_elapsed() {
            self.counts.cancelled += 1;
        }
        case.model.stage = Stage::Done;
        if self.gone.len() == MAX_LIVE_GONE {
            self.gone.remove(0);
        }
        self.gone.push(case);
    }

    /// The script has awaited: some sleeps may have fired.
    fn catch_up(&mut self) {
        let (now, tick) = (self.clock.now(), nanos(self.clock.tick));
        for case in &mut self.live {
            let Some(task) = case.model.waits() else {
                continue;
            };
            if case.tasks[task].is_woken() {
                let at = fires_at(case.model.deadline, tick);
                assert!(case.model.deadline < NEVER && at <= now, "early at {now}");
                case.model.woken[task] = true;
                case.model.stage = Stage::Fired;
                self.counts.fired += 1;
            }
        }
    }

    async fn settle(&mut self) {
        let now = Instant::now();
        self.wheel.settle().await;
        assert_eq!(Instant::now(), now, "settling takes no time");
        self.catch_up();
        let due = self.earliest().filter(|&at| at <= self.clock.now());
        assert_eq!(due, None, "due, and not fired");
    }

    /// Waits in the script's own task, if there is an end to it.
    async fn wait(&mut self, at: usize) {
        let before = self.clock.now();
        let model = &self.live[at].model;
        let fires = self.fires_at(model);
        if model.deadline >= LAST && !model.is_elapsed() {
            return;
        }
        let mut sleep = self.live[at].sleep.take().expect("it is live");
        (&mut sleep).await;
        assert!(sleep.is_elapsed());
        let now = self.clock.now();
        let case = &mut self.live[at];
        case.sleep = Some(sleep);
        if case.model.is_elapsed() || case.model.is_due(before) {
            assert_eq!(now, before, "there was nothing to wait for");
        } else {
            assert!(now >= case.model.deadline, "early");
            // Tokio's timer, on which the actor waits, rounds up to a millisecond, and a paused
            // clock jumps in whole milliseconds from wherever it is.
            assert!(now <= fires.max(before) + 2_000_000, "{fires} -> {now}");
        }
        if !case.model.is_elapsed() {
            self.counts.fired += 1;
        }
        case.model.stage = Stage::Done;
        self.catch_up();
    }

    /// Asserts the invariants after every step.
    fn check(&self) {
        for case in self.live.iter().chain(&self.gone) {
            for (n, task) in case.tasks.iter().enumerate() {
                let model = &case.model;
                assert_eq!(task.is_woken(), model.woken[n], "task {n} of {model:?}");
                let held = usize::from(model.waits() == Some(n));
                let wakers = task.waker_ref_count() - 1;
                assert_eq!(
                    wakers, held,
                    "only the last poller's waker is kept: {model:?}"
                );
            }
            if let Some(sleep) = &case.sleep {
                assert_eq!(
                    sleep.is_elapsed(),
                    case.model.shows_elapsed(self.clock.now())
                );
            }
        }
        let m = self.wheel.metrics();
        let counts = Counts {
            made: m.sleeps_made,
            fired: m.sleeps_fired,
            cancelled: m.sleeps_cancelled,
            moved: m.sleeps_moved,
        };
        assert_eq!(counts, self.counts);
        let models = self.live.iter().map(|case| &case.model);
        let pending = models.filter(|model| !model.is_elapsed()).count();
        assert_eq!(m.sleeps_pending, pending as u64);
        let ended = m.sleeps_fired + m.sleeps_cancelled + m.sleeps_handed_over;
        assert_eq!(
            m.sleeps_made,
            m.sleeps_pending + ended,
            "the counters add up"
        );
    }

    async fn finish(&mut self, shuts_down: bool) {
        self.settle().await;
        self.check();
        if shuts_down {
            self.wheel.shutdown().await;
            self.go_on_without_a_wheel().await;
            return;
        }
        let deadlines = self.live.iter().map(|case| self.fires_at(&case.model));
        let last = deadlines.filter(|&at| at <= LAST).max();
        if let Some(last) = last {
            time::advance(to_duration(last - self.clock.now())).await;
            self.settle().await;
            self.check();
        }
        while !self.live.is_empty() {
            self.drop_sleep(0);
        }
        self.settle().await;
        self.check();
    }

    /// Every task that waits for something is woken when the wheel ends; what it polls then goes on
    /// with Tokio's timer.
    async fn go_on_without_a_wheel(&mut self) {
        for case in &self.live {
            for (n, task) in case.tasks.iter().enumerate() {
                let waits = case.model.waits() == Some(n);
                if waits && case.model.deadline == NEVER {
                    continue; // nothing changes for it until it is reset
                }
                let woken = waits || case.model.woken[n];
                assert_eq!(task.is_woken(), woken, "task {n} of {:?}", case.model);
            }
        }
        for mut case in std::mem::take(&mut self.live) {
            let mut sleep = case.sleep.take().expect("it is live");
            if case.model.deadline >= LAST && !case.model.is_elapsed() {
                let to = Instant::now() + Duration::from_millis(7);
                Pin::new(&mut sleep).reset(to);
                case.model.deadline = self.clock.nanos(to);
                if let Some(task) = case.model.waits() {
                    assert!(case.tasks[task].is_woken(), "it waits for another instant");
                }
            }
            (&mut sleep).await;
            assert!(
                case.model.is_elapsed() || case.model.is_due(self.clock.now()),
                "early"
            );
            assert!(sleep.is_elapsed());
        }
    }
}
