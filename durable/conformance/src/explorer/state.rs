//! States made canonical. Two traces that end in the same canonical state have the same future.
//!
//! Values are named by their rank, versions by the place of their row, and times count from now.
//! Versions that are gone have no name: they never come back. Instances are alike, so a state is
//! the least of those that differ in their numbers alone. Ids are compared for equality only. That
//! of an instance is named by the instance, any other one by how long it counts as living.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use tickwheel_durable::store::{InstanceId, StoreTime, Version};

use super::check::View;
use super::run::Run;

/// A time that passed longer ago than so many half units is as one that passed then.
const LONG_AGO: i64 = 6;

/// A canonical state. The first `alike` instances may change their numbers.
pub(super) fn state(run: &Run, view: &View, alike: usize) -> String {
    let names = Names::new(run, view);
    let mut numbers: Vec<usize> = (0..run.instances.len()).collect();
    let mut least = None;
    each_order(&mut numbers, 0, alike, &mut |numbers| {
        let state = names.state(run, view, numbers);
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
    fn state(&self, run: &Run, view: &View, numbers: &[usize]) -> String {
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
        for row in view.in_order() {
            let _ = write!(
                text,
                "{:?} {:?} {} {} {} {} {} {:?} {:?};",
                row.state,
                row.key,
                self.values[&*row.value],
                self.at(row.due),
                self.at(row.deadline),
                row.attempt,
                row.repeats(),
                row.loaded_by.map(loader),
                row.claimed_by.map(claimer),
            );
        }
        for &number in numbers {
            let instance = &run.instances[number];
            let wheel = instance.wheel.iter();
            let wheel =
                wheel.filter_map(|(version, due)| Some((self.rank(*version)?, self.at(*due))));
            let claims = instance.claims.iter().map(|claim| {
                let value = self.values[&*claim.value];
                let token = self.rank(claim.token);
                (token, value, self.at(claim.until), claim.unanswered)
            });
            let _ = write!(
                text,
                "|{:?} {:?} {} {} {:?} {:?}",
                self.lives(instance.id),
                instance.edition.map(|edition| edition == run.edition),
                instance.must_unload,
                instance.lost_fires.is_empty(),
                wheel.collect::<Vec<_>>(),
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
        let half = i64::try_from(self.half.as_micros()).unwrap_or(i64::MAX);
        // On the real clock calls take some time, less than half of this.
        let halves = (time.as_micros() - self.view.now.as_micros() + half / 2).div_euclid(half);
        halves.max(-LONG_AGO)
    }
}
