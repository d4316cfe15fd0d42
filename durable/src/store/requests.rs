//! The rows and batches that travel between an instance and its store.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::time::{StoreTime, micros};

/// The name that keeps the timers of one purpose apart from others in the same store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Namespace(Arc<str>);

impl Namespace {
    /// The greatest length of a name, in bytes.
    pub const MAX_LEN: usize = 64;

    /// Checks a name: 1 to 64 ASCII letters, digits, `_`, `-` and `.`.
    ///
    /// # Errors
    ///
    /// [`NamespaceError`] with the name.
    pub fn new(name: &str) -> Result<Self, NamespaceError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if name.is_empty() || name.len() > Self::MAX_LEN || !name.bytes().all(allowed) {
            return Err(NamespaceError {
                value: name.to_owned(),
            });
        }
        Ok(Namespace(name.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A name is not one of a [`Namespace`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamespaceError {
    /// The name.
    pub value: String,
}

impl fmt::Display for NamespaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the namespace is {:?}; it must be 1 to {} ASCII letters, digits, '_', '-' or '.'",
            self.value,
            Namespace::MAX_LEN
        )
    }
}

impl Error for NamespaceError {}

/// Names a row in one of its states. From one growing sequence for the whole store, at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub i64);

/// What an instance that has opened a namespace loads under, until it unloads. No instance ever gets one that was in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(pub i64);

/// A namespace was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// The store's time.
    pub now: StoreTime,
    /// The first id of this instance.
    pub instance: InstanceId,
}

/// What happens to rows that a call makes due soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadWindow {
    /// Soon is: at most this long after the store's time in the call.
    pub window: Duration,
    /// The instance that loads such rows in the same step. Without one, others are given a hint.
    pub loader: Option<InstanceId>,
}

/// When a row is to be due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// That long after the store's time in the call.
    In(Duration),
    /// At that instant of the store's clock.
    At(StoreTime),
}

impl Due {
    /// The instant, when the store's time is `now`.
    pub fn at(self, now: StoreTime) -> StoreTime {
        match self {
            Due::In(delay) => now.after(delay),
            Due::At(time) => time,
        }
    }
}

/// A change of the waiting row under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The encoded key, at most [`MAX_KEY_BYTES`](crate::MAX_KEY_BYTES) long.
    pub key: Vec<u8>,
    /// The change.
    pub action: Action,
}

impl Write {
    /// How many bytes its key and value have.
    pub(crate) fn bytes(&self) -> usize {
        let value = match &self.action {
            Action::Set { value, .. } => value.len(),
            Action::Move { .. } | Action::Remove => 0,
        };
        self.key.len() + value
    }
}

/// What is done with the waiting row under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Sets it.
    Set {
        /// The encoded value, at most [`MAX_VALUE_BYTES`](crate::MAX_VALUE_BYTES) long.
        value: Vec<u8>,
        /// Its deadline.
        due: Due,
        /// If it repeats: how often, at least a millisecond.
        period: Option<Duration>,
        /// Only if the key has no row in any state.
        if_absent: bool,
    },
    /// Moves it.
    Move {
        /// Its new deadline.
        due: Due,
    },
    /// Removes it.
    Remove,
}

/// A waiting row that a call has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Armed {
    /// Its version.
    pub version: Version,
    /// When it is due.
    pub due: StoreTime,
    /// Whether it is marked as loaded by the [`LoadWindow::loader`] of the call.
    pub loaded: bool,
}

/// What became of a [`Write`].
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
    /// Not moved or removed: the key has no row.
    Absent,
    /// Not set because a row waits: only with [`if_absent`](Action::Set::if_absent).
    Present,
    /// Not changed: the key has no waiting row, but one in flight. Its latest token.
    InFlight(Version),
}

/// Asks for rows to be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// The instance that loads.
    pub instance: InstanceId,
    /// Waiting rows due at most this long after now.
    pub window: Duration,
    /// At most this many rows. With zero it is a sign of life only.
    pub limit: usize,
    /// How many rows that are due already the program of the instance can take, at most `limit`. The store keeps how many of
    /// these it does not hand out: the instance *lacks* them.
    pub wanted: usize,
    /// How long from now the id of the instance counts as living.
    pub alive: Duration,
}

/// Rows that were loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The store's time.
    pub now: StoreTime,
    /// The versions and when they are due, earliest first.
    pub rows: Vec<(Version, StoreTime)>,
    /// Whether the limit left rows out.
    pub more: bool,
    /// How many due rows the other living instances lack, all together.
    pub others_lack: usize,
}

/// Asks for rows to be fired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fire {
    /// The rows.
    pub versions: Vec<Version>,
    /// How many due rows that no instance has loaded it asks for besides, earliest first. They fire without being loaded,
    /// which saves a backlog a write for each row.
    pub unloaded: usize,
    /// How long each claim lasts, from now. `None` deletes what fires.
    pub lease: Option<Duration>,
    /// What becomes of missed occurrences of repeating timers.
    pub missed: Missed,
    /// Who loads next occurrences that are due soon.
    pub near: LoadWindow,
}

/// What a repeating timer does about occurrences that were missed, because nobody ran or had capacity.
///
/// An occurrence is missed once the next one is due too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Missed {
    /// Every occurrence is delivered, one after the other.
    FireAll,
    /// One delivery stands for all that were missed, and counts them.
    #[default]
    FireOnce,
    /// Those missed are not delivered.
    Skip,
}

/// What the rule says about an occurrence that has come due. From [`Missed::next`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextOccurrence {
    /// Whether the occurrence fires.
    pub fires: bool,
    /// How many occurrences after it are missed and will not be delivered.
    pub missed: u64,
    /// The deadline of the next occurrence.
    pub due: StoreTime,
}

impl Missed {
    /// Applies the rule to an occurrence with this deadline that is due at `now`.
    ///
    /// In microseconds: with `late = now - deadline` and `behind = late / period`, rounded down, the next deadline is
    /// `deadline + period` under `FireAll` and `deadline + (behind + 1) * period` under the others, never at most. `Skip`
    /// fires only if `behind` is zero. `FireOnce` has missed `behind`.
    pub fn next(self, deadline: StoreTime, period: Duration, now: StoreTime) -> NextOccurrence {
        let period = micros(period).max(1);
        let late = (now.as_micros() - deadline.as_micros()).max(0);
        let behind = late / period;
        let after = |periods: i64| {
            let later = periods.saturating_mul(period);
            StoreTime::from_micros(deadline.as_micros().saturating_add(later))
        };
        match self {
            Missed::FireAll => NextOccurrence {
                fires: true,
                missed: 0,
                due: after(1),
            },
            Missed::FireOnce => NextOccurrence {
                fires: true,
                missed: behind.unsigned_abs(),
                due: after(behind + 1),
            },
            Missed::Skip => NextOccurrence {
                fires: behind == 0,
                missed: 0,
                due: after(behind + 1),
            },
        }
    }
}

/// What became of a [`Fire`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FireReport {
    /// The store's time.
    pub now: StoreTime,
    /// The rows that have fired: those named, in the order asked for, then those that no instance had loaded, earliest first.
    pub fired: Vec<Fired>,
    /// Rows that exist and are not due, or no more, in the same order.
    pub later: Vec<Armed>,
    /// The next occurrences of the repeating timers that have fired.
    pub next: Vec<Armed>,
    /// How many of the last versions of the batch were left as they are, since the answer had enough bytes.
    pub left: usize,
    /// Whether more rows may be due that no instance has loaded. Only a call that [asked](Fire::unloaded) for some can tell.
    pub more: bool,
}

impl FireReport {
    /// Nothing has fired yet.
    pub fn at(now: StoreTime) -> Self {
        FireReport {
            now,
            fired: Vec::new(),
            later: Vec::new(),
            next: Vec::new(),
            left: 0,
            more: false,
        }
    }
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

/// Settles a row in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settle {
    /// The token of the claim.
    pub token: Version,
    /// What becomes of it.
    pub how: Settlement,
}

/// What becomes of a row in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// It is done.
    Ack,
    /// It is due again after that long.
    RetryAfter(Duration),
    /// It is due again at once, with its old deadline.
    Release,
    /// As [`Release`](Self::Release), and the firing does not count as an attempt: no program has seen the claim.
    Unfire,
    /// The claim lasts that long from now.
    Extend(Duration),
}

/// What became of a [`Settle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// Acknowledged or extended, or put back beside a newer timer.
    Done,
    /// Put back: this row waits now.
    Armed(Armed),
    /// The token names no row: nothing was changed.
    Lost,
}

/// The state of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Armed under its key.
    Waiting,
    /// Fired and not settled.
    InFlight,
}

/// A row as it lies in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its version; in flight, the token.
    pub version: Version,
    /// Its state.
    pub state: State,
    /// The encoded key.
    pub key: Vec<u8>,
    /// The encoded value.
    pub value: Vec<u8>,
    /// When it is due; in flight, the end of the lease.
    pub due: StoreTime,
    /// When it was due: what it was last set, moved or put back to.
    pub deadline: StoreTime,
    /// How often it has fired.
    pub attempt: u32,
    /// If it repeats: how often.
    pub period: Option<Duration>,
    /// The instance that has loaded it, by the id that it had then.
    pub loaded_by: Option<InstanceId>,
}

impl Stored {
    /// A row that was just set, before it has a version.
    pub(crate) fn set(
        key: Vec<u8>,
        value: Vec<u8>,
        due: StoreTime,
        period: Option<Duration>,
    ) -> Self {
        Stored {
            version: Version(0),
            state: State::Waiting,
            key,
            value,
            due,
            deadline: due,
            attempt: 0,
            period,
            loaded_by: None,
        }
    }

    /// The row as it is delivered when it has just fired: its version is the token, and its attempts count this one.
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

    /// Its answer in [`FireReport::later`], as it is not due.
    pub(crate) fn not_due(&self) -> Armed {
        Armed {
            version: self.version,
            due: self.due,
            loaded: self.loaded_by.is_some(),
        }
    }
}

/// Asks for rows to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct List {
    /// In this state.
    pub state: State,
    /// After this one.
    pub after: Option<(StoreTime, Version)>,
    /// At most this many.
    pub limit: usize,
}

/// How many rows there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// The store's time.
    pub now: StoreTime,
    /// Rows that wait.
    pub waiting: u64,
    /// Rows in flight.
    pub in_flight: u64,
    /// When the earliest waiting row is due.
    pub earliest: Option<StoreTime>,
    /// Whether `waiting` or `in_flight` is an estimate. Both are exact on all stores of this crate but PostgreSQL, which counts
    /// [up to 10,000 rows](crate::Postgres#sizing) in each state.
    pub is_estimate: bool,
}

/// One step of deleting a namespace's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Purged {
    /// How many rows it has deleted.
    pub rows: u64,
    /// Whether there may be more.
    pub more: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_micros(10);

    fn next(missed: Missed, now: i64) -> (bool, u64, i64) {
        let at = StoreTime::from_micros;
        let next = missed.next(at(100), PERIOD, at(now));
        (next.fires, next.missed, next.due.as_micros())
    }

    #[test]
    fn keeps_the_cadence_when_nothing_is_missed() {
        for missed in [Missed::FireAll, Missed::FireOnce, Missed::Skip] {
            assert_eq!(next(missed, 100), (true, 0, 110));
            assert_eq!(next(missed, 109), (true, 0, 110));
        }
    }

    #[test]
    fn applies_each_rule_to_missed_occurrences() {
        assert_eq!(next(Missed::FireAll, 135), (true, 0, 110));
        assert_eq!(next(Missed::FireOnce, 135), (true, 3, 140));
        assert_eq!(next(Missed::Skip, 135), (false, 0, 140));
        assert_eq!(next(Missed::Skip, 110), (false, 0, 120));
    }

    #[test]
    fn ends_at_never() {
        let at = StoreTime::from_micros;
        let next = Missed::FireOnce.next(at(100), Duration::MAX, at(200));
        assert_eq!(next.due, StoreTime::NEVER);
    }

    #[test]
    fn refuses_names_out_of_bounds() {
        for name in ["", "with space", "umläut", &"x".repeat(65)] {
            let error = Namespace::new(name).expect_err(name);
            assert!(error.to_string().contains(name), "{error}");
        }
        assert_eq!(
            Namespace::new("orders_2.a-b").expect("fits").as_str(),
            "orders_2.a-b"
        );
    }
}
