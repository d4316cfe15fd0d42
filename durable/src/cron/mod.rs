//! Schedules: a cron expression and the time zone it is about, as one text.

#[cfg(not(feature = "cron"))]
mod none;
#[cfg(feature = "cron")]
mod times;

#[cfg(not(feature = "cron"))]
pub(crate) use none::{Cron, FeatureCron};
#[cfg(feature = "cron")]
pub(crate) use times::Cron;
