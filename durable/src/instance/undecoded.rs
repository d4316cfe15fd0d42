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

/// With more timers than this, those that are not known yet die at once.
const MAX_KNOWN: usize = 100_000;

/// A pause is this part of the whole time at most.
const PARTS: u32 = 8;

/// The timers that this instance has failed to decode.
#[derive(Default)]
pub(crate) struct Undecoded {
    timers: Mutex<HashMap<u64, Failed>>,
}

/// When the instance failed first, and how often it has.
struct Failed {
    first: Instant,
    times: u32,
}

/// What becomes of a timer that does not decode.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is left to others, due after this pause.
    Leave(Duration),
    /// No instance decodes it.
    Dies,
}

impl Undecoded {
    /// Decides about a timer that has fired and does not decode.
    pub(crate) fn judge(&self, fired: &Fired, settings: &Settings) -> Verdict {
        let (left_for, now) = (settings.left_for(), Instant::now());
        let mut name = DefaultHasher::new();
        (&fired.key, &fired.value, fired.deadline).hash(&mut name);
        let mut timers = lock(&self.timers);
        if timers.len() >= MAX_KNOWN {
            timers.retain(|_, failed| now - failed.first < 2 * left_for);
        }
        let is_full = timers.len() >= MAX_KNOWN;
        match timers.entry(name.finish()) {
            Entry::Vacant(_) if is_full => Verdict::Dies,
            Entry::Vacant(vacant) => {
                vacant.insert(Failed {
                    first: now,
                    times: 1,
                });
                Verdict::Leave(Duration::ZERO)
            }
            Entry::Occupied(known) if now - known.get().first >= left_for => {
                known.remove();
                Verdict::Dies
            }
            Entry::Occupied(mut known) => {
                let longest = (left_for / PARTS).max(settings.poll);
                let doubled = 1_u32.checked_shl(known.get().times - 1);
                let pause = settings.poll.saturating_mul(doubled.unwrap_or(u32::MAX));
                known.get_mut().times += 1;
                Verdict::Leave(pause.min(longest))
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
            match undecoded.judge(&fired(token, "v", 1), &settings) {
                Verdict::Leave(pause) => pauses.push(pause.as_millis()),
                Verdict::Dies => break,
            }
            tokio::time::advance(Duration::from_secs(5)).await;
        }
        assert_eq!(began.elapsed(), settings.left_for());
        assert_eq!(pauses[..6], [0, 1_000, 2_000, 4_000, 7_500, 7_500]);
        // One that comes back from the dead is tried again.
        let again = undecoded.judge(&fired(99, "v", 1), &settings);
        assert_eq!(again, Verdict::Leave(Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn set_timer_and_next_occurrence_are_other_timers() {
        let (undecoded, settings) = (Undecoded::default(), Settings::default());
        undecoded.judge(&fired(1, "v", 1), &settings);
        tokio::time::advance(settings.left_for()).await;
        for other in [fired(2, "w", 1), fired(3, "v", 2)] {
            let verdict = undecoded.judge(&other, &settings);
            assert_eq!(verdict, Verdict::Leave(Duration::ZERO));
        }
        assert_eq!(undecoded.judge(&fired(4, "v", 1), &settings), Verdict::Dies);
    }
}
