//! Random calls of several instances, against a sequential oracle; and random programs of whole
//! instances, whose counts have to add up.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use tickwheel_durable::store::{
    Action, DeadChange, DeadRows, Due, Fire, InstanceId, List, Load, LoadWindow, Missed, Namespace,
    NextOccurrence, Plan, Schedules, Settle, Settled, Settlement, State, Store, StoreTime, Stored,
    Version, Write,
};
use tickwheel_durable::{Claim, Error, Moved, Removed};
use tokio::time::{Instant, timeout_at};

use super::oracle::{FAR, Oracle, PERIOD};
use super::random::{Random, seed};
use super::world::{Running, Stores, World, next_of};

/// How many scripts a store runs, and how many calls each has.
const SCRIPTS: u64 = 16;
const CALLS: usize = 120;

/// How rows repeat.
const SCHEDULES: [&str; 2] = ["0 9 * * * UTC", "@daily Europe/Berlin"];

/// Far enough for what is far, and not for what is near.
const WINDOW: Duration = Duration::from_secs(86_400);
const LONG: Duration = Duration::from_secs(6_000_000_000);

/// Each answer of random calls on few keys is the one that a sequential model gives.
pub async fn agrees_with_the_oracle<T: Stores>(world: &World<T>) {
    let seed = seed("agrees_with_the_oracle");
    for script in 0..SCRIPTS {
        let part = world.part(&script.to_string());
        let mut script = Script {
            stores: [world.store().await, world.store().await],
            instances: Vec::new(),
            ended: Vec::new(),
            space: part.namespace(),
            oracle: Oracle::default(),
            random: Random::new(seed, script),
            seen: Vec::new(),
        };
        script.run().await;
    }
}

struct Script<S> {
    stores: [S; 2],
    /// The ids of the instances, and those that they had before.
    instances: Vec<InstanceId>,
    ended: Vec<InstanceId>,
    space: Namespace,
    oracle: Oracle,
    random: Random,
    /// Versions that were seen, many of them out of date.
    seen: Vec<Version>,
}

impl<S: Store> Script<S> {
    async fn run(&mut self) {
        for number in 0..3 {
            let opened = self.stores[number % 2]
                .open(&self.space, &"test".into())
                .await;
            self.instances.push(opened.expect("it opens").instance);
        }
        for _ in 0..CALLS {
            self.oracle.next_call();
            match self.random.below(16) {
                0..4 => self.write().await,
                4..6 => self.load().await,
                6..9 => self.fire().await,
                9..12 => self.settle().await,
                12 => self.unload().await,
                13 => self.unmark().await,
                _ => self.dead().await,
            }
            self.get().await;
        }
        let mut rows = self.rows().await;
        rows.sort_by_key(|row| row.version);
        self.oracle.rows.sort_by_key(|row| row.version);
        assert_eq!(rows, self.oracle.rows);
    }

    fn store(&mut self) -> usize {
        self.random.below(2)
    }

    fn key(&mut self) -> Vec<u8> {
        self.random.of(&[b"a", b"b", b"c"]).to_vec()
    }

    fn due(&mut self) -> Due {
        let passed = [1, 1_000, 1_000_000, 1_000_000_000_000].map(StoreTime::from_micros);
        match self.random.below(4) {
            0 => Due::In(Duration::ZERO),
            1 => Due::At(FAR),
            2 => Due::In(LONG),
            _ => Due::At(self.random.of(&passed)),
        }
    }

    fn near(&mut self) -> LoadWindow {
        let ids = match self.ended.as_slice() {
            // A call may still name an id that has ended.
            ended @ [_, ..] if self.random.one_in(4) => ended,
            _ => &self.instances,
        };
        let instance = self.random.of(ids);
        LoadWindow::new(WINDOW, self.random.one_in(2).then_some(instance))
    }

    fn version(&mut self) -> Version {
        match self.seen.len() {
            0 => Version(1),
            // Mostly late ones, which are good still.
            seen => self.seen[seen - 1 - self.random.below(seen.min(12))],
        }
    }

    /// Mostly one in this state.
    fn version_in(&mut self, state: State) -> Version {
        let rows = self.oracle.rows.iter().filter(|row| row.state == state);
        let versions: Vec<_> = rows.map(|row| row.version).collect();
        match versions[..] {
            [_, ..] if !self.random.one_in(4) => self.random.of(&versions),
            _ => self.version(),
        }
    }

    async fn write(&mut self) {
        let count = 1 + self.random.below(4);
        let near = self.near();
        let mut writes = Vec::new();
        for _ in 0..count {
            let action = match self.random.below(5) {
                0 => Action::Remove,
                1 => Action::move_to(self.due()),
                2 => {
                    let schedule = self.random.of(&SCHEDULES).to_owned();
                    Action::set_scheduled(vec![7], self.due(), schedule)
                }
                _ => Action::set(
                    vec![u8::try_from(self.random.below(256)).expect("it is a byte")],
                    self.due(),
                    self.random.one_in(3).then_some(PERIOD),
                    self.random.one_in(4),
                ),
            };
            let key = self.key();
            writes.push(Write::new(key, action));
        }
        let store = self.store();
        let answers = self.stores[store].write(&self.space, writes.clone(), near);
        let answers = answers.await.expect("it writes");
        for (write, answer) in writes.into_iter().zip(&answers) {
            self.oracle.write(write, near, answer);
        }
        self.look();
    }

    async fn load(&mut self) {
        let mut request = Load::new(
            self.random.of(&self.instances),
            WINDOW,
            self.random.below(4),
            LONG,
        );
        request.schedules = self.schedules();
        let store = self.store();
        let answer = self.stores[store].load(&self.space, request.clone()).await;
        self.oracle.load(&request, &answer.expect("it loads"));
    }

    async fn fire(&mut self) {
        let count = self.random.below(5);
        let lease = [None, Some(Duration::ZERO), Some(LONG), Some(LONG)];
        let missed = [Missed::FireAll, Missed::FireOnce, Missed::Skip];
        let mut request = Fire::new(Vec::new(), self.random.of(&lease), self.near());
        request.unloaded = self.random.below(4);
        request.missed = self.random.of(&missed);
        request.by = self
            .random
            .of(&[None, Some(InstanceId(1)), Some(InstanceId(2))]);
        // Whether a row that is deleted as it fires stands in the way of those after it is the
        // store's choice.
        request.no_overlap = request.lease.is_some() && self.random.one_in(2);
        for _ in 0..count {
            request.versions.push(self.version());
        }
        request.schedules = self.schedules();
        request.plans = self.plans(&request.versions);
        let store = self.store();
        let answer = self.stores[store].fire(&self.space, request.clone()).await;
        self.oracle.fire(&request, &answer.expect("it fires"));
        self.look();
    }

    /// An instance's knowledge.
    fn schedules(&mut self) -> Schedules {
        match self.random.below(4) {
            0 => Schedules::None,
            1 => Schedules::AllBut(vec![SCHEDULES[0].to_owned()]),
            _ => Schedules::ALL,
        }
    }

    /// Plans for some of the rows, some of which do not hold.
    fn plans(&mut self, versions: &[Version]) -> Vec<Plan> {
        let times = [StoreTime::from_micros(1_000_000), FAR];
        let mut plans = BTreeMap::new();
        for &version in versions {
            let next = NextOccurrence::new(
                !self.random.one_in(4),
                self.random.below(3) as u64,
                self.random.of(&times),
            );
            let from = if self.random.one_in(8) { FAR } else { times[0] };
            let until = if self.random.one_in(8) { times[0] } else { FAR };
            if !self.random.one_in(4) {
                plans.insert(version, Plan::new(version, from, until, next));
            }
        }
        plans.into_values().collect()
    }

    async fn settle(&mut self) {
        let near = self.near();
        let again = [Duration::ZERO, LONG];
        let settlement = match self.random.below(8) {
            6..8 => Settlement::Dead,
            0 => Settlement::Release,
            5 => Settlement::Unfire,
            1 => Settlement::Extend(self.random.of(&again)),
            2 => Settlement::RetryAfter(self.random.of(&again)),
            _ => Settlement::Ack,
        };
        let token = self.version_in(State::InFlight);
        let mut settle = Settle::new(token, settlement);
        if self.random.one_in(2) {
            settle = settle.with_error(format!("error {}", self.random.below(100)));
        }
        let store = self.store();
        let answer = self.stores[store].settle(&self.space, vec![settle.clone()], near);
        let answer: Settled = answer.await.expect("it settles")[0];
        let rows = self.rows().await;
        self.oracle.settle(settle, near, answer, &rows);
        self.look();
    }

    async fn unload(&mut self) {
        let number = self.random.below(self.instances.len());
        let instance = self.instances[number];
        // If the answer is lost it unloads again.
        for _ in 0..=usize::from(self.random.one_in(4)) {
            let store = self.store();
            let answer = self.stores[store].unload(&self.space, instance).await;
            let fresh = answer.expect("it unloads");
            self.oracle.unload(instance, fresh);
            self.oracle.next_call();
            self.instances[number] = fresh;
        }
        self.ended.push(instance);
    }

    async fn unmark(&mut self) {
        let instance = self.random.of(&self.instances);
        let count = self.random.below(5);
        let versions: Vec<_> = (0..count).map(|_| self.version()).collect();
        let store = self.store();
        let left = self.stores[store].unmark(&self.space, instance, versions.clone());
        assert_eq!(left.await, Ok(Vec::new()), "no row is locked");
        self.oracle.unmark(instance, &versions);
    }

    /// Retries or discards dead rows.
    async fn dead(&mut self) {
        let store = self.store();
        let token = self.version_in(State::Dead);
        if self.random.one_in(2) {
            let which = DeadRows::Token(token);
            let retried = self.stores[store]
                .change_dead(&self.space, which, DeadChange::Retry)
                .await;
            let retried = retried.expect("it retries");
            let rows = self.rows().await;
            self.oracle.retry(token, retried, &rows);
            return self.look();
        }
        let which = match self.random.below(3) {
            0 => DeadRows::Key(self.key()),
            1 => DeadRows::OlderThan(Duration::ZERO),
            _ => DeadRows::Token(token),
        };
        let discarded =
            self.stores[store].change_dead(&self.space, which.clone(), DeadChange::Discard);
        let discarded = discarded.await.expect("it discards");
        self.oracle.discard(&which, discarded);
    }

    /// Compares what is seen under a key.
    async fn get(&mut self) {
        let (store, key) = (self.store(), self.key());
        let row = self.stores[store].get(&self.space, key.clone()).await;
        assert_eq!(row.expect("it reads").as_ref(), self.oracle.get(&key));
    }

    /// Remembers the versions that are there.
    fn look(&mut self) {
        let there = self.oracle.rows.iter().map(|row| row.version);
        self.seen.extend(there);
        self.seen.sort_unstable();
        self.seen.dedup();
    }

    /// All rows of the store.
    async fn rows(&mut self) -> Vec<Stored> {
        let mut rows = Vec::new();
        for state in [State::Waiting, State::InFlight, State::Dead] {
            let request = List::new(state, None, 1_000);
            let store = self.store();
            let listed = self.stores[store].list(&self.space, request).await;
            rows.extend(listed.expect("it lists"));
        }
        let store = self.store();
        let counts = self.stores[store].count(&self.space).await;
        let counts = counts.expect("it counts");
        let waiting = rows.iter().filter(|row| row.state == State::Waiting);
        let waiting = waiting.count() as u64;
        assert_eq!(counts.waiting, waiting);
        let dead = rows.iter().filter(|row| row.state == State::Dead);
        assert_eq!(counts.dead, dead.count() as u64);
        assert_eq!(counts.in_flight, rows.len() as u64 - waiting - counts.dead);
        rows
    }
}

/// Three instances, of which some die and others take their place, set, move, remove and claim
/// timers at random. In the end every timer was acknowledged or removed, none after that was
/// delivered, and none was early.
pub async fn answers_add_up_among_instances<T: Stores>(world: &World<T>) {
    let seed = seed("answers_add_up_among_instances");
    let mut program = Program {
        world,
        random: Random::new(seed, 0),
        instances: Vec::new(),
        totals: Totals::default(),
        held: Vec::new(),
    };
    for _ in 0..3 {
        program.start().await;
    }
    for value in 0..150 {
        program.step(value).await;
    }
    program.held.clear();
    program.receive_until_all_is_done().await;
}

struct Program<'a, T: Stores> {
    world: &'a World<T>,
    random: Random,
    instances: Vec<Running<T::Store>>,
    totals: Totals,
    /// Claims that are kept for a while.
    held: Vec<Claim<String, u64>>,
}

/// All that is known about each value. A key belongs to one value at a time, and each value is set
/// once.
#[derive(Default)]
struct Totals {
    keys: BTreeMap<String, u64>,
    done: BTreeMap<u64, &'static str>,
}

impl Totals {
    /// The timer with this value must not be delivered from now on.
    fn end(&mut self, value: u64, how: &'static str) {
        self.done.insert(value, how);
    }
}

impl<T: Stores> Program<'_, T> {
    async fn start(&mut self) {
        let lease = self.world.units(6);
        let instance = self
            .world
            .instance_with(|b| b.lease(lease).capacity(30))
            .await;
        self.instances.push(instance);
    }

    async fn step(&mut self, value: u64) {
        let on = self.random.below(self.instances.len());
        let unit = self.world.units(1);
        let delay = unit * u32::try_from(self.random.below(12)).expect("it is small") / 4;
        let key = format!("key {}", self.random.below(40));
        let timers = self.instances[on].timers.clone();
        match self.random.below(8) {
            0..4 => {
                timers
                    .set_timer(&key, &value, delay)
                    .await
                    .expect("it is set");
                if let Some(old) = self.totals.keys.insert(key, value) {
                    // It may be in flight still, and come again.
                    self.totals.done.entry(old).or_insert("replaced");
                }
            }
            4 => {
                let moved = timers.move_timer(&key, delay).await.expect("it answers");
                let known = self.totals.keys.get(&key);
                let done = known.is_none_or(|value| self.totals.done.contains_key(value));
                assert!(done || moved != Moved::Absent, "{key} is lost");
            }
            5 => match timers.remove_timer(&key).await.expect("it answers") {
                Removed::Done(value) => self.totals.end(value, "removed"),
                Removed::InFlight(_) => {}
                absent => {
                    assert_eq!(absent, Removed::Absent);
                    let known = self.totals.keys.get(&key);
                    let done = known.is_none_or(|value| self.totals.done.contains_key(value));
                    assert!(done, "{key} is lost");
                }
            },
            6 if self.random.one_in(4) => {
                let instance = self.instances.swap_remove(on);
                if self.random.one_in(2) {
                    instance.kill();
                } else {
                    instance.timers.shutdown().await;
                }
                self.start().await;
            }
            _ => self.receive(unit / 4).await,
        }
    }

    /// Receives for a while.
    async fn receive(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while let Ok((on, claim)) = timeout_at(until, next_of(&mut self.instances)).await {
            let timers = self.instances[on].timers.clone();
            let now = timers.counts().await.expect("it counts").now;
            assert!(
                SystemTime::from(now) >= claim.deadline,
                "{claim:?} is early"
            );
            let done = self.totals.done.get(&claim.value);
            let ended = done.filter(|&&done| done != "replaced");
            assert_eq!(ended, None, "{claim:?} was delivered after its end");
            match self.random.below(6) {
                0 => drop(claim),
                1 => self.held.push(claim),
                2 => unless_lost(&claim.retry_after(time).await),
                _ => {
                    let acked = claim.ack().await;
                    if acked.is_ok() {
                        self.totals.end(claim.value, "acknowledged");
                    }
                    unless_lost(&acked);
                }
            }
        }
        if self.random.one_in(3) {
            self.held.clear();
        }
    }

    async fn receive_until_all_is_done(&mut self) {
        for _ in 0..400 {
            let counts = self.instances[0].timers.counts().await.expect("it counts");
            if counts.waiting + counts.in_flight == 0 {
                break;
            }
            self.receive(self.world.units(1)).await;
        }
        for (key, value) in &self.totals.keys {
            assert!(
                self.totals.done.contains_key(value),
                "{value}, the last of {key}, is lost"
            );
        }
    }
}

/// A claim may be lost, or its instance be gone; nothing else may go wrong.
fn unless_lost(settled: &Result<(), Error>) {
    let expected = matches!(
        settled,
        Ok(()) | Err(Error::Lost { .. } | Error::Timeout { .. })
    );
    assert!(expected, "{settled:?}");
}
