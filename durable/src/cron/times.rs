//! The times of a cron expression in a zone.
//!
//! A search for the next time is bounded, because an expression may have none: its days may never
//! come, or clocks may leave out all of its times, as those of New York leave out each 2:30 of a
//! second Sunday in March.
//!
//! 1. Each kind of year, by its length and its first weekday, comes at least once in 40. An
//!    expression whose days come in none is refused before any search.
//! 2. [`Counted`] counts how often the parser looks up which instant a zone has for what clocks
//!    show. It ends a search after [`MAX_STEPS`] of them, and after [`MAX_YEARS`].

use std::cell::Cell;
use std::cmp::Ordering;

use croner::errors::CronError as ParserError;
use croner::parser::{CronParser, Seconds, Year};
use croner::time::days_in_month;
use croner::{CivilDateTime, CronDateTime, CronPattern, Resolution, Weekday};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, Zoned};

use crate::error::CronError;
use crate::store::{MAX_SCHEDULE_BYTES, StoreTime};

/// A search looks at most at so many times of day. A gap of an hour has 3,600 seconds, and no zone
/// has more than two in a year.
const MAX_STEPS: u32 = 10_000;

/// A search ends so many years after its start.
const MAX_YEARS: i32 = 100;

/// The name of each field, and how far apart its least and its greatest value are.
const FIELDS: [(&str, u16); 6] = [
    ("second", 59),
    ("minute", 59),
    ("hour", 23),
    ("day of the month", 30),
    ("month", 11),
    ("day of the week", 6),
];

/// The zone of a system that has none.
const NO_PLACE: &str = "Factory";

/// A cron expression in a time zone.
#[derive(Debug)]
pub(crate) struct Cron {
    expression: croner::Cron,
    zone: TimeZone,
}

impl Cron {
    pub(crate) fn new(expression: &str, zone: &str) -> Result<Self, CronError> {
        let len = expression.len() + 1 + zone.len();
        if len > MAX_SCHEDULE_BYTES {
            let max = MAX_SCHEDULE_BYTES;
            return Err(CronError::TooLong { len, max });
        }
        let parsed = parse(expression);
        let parsed = parsed.map_err(|reason| CronError::Expression {
            expression: expression.to_owned(),
            reason,
        })?;
        // Only the zones of this crate, whatever else the program has: all instances of a build
        // agree.
        let found = TimeZoneDatabase::bundled().get(zone);
        let found = found.ok().filter(|_| !zone.eq_ignore_ascii_case(NO_PLACE));
        let Some(found) = found else {
            let zone = zone.to_owned();
            return Err(CronError::Zone { zone });
        };
        if !has_days(&parsed.pattern) {
            let expression = expression.to_owned();
            return Err(CronError::NeverOccurs { expression });
        }
        Ok(Cron {
            expression: parsed,
            zone: found,
        })
    }

    /// The text of a schedule, and its first time after `now`.
    pub(crate) fn first(
        expression: &str,
        zone: &str,
        now: StoreTime,
    ) -> Result<(String, StoreTime), CronError> {
        let words: Vec<_> = expression.split_whitespace().collect();
        let expression = words.join(" ");
        let cron = Cron::new(&expression, zone)?;
        match cron.after(now) {
            Some(first) => Ok((format!("{expression} {zone}"), first)),
            None => Err(CronError::NeverOccurs { expression }),
        }
    }

    /// Reads the text of a schedule: the expression, and after a space the zone.
    pub(crate) fn read(schedule: &str) -> Result<Self, CronError> {
        let (expression, zone) = schedule.rsplit_once(' ').unwrap_or(("", schedule));
        Cron::new(expression, zone)
    }

    /// The first time after another; `None` if a bounded search finds none, or none before
    /// [`StoreTime::NEVER`].
    pub(crate) fn after(&self, time: StoreTime) -> Option<StoreTime> {
        self.search(time).0
    }

    /// The first time after another, and how many steps it took to find it.
    fn search(&self, time: StoreTime) -> (Option<StoreTime>, u32) {
        let steps = Cell::new(0);
        let found = || {
            let second = Timestamp::from_second(time.as_micros() / 1_000_000).ok()?;
            let start = Counted::new(second.to_zoned(self.zone.clone()), &steps);
            let next = self.expression.find_next_occurrence(&start, false).ok()?;
            let next = StoreTime::from_micros(next.time.timestamp().as_microsecond());
            Some(next).filter(|next| !next.is_never())
        };
        (found(), steps.get())
    }
}

/// Parses an expression. Refuses what the parser passes over: an empty item of a list, and a step
/// from which no second value follows.
fn parse(expression: &str) -> Result<croner::Cron, String> {
    let words: Vec<_> = expression.split_whitespace().collect();
    let fields = FIELDS.iter().skip(FIELDS.len().saturating_sub(words.len()));
    for (&(name, span), word) in fields.zip(&words) {
        for item in word.split(',') {
            let step = item.split_once('/').map(|(_, step)| step.parse::<u16>());
            if item.is_empty() {
                return Err(format!("the {name} has an empty item: {word:?}"));
            }
            if matches!(step, Some(Ok(step)) if step > span) {
                return Err(format!(
                    "the {name} has a step of more than {span}: {word:?}"
                ));
            }
        }
    }
    // As Vixie cron has it: where a day begins with a star, it does not stand alone.
    let has_star = |word: &&str| word.len() > 1 && word.starts_with(['*', '?']);
    let days = words.iter().rev().step_by(2).take(2);
    let parser = CronParser::builder()
        .seconds(Seconds::Optional)
        // Its years end, and then there is no next deadline.
        .year(Year::Disallowed)
        .dom_and_dow(days.copied().any(|word| has_star(&word)))
        .build();
    parser.parse(expression).map_err(|error| error.to_string())
}

/// Whether any day fits. These 28 years are one of each kind at least.
fn has_days(pattern: &CronPattern) -> bool {
    // The first of January 2001.
    let mut weekday = Weekday::Monday;
    let mut fits = |year, month| {
        let is_month = matches!(pattern.month_match(month), Ok(true));
        (1..=days_in_month(year, month)).any(|day| {
            let today = weekday;
            weekday = weekday.shift(1);
            is_month && matches!(pattern.day_match(year, month, day, today), Ok(true))
        })
    };
    (2001..2029).any(|year| (1..=12).any(|month| fits(year, month)))
}

/// A time that a search has come to, and how many steps the search has made.
#[derive(Clone)]
struct Counted<'a> {
    time: Zoned,
    last_year: i32,
    steps: &'a Cell<u32>,
}

impl<'a> Counted<'a> {
    fn new(time: Zoned, steps: &'a Cell<u32>) -> Self {
        Counted {
            last_year: i32::from(time.year()) + MAX_YEARS,
            time,
            steps,
        }
    }

    fn at(&self, time: Zoned) -> Self {
        Counted { time, ..*self }
    }
}

impl CronDateTime for Counted<'_> {
    fn to_civil(&self) -> CivilDateTime {
        self.time.to_civil()
    }

    fn civil_weekday(&self) -> Weekday {
        self.time.civil_weekday()
    }

    fn resolve_civil(&self, civil: CivilDateTime) -> Result<Resolution<Self>, ParserError> {
        if self.steps.get() == MAX_STEPS || civil.year() > self.last_year {
            return Err(ParserError::TimeSearchLimitExceeded);
        }
        self.steps.set(self.steps.get() + 1);
        Ok(match self.time.resolve_civil(civil)? {
            Resolution::Single(time) => Resolution::Single(self.at(time)),
            Resolution::Ambiguous(earlier, later) => {
                Resolution::Ambiguous(self.at(earlier), self.at(later))
            }
            Resolution::Gap => Resolution::Gap,
        })
    }

    fn checked_add_seconds(&self, seconds: i64) -> Option<Self> {
        let time = CronDateTime::checked_add_seconds(&self.time, seconds);
        time.map(|time| self.at(time))
    }

    fn cmp_instant(&self, other: &Self) -> Ordering {
        self.time.cmp_instant(&other.time)
    }
}

#[cfg(test)]
mod tests;
