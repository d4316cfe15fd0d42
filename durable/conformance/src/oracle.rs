//! A sequential model of a store, to compare answers with.
//!
//! It is written for clarity: one list of rows, searched from end to end. It cannot know the
//! store's clock, so scripts use deadlines and leases that have passed or are far away, and the
//! model learns from the answers which versions and times the store has given.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tickwheel_durable::store::{
    Action, Armed, ChangedRows, DeadRows, Due, Fire, FireReport, Fired, InstanceId, Load,
    LoadWindow, Loaded, Scheduled, Settle, Settled, Settlement, State, StoreTime, Stored, Version,
    Write, WriteOutcome,
};

/// The answers that a store should give.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    pub(super) rows: Vec<Stored>,
    living: BTreeSet<InstanceId>,
    /// The versions that were given, before this call and in it.
    given: BTreeSet<Version>,
    given_now: BTreeSet<Version>,
}

impl Oracle {
    fn position(&self, state: State, key: &[u8]) -> Option<usize> {
        let matches = |row: &Stored| row.state == state && row.key == key;
        // The latest in flight is the last: rows are appended when they are given a version.
        self.rows.iter().rposition(matches)
    }

    fn by_version(&self, version: Version) -> Option<usize> {
        self.rows.iter().position(|row| row.version == version)
    }

    /// The next call begins.
    pub(super) fn next_call(&mut self) {
        self.given.append(&mut self.given_now);
    }

    /// The store has given this version.
    fn learn(&mut self, version: Version) {
        let before = self.given.last();
        assert!(Some(&version) > before, "{version:?} after {before:?}");
        assert!(self.given_now.insert(version), "{version:?} twice");
    }

    /// The row that an operator sees under a key.
    pub(super) fn get(&self, key: &[u8]) -> Option<&Stored> {
        let waiting = self.position(State::Waiting, key);
        let there = waiting.or_else(|| self.position(State::InFlight, key));
        let dead = || {
            let dead = self.rows.iter();
            let dead = dead.filter(|row| row.state == State::Dead && row.key == key);
            dead.max_by_key(|row| (row.due, row.version))
        };
        there.map(|row| &self.rows[row]).or_else(dead)
    }

    /// A row that the store says it has armed.
    fn arm(&mut self, mut row: Stored, due: Due, near: LoadWindow, armed: Armed) {
        self.learn(armed.version);
        match due {
            Due::At(time) => assert_eq!(armed.due, time),
            Due::In(delay) => comes_after(delay, armed.due),
        }
        // Near timers are due already; the others are far.
        let is_near = armed.due < FAR;
        let loader = near
            .loader
            .filter(|loader| is_near && self.living.contains(loader));
        assert_eq!(armed.loaded, loader.is_some(), "{armed:?}");
        row.version = armed.version;
        row.state = State::Waiting;
        row.due = armed.due;
        row.deadline = armed.due;
        (row.loaded_by, row.claimed_by) = (loader, None);
        self.rows.push(row);
    }

    pub(super) fn write(&mut self, write: Write, near: LoadWindow, answer: &WriteOutcome) {
        let Write { key, action, .. } = write;
        let waiting = self.position(State::Waiting, &key);
        let in_flight = self.position(State::InFlight, &key);
        let token = in_flight.map(|row| self.rows[row].version);
        let unarmed = token.map_or(WriteOutcome::Absent, WriteOutcome::InFlight);
        match (action, waiting) {
            (Action::Set { if_absent, .. }, Some(_)) if if_absent => {
                assert_eq!(*answer, WriteOutcome::Present);
            }
            (Action::Set { if_absent, .. }, None) if if_absent && token.is_some() => {
                assert_eq!(*answer, unarmed);
            }
            (
                Action::Set {
                    value,
                    due,
                    period,
                    schedule,
                    ..
                },
                waiting,
            ) => {
                let old = waiting.map(|row| self.rows.remove(row));
                self.discard_key(&key);
                let never = StoreTime::NEVER;
                let mut row = Stored::new(Version(0), State::Waiting, key, value, never);
                row.period = period;
                row.schedule = schedule;
                let replaced = old.as_ref().map(|old| old.version);
                let old = old.filter(|old| row.schedule.is_some() && old.schedule == row.schedule);
                let due = old.as_ref().map_or(due, |old| Due::At(old.due));
                self.rearmed(row, due, near, replaced, answer);
                if let Some(old) = old {
                    self.rows.last_mut().expect("it was armed").deadline = old.deadline;
                }
            }
            (Action::Move { due, .. }, Some(row)) => {
                let row = self.rows.remove(row);
                let old = Some(row.version);
                self.rearmed(row, due, near, old, answer);
            }
            (Action::Remove, Some(row)) => {
                let Stored { version, value, .. } = self.rows.remove(row);
                assert_eq!(*answer, WriteOutcome::Removed { version, value });
                self.discard_key(&key);
            }
            (Action::Remove, None) if token.is_none() => {
                let dead = self.discard_key(&key);
                let removed = |row: Stored| WriteOutcome::Removed {
                    version: row.version,
                    value: row.value,
                };
                assert_eq!(*answer, dead.map_or(unarmed, removed));
            }
            (Action::Move { .. } | Action::Remove, None) => assert_eq!(*answer, unarmed),
        }
    }

    /// Discards the dead rows of a key. Returns the one that died last.
    fn discard_key(&mut self, key: &[u8]) -> Option<Stored> {
        let is_dead = |row: &Stored| row.state == State::Dead && row.key == key;
        let dead = self.rows.iter().filter(|row| is_dead(row));
        let latest = dead.max_by_key(|row| (row.due, row.version)).cloned();
        self.rows.retain(|row| !is_dead(row));
        latest
    }

    /// The row that has a version which is not known yet.
    fn new_row<'a>(&self, rows_now: &'a [Stored]) -> Option<&'a Stored> {
        let is_new = |now: &&Stored| self.by_version(now.version).is_none();
        rows_now.iter().find(is_new)
    }

    /// `rows_now` are the rows as the store has them after the call.
    pub(super) fn retry(&mut self, token: Version, answer: ChangedRows, rows_now: &[Stored]) {
        let index = self.by_version(token);
        let index = index.filter(|&index| self.rows[index].state == State::Dead);
        let Some(index) = index else {
            assert_eq!(answer, ChangedRows::default());
            return;
        };
        assert_eq!(answer, ChangedRows::new(1, false));
        let mut row = self.rows.remove(index);
        let now = self.new_row(rows_now).expect("it is due again");
        row.version = now.version;
        row.due = now.due;
        row.attempt = 0;
        row.state = match self.position(State::Waiting, &row.key) {
            Some(_) => State::InFlight,
            None => State::Waiting,
        };
        assert_eq!(*now, row);
        self.learn(row.version);
        self.rows.push(row);
    }

    pub(super) fn discard(&mut self, which: &DeadRows, answer: ChangedRows) {
        let before = self.rows.len();
        self.rows.retain(|row| {
            let is_chosen = match which {
                DeadRows::Token(token) => row.version == *token,
                DeadRows::Key(key) => row.key == *key,
                // Any age: all have died before.
                DeadRows::OlderThan(_) => true,
            };
            row.state != State::Dead || !is_chosen
        });
        let rows = (before - self.rows.len()) as u64;
        assert_eq!(answer, ChangedRows::new(rows, false));
    }

    fn rearmed(
        &mut self,
        row: Stored,
        due: Due,
        near: LoadWindow,
        old: Option<Version>,
        answer: &WriteOutcome,
    ) {
        let WriteOutcome::Armed {
            row: armed,
            replaced,
            ..
        } = *answer
        else {
            panic!("{answer:?} instead of an armed row")
        };
        assert_eq!(replaced, old);
        self.arm(row, due, near, armed);
    }

    pub(super) fn load(&mut self, request: &Load, answer: &Loaded) {
        self.living.insert(request.instance);
        let loadable = |row: &Stored| {
            let is_near = row.state != State::Dead && row.due <= answer.now
                || (row.state == State::Waiting && row.due < FAR);
            let is_known = request.schedules.include(row.schedule.as_deref());
            row.loaded_by.is_none() && is_near && is_known
        };
        let mut expected: Vec<_> = self.rows.iter().filter(|row| loadable(row)).collect();
        expected.sort_by_key(|row| (row.due, row.version));
        let expected: Vec<_> = expected.iter().map(|row| (row.version, row.due)).collect();
        let taken = expected.len().min(request.limit);
        assert_eq!(answer.rows, expected[..taken]);
        assert_eq!(answer.more, taken < expected.len());
        for &(version, _) in &answer.rows {
            let row = self.by_version(version).expect("it is there");
            self.rows[row].loaded_by = Some(request.instance);
        }
        let loaded = answer.rows.iter().map(|&(version, _)| version);
        self.tells_schedules(loaded, &answer.scheduled);
    }

    /// An answer tells the schedules of those of the rows in it that are loaded.
    fn tells_schedules(&self, rows: impl Iterator<Item = Version>, told: &[Scheduled]) {
        let mut expected = BTreeMap::new();
        for row in rows.filter_map(|version| self.rows.get(self.by_version(version)?)) {
            if let Some(schedule) = row.schedule.clone().filter(|_| row.loaded_by.is_some()) {
                let row = Scheduled {
                    version: row.version,
                    deadline: row.deadline,
                    schedule,
                };
                expected.insert(row.version, row);
            }
        }
        let told = told.iter().map(|row| (row.version, row.clone()));
        assert_eq!(told.collect::<BTreeMap<_, _>>(), expected);
    }

    /// The store says that the instance goes on under the fresh id.
    pub(super) fn unload(&mut self, instance: InstanceId, fresh: InstanceId) {
        self.learn(Version(fresh.0));
        self.living.remove(&instance);
        for row in &mut self.rows {
            row.loaded_by = row.loaded_by.filter(|&by| by != instance);
        }
    }

    pub(super) fn unmark(&mut self, instance: InstanceId, versions: &[Version]) {
        for row in &mut self.rows {
            if versions.contains(&row.version) {
                row.loaded_by = row.loaded_by.filter(|&by| by != instance);
            }
        }
    }

    pub(super) fn fire(&mut self, request: &Fire, answer: &FireReport) {
        let mut fired = answer.fired.iter();
        let mut later = answer.later.iter().peekable();
        let mut next = answer.next.iter();
        let loadable = |row: &&Stored| {
            let is_known = request.schedules.include(row.schedule.as_deref());
            row.state != State::Dead && row.loaded_by.is_none() && row.due <= answer.now && is_known
        };
        let mut unloaded: Vec<_> = self.rows.iter().filter(loadable).collect();
        unloaded.sort_by_key(|row| (row.due, row.version));
        let is_cut = request.unloaded > 0 && unloaded.len() > request.unloaded;
        assert!(answer.more || !is_cut, "there are more");
        let unloaded = unloaded.iter().map(|row| row.version);
        let unloaded: Vec<_> = unloaded.take(request.unloaded).collect();
        let named = request.versions.len();
        for (number, &version) in request.versions.iter().chain(&unloaded).enumerate() {
            let Some(index) = self.by_version(version) else {
                continue;
            };
            let row = self.rows[index].clone();
            if row.state == State::Dead {
                continue;
            }
            if row.due > answer.now {
                let expected = Armed {
                    version,
                    due: row.due,
                    loaded: row.loaded_by.is_some(),
                };
                assert_eq!(later.next(), Some(&expected));
                continue;
            }
            let plan = request.plan(version);
            let plan = plan.filter(|plan| row.schedule.is_some() && plan.holds(answer.now));
            if row.schedule.is_some() && plan.is_none() {
                // It stays, and is loaded.
                let loader = request.near.loader;
                let loader = loader.filter(|loader| self.living.contains(loader));
                let row = &mut self.rows[index];
                row.loaded_by = row.loaded_by.or(loader);
                let expected = Armed {
                    version,
                    due: row.due,
                    loaded: row.loaded_by.is_some(),
                };
                // One that was named may be named again.
                let was_named = number >= named && request.versions.contains(&version);
                let told = later.next_if(|&&armed| armed == expected);
                assert!(told.is_some() || was_named, "{expected:?}");
                continue;
            }
            self.rows.remove(index);
            let is_flying = self.position(State::InFlight, &row.key).is_some();
            if request.no_overlap && is_flying && row.repeats() {
                let (due, deadline) = match plan {
                    Some(plan) => plan.wait(request.missed, row.deadline),
                    None => request.missed.wait(row.deadline, PERIOD, answer.now),
                };
                let armed = *later.next().expect("it is held back");
                self.arm(row, Due::At(due), request.near, armed);
                self.rows.last_mut().expect("it was armed").deadline = deadline;
                continue;
            }
            let rule = row.period.map(|period| {
                assert_eq!(period, PERIOD, "scripts use one period");
                request.missed.next(row.deadline, period, answer.now)
            });
            let rule = rule.or(plan.map(|plan| plan.next));
            let mut following = row.clone();
            following.attempt = 0;
            match rule {
                Some(rule) if !rule.fires => {
                    let armed = *later.next().expect("the occurrence is skipped");
                    self.arm(following, Due::At(rule.due), request.near, armed);
                }
                rule => {
                    let fired = fired.next().expect("it fires");
                    let missed = rule.map_or(0, |rule| rule.missed);
                    self.fired(row, fired, missed, request, answer.now);
                    if let Some(rule) = rule {
                        assert!(fired.repeats);
                        let armed = *next.next().expect("the next one waits");
                        self.arm(following, Due::At(rule.due), request.near, armed);
                    }
                }
            }
        }
        assert_eq!(
            (fired.next(), later.next(), next.next()),
            (None, None, None)
        );
        let armed = answer.later.iter().chain(&answer.next);
        self.tells_schedules(armed.map(|row| row.version), &answer.scheduled);
    }

    fn fired(
        &mut self,
        mut row: Stored,
        fired: &Fired,
        missed: u64,
        request: &Fire,
        now: StoreTime,
    ) {
        self.learn(fired.token);
        let expected = Fired {
            token: fired.token,
            key: row.key.clone(),
            value: row.value.clone(),
            deadline: row.deadline,
            attempt: row.attempt + 1,
            missed,
            repeats: row.repeats(),
        };
        assert_eq!(*fired, expected);
        if let Some(lease) = request.lease {
            row.version = fired.token;
            row.state = State::InFlight;
            row.attempt += 1;
            row.period = None;
            row.schedule = None;
            row.due = now.after(lease);
            (row.loaded_by, row.claimed_by) = (None, request.by);
            self.rows.push(row);
        }
    }

    /// `rows_now` are the rows as the store has them after the call: it alone knows when a lease
    /// ends.
    pub(super) fn settle(
        &mut self,
        settle: Settle,
        near: LoadWindow,
        answer: Settled,
        rows_now: &[Stored],
    ) {
        let row_now = rows_now.iter().find(|row| row.version == settle.token);
        let index = self.by_version(settle.token);
        let index = index.filter(|&index| self.rows[index].state == State::InFlight);
        let Some(index) = index else {
            assert_eq!(answer, Settled::Lost);
            return;
        };
        let key = self.rows[index].key.clone();
        let row = &mut self.rows[index];
        row.error = settle.error.or(row.error.take());
        let delay = match settle.settlement {
            Settlement::Ack => {
                assert_eq!(answer, Settled::Done);
                self.rows.remove(index);
                return;
            }
            Settlement::Dead => {
                assert_eq!(answer, Settled::Done);
                let mut row = self.rows.remove(index);
                row.state = State::Dead;
                row.due = row_now.expect("it is dead").due;
                (row.loaded_by, row.claimed_by) = (None, None);
                self.rows.push(row);
                return;
            }
            Settlement::RetryAfter(delay) | Settlement::Extend(delay) => delay,
            Settlement::Release | Settlement::Unfire => Duration::ZERO,
            other @ Settlement::Leave(_) => panic!("the oracle does not know {other:?}"),
        };
        if settle.settlement == Settlement::Unfire {
            let row = &mut self.rows[index];
            row.attempt = row.attempt.saturating_sub(1);
        }
        if let Settlement::Extend(_) = settle.settlement {
            assert_eq!(answer, Settled::Done);
            self.rows[index].due = row_now.expect("it stays in flight").due;
            comes_after(delay, self.rows[index].due);
            return;
        }
        if self.position(State::Waiting, &key).is_some() {
            assert_eq!(answer, Settled::Done);
            let mut row = self.rows.remove(index);
            let now = self.new_row(rows_now).expect("it is in flight again");
            assert!(row_now.is_none(), "{row_now:?} is put back under {now:?}");
            comes_after(delay, now.due);
            (row.version, row.due) = (now.version, now.due);
            (row.loaded_by, row.claimed_by) = (None, None);
            self.learn(row.version);
            self.rows.push(row);
            return;
        }
        let Settled::Armed(armed) = answer else {
            panic!("{answer:?} instead of an armed row")
        };
        let row = self.rows.remove(index);
        let deadline = row.deadline;
        self.arm(row, Due::In(delay), near, armed);
        if matches!(settle.settlement, Settlement::Release | Settlement::Unfire) {
            self.rows.last_mut().expect("it was armed").deadline = deadline;
        }
    }
}

/// The period of every repeating timer in a script: within the window.
pub(super) const PERIOD: Duration = Duration::from_secs(1_000);

/// Deadlines from here on are far: the year 2200.
pub(super) const FAR: StoreTime = StoreTime::from_micros(7_258_118_400_000_000);

/// The oracle does not know the time, but each delay of a script is long or nothing.
fn comes_after(delay: Duration, due: StoreTime) {
    assert_eq!(due >= FAR, delay > PERIOD, "{due:?} after {delay:?}");
}
