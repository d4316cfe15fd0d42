//! The records that `--json` prints. A field is never renamed or removed, and is `null` where it
//! means nothing.

use serde::Serialize;
use tickwheel_durable::store::{Counts, State, StoreTime, Stored, StoredInstance};

use crate::actions::Done;
use crate::shown::{Shown, hex};

/// Microseconds as seconds.
#[expect(clippy::cast_precision_loss, reason = "operators read fewer digits")]
fn seconds(micros: i64) -> f64 {
    micros as f64 / 1e6
}

/// An instant, as RFC 3339 writes it.
fn time(time: StoreTime) -> Option<String> {
    (!time.is_never()).then(|| time.to_string())
}

#[derive(Debug, Serialize)]
pub(crate) struct NamespaceRecord {
    pub(crate) namespace: String,
    codec: String,
    now: Option<String>,
    pub(crate) waiting: u64,
    pub(crate) in_flight: u64,
    pub(crate) dead: u64,
    pub(crate) is_estimate: bool,
    pub(crate) earliest: Option<String>,
    /// How long the earliest has been due; 0 if it is not.
    pub(crate) overdue_seconds: f64,
}

impl NamespaceRecord {
    pub(crate) fn new(namespace: &str, codec: &str, counts: &Counts) -> Self {
        let late = counts
            .earliest
            .map_or(0, |earliest| counts.now.as_micros() - earliest.as_micros());
        NamespaceRecord {
            namespace: namespace.to_owned(),
            codec: codec.to_owned(),
            now: time(counts.now),
            waiting: counts.waiting,
            in_flight: counts.in_flight,
            dead: counts.dead,
            is_estimate: counts.is_estimate,
            earliest: counts.earliest.and_then(time),
            overdue_seconds: seconds(late.max(0)),
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct TimerRecord {
    state: &'static str,
    key: Shown,
    key_hex: String,
    value: Shown,
    /// When it was set to be due.
    deadline: Option<String>,
    /// When it is due, if it waits.
    due: Option<String>,
    attempt: u32,
    period_seconds: Option<f64>,
    /// The cron expression and the zone of a timer that repeats by one.
    schedule: Option<String>,
    /// The instance that has it on its wheel.
    loaded_by: Option<i64>,
    /// The instance that has claimed it.
    claimed_by: Option<i64>,
    /// The token of its claim, or of its last one if it is dead.
    token: Option<i64>,
    lease_until: Option<String>,
    died: Option<String>,
    error: Option<String>,
}

impl From<&Stored> for TimerRecord {
    fn from(row: &Stored) -> Self {
        let due_if = |state| (row.state == state).then_some(row.due).and_then(time);
        TimerRecord {
            state: state_name(row.state),
            key: Shown::of(&row.key),
            key_hex: hex(&row.key),
            value: Shown::of(&row.value),
            deadline: time(row.deadline),
            due: due_if(State::Waiting),
            attempt: row.attempt,
            period_seconds: row.period.map(|period| period.as_secs_f64()),
            schedule: row.schedule.clone(),
            loaded_by: row.loaded_by.map(|id| id.0),
            claimed_by: row.claimed_by.map(|id| id.0),
            token: (row.state != State::Waiting).then_some(row.version.0),
            lease_until: due_if(State::InFlight),
            died: due_if(State::Dead),
            error: row.error.clone(),
        }
    }
}

pub(crate) fn state_name(state: State) -> &'static str {
    match state {
        State::Waiting => "waiting",
        State::InFlight => "in_flight",
        State::Dead => "dead",
        _ => "unknown",
    }
}

/// The label of the `due` of rows in this state.
pub(crate) fn due_name(state: State) -> &'static str {
    match state {
        State::InFlight => "lease ends",
        State::Dead => "died",
        _ => "due",
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct InstanceRecord {
    id: i64,
    alive_until: Option<String>,
    is_alive: bool,
    loaded: u64,
    lacks: u64,
}

impl InstanceRecord {
    pub(crate) fn new(instance: &StoredInstance, now: StoreTime) -> Self {
        InstanceRecord {
            id: instance.id.0,
            alive_until: time(instance.alive_until),
            is_alive: instance.alive_until >= now,
            loaded: instance.loaded,
            lacks: instance.lacks,
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct TimersRecord {
    pub(crate) namespace: String,
    pub(crate) timers: Vec<TimerRecord>,
    /// The argument of `--after` that goes on.
    pub(crate) next: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct StatsRecord {
    pub(crate) namespaces: Vec<NamespaceRecord>,
}

#[derive(Debug, Serialize)]
pub(crate) struct InstancesRecord {
    pub(crate) namespace: String,
    pub(crate) now: String,
    pub(crate) instances: Vec<InstanceRecord>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ChangedRecord {
    namespace: String,
    /// How many timers were removed, moved, released, retried, discarded or deleted.
    changed: u64,
    /// How many were left alone because they are in flight.
    in_flight: u64,
    /// Why others were left alone.
    reasons: Vec<String>,
}

impl ChangedRecord {
    pub(crate) fn new(namespace: &str, done: &Done) -> Self {
        ChangedRecord {
            namespace: namespace.to_owned(),
            changed: done.changed,
            in_flight: done.in_flight,
            reasons: done.reasons.clone(),
        }
    }
}
