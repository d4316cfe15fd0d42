//! Claims that this instance could not decode, and whether it leaves their timers to others or
//! gives them up.
//!
//! During a roll-out another instance may know what this one does not. So the instance puts such a
//! timer back for [others](crate::store::LeftRow), without counting an attempt, and does not load
//! it itself. It has the timer again when no other instance has taken it for [a
//! time](crate::settings::Settings::left_for), or when another one has left it, too.
//!
//! 1. A timer dies here once this instance has known for that time that it cannot decode it. So a
//!    timer that no instance can decode dies, but not before each of them has tried it.
//! 2. Instances that leave a timer to each other do so with growing pauses.
//! 3. A timer is known by its key, its value and its deadline, which a put-back keeps. So one that
//!    was set again is another timer, and so is the next occurrence of one that repeats.

use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::hash::{Hash, Hasher};
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock;
use crate::settings::Settings;
use crate::store::Fired;

/// With so many timers, those that are not known yet are left to others with the longest pause,
/// until there is room for them.
const MAX_KNOWN: usize = 100_000;

/// While there is no room, timers that another instance has taken are looked for this often.
const SWEEP: Duration = Duration::from_secs(1);

/// The longest pause is the whole time divided by this.
const LEAST_PAUSES: u32 = 8;

/// The timers that this instance has failed to decode.
#[derive(Default)]
pub(crate) struct Undecoded {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    timers: HashMap<u64, Failed>,
    /// When those that have not come back were last looked for.
    swept: Option<Instant>,
}

/// When the instance failed first, and how often it has.
struct Failed {
    first: Instant,
    times: u32,
}

impl Known {
    /// Whether there is no room for another timer. Forgets those that others have taken.
    fn is_full(&mut self, now: Instant, left_for: Duration) -> bool {
        let is_full = self.timers.len() >= MAX_KNOWN;
        if !is_full || self.swept.is_some_and(|swept| now - swept < SWEEP) {
            return is_full;
        }
        self.swept = Some(now);
        self.timers
            .retain(|_, failed| now - failed.first < 2 * left_for);
        self.timers.len() >= MAX_KNOWN
    }
}

impl Undecoded {
    /// Decides about a timer that has fired and does not decode. Returns the pause with which it is
    /// left to others. `None` if no instance decodes it: it dies.
    pub(crate) fn judge(&self, fired: &Fired, settings: &Settings) -> Option<Duration> {
        let (left_for, now) = (settings.left_for(), Instant::now());
        let longest = (left_for / LEAST_PAUSES).max(settings.poll);
        let mut name = DefaultHasher::new();
        (&fired.key, &fired.value, fired.deadline).hash(&mut name);
        let mut known = lock(&self.known);
        let is_full = known.is_full(now, left_for);
        match known.timers.entry(name.finish()) {
            Entry::Vacant(_) if is_full => Some(longest),
            Entry::Vacant(vacant) => {
                vacant.insert(Failed {
                    first: now,
                    times: 1,
                });
                Some(Duration::ZERO)
            }
            Entry::Occupied(failed) if now - failed.get().first >= left_for => {
                failed.remove();
                None
            }
            Entry::Occupied(mut failed) => {
                let doubled = 2_u32.saturating_pow(failed.get().times - 1);
                failed.get_mut().times += 1;
                Some(settings.poll.saturating_mul(doubled).min(longest))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{StoreTime, Version};

    fn fired(token: i64, value: &str, deadline: i64) -> Fired {
        let deadline = StoreTime::from_micros(deadline);
        Fired {
            token: Version(token),
            key: b"key".into(),
            value: value.into(),
            deadline,
            attempt: 1,
            missed: 0,
            repeats: false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn timer_is_left_with_growing_pauses_and_dies_in_the_end() {
        let (undecoded, settings) = (Undecoded::default(), Settings::default());
        let mut pauses = Vec::new();
        let began = Instant::now();
        for token in 1.. {
            let Some(pause) = undecoded.judge(&fired(token, "v", 1), &settings) else {
                break;
            };
            pauses.push(pause.as_millis());
            tokio::time::advance(Duration::from_secs(5)).await;
        }
        assert_eq!(began.elapsed(), settings.left_for());
        assert_eq!(pauses[..6], [0, 1_000, 2_000, 4_000, 7_500, 7_500]);
        // One that comes back from the dead is tried again.
        let again = undecoded.judge(&fired(99, "v", 1), &settings);
        assert_eq!(again, Some(Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn set_timer_and_next_occurrence_are_other_timers() {
        let (undecoded, settings) = (Undecoded::default(), Settings::default());
        undecoded.judge(&fired(1, "v", 1), &settings);
        tokio::time::advance(settings.left_for()).await;
        let mut of_another_key = fired(5, "v", 1);
        of_another_key.key = b"other".into();
        for other in [fired(2, "w", 1), fired(3, "v", 2), of_another_key] {
            let verdict = undecoded.judge(&other, &settings);
            assert_eq!(verdict, Some(Duration::ZERO));
        }
        assert_eq!(undecoded.judge(&fired(4, "v", 1), &settings), None);
    }

    /// They died at once: an instance of an earlier version killed good timers of a later one.
    #[tokio::test(start_paused = true)]
    async fn timer_beyond_those_that_are_known_is_left_to_others() {
        let (undecoded, settings) = (Undecoded::default(), Settings::default());
        let judge = |deadline| undecoded.judge(&fired(1, "v", deadline), &settings);
        for deadline in (2..).take(MAX_KNOWN) {
            assert_eq!(judge(deadline), Some(Duration::ZERO));
        }
        let longest = settings.left_for() / LEAST_PAUSES;
        assert_eq!(judge(0), Some(longest));
        tokio::time::advance(settings.left_for()).await;
        assert_eq!(judge(0), Some(longest));
        assert_eq!(judge(2), None);
        assert_eq!(judge(0), Some(Duration::ZERO), "there is room for it");
        assert_eq!(judge(1), Some(longest));
        // The others have been taken by another instance.
        tokio::time::advance(settings.left_for()).await;
        assert_eq!(judge(1), Some(Duration::ZERO));
        assert_eq!(lock(&undecoded.known).timers.len(), 2);
    }
}
