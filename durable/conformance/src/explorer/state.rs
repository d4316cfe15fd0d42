//! What a store holds, and states made canonical. Two traces that end in the same canonical state
//! have the same future.
//!
//! Values are named by their rank, versions by the place of their row, and times count from now.
//! Versions that are gone have no name: they never come back. Instances are alike, so a state is
//! the least of those that differ in their numbers alone. Ids are compared for equality only. That
//! of an instance is named by the instance, any other one by how long it counts as living.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use tickwheel_durable::store::{InstanceId, State, StoreTime, Stored, Version};

use super::run::{Rows, Run};

/// All times that passed at least this many half units ago are alike.
const LONG_AGO: i64 = 6;

/// What a store has before a step or after it.
#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) rows: Rows,
    pub(super) alive: BTreeMap<InstanceId, StoreTime>,
    pub(super) now: StoreTime,
    /// A unit, which is the window of a load.
    pub(super) window: Duration,
}

impl View {
    pub(super) async fn of(run: &Run) -> View {
        let (rows, counts) = (run.rows().await, run.counts().await);
        let count = |state| rows.values().filter(|row| row.state == state).count() as u64;
        assert_eq!(
            [counts.waiting, counts.in_flight, counts.dead],
            [State::Waiting, State::InFlight, State::Dead].map(count)
        );
        View {
            alive: run.alive().await,
            rows,
            now: counts.now,
            window: run.unit,
        }
    }

    /// The same without marks of ids that do not count as living, which a store need not tell.
    /// Those that have left rows to others are not known to live.
    pub(super) async fn told(run: &Run) -> View {
        let mut view = View::of(run).await;
        let mut rows = std::mem::take(&mut view.rows);
        for row in rows.values_mut() {
            row.loaded_by = row.loaded_by.filter(|&id| view.is_alive(id));
        }
        View { rows, ..view }
    }

    /// The rows in an order in which every store has them: which of two rows that one call makes
    /// has the greater version is the store's affair.
    pub(super) fn in_order(&self) -> Vec<&Stored> {
        let mut rows: Vec<&Stored> = self.rows.values().collect();
        rows.sort_by_key(|row| (row.state, &row.key, &row.value, row.due, row.version));
        rows
    }

    pub(super) fn of_key(&self, key: &[u8], state: State) -> impl Iterator<Item = &Stored> {
        let rows = self.rows.values();
        rows.filter(move |row| row.key == key && row.state == state)
    }

    /// How many rows that are not dead have each value.
    pub(super) fn living(&self) -> BTreeMap<Vec<u8>, usize> {
        let mut values = BTreeMap::new();
        for row in self.rows.values().filter(|row| row.state != State::Dead) {
            *values.entry(row.value.clone()).or_default() += 1;
        }
        values
    }

    pub(super) fn is_alive(&self, id: InstanceId) -> bool {
        self.alive.get(&id).is_some_and(|&until| until >= self.now)
    }

    /// Whether any instance may load the row now.
    pub(super) fn is_free(&self, row: &Stored) -> bool {
        self.is_near(row) && !row.loaded_by.is_some_and(|by| self.is_alive(by))
    }

    /// Whether the row may be loaded now, if no instance has it.
    pub(super) fn is_near(&self, row: &Stored) -> bool {
        match row.state {
            State::Waiting => row.due <= self.now.after(self.window),
            State::InFlight => row.due <= self.now,
            _ => false,
        }
    }
}

/// A canonical state. The first `alike` instances may change their numbers.
pub(super) fn state(run: &Run, view: &View, alike: usize) -> String {
    let names = Names::new(run, view);
    let mut numbers: Vec<usize> = (0..run.instances.len()).collect();
    let mut least = None;
    each_order(&mut numbers, 0, alike, &mut |numbers| {
        let state = names.state(run, numbers);
        if least.as_ref().is_none_or(|least| state < *least) {
            least = Some(state);
        }
    });
    least.unwrap_or_default()
}

/// Calls with every order of the first `to` numbers.
fn each_order(numbers: &mut [usize], from: usize, to: usize, call: &mut impl FnMut(&[usize])) {
    if from + 1 >= to {
        return call(numbers);
    }
    for other in from..to {
        numbers.swap(from, other);
        each_order(numbers, from + 1, to, call);
        numbers.swap(from, other);
    }
}

struct Names<'a> {
    view: &'a View,
    versions: BTreeMap<Version, usize>,
    values: BTreeMap<&'a [u8], usize>,
    half: Duration,
}

impl<'a> Names<'a> {
    fn new(run: &'a Run, view: &'a View) -> Self {
        let claims = run.instances.iter().flat_map(|instance| &instance.claims);
        let claimed = claims.map(|claim| &*claim.value);
        let stored = view.rows.values().map(|row| &*row.value);
        let mut values: Vec<_> = stored.chain(claimed).collect();
        values.sort_unstable();
        values.dedup();
        let in_order = view.in_order().into_iter();
        Names {
            view,
            versions: in_order.map(|row| row.version).zip(0..).collect(),
            values: values.into_iter().zip(0..).collect(),
            half: run.halves(1),
        }
    }

    /// The state, with the instances in this order.
    fn state(&self, run: &Run, numbers: &[usize]) -> String {
        let place = |is: &dyn Fn(usize) -> bool| numbers.iter().position(|&number| is(number));
        let loader = |id: InstanceId| {
            let own = place(&|number| run.instances[number].id == id);
            let left = place(&|number| run.instances[number].id.left() == id);
            (own, left, self.lives(id))
        };
        let claimer = |id: InstanceId| {
            let of_lost = place(&|number| run.instances[number].lost_fires.contains(&id));
            (of_lost, place(&|number| run.instances[number].id == id))
        };
        let mut text = String::from(if run.is_amended { "amended;" } else { "" });
        for row in self.view.in_order() {
            // What a timer that repeats has missed depends on how long ago its deadline was.
            let deadline = if row.repeats() {
                self.halves(row.deadline)
            } else {
                self.at(row.deadline)
            };
            let _ = write!(
                text,
                "{:?} {:?} {} {} {deadline} {} {:?} {:?} {:?} {:?} {:?};",
                row.state,
                row.key,
                self.values[&*row.value],
                self.at(row.due),
                row.attempt,
                row.period.is_some(),
                row.schedule,
                row.error,
                row.loaded_by.map(loader),
                row.claimed_by.map(claimer),
            );
        }
        for &number in numbers {
            let instance = &run.instances[number];
            let wheel = instance.wheel.iter();
            let wheel: BTreeSet<_> = wheel
                .filter_map(|(version, due)| Some((self.rank(*version)?, self.at(*due))))
                .collect();
            let claims = instance.claims.iter().map(|claim| {
                let value = self.values[&*claim.value];
                let token = self.rank(claim.token);
                (token, value, self.at(claim.until), claim.unanswered)
            });
            let plans = instance.plans.iter().filter_map(|(version, plan)| {
                Some((self.rank(*version)?, self.halves(plan.until)))
            });
            let plans: BTreeSet<_> = plans.collect();
            let unknown = instance.unknown.iter().map(|row| self.rank(*row));
            let unknown: BTreeSet<_> = unknown.collect();
            let _ = write!(
                text,
                "|{:?} {:?} {} {} {:?} {} {wheel:?} {:?} {plans:?} {unknown:?}",
                self.lives(instance.id),
                instance.edition.map(|edition| edition == run.edition),
                instance.must_unload,
                instance.is_unaware,
                instance
                    .last
                    .map(|last| self.lives(instance.id) == Some(self.at(last.alive_until))),
                instance.lost_fires.is_empty(),
                claims.collect::<Vec<_>>(),
            );
        }
        text
    }

    fn rank(&self, version: Version) -> Option<usize> {
        self.versions.get(&version).copied()
    }

    /// How long the id counts as living.
    fn lives(&self, id: InstanceId) -> Option<i64> {
        let until = self
            .view
            .alive
            .get(&id)
            .filter(|&&until| until >= self.view.now);
        until.map(|&until| self.at(until))
    }

    /// The time, in half units from now.
    fn at(&self, time: StoreTime) -> i64 {
        self.halves(time).max(-LONG_AGO)
    }

    fn halves(&self, time: StoreTime) -> i64 {
        let half = i64::try_from(self.half.as_micros()).unwrap_or(i64::MAX);
        // On the real clock calls take some time, less than half of this.
        (time.as_micros() - self.view.now.as_micros() + half / 2).div_euclid(half)
    }
}
