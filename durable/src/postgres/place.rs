//! Where loads begin.
//!
//! An index keeps the entries of rows that are gone until no transaction can see these any more. A
//! report or a dump of the database that runs for hours keeps those of all timers meanwhile, and a
//! look for what is due first would walk through them: a second after some hours. So a load begins
//! at a *place*, before which the last load has seen no row, and each minute at the very beginning.
//!
//! **Invariant.** A row that no instance has loaded, and that is due before the place, is not
//! committed yet for the load that has found the place. When it is, it has the column `early`, with
//! a transaction that was running then, or is later.
//!
//! 1. What leaves a row unloaded that is due well before the time of its writing, sets `early`: a
//!    set or a move to the past, a next occurrence that is late, a dead row that is retried. So
//!    does whatever takes marks off rows, however late these are. Loads look for such rows by the
//!    transaction: those that were not visible to the last load are by a transaction that had not
//!    ended by then.
//! 2. Any other row is due after its transaction has begun to write. The place is before the
//!    snapshot of a load whose later transactions are those that have not ended: [`Place::ended`].
//!    [`MARGIN`] is for a clock that steps, and for the time between a look at the clock and the
//!    number of the transaction.
//! 3. The place is not after a row that the load has left: one that is locked, that is beyond its
//!    limit, or that has a schedule which the instance does not know.
//! 4. A place is of one connection. Where a server takes over that has other rows, connections end.
//!    It is of one course of time, too: after a step back of the clock a load begins at the
//!    beginning.
//! 5. Rows can return while connections last, by a restore in place. A load tells whether the store
//!    [still has](crate::store::Loaded::continuity) all that it has answered. After one that does
//!    not, or that cannot know, there is no place. Neither is there one after a namespace was
//!    opened: the first load of an instance has nothing to compare.
//!
//! What other programs write into the table by hand is found within a minute.
//!
//! # Marks of ended ids
//!
//! The index of marks has the same entries. An id that ends is looked up once. All marks are looked
//! through each minute, and with each load for [`LATE_MARKS`] after an instance has come or gone,
//! or rows of an ended id were seen: for so long a write may take that began before the id ended,
//! and rows may have been locked.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::Row;

/// A load begins at the beginning so often.
const WHOLE: Duration = Duration::from_secs(60);

/// So much before the earliest time at which a transaction can have written that is not visible.
const MARGIN: i64 = 5_000_000;

/// For so long marks of an id may be written after it has ended.
const LATE_MARKS: Duration = Duration::from_secs(10);

/// How many snapshots are kept. More are only needed while a transaction that writes lasts.
const SNAPSHOTS: usize = 128;

/// The beginning.
const BEGINNING: i64 = i64::MIN;

/// Where a look begins, as the statements take it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Start {
    /// The connection for which that holds.
    pub(super) backend: String,
    /// The time of the load that has found it.
    pub(super) seen: i64,
    /// The earliest deadline of waiting rows, and of those in flight.
    pub(super) waiting: i64,
    pub(super) lapsed: i64,
    /// Rows by this transaction or a later one may have come before.
    pub(super) since: String,
    /// Whether all marks are looked through.
    pub(super) is_thorough: bool,
    /// Whether it is the beginning, as each minute.
    pub(super) is_whole: bool,
}

impl Default for Start {
    fn default() -> Self {
        Start {
            backend: String::new(),
            seen: BEGINNING,
            waiting: BEGINNING,
            lapsed: BEGINNING,
            since: "0".to_owned(),
            is_thorough: true,
            is_whole: true,
        }
    }
}

/// What a load has seen.
pub(super) struct Seen {
    backend: String,
    now: i64,
    /// The oldest transaction that had not ended, and the next that would begin.
    oldest: u64,
    next: u64,
    /// The first rows that it has left.
    waiting: Option<i64>,
    lapsed: Option<i64>,
    /// The ids of instances, as a number.
    ids: i64,
    /// Whether rows of ended ids were there.
    has_ended: bool,
}

impl Seen {
    /// From the rows of the statements of a load.
    pub(super) fn new(alive: &Row, now: i64, place: &Row) -> Self {
        let transaction = |column| alive.get::<_, &str>(column).parse().unwrap_or(0);
        Seen {
            backend: alive
                .get::<_, Option<String>>("backend")
                .unwrap_or_default(),
            now,
            oldest: transaction("oldest"),
            next: transaction("next"),
            waiting: place.get(0),
            lapsed: place.get(1),
            ids: alive.get("ids"),
            has_ended: alive.get::<_, i64>("ended") > 0,
        }
    }
}

/// The place of a namespace.
#[derive(Default)]
pub(super) struct Place {
    start: Start,
    /// Of former loads: the transaction that would begin next, and the time.
    snapshots: VecDeque<(u64, i64)>,
    ids: i64,
    /// When a load has last begun at the beginning, and until when marks are looked through.
    whole: Option<Instant>,
    thorough_until: Option<Instant>,
}

impl Place {
    /// Where the next look begins.
    pub(super) fn start(&self) -> Start {
        let now = Instant::now();
        if self.whole.is_none_or(|whole| now >= whole + WHOLE) {
            return Start::default();
        }
        let mut start = self.start.clone();
        start.is_thorough = self.thorough_until.is_some_and(|until| now < until);
        start
    }

    /// A load has ended.
    pub(super) fn note(&mut self, seen: Seen) {
        let now = Instant::now();
        if self.start.backend != seen.backend || seen.now < self.start.seen {
            *self = Place::default();
        }
        if self.whole.is_none_or(|whole| now >= whole + WHOLE) {
            self.whole = Some(now);
        }
        if self.ids != seen.ids || seen.has_ended {
            self.thorough_until = Some(now + LATE_MARKS);
        }
        self.ids = seen.ids;
        let bound = self.ended(seen.oldest).map(|time| time - MARGIN);
        let place = |left: Option<i64>, old: i64| {
            let bound = bound.unwrap_or(old);
            left.map_or(bound, |left| left.min(bound))
        };
        self.start = Start {
            waiting: place(seen.waiting, self.start.waiting),
            lapsed: place(seen.lapsed, self.start.lapsed),
            backend: seen.backend,
            seen: seen.now,
            since: seen.oldest.to_string(),
            is_thorough: false,
            is_whole: false,
        };
        if self.snapshots.len() < SNAPSHOTS {
            self.snapshots.push_back((seen.next, seen.now));
        }
    }

    /// The time of the latest load such that all transactions from before it have ended, if this is
    /// the oldest that has not. Forgets those before it.
    fn ended(&mut self, oldest: u64) -> Option<i64> {
        let later = self.snapshots.partition_point(|&(next, _)| next <= oldest);
        self.snapshots.drain(..later.saturating_sub(1));
        let (next, time) = self.snapshots.front()?;
        (*next <= oldest).then_some(*time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(now: i64, oldest: u64, next: u64) -> Seen {
        Seen {
            backend: "a".to_owned(),
            now,
            oldest,
            next,
            waiting: None,
            lapsed: None,
            ids: 1,
            has_ended: false,
        }
    }

    const SECOND: i64 = 1_000_000;

    #[tokio::test(start_paused = true)]
    async fn place_follows_what_has_ended() {
        let mut place = Place::default();
        let mut note = |seen| {
            place.note(seen);
            place.start().waiting
        };
        assert_eq!(note(seen(100 * SECOND, 10, 10)), BEGINNING, "the first");
        assert_eq!(note(seen(101 * SECOND, 12, 14)), 95 * SECOND);
        // 12 lasts.
        assert_eq!(note(seen(102 * SECOND, 12, 20)), 95 * SECOND);
        assert_eq!(note(seen(103 * SECOND, 19, 22)), 96 * SECOND);
        let left = Some(50 * SECOND);
        let locked = Seen {
            waiting: left,
            ..seen(104 * SECOND, 30, 31)
        };
        assert_eq!(note(locked), 50 * SECOND, "not after a row that is left");
        assert_eq!(note(seen(105 * SECOND, 32, 33)), 99 * SECOND);
        assert_eq!(note(seen(90 * SECOND, 34, 35)), BEGINNING, "the clock");
        assert_eq!(note(seen(91 * SECOND, 36, 37)), 85 * SECOND);
        let backend = "b".to_owned();
        let elsewhere = Seen {
            backend,
            ..seen(92 * SECOND, 3, 4)
        };
        assert_eq!(note(elsewhere), BEGINNING, "another server");
    }

    #[tokio::test(start_paused = true)]
    async fn load_begins_at_the_beginning_each_minute() {
        let mut place = Place::default();
        let mut whole = 0;
        for second in 1..=300_i64 {
            whole += i32::from(place.start() == Start::default());
            let transaction = second.unsigned_abs();
            place.note(seen(second * SECOND, transaction, transaction));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        // The second one, too: no load was before it.
        assert!((5..=7).contains(&whole), "{whole}");
    }

    #[tokio::test(start_paused = true)]
    async fn marks_are_looked_through_after_an_end() {
        let mut place = Place::default();
        place.note(seen(SECOND, 1, 1));
        assert!(place.start().is_thorough, "instances have come");
        tokio::time::advance(LATE_MARKS).await;
        assert!(!place.start().is_thorough);
        let ids = 2;
        place.note(Seen {
            ids,
            ..seen(2 * SECOND, 2, 2)
        });
        assert!(place.start().is_thorough, "one has come or gone");
        tokio::time::advance(LATE_MARKS).await;
        let has_ended = true;
        place.note(Seen {
            ids,
            has_ended,
            ..seen(3 * SECOND, 3, 3)
        });
        assert!(place.start().is_thorough, "one has left marks");
    }
}
