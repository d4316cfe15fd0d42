//! Without the feature `cron` no schedule can be read.

use crate::error::CronError;
use crate::store::StoreTime;

#[derive(Debug)]
pub(crate) enum Cron {}

impl Cron {
    pub(crate) fn read(schedule: &str) -> Result<Self, CronError> {
        let (expression, reason) = (schedule.into(), "the feature `cron` is off".into());
        Err(CronError::Expression { expression, reason })
    }

    pub(crate) fn after(&self, _: StoreTime) -> Option<StoreTime> {
        match *self {}
    }
}
