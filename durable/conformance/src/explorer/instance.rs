//! What an instance of a trace knows and asks for, and how the store answers.

use std::collections::{BTreeMap, BTreeSet};

use tickwheel_durable::store::{
    Armed, DeadChange, Edition, Fire, FireReport, InstanceId, Load, Loaded, Plan, Receipt, Settled,
    StoreTime, Terms, Version, Write, WriteOutcome,
};

use super::step::Settling;

/// The schedule of timers that have one: each unit.
pub(super) const SCHEDULE: &str = "each unit";

/// A claim that an instance holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) token: Version,
    pub(super) value: Vec<u8>,
    /// When its lease ends, as far as the instance knows.
    pub(super) until: StoreTime,
    /// An end without an answer. The instance sends the same one again.
    pub(super) unanswered: Option<Settling>,
}

/// What an instance knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Instance {
    pub(super) id: InstanceId,
    /// The edition of the charter that it agrees with, if it knows.
    pub(super) edition: Option<Edition>,
    /// The rows it has loaded, and when they are due.
    pub(super) wheel: BTreeMap<Version, StoreTime>,
    pub(super) claims: Vec<Claim>,
    /// How rows with a schedule repeat, as it was computed when the store told the schedule.
    pub(super) plans: BTreeMap<Version, Plan>,
    /// Rows on the wheel whose schedule it does not know: it leaves them before it loads.
    pub(super) unknown: BTreeSet<Version>,
    /// An answer was lost that may have marked rows: it unloads everything before it loads.
    pub(super) must_unload: bool,
    /// The ids under which fires were sent that had no answer.
    pub(super) lost_fires: Vec<InstanceId>,
    /// The receipt of the last load under the id.
    pub(super) last: Option<Receipt>,
    /// The store has returned to an earlier state since the last answer to a load.
    pub(super) is_unaware: bool,
}

/// What an instance asks of the store.
#[derive(Debug, Clone)]
pub(super) enum Request {
    /// Writes, in order.
    Write(Vec<Write>, Terms),
    Load(Load),
    Unload(InstanceId),
    Unmark(InstanceId, Vec<Version>),
    Fire(Fire),
    Settle(Vec<(Version, Settling)>, Terms),
    ChangeDead(Vec<u8>, DeadChange),
    /// Finds the claims of lost fires, and unfires them.
    Unfire(Vec<InstanceId>, Vec<Version>, Terms),
}

/// What a step did.
#[derive(Debug, Clone)]
pub(super) enum Outcome {
    Written(Vec<WriteOutcome>),
    Loaded(Loaded),
    Unloaded(InstanceId),
    Unmarked(Vec<Version>),
    Fired(FireReport),
    /// Each claim, how it was settled, and the answer.
    Settled(Vec<(Version, Settling, Settled)>),
    /// The store has refused the call.
    Refused,
    /// The call never reached the store.
    Unsent,
    /// How many dead rows were retried or discarded.
    Changed(u64),
    /// Whether an instance that starts now is refused.
    Amended(bool),
    /// A tick, a step of the clock or a crash.
    Happened,
}

impl Instance {
    pub(super) fn new(id: InstanceId, edition: Edition) -> Self {
        Instance {
            id,
            edition: Some(edition),
            wheel: BTreeMap::new(),
            claims: Vec::new(),
            plans: BTreeMap::new(),
            unknown: BTreeSet::new(),
            must_unload: false,
            lost_fires: Vec::new(),
            last: None,
            is_unaware: false,
        }
    }

    pub(super) fn arm(&mut self, row: Armed) {
        if row.loaded {
            self.wheel.insert(row.version, row.due);
        }
    }

    /// What is on the wheel, by when it is due.
    pub(super) fn in_order(&self) -> Vec<(StoreTime, Version)> {
        let rows = self.wheel.iter().map(|(&version, &due)| (due, version));
        let mut rows: Vec<_> = rows.collect();
        rows.sort_unstable();
        rows
    }

    /// What is on the wheel and due.
    pub(super) fn due(&self, now: StoreTime) -> Vec<Version> {
        let rows = self.in_order().into_iter();
        let due = rows.take_while(|(due, _)| *due <= now);
        due.map(|(_, version)| version).collect()
    }
}
