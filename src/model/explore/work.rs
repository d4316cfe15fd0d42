//! Random work: what the parties of a schedule do, and what must be true of it.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::FutureExt;
use shuttle::thread::{self, JoinHandle};

use super::world::{
    self, MAIN, Me, Wait, advance, block_on, fail, is_too_late, note, since_begin, then, tick_of,
};
use crate::{Busy, Expirations, Expired, KeyedTimers, Reaper, Sleep, TimerWheel, Watch, clock};

/// How often each kind of step is taken, in relation to the others; and who takes part.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mix {
    /// How many threads take steps, at least and at most, and how many steps each takes at most.
    pub(super) threads: (u64, u64),
    pub(super) steps: u64,
    pub(super) set: u64,
    pub(super) interval: u64,
    pub(super) move_to: u64,
    pub(super) remove: u64,
    pub(super) drain: u64,
    pub(super) watch: u64,
    pub(super) touch: u64,
    pub(super) busy: u64,
    pub(super) unwatch: u64,
    pub(super) sleep: u64,
    pub(super) sleep_and_drop: u64,
    pub(super) advance: u64,
    pub(super) rest: u64,
    pub(super) settle: u64,
    pub(super) metrics: u64,
    pub(super) shutdown: u64,
    /// How many of a hundred wakers panic.
    pub(super) panicking: u64,
    /// How many of a hundred receives follow a pause.
    pub(super) lagging: u64,
}

impl Mix {
    fn has_timers(&self) -> bool {
        self.set + self.interval > 0
    }

    /// A mix of some of this one's steps: those that are left out would often mend what the others have broken.
    fn some(mut self, random: &mut Random) -> Self {
        self.steps = 1 + random.below(self.steps);
        let all = self;
        let weights = [
            &mut self.interval,
            &mut self.move_to,
            &mut self.remove,
            &mut self.drain,
            &mut self.touch,
            &mut self.busy,
            &mut self.unwatch,
            &mut self.sleep,
            &mut self.sleep_and_drop,
            &mut self.advance,
            &mut self.rest,
            &mut self.settle,
            &mut self.metrics,
            &mut self.shutdown,
        ];
        for weight in weights {
            *weight *= random.pick(&[0, 1, 1, 1, 2]);
        }
        // There must be something to do.
        if !self.has_timers() && !self.has_watches() && self.sleep + self.sleep_and_drop == 0 {
            return all;
        }
        self
    }

    fn has_watches(&self) -> bool {
        self.watch > 0
    }
}

/// Pseudo-random numbers, by `SplitMix64`.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        let at = usize::try_from(self.below(of.len() as u64)).expect("few");
        of[at]
    }
}

const KEYS: u64 = 3;

/// The keys from here on repeat, and are not set otherwise.
const INTERVALS: u64 = 100;

const HOUR: Duration = Duration::from_secs(3_600);

fn delay(random: &mut Random) -> Duration {
    let micros = random.pick(&[0, 400, 1_000, 1_000, 2_000, 3_500, 5_000, 20_000, 70_000]);
    if random.percent(25) {
        HOUR + Duration::from_micros(micros)
    } else {
        Duration::from_micros(micros)
    }
}

/// The facts that are known from outside. Never locked across a step.
#[derive(Debug, Default)]
struct Ledger {
    next: u64,
    /// The values of keyed timers that were set.
    set: BTreeSet<u64>,
    /// Those that came out: expired, removed, replaced, drained or unexpired.
    out: BTreeSet<u64>,
    received: u64,
    idle: Duration,
    watches: BTreeMap<u64, Watched>,
    /// Watches that were reaped, and those whose touches or guards had no effect any more.
    reaped: BTreeSet<u64>,
    refused: BTreeSet<u64>,
    /// Nobody waits for the next watch to be reaped.
    reader_is_away: bool,
    was_shut_down: bool,
    last_metrics: (u64, u64),
}

#[derive(Debug, Default)]
struct Watched {
    /// The last activity was then or later.
    not_before: Duration,
    /// It was then or earlier.
    not_after: Duration,
    busy: bool,
    reaped: bool,
}

impl Ledger {
    fn next_value(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

type Book = Arc<Mutex<Ledger>>;

fn book<R>(book: &Book, f: impl FnOnce(&mut Ledger) -> R) -> R {
    f(&mut book.lock().unwrap_or_else(PoisonError::into_inner))
}

type Step = fn(&mut Worker);

/// Everything a party that takes steps works with.
struct Worker {
    me: Me,
    random: Random,
    mix: Mix,
    book: Book,
    wheel: TimerWheel,
    timers: Option<Arc<KeyedTimers<u64, u64>>>,
    intervals: Vec<u64>,
    reaper: Option<Reaper<u64, u64>>,
    watches: Vec<(u64, Watch, Option<Busy>)>,
}

/// One schedule: starts the wheel and the parties, waits for them, and checks the books.
pub(super) fn run(mix: Mix, seed: u64) {
    let mut random = Random::new(seed);
    let mix = mix.some(&mut random);
    let builder = TimerWheel::builder()
        .tick(world::TICK)
        .slots(random.pick(&[8, 64]));
    let (wheel, actor) = builder
        .start_explored(world::notify_actor)
        .expect("nothing is out of bounds");
    let actor = world::drive(actor);
    let ledger = Book::default();
    let mut parties: Vec<JoinHandle<()>> = Vec::new();

    let mut timers = None;
    if mix.has_timers() {
        let (handle, stream) = wheel.keyed();
        timers = Some(Arc::new(handle));
        parties.push(receive(mix, random.next(), &ledger, stream));
    }
    let mut reaper = None;
    if mix.has_watches() {
        let idle = world::TICK * u32::try_from(1 + random.below(5)).expect("small");
        book(&ledger, |ledger| ledger.idle = idle);
        let (handle, stream) = wheel.reaper(idle);
        reaper = Some(handle);
        parties.push(reap(mix, random.next(), &ledger, stream));
    }
    // The wheel holds some timers before anybody begins. Without them only the third step or so could meet another.
    if let Some(timers) = timers.as_ref().filter(|_| random.percent(70)) {
        for key in 0..=random.below(KEYS) {
            let value = book(&ledger, Ledger::next_value);
            book(&ledger, |ledger| ledger.set.insert(value));
            let replaced = timers.set_timer(key, value, HOUR);
            assert_eq!(replaced, Ok(None), "nobody has closed it");
        }
        block_on(MAIN, Wait::default(), wheel.settle());
    }
    let weak_timers = timers.as_ref().map(Arc::downgrade);
    let (checked, checked_wheel) = (Arc::clone(&ledger), wheel.clone());
    world::set_check(move |target| {
        if checked_wheel.is_shutdown() {
            return Ok(());
        }
        if let Some(timers) = weak_timers.as_ref().and_then(std::sync::Weak::upgrade) {
            check_timers(&timers, target)?;
        }
        book(&checked, |ledger| check_watches(ledger, target))
    });

    let (fewest, most) = mix.threads;
    let threads = fewest + random.below(most + 1 - fewest);
    for n in 0..threads {
        let (wheel, timers, reaper) = (wheel.clone(), timers.clone(), reaper.clone());
        let (book, random) = (Arc::clone(&ledger), Random::new(random.next()));
        parties.push(world::spawn(&format!("worker {n}"), move |me| {
            let worker = Worker {
                me,
                random,
                mix,
                book,
                wheel,
                timers,
                intervals: Vec::new(),
                reaper,
                watches: Vec::new(),
            };
            worker.run();
        }));
    }
    drop((timers, reaper));
    world::wait_for_all_but_the_actor();
    for party in parties {
        party.join().expect("panics are caught");
    }
    check_books(&wheel, &ledger);
    world::drop_check();
    drop(wheel);
    world::wait_for_the_actor();
    actor.join().expect("panics are caught");
}

// --- what must be true ---

/// No keyed timer is due, and the actor runs soon enough for each.
fn check_timers(timers: &KeyedTimers<u64, u64>, target: Option<Duration>) -> Result<(), String> {
    let now = clock::elapsed();
    for key in (0..KEYS).chain(INTERVALS..INTERVALS + 4) {
        let deadline = timers.deadline(&key);
        let Some(due) = deadline.map(|at| tick_of(since_begin(at))) else {
            continue;
        };
        if is_too_late(due, now, target) {
            return Err(format!(
                "timer {key} is due at {due:?}; {}",
                then(now, target)
            ));
        }
    }
    Ok(())
}

/// No watch is idle that was not reaped, and the actor runs soon enough for each.
fn check_watches(ledger: &Ledger, target: Option<Duration>) -> Result<(), String> {
    let now = clock::elapsed();
    if ledger.reader_is_away {
        return Ok(());
    }
    for (key, watched) in &ledger.watches {
        let due = tick_of(tick_of(watched.not_after) + ledger.idle);
        if !watched.busy && !watched.reaped && is_too_late(due, now, target) {
            return Err(format!(
                "watch {key} is idle at {due:?}; {}",
                then(now, target)
            ));
        }
    }
    Ok(())
}

/// All is over but the wheel: nothing is left, and everything is counted once.
fn check_books(wheel: &TimerWheel, ledger: &Book) {
    block_on(MAIN, Wait::default(), wheel.settle());
    let (was_shut_down, received) = book(ledger, |l| (l.was_shut_down, l.received));
    if wheel.is_shutdown() != was_shut_down {
        fail("the wheel has ended though nobody shut it down");
    }
    let m = wheel.metrics();
    let ended = m.keyed_fired + m.keyed_removed + m.keyed_replaced + m.keyed_drained;
    let sleeps = m.sleeps_fired + m.sleeps_cancelled + m.sleeps_handed_over;
    if m.keyed_pending != 0 || m.keyed_set != ended {
        fail(format!("the books of keyed timers do not balance: {m:?}"));
    }
    if m.keyed_fired != received {
        fail(format!(
            "{} keyed timers fired, {received} were received",
            m.keyed_fired
        ));
    }
    let lost = book(ledger, |l| {
        l.set.symmetric_difference(&l.out).copied().next()
    });
    if let Some(value) = lost {
        fail(format!("a timer was set to {value}, which never came out"));
    }
    let refused = book(ledger, |l| l.refused.difference(&l.reaped).copied().next());
    if let Some(key) = refused.filter(|_| !was_shut_down) {
        fail(format!("watch {key} was neither touched nor reaped"));
    }
    if m.sleeps_pending != 0 || m.sleeps_made != sleeps {
        fail(format!("the books of sleeps do not balance: {m:?}"));
    }
}

/// A keyed timer has come out: once, and not early.
fn came_out(ledger: &Book, expired: &Expired<u64, u64>) {
    let value = expired.value;
    if expired.key < INTERVALS && !book(ledger, |ledger| ledger.out.insert(value)) {
        fail(format!(
            "timer {} (value {value}) came out twice",
            expired.key
        ));
    }
}

// --- the streams ---

fn receive(
    mix: Mix,
    seed: u64,
    ledger: &Book,
    mut stream: Expirations<u64, u64>,
) -> JoinHandle<()> {
    let mut random = Random::new(seed);
    let ledger = Arc::clone(ledger);
    world::spawn("receiver", move |me| {
        loop {
            if random.percent(mix.lagging) {
                thread::yield_now();
            }
            let how = Wait {
                panics: random.percent(mix.panicking),
                fresh: random.percent(70),
                must_by: None,
            };
            let Some(expired) = block_on(me, how, stream.recv()) else {
                break;
            };
            note(me, || format!("receives {expired:?}"));
            came_out(&ledger, &expired);
            book(&ledger, |ledger| ledger.received += 1);
            if expired.deadline > clock::now() {
                fail(format!("timer {} is early", expired.key));
            }
            world::check_was_on_time(format_args!("timer {}", expired.key), expired.deadline);
        }
        note(me, || "the stream has ended".to_owned());
        for expired in stream.unexpired() {
            came_out(&ledger, &expired);
        }
    })
}

fn reap(mix: Mix, seed: u64, ledger: &Book, mut stream: Expirations<u64, u64>) -> JoinHandle<()> {
    let mut random = Random::new(seed);
    let ledger = Arc::clone(ledger);
    world::spawn("reaper", move |me| {
        loop {
            if random.percent(mix.lagging) {
                book(&ledger, |ledger| ledger.reader_is_away = true);
                let micros = random.pick(&[500, 1_000, 2_000, 3_000]);
                note(me, || format!("rests for {micros} µs"));
                world::rest(me, Duration::from_micros(micros));
                book(&ledger, |ledger| ledger.reader_is_away = false);
            }
            let how = Wait {
                panics: random.percent(mix.panicking),
                fresh: random.percent(70),
                must_by: None,
            };
            let Some(expired) = block_on(me, how, stream.recv()) else {
                break;
            };
            note(me, || format!("reaps {expired:?}"));
            let (is_first, too_early) = book(&ledger, |ledger| {
                ledger.received += 1;
                let is_first = ledger.reaped.insert(expired.key);
                let idle = ledger.idle;
                let watched = ledger.watches.entry(expired.key).or_default();
                watched.reaped = true;
                let too_early = watched.busy || watched.not_before + idle > clock::elapsed();
                (is_first, too_early)
            });
            if !is_first {
                fail(format!("watch {} is reaped twice", expired.key));
            }
            if too_early {
                fail(format!(
                    "watch {} is reaped while it is active",
                    expired.key
                ));
            }
        }
        note(me, || "the stream has ended".to_owned());
        drop(stream.unexpired());
    })
}

/// Waits on a sleep.
fn pause(me: Me, wheel: &TimerWheel, delay: Duration) {
    let how = Wait {
        must_by: Some(clock::elapsed() + delay),
        ..Wait::default()
    };
    if !sleep_on(me, how, wheel.sleep(delay)) {
        // There is nothing to wait on any more: others have to see to it that this ends.
        thread::yield_now();
    }
}

/// Waits on a sleep. False when it goes on with Tokio's timer.
fn sleep_on(me: Me, how: Wait, mut sleep: Sleep) -> bool {
    let slept = poll_fn(|cx| match sleep.poll_unpin(cx) {
        Poll::Pending if !sleep.is_on_fallback() => Poll::Pending,
        polled => Poll::Ready(polled.is_ready()),
    });
    block_on(me, how, slept)
}

// --- the steps ---

impl Worker {
    fn run(mut self) {
        let steps = 1 + self.random.below(self.mix.steps);
        for _ in 0..self.random.below(3) {
            self.watch();
        }
        for _ in 0..steps {
            self.step();
        }
        self.let_go();
        match self.random.below(3) {
            0 => self.rest_for(200 * world::TICK),
            1 if !self.wheel.is_shutdown() => pause(self.me, &self.wheel, 10 * world::TICK),
            _ => {}
        }
        while let Some((key, watch, _)) = self.watches.pop() {
            if self.random.percent(50) {
                self.unwatch(key, watch, None);
            } else {
                // It is never touched again, and stays until it is reaped.
                while watch.is_watched() && !self.wheel.is_shutdown() {
                    pause(self.me, &self.wheel, world::TICK);
                }
                self.unwatch(key, watch, None);
            }
        }
    }

    /// Ends what would go on for as long as this waits.
    fn let_go(&mut self) {
        for key in std::mem::take(&mut self.intervals) {
            let _ = self.timers().remove_timer(&key);
        }
        for at in 0..self.watches.len() {
            let (key, _, busy) = &mut self.watches[at];
            let (key, busy) = (*key, busy.take());
            self.release(key, busy);
        }
    }

    fn step(&mut self) {
        let m = self.mix;
        let steps: [(u64, Step); 16] = [
            (m.set, Self::set),
            (m.interval, Self::set_interval),
            (m.move_to, Self::move_to),
            (m.remove, Self::remove),
            (m.drain, Self::drain),
            (m.watch, Self::watch),
            (m.touch, Self::touch),
            (m.busy, Self::busy),
            (m.unwatch, Self::unwatch_one),
            (m.sleep, Self::sleep),
            (m.sleep_and_drop, Self::sleep_and_drop),
            (m.advance, Self::advance),
            (m.rest, Self::rest),
            (m.settle, Self::settle),
            (m.metrics, Self::metrics),
            (m.shutdown, Self::shutdown),
        ];
        let mut at = self
            .random
            .below(steps.iter().map(|(weight, _)| weight).sum());
        for (weight, step) in steps {
            if at < weight {
                return step(self);
            }
            at -= weight;
        }
    }

    fn timers(&self) -> Arc<KeyedTimers<u64, u64>> {
        Arc::clone(self.timers.as_ref().expect("the mix has timers"))
    }

    fn set(&mut self) {
        let key = self.random.below(KEYS);
        let delay = delay(&mut self.random);
        let value = self.next_value();
        note(self.me, || format!("sets {key} to {value} in {delay:?}"));
        book(&self.book, |ledger| ledger.set.insert(value));
        match self.timers().set_timer(key, value, delay) {
            Ok(replaced) => {
                note(self.me, || format!("has set {key}, for {replaced:?}"));
                self.has_come_out(key, replaced);
            }
            Err(error) => {
                note(self.me, || format!("has not set {key}: {error}"));
                book(&self.book, |ledger| ledger.set.remove(&value));
            }
        }
    }

    /// A call has returned this value.
    fn has_come_out(&self, key: u64, value: Option<u64>) {
        if value.is_some_and(|value| !book(&self.book, |ledger| ledger.out.insert(value))) {
            fail(format!("timer {key} ({value:?}) came out twice"));
        }
    }

    fn next_value(&self) -> u64 {
        book(&self.book, Ledger::next_value)
    }

    fn set_interval(&mut self) {
        let key = INTERVALS + self.random.below(4);
        let period = world::TICK * u32::try_from(1 + self.random.below(4)).expect("small");
        note(self.me, || format!("sets {key} every {period:?}"));
        let _ = self.timers().set_interval(key, 0, period);
        self.intervals.push(key);
    }

    fn move_to(&mut self) {
        let key = self.random.below(KEYS);
        let delay = delay(&mut self.random);
        note(self.me, || format!("moves {key} to {delay:?} from now"));
        let moved = self.timers().move_timer(&key, delay);
        note(self.me, || format!("has moved {key}: {moved:?}"));
    }

    fn remove(&mut self) {
        let key = self.random.below(KEYS);
        note(self.me, || format!("removes {key}"));
        let removed = self.timers().remove_timer(&key).ok().flatten();
        note(self.me, || format!("has removed {key}: {removed:?}"));
        self.has_come_out(key, removed);
    }

    fn drain(&mut self) {
        note(self.me, || "drains".to_owned());
        for expired in self.timers().drain().unwrap_or_default() {
            came_out(&self.book, &expired);
        }
    }

    fn watch(&mut self) {
        let Some(reaper) = &self.reaper else { return };
        let key = self.next_value();
        let last = clock::elapsed();
        note(self.me, || format!("watches {key}"));
        let Ok(watch) = reaper.watch(key, 0) else {
            return;
        };
        note(self.me, || format!("has begun to watch {key}"));
        book(&self.book, |ledger| {
            let watched = ledger.watches.entry(key).or_default();
            watched.not_before = last;
            watched.not_after = clock::elapsed();
        });
        self.watches.push((key, watch, None));
    }

    fn pick_watch(&mut self) -> Option<usize> {
        let n = self.watches.len();
        let at = self.random.below(n as u64);
        (n > 0).then(|| usize::try_from(at).expect("few"))
    }

    fn touch(&mut self) {
        if self.random.percent(50) {
            (0..self.watches.len()).for_each(|at| self.touch_one(at));
        } else if let Some(at) = self.pick_watch() {
            self.touch_one(at);
        }
    }

    fn touch_one(&self, at: usize) {
        let (key, watch, _) = &self.watches[at];
        let now = clock::elapsed();
        let was_reaped = book(&self.book, |ledger| ledger.watches[key].reaped);
        let counts = watch.touch();
        note(self.me, || {
            format!("touches {key}, as of {now:?}: {counts}")
        });
        if counts {
            book(&self.book, |ledger| {
                if let Some(watched) = ledger.watches.get_mut(key) {
                    watched.not_before = now;
                    watched.not_after = clock::elapsed();
                }
            });
        }
        if !counts {
            book(&self.book, |ledger| ledger.refused.insert(*key));
        }
        if counts && was_reaped {
            fail(format!("a touch of {key} counts, and it was reaped before"));
        }
    }

    fn busy(&mut self) {
        let Some(at) = self.pick_watch() else { return };
        let (key, watch, busy) = &mut self.watches[at];
        let key = *key;
        if let Some(guard) = busy.take() {
            self.release(key, Some(guard));
            return;
        }
        let guard = watch.busy();
        let effective = guard.is_effective();
        note(self.me, || format!("is busy with {key}: {effective}"));
        if !effective {
            book(&self.book, |ledger| ledger.refused.insert(key));
        }
        if effective {
            *busy = Some(guard);
            book(&self.book, |ledger| {
                if let Some(watched) = ledger.watches.get_mut(&key) {
                    watched.busy = true;
                }
            });
        }
    }

    /// Drops the guard, if there is one.
    fn release(&self, key: u64, guard: Option<Busy>) {
        if guard.is_none() {
            return;
        }
        note(self.me, || format!("is not busy with {key} any more"));
        // Not busy, by the book, before it is really so: it may be reaped from then on, but not before an idle duration.
        book(&self.book, |ledger| {
            if let Some(watched) = ledger.watches.get_mut(&key) {
                watched.busy = false;
                watched.not_before = clock::elapsed();
            }
        });
        drop(guard);
        book(&self.book, |ledger| {
            if let Some(watched) = ledger.watches.get_mut(&key) {
                watched.not_after = clock::elapsed();
            }
        });
    }

    fn unwatch_one(&mut self) {
        let Some(at) = self.pick_watch() else { return };
        let (key, watch, busy) = self.watches.swap_remove(at);
        self.unwatch(key, watch, busy);
    }

    fn unwatch(&self, key: u64, watch: Watch, busy: Option<Busy>) {
        self.release(key, busy);
        note(self.me, || format!("drops the watch {key}"));
        book(&self.book, |ledger| ledger.watches.remove(&key));
        drop(watch);
        note(self.me, || format!("has dropped the watch {key}"));
    }

    fn sleep(&mut self) {
        if self.wheel.is_shutdown() {
            return;
        }
        let delay = delay(&mut self.random);
        self.let_go();
        let mut sleep = self.wheel.sleep(delay);
        let mut due = clock::elapsed() + delay;
        if self.random.percent(40) {
            // Another waker first, and then another deadline.
            let _ = sleep.poll_unpin(&mut Context::from_waker(Waker::noop()));
            let delay = self::delay(&mut self.random);
            note(self.me, || format!("resets a sleep to {delay:?}"));
            due = clock::elapsed() + delay;
            Pin::new(&mut sleep).reset(clock::now() + delay);
        }
        note(self.me, || format!("sleeps until {due:?}"));
        let how = Wait {
            panics: self.random.percent(self.mix.panicking),
            fresh: self.random.percent(30),
            must_by: Some(due),
        };
        let slept = sleep_on(self.me, how, sleep);
        note(self.me, || format!("has slept: {slept}"));
        if slept && clock::elapsed() < due {
            fail(format!("a sleep until {due:?} is early"));
        }
    }

    fn sleep_and_drop(&mut self) {
        if self.wheel.is_shutdown() {
            return;
        }
        let delay = delay(&mut self.random);
        note(self.me, || {
            format!("begins to sleep {delay:?}, and thinks better of it")
        });
        let mut sleep = self.wheel.sleep(delay);
        let _ = sleep.poll_unpin(&mut Context::from_waker(Waker::noop()));
        drop(sleep);
    }

    fn advance(&mut self) {
        let micros = self.random.pick(&[300, 1_000, 1_000, 2_000, 4_000]);
        advance(self.me, Duration::from_micros(micros));
        thread::yield_now();
    }

    /// Does something else for a while, without the wheel.
    fn rest(&mut self) {
        let micros = self.random.pick(&[500, 1_000, 2_000, 5_000]);
        self.rest_for(Duration::from_micros(micros));
    }

    fn rest_for(&self, time: Duration) {
        note(self.me, || format!("rests for {time:?}"));
        world::rest(self.me, time);
    }

    fn settle(&mut self) {
        note(self.me, || "waits for all to settle".to_owned());
        let how = Wait {
            panics: self.random.percent(self.mix.panicking),
            ..Wait::default()
        };
        block_on(self.me, how, self.wheel.settle());
        note(self.me, || "all has settled".to_owned());
    }

    /// The counters do not go down.
    fn metrics(&mut self) {
        let before = book(&self.book, |ledger| ledger.last_metrics);
        let m = self.wheel.metrics();
        let now = (m.keyed_set, m.sleeps_made);
        book(&self.book, |ledger| {
            let last = &mut ledger.last_metrics;
            *last = (last.0.max(now.0), last.1.max(now.1));
        });
        if now.0 < before.0 || now.1 < before.1 {
            fail(format!(
                "what was counted went down from {before:?} to {now:?}"
            ));
        }
    }

    fn shutdown(&mut self) {
        note(self.me, || "shuts the wheel down".to_owned());
        book(&self.book, |ledger| ledger.was_shut_down = true);
        let how = Wait {
            panics: self.random.percent(self.mix.panicking),
            ..Wait::default()
        };
        block_on(self.me, how, self.wheel.shutdown());
        note(self.me, || "has shut the wheel down".to_owned());
        if !self.wheel.is_shutdown() {
            fail("`shutdown` returned, and the wheel is not shut down");
        }
    }
}
