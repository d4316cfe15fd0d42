//! Without the feature `cron` no schedule can be read.

use crate::error::CronError;
use crate::store::StoreTime;

/// What a call needs that sets a timer by a cron expression. Nothing has it.
#[allow(unreachable_pub)] // it is a bound of public methods
#[diagnostic::on_unimplemented(
    message = "timers with cron expressions need the feature `cron` of `tickwheel-durable`",
    label = "the feature `cron` is off",
    note = "cargo add tickwheel-durable --features cron"
)]
pub trait FeatureCron {
    fn is_off<T>(&self) -> T;
}

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
