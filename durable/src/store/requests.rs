//! The requests of an instance to its store.

use std::time::Duration;

use super::charter::Edition;
use super::error::StoreError;
use super::ids::{InstanceId, Namespace, Version};
use super::missed::Missed;
use super::receipt::Receipt;
use super::schedule::{Plan, Schedules};
use super::time::StoreTime;

/// The terms of a call: the time that counts as soon, the instance that loads the rows that it
/// makes due soon, and until when and under which charter it may change anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Soon is: at most this long after the store's time in the call.
    pub window: Duration,
    /// The instance that loads such rows in the same step. Without one, others are given a hint.
    pub loader: Option<InstanceId>,
    /// The edition of the charter that the caller agrees with. Under another one a write or a fire
    /// changes nothing: [`StoreError::Amended`]. `None` for an operator, whose calls suit any.
    pub edition: Option<Edition>,
    /// The caller has given up by then, by the store's clock. A write that the store gets to later
    /// changes nothing: [`StoreError::Late`].
    pub until: StoreTime,
}

impl Terms {
    /// Only a row that is due counts as soon. No instance loads it, so others are given a hint.
    pub const NONE: Terms = Terms::new(Duration::ZERO, None);

    /// Rows due at most that long after the store's time are loaded by this instance. The call
    /// suits any charter, and is never late.
    pub const fn new(window: Duration, loader: Option<InstanceId>) -> Self {
        Terms {
            window,
            loader,
            edition: None,
            until: StoreTime::NEVER,
        }
    }

    /// These terms under an edition of the charter.
    #[must_use]
    pub const fn under(mut self, edition: Option<Edition>) -> Self {
        self.edition = edition;
        self
    }

    /// These terms for a call that fails if the store gets to it later than that.
    #[must_use]
    pub const fn until(mut self, until: StoreTime) -> Self {
        self.until = until;
        self
    }

    /// Whether a call may change anything in a namespace with this edition, at this time.
    pub(crate) fn check(
        &self,
        namespace: &Namespace,
        edition: Edition,
        now: StoreTime,
    ) -> Result<(), StoreError> {
        if self.edition.is_some_and(|agreed| agreed != edition) {
            return Err(StoreError::amended(namespace));
        }
        if now > self.until {
            return Err(StoreError::late(now));
        }
        Ok(())
    }
}

/// When a row is to be due.
///
/// A store may match this exhaustively, and takes it for granted that a time is one of these. A
/// third kind would be a change of the protocol, which no store may pass over.
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
    /// A change of the row under this key.
    pub fn new(key: Vec<u8>, action: Action) -> Self {
        Write { key, action }
    }

    /// How many bytes its key, value and schedule have.
    pub(crate) fn bytes(&self) -> usize {
        let value = match &self.action {
            Action::Set {
                value, schedule, ..
            } => value.len() + schedule.as_ref().map_or(0, String::len),
            Action::Move { .. } | Action::Remove => 0,
        };
        self.key.len() + value
    }
}

/// How a write changes the waiting row under a key.
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
        /// If it repeats by a schedule: at most [`MAX_SCHEDULE_BYTES`] of text that only instances
        /// understand, and without line breaks. It has no period then. A waiting row with the same
        /// schedule keeps its `due` and its deadline.
        schedule: Option<String>,
        /// Only if the key has no row that waits or is in flight.
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

impl Action {
    /// [`Action::Set`].
    pub fn set(value: Vec<u8>, due: Due, period: Option<Duration>, if_absent: bool) -> Self {
        Action::Set {
            value,
            due,
            period,
            schedule: None,
            if_absent,
        }
    }

    /// [`Action::Set`], of a row that repeats by a schedule.
    pub fn set_scheduled(value: Vec<u8>, due: Due, schedule: String) -> Self {
        Action::Set {
            value,
            due,
            period: None,
            schedule: Some(schedule),
            if_absent: false,
        }
    }

    /// [`Action::Move`].
    pub fn move_to(due: Due) -> Self {
        Action::Move { due }
    }
}

/// A schedule has at most so many bytes.
pub const MAX_SCHEDULE_BYTES: usize = 512;

/// Asks for rows to be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// The instance that loads.
    pub instance: InstanceId,
    /// Waiting rows due at most this long after now.
    pub window: Duration,
    /// At most this many rows. With zero it returns no rows, and [says](super::Loaded::more)
    /// whether there are any.
    pub limit: usize,
    /// How many rows that are due already the program of the instance can take, at most `limit`.
    /// The store keeps how many of these it does not hand out: the instance *lacks* them.
    pub wanted: usize,
    /// How long from now the id of the instance counts as living.
    pub alive: Duration,
    /// Rows with schedules other than these are left to other instances.
    pub schedules: Schedules,
    /// The edition of the charter that the instance agrees with. Under another one it loads
    /// nothing: [`StoreError::Amended`]. `None` for any.
    pub edition: Option<Edition>,
    /// The name of the instance, which the store keeps for operators.
    pub name: Option<String>,
    /// The receipt of the last load under this id that was answered. `None` for the first.
    pub last: Option<Receipt>,
}

impl Load {
    /// Asks for rows with any schedule that need not be due: none are [`wanted`](Self::wanted).
    pub fn new(instance: InstanceId, window: Duration, limit: usize, alive: Duration) -> Self {
        Load {
            instance,
            window,
            limit,
            wanted: 0,
            alive,
            schedules: Schedules::ALL,
            edition: None,
            name: None,
            last: None,
        }
    }
}

/// Asks for rows to be fired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fire {
    /// The rows.
    pub versions: Vec<Version>,
    /// How many due rows that no instance has loaded it asks for besides, earliest first. They fire
    /// without being loaded, which saves a backlog a write for each row.
    pub unloaded: usize,
    /// How long each claim lasts, from now. `None` deletes what fires.
    pub lease: Option<Duration>,
    /// The rule for missed occurrences of repeating timers.
    pub missed: Missed,
    /// Whether a waiting row that repeats does not fire while its key has a row in flight.
    pub no_overlap: bool,
    /// The terms: the loader that they name loads next occurrences that are due soon.
    pub near: Terms,
    /// How rows with a schedule repeat, in the order of their versions.
    pub plans: Vec<Plan>,
    /// Rows with schedules other than these are not among the [`unloaded`](Self::unloaded) ones.
    pub schedules: Schedules,
    /// The instance that asks. The store keeps it with the claims, for operators.
    pub by: Option<InstanceId>,
}

impl Fire {
    /// Asks for these rows and no [`unloaded`](Self::unloaded) ones. Missed occurrences fire once.
    pub fn new(versions: Vec<Version>, lease: Option<Duration>, near: Terms) -> Self {
        Fire {
            versions,
            unloaded: 0,
            lease,
            missed: Missed::FireOnce,
            no_overlap: false,
            near,
            plans: Vec::new(),
            schedules: Schedules::ALL,
            by: None,
        }
    }
}

/// Settles a row in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settle {
    /// The token of the claim.
    pub token: Version,
    /// How it is settled.
    pub settlement: Settlement,
    /// The error to keep with the row, if it stays: at most [`MAX_ERROR_BYTES`] long, and without
    /// `'\0'`. Without one the row keeps the error that it has.
    pub error: Option<String>,
}

impl Settle {
    /// Settles the row with this token, without an error.
    pub fn new(token: Version, settlement: Settlement) -> Self {
        Settle {
            token,
            settlement,
            error: None,
        }
    }

    /// Keeps this error with the row.
    #[must_use]
    pub fn with_error(mut self, error: impl Into<String>) -> Self {
        self.error = Some(error.into());
        self
    }
}

/// An error that is kept with a row is at most so many bytes long. A longer one is cut.
pub const MAX_ERROR_BYTES: usize = 1024;

/// A store keeps at most so many dead rows of a key. When another one dies, those with the least
/// versions are deleted. So what discards the dead rows of a key is a bounded step, also if a
/// timer that repeats each second has failed for weeks.
pub const MAX_DEAD_OF_KEY: usize = 100;

/// How a row in flight is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// It is done.
    Ack,
    /// It is due again after that long.
    RetryAfter(Duration),
    /// It is due again at once, with its old deadline.
    Release,
    /// As [`Release`](Self::Release), and the firing does not count as an attempt: no program has
    /// seen the claim.
    Unfire,
    /// As [`Unfire`](Self::Unfire), for other instances: see [`LeftRow`].
    Leave(LeftRow),
    /// The claim lasts that long from now.
    Extend(Duration),
    /// It has failed for good, and is dead from now on.
    Dead,
}

/// How a row is left to other instances, because this one cannot decode it.
///
/// The row is put back, due after a pause, and marked by the instance with [`InstanceId::left`].
/// That id counts as living for a time from the first row that it marks while it does not live.
/// As long as it lives the instance itself does not load the row, and any other one does once the
/// row is due. Otherwise the row counts as unloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeftRow {
    /// The instance that leaves it.
    pub by: InstanceId,
    /// How long from now it is not due.
    pub pause: Duration,
    /// How long from now the mark counts, if the instance has none that counts already.
    pub alive: Duration,
}

impl LeftRow {
    /// A row that this instance leaves for that long.
    pub fn new(by: InstanceId, pause: Duration, alive: Duration) -> Self {
        LeftRow { by, pause, alive }
    }
}

/// The state of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum State {
    /// It waits for its deadline.
    Waiting,
    /// It has fired, and is not settled.
    InFlight,
    /// It has failed for good, and is kept to be looked at.
    Dead,
}

/// Chooses dead rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeadRows {
    /// The one with this token.
    Token(Version),
    /// All under this encoded key.
    Key(Vec<u8>),
    /// All that died until then, by the store's time.
    Until(StoreTime),
}

/// What is done to dead rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadChange {
    /// They are given another start.
    Retry,
    /// They are deleted.
    Discard,
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

impl List {
    /// Asks for rows in this state, after this one.
    pub fn new(state: State, after: Option<(StoreTime, Version)>, limit: usize) -> Self {
        List {
            state,
            after,
            limit,
        }
    }
}
