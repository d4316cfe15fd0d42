//! The settings of an instance, and their bounds.

use std::fmt;
use std::time::Duration;

use crate::backoff::Backoff;
use crate::error::BuildError;
use crate::store::Missed;

/// The settings of [`Builder`](crate::Builder).
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) window: Duration,
    pub(crate) lease: Duration,
    pub(crate) capacity: usize,
    pub(crate) missed: Missed,
    pub(crate) no_overlap: bool,
    pub(crate) poll: Duration,
    pub(crate) call_timeout: Duration,
    pub(crate) at_most_once: bool,
    pub(crate) handler_timeout: Option<Duration>,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) backoff: Backoff,
    pub(crate) keep_dead: Duration,
    /// The name for operators.
    pub(crate) name: Option<String>,
}

const MILLI: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(86_400);
const CAPACITY: [usize; 2] = [1, 1_000_000];
const ATTEMPTS: [u32; 2] = [1, 1_000_000];

/// An instance counts as dead when its last load is this many polls old.
const POLLS_ALIVE: u32 = 3;

/// The longest pause between two sweeps of dead timers.
const MAX_SWEEP: Duration = Duration::from_secs(3_600);

/// An instance has at most this many times its capacity loaded, and a few at least.
const LOADED_PER_CAPACITY: usize = 16;
const LOADED_AT_LEAST: usize = 1024;

impl Default for Settings {
    fn default() -> Self {
        Settings {
            window: Duration::from_secs(30),
            lease: Duration::from_secs(60),
            capacity: 1024,
            missed: Missed::default(),
            no_overlap: false,
            poll: Duration::from_secs(1),
            call_timeout: Duration::from_secs(5),
            at_most_once: false,
            handler_timeout: None,
            max_attempts: Some(25),
            backoff: Backoff::default(),
            keep_dead: 7 * DAY,
            name: None,
        }
    }
}

impl Settings {
    pub(crate) fn check(&self) -> Result<(), BuildError> {
        within("poll interval", self.poll, [10 * MILLI, DAY])?;
        // Rows would fall due between two polls.
        within("window", self.window, [2 * self.poll, 30 * DAY])?;
        within("lease", self.lease, [10 * MILLI, 30 * DAY])?;
        within("call timeout", self.call_timeout, [MILLI, DAY])?;
        if let Some(timeout) = self.handler_timeout {
            within("handler timeout", timeout, [MILLI, 30 * DAY])?;
        }
        within(
            "time for which dead timers are kept",
            self.keep_dead,
            [1_000 * MILLI, 3_650 * DAY],
        )?;
        if let Some(attempts) = self.max_attempts {
            within("number of attempts", attempts, ATTEMPTS)?;
        }
        within("capacity", self.capacity, CAPACITY)
    }

    /// Those of one of so many parts: it has its share of the capacity, which is one at least.
    pub(crate) fn of_part(&self, part: usize, parts: usize) -> Self {
        let one_more = usize::from(part < self.capacity % parts);
        Settings {
            capacity: (self.capacity / parts + one_more).max(1),
            ..self.clone()
        }
    }

    /// How long after its last load an instance counts as alive.
    pub(crate) fn alive(&self) -> Duration {
        self.poll * POLLS_ALIVE
    }

    /// How long a timer that does not decode here is left to other instances, before it dies: a
    /// lease, or some polls.
    pub(crate) fn left_for(&self) -> Duration {
        self.lease.max(self.alive())
    }

    /// How long a row that is due here waits for the program before other instances may have it.
    pub(crate) fn overdue_after(&self) -> Duration {
        self.poll / 2
    }

    /// How often an instance discards timers that died long ago.
    pub(crate) fn sweep(&self) -> Duration {
        (self.keep_dead / 8).clamp(1_000 * MILLI, MAX_SWEEP)
    }

    /// How many rows an instance has loaded at most.
    pub(crate) fn max_loaded(&self) -> usize {
        (self.capacity * LOADED_PER_CAPACITY).max(LOADED_AT_LEAST)
    }
}

fn within<T: Copy + PartialOrd + fmt::Debug>(
    setting: &'static str,
    value: T,
    [min, max]: [T; 2],
) -> Result<(), BuildError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(BuildError::Setting {
        setting,
        value: format!("{value:?}"),
        bounds: format!("{min:?} to {max:?}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The documentation of [`Builder`](crate::Builder) names these, too.
    #[test]
    fn bounds_are_those_that_are_documented() {
        type Change = fn(&mut Settings, Duration);
        let bounds: [(Change, [Duration; 2]); 6] = [
            (|s, time| s.window = time, [2_000 * MILLI, 30 * DAY]),
            (|s, time| s.lease = time, [10 * MILLI, 30 * DAY]),
            (
                |s, time| (s.poll, s.window) = (time, (2 * time).max(MILLI * 20)),
                [10 * MILLI, DAY],
            ),
            (|s, time| s.call_timeout = time, [MILLI, DAY]),
            (|s, time| s.handler_timeout = Some(time), [MILLI, 30 * DAY]),
            (
                |s, time| s.keep_dead = time,
                [1_000 * MILLI, 10 * 365 * DAY],
            ),
        ];
        let nano = Duration::from_nanos(1);
        for (change, [least, most]) in bounds {
            for (time, fits) in [
                (least.saturating_sub(nano), false),
                (least, true),
                (most, true),
                (most + nano, false),
            ] {
                let mut settings = Settings::default();
                change(&mut settings, time);
                assert_eq!(settings.check().is_ok(), fits, "{settings:?}");
            }
        }
        for (capacity, attempts, fits) in [
            (0, 1, false),
            (1, 0, false),
            (1, 1, true),
            (1_000_000, 1_000_000, true),
            (1_000_001, 1_000_000, false),
            (1_000_000, 1_000_001, false),
        ] {
            let settings = Settings {
                capacity,
                max_attempts: Some(attempts),
                ..Settings::default()
            };
            assert_eq!(settings.check().is_ok(), fits, "{settings:?}");
        }
    }

    /// The documentation of [`Builder`](crate::Builder) names them.
    #[test]
    fn defaults_are_those_that_are_documented() {
        let Settings {
            window,
            lease,
            capacity,
            missed,
            no_overlap,
            poll,
            call_timeout,
            at_most_once,
            handler_timeout,
            max_attempts,
            backoff,
            keep_dead,
            name,
        } = Settings::default();
        let times = [window, lease, poll, call_timeout, keep_dead];
        assert_eq!(
            times.map(|time| time.as_secs()),
            [30, 60, 1, 5, 7 * 24 * 3_600]
        );
        assert_eq!((capacity, max_attempts), (1024, Some(25)));
        assert_eq!((missed, no_overlap), (Missed::FireOnce, false));
        assert_eq!((at_most_once, handler_timeout, name), (false, None, None));
        let (backoff, exponential) = (format!("{backoff:?}"), Backoff::exponential());
        assert_eq!(backoff, format!("{exponential:?}"));
    }
}
