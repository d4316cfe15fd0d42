//! The schedules of the rows that this instance has loaded, and how these rows repeat.
//!
//! Only an instance can compute the times of a schedule, and only the store's clock counts. So the
//! instance computes a [`Plan`] when it fires a row, from the row's deadline and what it takes the
//! store's time to be, and the store compares. If a plan does not hold, or a row
//! came without its schedule, the store returns the schedule, and the instance fires the row again.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::cron::Cron;
use crate::lock::lock;
use crate::store::{
    Missed, Namespace, NextOccurrence, Plan, Scheduled, Schedules, StoreTime, Version,
};

/// At most this many missed occurrences are counted: each takes a search of a microsecond or more.
const MAX_MISSED: u64 = 1_000;

/// The plans of one call take so many searches, or those of one row more: each holds until the next
/// time of its schedule at most.
const MAX_SEARCHES: u64 = 5 * MAX_MISSED;

/// Schedules that no loaded row has any more are kept up to this number.
const MAX_KEPT: usize = 1_000;

/// With more schedules that it cannot compute, an instance leaves all to others.
const MAX_UNKNOWN: usize = 100;

/// The schedules of loaded rows.
#[derive(Default)]
pub(super) struct Calendar {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The rows, with their deadlines.
    rows: HashMap<Version, (StoreTime, Arc<Cron>)>,
    /// The schedules that were read, by their texts.
    read: HashMap<String, Arc<Cron>>,
    /// The schedules that cannot be computed.
    unknown: Vec<String>,
}

impl Calendar {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The schedules of the rows that it loads.
    pub(super) fn known(&self) -> Schedules {
        let state = self.lock();
        if !cfg!(feature = "cron") || state.unknown.len() > MAX_UNKNOWN {
            return Schedules::None;
        }
        Schedules::AllBut(state.unknown.clone())
    }

    /// Adds rows that are loaded. Returns those that are for other instances, and warns of their
    /// schedules once.
    pub(super) fn add(&self, rows: Vec<Scheduled>, namespace: &Namespace) -> HashSet<Version> {
        let mut unknown = HashSet::new();
        if rows.is_empty() {
            return unknown;
        }
        let mut state = self.lock();
        for Scheduled {
            version,
            deadline,
            schedule,
        } in rows
        {
            match state.read(&schedule, deadline) {
                Ok(cron) => {
                    state.rows.insert(version, (deadline, cron));
                }
                Err(warning) => {
                    unknown.insert(version);
                    if let Some(reason) = warning {
                        tracing::warn!(%namespace, schedule, reason, "a schedule cannot be computed here: its timers are left to other instances");
                        state.unknown.push(schedule);
                    }
                }
            }
        }
        unknown
    }

    /// Forgets rows that are not loaded any more.
    pub(super) fn remove<'a>(&self, versions: impl IntoIterator<Item = &'a Version>) {
        let mut state = self.lock();
        if !state.rows.is_empty() {
            for version in versions {
                state.rows.remove(version);
            }
        }
    }

    /// Forgets all rows.
    pub(super) fn clear(&self) {
        self.lock().rows.clear();
    }

    /// How those of the rows that have a schedule repeat, by their versions, if the store's time is
    /// about `now`.
    pub(super) fn plans(
        &self,
        versions: impl Iterator<Item = Version>,
        missed: Missed,
        now: StoreTime,
    ) -> Vec<Plan> {
        let state = self.lock();
        if state.rows.is_empty() {
            return Vec::new();
        }
        let rows =
            versions.filter_map(|version| Some((version, state.rows.get(&version)?.clone())));
        let rows: Vec<_> = rows.collect();
        drop(state);
        let searches = Cell::new(0);
        let plans = rows.into_iter().filter_map(|(version, (deadline, cron))| {
            // The store returns the other rows, and they are fired again.
            if searches.get() >= MAX_SEARCHES {
                return None;
            }
            let after = |time| {
                searches.set(searches.get() + 1);
                cron.after(time)
            };
            plan(after, version, deadline, missed, now)
        });
        let mut plans: Vec<_> = plans.collect();
        plans.sort_unstable_by_key(|plan| plan.version);
        plans
    }
}

impl State {
    /// The times of a schedule that has some after a deadline. Otherwise the reason why not, the
    /// first time.
    fn read(&mut self, schedule: &str, deadline: StoreTime) -> Result<Arc<Cron>, Option<String>> {
        if let Some(cron) = self.read.get(schedule) {
            return Ok(Arc::clone(cron));
        }
        if self.unknown.iter().any(|unknown| unknown == schedule) {
            return Err(None);
        }
        let cron = Cron::read(schedule).map_err(|error| Some(error.to_string()))?;
        if cron.after(deadline).is_none() {
            return Err(Some("it does not occur any more".to_owned()));
        }
        if self.read.len() >= MAX_KEPT {
            self.read.retain(|_, cron| Arc::strong_count(cron) > 1);
        }
        let cron = Arc::new(cron);
        self.read.insert(schedule.to_owned(), Arc::clone(&cron));
        Ok(cron)
    }
}

/// Applies a rule to a row. `after` is the first time of its schedule after another.
fn plan(
    after: impl Fn(StoreTime) -> Option<StoreTime>,
    version: Version,
    deadline: StoreTime,
    missed: Missed,
    now: StoreTime,
) -> Option<Plan> {
    let first = after(deadline)?;
    if first > now {
        let next = NextOccurrence::new(true, 0, first);
        return Some(Plan::new(version, StoreTime::default(), first, next));
    }
    let until = after(now)?;
    // The last time that has passed, and how many have. One after the other fires anyway.
    let counted = if missed == Missed::FireAll {
        1
    } else {
        MAX_MISSED
    };
    let (mut from, mut passed) = (first, 1);
    while passed < counted {
        let time = after(from)?;
        if time >= until {
            break;
        }
        from = time;
        passed += 1;
    }
    let next = match missed {
        Missed::FireAll => NextOccurrence::new(true, 0, first),
        Missed::FireOnce => NextOccurrence::new(true, passed, until),
        Missed::Skip => NextOccurrence::new(false, 0, until),
    };
    Some(Plan::new(version, from, until, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: i64) -> StoreTime {
        StoreTime::from_micros(micros)
    }

    /// A schedule with a time at each ten microseconds.
    fn by_tens(missed: Missed, deadline: i64, now: i64) -> Plan {
        let after = |time: StoreTime| Some(at((time.as_micros() / 10 + 1) * 10));
        let plan = plan(after, Version(7), at(deadline), missed, at(now));
        plan.expect("it occurs again")
    }

    #[test]
    fn plans_agree_with_the_rules_of_intervals() {
        let period = std::time::Duration::from_micros(10);
        for missed in [Missed::FireAll, Missed::FireOnce, Missed::Skip] {
            for now in 100..150 {
                let plan = by_tens(missed, 100, now);
                assert_eq!(
                    plan.next,
                    missed.next(at(100), period, at(now)),
                    "{missed:?} {now}"
                );
                let next = Missed::Skip.next(at(100), period, at(now)).due;
                assert_eq!(plan.until, next, "{missed:?} {now}");
                assert!(plan.holds(at(now)));
            }
        }
    }

    /// Where a plan holds, another time would have led to the same.
    #[test]
    fn plans_hold_only_where_they_would_be_the_same() {
        for missed in [Missed::FireOnce, Missed::Skip] {
            for now in 100..150 {
                let plan = by_tens(missed, 100, now);
                for other in (100..150).filter(|&other| plan.holds(at(other))) {
                    let same = by_tens(missed, 100, other);
                    assert_eq!(
                        (plan.next, plan.until),
                        (same.next, same.until),
                        "{missed:?} {now} {other}"
                    );
                }
            }
        }
    }

    /// Each occurrence has a version of its own.
    #[cfg(feature = "cron")]
    #[tokio::test(start_paused = true)]
    async fn occurrences_that_have_fired_are_forgotten() {
        use crate::{Claims, DurableTimers, Json, Memory};

        let settings = crate::settings::Settings::default();
        let (wheel, store) = (tickwheel::TimerWheel::new(), Arc::new(Memory::new()));
        let started = super::super::start(store, "orders", "json", settings, &wheel).await;
        let instance = started.expect("it starts");
        let (coder, cores) = (Arc::new(Json), Arc::clone(&instance.cores));
        let timers = DurableTimers::<String, u32>::new(&instance, coder.clone());
        let mut claims = Claims::<String, u32>::new(cores, coder, instance.shutdown);
        let set = timers.set_cron("a", &1, "* * * * * *", "UTC").await;
        set.expect("it is set");
        for _ in 0..10 {
            let claim = claims.recv().await.expect("it comes");
            claim.ack().await.expect("it is held");
        }
        let rows = &instance.cores.of_part(0).calendar.lock().rows;
        assert_eq!(rows.len(), 1, "{rows:?}");
    }

    /// The plans of a thousand schedules took so long to compute that none held any more.
    #[cfg(feature = "cron")]
    #[test]
    fn searches_of_one_call_are_bounded() {
        let calendar = Calendar::default();
        let rows = (0..100).map(|number| Scheduled {
            version: Version(number),
            deadline: at(0),
            schedule: "* * * * * * UTC".to_owned(),
        });
        let namespace = Namespace::new("orders").expect("it is a name");
        calendar.add(rows.collect(), &namespace);
        let (all, now) = ((0..100).map(Version), at(10_000_000_000));
        let plans = calendar.plans(all, Missed::FireOnce, now);
        assert_eq!(plans.len(), 5);
        assert_eq!(plans[0].next.missed, MAX_MISSED);
    }

    /// Each of a thousand missed occurrences looked for all those after it.
    #[test]
    fn missed_occurrences_that_all_fire_are_not_counted() {
        let asked = std::cell::Cell::new(0);
        let after = |time: StoreTime| {
            asked.set(asked.get() + 1);
            Some(at((time.as_micros() / 10 + 1) * 10))
        };
        let (missed, now) = (Missed::FireAll, at(1_000_000));
        let plan = plan(after, Version(7), at(100), missed, now).expect("it occurs again");
        assert_eq!((asked.get(), plan.next.due), (2, at(110)));
        assert!(plan.holds(at(500_000)));
    }

    #[test]
    fn counts_of_missed_occurrences_are_bounded() {
        let plan = by_tens(Missed::FireOnce, 100, 1_000_000_000);
        assert_eq!(plan.next.missed, MAX_MISSED);
        assert_eq!(plan.next.due, at(1_000_000_010));
        assert!(plan.holds(at(500_000_000)), "the count would be the same");
    }
}
