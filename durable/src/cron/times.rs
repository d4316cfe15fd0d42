//! The times of a cron expression in a zone.

use croner::parser::{CronParser, Seconds, Year};
use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::error::CronError;
use crate::store::{MAX_SCHEDULE_BYTES, StoreTime};

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
        // Its years end, and then there is no next deadline.
        let parser = CronParser::builder()
            .seconds(Seconds::Optional)
            .year(Year::Disallowed)
            .build();
        let parsed = parser.parse(expression);
        let expression = parsed.map_err(|error| CronError::Expression {
            expression: expression.to_owned(),
            reason: error.to_string(),
        })?;
        // Only the zones of this crate, whatever else the program has: all instances of a build
        // agree.
        let found = TimeZoneDatabase::bundled().get(zone);
        let Ok(zone) = found else {
            let zone = zone.to_owned();
            return Err(CronError::Zone { zone });
        };
        Ok(Cron { expression, zone })
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

    /// The first time after another; `None` if there is none before [`StoreTime::NEVER`].
    pub(crate) fn after(&self, time: StoreTime) -> Option<StoreTime> {
        let second = Timestamp::from_second(time.as_micros() / 1_000_000).ok()?;
        let start = second.to_zoned(self.zone.clone());
        let next = self.expression.find_next_occurrence(&start, false).ok()?;
        let next = StoreTime::from_micros(next.timestamp().as_microsecond());
        Some(next).filter(|next| !next.is_never())
    }
}

#[cfg(test)]
mod tests;
