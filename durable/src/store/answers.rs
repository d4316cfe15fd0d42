//! The answers of a store, and their size.

use std::time::Duration;

use super::charter::Edition;
use super::ids::{InstanceId, Version};
use super::receipt::{Continuity, Receipt};
use super::requests::{State, Write};
use super::schedule::Scheduled;
use super::time::StoreTime;

/// The greatest count of attempts. A row that has it fires with the same one again.
pub(crate) const MAX_ATTEMPT: u32 = 2_147_483_646;

/// A namespace was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// The store's time.
    pub now: StoreTime,
    /// The first id of this instance.
    pub instance: InstanceId,
    /// The charter that the instance agrees with.
    pub edition: Edition,
    /// The edition with which the namespace was made. Another one than before says that it was made
    /// again: the store has lost its data.
    pub made: Edition,
}

/// A waiting row that a call has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Armed {
    /// Its version.
    pub version: Version,
    /// When it is due.
    pub due: StoreTime,
    /// Whether it is marked as loaded by the [`Terms::loader`](super::Terms::loader) of the call.
    /// In [`FireReport::later`], by any instance.
    pub loaded: bool,
}

/// The outcome of a [`Write`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteOutcome {
    /// Set or moved.
    Armed {
        /// The row that waits now.
        row: Armed,
        /// The version of the waiting row that it replaces.
        replaced: Option<Version>,
    },
    /// Removed.
    Removed {
        /// Its version.
        version: Version,
        /// Its encoded value.
        value: Vec<u8>,
    },
    /// Not moved or removed: the key has no row that waits or is in flight.
    Absent,
    /// Not set because a row waits: only with [`if_absent`](super::Action::Set::if_absent).
    Present,
    /// Not changed: the key has no waiting row, but one in flight. Its latest token.
    InFlight(Version),
    /// Not done: a transaction that is not the store's own has changed the key and has not ended.
    /// So it is with all writes of the key in this call. The instance makes them again, in their
    /// order, until the callers' time is over.
    Locked(Write),
}

/// Rows that were loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The store's time.
    pub now: StoreTime,
    /// The versions and when they are due, earliest first.
    pub rows: Vec<(Version, StoreTime)>,
    /// Whether the limit left rows out, or rows may still be marked by an id that has ended.
    pub more: bool,
    /// How many due rows the other living instances lack, all together.
    pub others_lack: usize,
    /// Those of the rows that repeat by a schedule.
    pub scheduled: Vec<Scheduled>,
    /// Whether near rows are just being committed without a hint, since another transaction gives
    /// it. They are seen by a load some milliseconds later.
    pub again: bool,
    /// How old the oldest snapshot in the store is that keeps what is gone, if the load has looked
    /// for it.
    pub oldest_snapshot: Option<Duration>,
    /// What the next load under this id brings back.
    pub receipt: Receipt,
    /// Whether the store has all that it has answered since the [last](super::Load::last) load.
    pub continuity: Continuity,
}

/// The outcome of a [`Fire`](super::Fire).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FireReport {
    /// The store's time.
    pub now: StoreTime,
    /// The rows that have fired: those named, in the order asked for, then those that no instance
    /// had loaded, earliest first.
    pub fired: Vec<Fired>,
    /// Rows that exist and are not due, or no more, in any order.
    pub later: Vec<Armed>,
    /// The next occurrences of the repeating timers that have fired.
    pub next: Vec<Armed>,
    /// How many of the last versions of the batch were left as they are, since the answer had
    /// enough bytes.
    pub rest: usize,
    /// Whether more rows may be due that no instance has loaded. It may be true without need: a
    /// store need not look beyond the rows that it was asked for. Only a call that
    /// [asked](super::Fire::unloaded) for some can tell.
    pub more: bool,
    /// Those of the rows in [`later`](Self::later) and [`next`](Self::next) that repeat by a
    /// schedule and are loaded.
    pub scheduled: Vec<Scheduled>,
    /// Rows that hold what no store writes. They are dead now.
    pub damaged: Vec<Damaged>,
}

impl FireReport {
    /// Nothing has fired yet.
    pub fn at(now: StoreTime) -> Self {
        FireReport {
            now,
            ..Self::default()
        }
    }

    /// Adds a row that has not fired.
    pub(crate) fn add_later(&mut self, row: &Stored) {
        self.scheduled.extend(row.scheduled());
        self.later.push(row.armed());
    }

    /// Adds the next occurrence of a row that has fired.
    pub(crate) fn add_next(&mut self, row: &Stored) {
        self.scheduled.extend(row.scheduled());
        self.next.push(row.armed());
    }
}

/// A row that was found to hold what no store writes: another program has written it, or the medium
/// has changed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// Its version, which is the token of the dead row.
    pub version: Version,
    /// The encoded key, as far as it can be read.
    pub key: Vec<u8>,
    /// What is wrong, which is kept with the dead row.
    pub reason: String,
}

/// A row that has fired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fired {
    /// The token of the claim: the row's version in flight.
    pub token: Version,
    /// The encoded key.
    pub key: Vec<u8>,
    /// The encoded value.
    pub value: Vec<u8>,
    /// When it was due: what it was last set, moved or put back to.
    pub deadline: StoreTime,
    /// How often it has fired, this time included.
    pub attempt: u32,
    /// How many occurrences this one stands for besides itself.
    pub missed: u64,
    /// Whether it is the occurrence of a repeating timer.
    pub repeats: bool,
}

/// The outcome of a [`Settle`](super::Settle).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// Acknowledged, extended or dead, or put back beside a newer timer.
    Done,
    /// Put back: this row waits now.
    Armed(Armed),
    /// The token names no row: nothing was changed.
    Lost,
    /// Not done: as [`WriteOutcome::Locked`]. So it is with everything in this call that names the
    /// token, but for extensions, which need no lock of a key.
    Locked,
}

/// A row as it lies in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its version; in flight or dead, the token.
    pub version: Version,
    /// Its state.
    pub state: State,
    /// The encoded key.
    pub key: Vec<u8>,
    /// The encoded value.
    pub value: Vec<u8>,
    /// When it is due; in flight, the end of the lease; dead, when it died.
    pub due: StoreTime,
    /// When it was due: what it was last set, moved or put back to.
    pub deadline: StoreTime,
    /// How often it has fired.
    pub attempt: u32,
    /// If it repeats: how often.
    pub period: Option<Duration>,
    /// If it repeats by a schedule: its text.
    pub schedule: Option<String>,
    /// The instance that has loaded it, by the id that it had then. Or the one that has
    /// [left](InstanceId::left) it to others. A store may leave out one that is not alive any more.
    pub loaded_by: Option<InstanceId>,
    /// In flight: [who](super::Fire::by) has fired it, by the id that it had then.
    pub claimed_by: Option<InstanceId>,
    /// The last [error](super::Settle::error) that it was settled with.
    pub error: Option<String>,
}

impl Stored {
    /// A row that has not fired, was not put back, does not repeat, and that no instance has
    /// loaded.
    pub fn new(
        version: Version,
        state: State,
        key: Vec<u8>,
        value: Vec<u8>,
        due: StoreTime,
    ) -> Self {
        Stored {
            version,
            state,
            key,
            value,
            due,
            deadline: due,
            attempt: 0,
            period: None,
            schedule: None,
            loaded_by: None,
            claimed_by: None,
            error: None,
        }
    }

    /// Whether it repeats: by a period, or by a schedule.
    pub fn repeats(&self) -> bool {
        self.period.is_some() || self.schedule.is_some()
    }

    /// A row that was just set with the schedule of the waiting row that it replaces is due when
    /// that one was, unless that was never.
    pub(crate) fn keep_time(&mut self, replaced: Option<&Stored>) {
        let same = |old: &&Stored| {
            self.schedule.is_some() && old.schedule == self.schedule && !old.due.is_never()
        };
        if let Some(old) = replaced.filter(same) {
            (self.due, self.deadline) = (old.due, old.deadline);
        }
    }

    /// The row as it is delivered when it has just fired: its version is the token, and its
    /// attempts count this one.
    pub(crate) fn fired(&self, missed: u64, repeats: bool) -> Fired {
        Fired {
            token: self.version,
            key: self.key.clone(),
            value: self.value.clone(),
            deadline: self.deadline,
            attempt: self.attempt,
            missed,
            repeats,
        }
    }

    /// The schedule that its instance has to know, if it repeats by a schedule and is loaded.
    pub(crate) fn scheduled(&self) -> Option<Scheduled> {
        let schedule = self.schedule.clone().filter(|_| self.loaded_by.is_some())?;
        Some(Scheduled {
            version: self.version,
            deadline: self.deadline,
            schedule,
        })
    }

    /// Its answer where it waits.
    pub(crate) fn armed(&self) -> Armed {
        Armed {
            version: self.version,
            due: self.due,
            loaded: self.loaded_by.is_some(),
        }
    }
}

/// How many timers a namespace has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counts {
    /// The store's time.
    pub now: StoreTime,
    /// Timers that wait.
    pub waiting: u64,
    /// Timers that have fired and are not settled.
    pub in_flight: u64,
    /// Dead letters.
    pub dead: u64,
    /// When the earliest waiting timer is due.
    pub earliest: Option<StoreTime>,
    /// Whether one of the numbers is an estimate. All are exact on all stores of this crate but
    /// PostgreSQL, which counts [up to 10,000](crate::Postgres#sizing) in each state.
    pub is_estimate: bool,
}

/// For a [store](crate::store) of your own. Like that module, it may change in any version.
impl Counts {
    /// Exact numbers of rows, none of them dead. If rows wait, [`earliest`](Self::earliest) is to
    /// be set.
    pub fn new(now: StoreTime, waiting: u64, in_flight: u64) -> Self {
        Counts {
            now,
            waiting,
            in_flight,
            ..Self::default()
        }
    }

    /// Those of both: the later time, the earlier deadline.
    #[allow(clippy::needless_pass_by_value)] // so that `reduce` takes it
    pub(crate) fn with(self, other: Self) -> Self {
        Counts {
            now: self.now.max(other.now),
            waiting: self.waiting + other.waiting,
            in_flight: self.in_flight + other.in_flight,
            dead: self.dead + other.dead,
            earliest: self.earliest.into_iter().chain(other.earliest).min(),
            is_estimate: self.is_estimate || other.is_estimate,
        }
    }
}

/// One step of a change of many timers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ChangedRows {
    /// How many timers it has changed.
    pub rows: u64,
    /// How many it has found in flight: they fired before a [`Change`](super::Change) reached them,
    /// and stay as they are.
    pub in_flight: u64,
    /// How many it has left as they are because an open transaction has changed their keys.
    pub locked: u64,
    /// Whether there may be more.
    pub more: bool,
}

/// For a [store](crate::store) of your own. Like that module, it may change in any version.
impl ChangedRows {
    /// A step that has changed so many rows, and has left none.
    pub fn new(rows: u64, more: bool) -> Self {
        ChangedRows {
            rows,
            more,
            ..ChangedRows::default()
        }
    }
}

impl ChangedRows {
    /// The sum of these and those of a later step.
    #[must_use]
    #[allow(clippy::needless_pass_by_value)] // it may have more than numbers one day
    pub fn and(self, later: ChangedRows) -> Self {
        ChangedRows {
            rows: self.rows + later.rows,
            in_flight: self.in_flight + later.in_flight,
            locked: self.locked + later.locked,
            more: later.more,
        }
    }
}

/// A store adds no more rows to an answer of [`fire`](super::Store::fire),
/// [`list`](super::Store::list), [`rows_of`](super::Store::rows_of) or
/// [`rows_with_prefix`](super::Inspect::rows_with_prefix) that has so many bytes of keys and
/// values: 1 MiB. The caller of all but `rows_of` asks for the rest.
pub const ANSWER_BYTES: usize = 1 << 20;

/// Adds up the keys and values of an answer.
#[derive(Debug, Default)]
pub(crate) struct AnswerSize(usize);

impl AnswerSize {
    /// Whether no more rows are added.
    pub(crate) fn is_enough(&self) -> bool {
        self.0 >= ANSWER_BYTES
    }

    pub(crate) fn add(&mut self, fired: &[Fired]) {
        let bytes = fired.iter().map(|row| row.key.len() + row.value.len());
        self.0 += bytes.sum::<usize>();
    }

    /// The first of these rows, until the answer has enough bytes.
    pub(crate) fn page<E>(
        rows: impl IntoIterator<Item = Result<Stored, E>>,
    ) -> Result<Vec<Stored>, E> {
        let mut size = AnswerSize::default();
        let in_page = |row: &Result<Stored, E>| {
            let takes = !size.is_enough();
            if let Ok(row) = row {
                size.0 += row.key.len() + row.value.len();
            }
            takes
        };
        rows.into_iter().take_while(in_page).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_add_up_and_the_last_one_says_whether_there_is_more() {
        let step = |rows, in_flight, locked, more| ChangedRows {
            rows,
            in_flight,
            locked,
            more,
        };
        let sum = step(5, 2, 1, true).and(step(10, 20, 30, false));
        assert_eq!(sum, step(15, 22, 31, false));
        assert!(sum.and(step(0, 0, 0, true)).more);
    }

    #[test]
    fn counts_of_parts_add_up_to_the_latest_time_and_the_earliest_deadline() {
        let at = StoreTime::from_micros;
        let counts = |now, rows: [u64; 3], earliest: Option<i64>, is_estimate| Counts {
            now: at(now),
            waiting: rows[0],
            in_flight: rows[1],
            dead: rows[2],
            earliest: earliest.map(at),
            is_estimate,
        };
        let parts = [
            counts(7, [1, 20, 300], Some(50), false),
            counts(9, [4, 50, 600], Some(40), true),
            counts(8, [7, 80, 900], None, false),
        ];
        let sum = counts(9, [12, 150, 1_800], Some(40), true);
        let forward = parts.clone().into_iter().reduce(Counts::with);
        let backward = parts.clone().into_iter().rev().reduce(Counts::with);
        assert_eq!((forward, backward), (Some(sum.clone()), Some(sum)));
        let [first, _, last] = parts;
        assert!(!first.with(last).is_estimate);
    }
}
