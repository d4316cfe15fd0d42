//! When something was last active, as one word that a touch writes without a lock.
//!
//! # The word
//!
//! | | |
//! |---|---|
//! | bits 1 to 63 | the last activity, in nanoseconds from the wheel's origin, rounded *up* to a tick |
//! | bit 0 | busy: at least one guard is held |
//! | all ones | [`GONE`]: it was reaped, or is not watched any more; final |
//!
//! Rounding up makes touches cheap: one within a tick that has been recorded already finds a word that is late enough
//! and writes nothing, so cores that touch the same thing share its cache line. And it is safe: what is rounded up can
//! only be reaped later, by less than a tick.
//!
//! # Touch XOR reap
//!
//! Every change is a compare-and-exchange of the one word, so they happen in some order. [`reap`](Activity::reap)
//! changes it to [`GONE`] only from a value that is idle and not busy; a [`touch`](Activity::touch) or
//! [`enter`](Activity::enter) that comes first changes that value, the exchange fails, and what it finds then is not
//! idle. One that comes later finds [`GONE`] and says so. That needs no order among different words, so the accesses
//! are relaxed, with one exception: what was noted elsewhere before the last guard left is seen by who finds it gone.
//!
//! # Busy
//!
//! The guards are counted under a mutex of their own; the first sets the bit, the last clears it and records the
//! release as activity, in one exchange. A word is never idle between the two.

use crate::sync::SpinMutex;
use crate::sync::atomic::{AtomicU64, Ordering};

#[cfg(all(test, tickwheel_loom))]
mod model;

/// It is not watched any more.
const GONE: u64 = u64::MAX;

const BUSY: u64 = 1;

/// The latest activity there can be; 146 years from the origin, so that adding a duration cannot overflow.
pub(crate) const LATEST_NANOS: u64 = 1 << 62;

/// See the module.
#[derive(Debug)]
pub(crate) struct Activity {
    word: AtomicU64,
    guards: SpinMutex<Guards>,
    /// For whoever watches many: which of them this is. Not part of the protocol.
    pub(crate) slot: u32,
}

/// How many guards are held: three bytes, which with the mutex and the slot fill one word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Guards([u8; 3]);

impl Guards {
    fn count(self) -> u32 {
        let [a, b, c] = self.0;
        u32::from_le_bytes([a, b, c, 0])
    }

    /// `None` when that is more than three bytes count.
    fn of(count: u32) -> Option<Self> {
        let [a, b, c, 0] = count.to_le_bytes() else {
            return None;
        };
        Some(Guards([a, b, c]))
    }

    fn plus_one(self) -> Option<Self> {
        Self::of(self.count() + 1)
    }

    fn minus_one(self) -> Self {
        Self::of(self.count().saturating_sub(1)).unwrap_or_default()
    }
}

/// What an attempt to reap has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Reap {
    /// It was idle, last active then. It is gone now, and touches say so.
    Reaped(u64),
    /// It was last active then.
    Active(u64),
    /// A guard is held.
    Busy,
    /// It was gone already.
    Gone,
}

impl Activity {
    /// Last active at `nanos`.
    pub(crate) fn new(nanos: u64, tick_nanos: u64, slot: u32) -> Self {
        Activity {
            word: AtomicU64::new(round_up(nanos, tick_nanos) << 1),
            guards: SpinMutex::new(Guards::default()),
            slot,
        }
    }

    /// Records activity at `nanos`, unless later activity is recorded. False when it is gone.
    #[inline]
    pub(crate) fn touch(&self, nanos: u64, tick_nanos: u64) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        // `GONE` is later than all that can be recorded.
        if nanos <= word >> 1 {
            return word != GONE;
        }
        self.touch_later(word, nanos, tick_nanos)
    }

    /// Records activity that is later than what was found. Not inlined: there are thousands of touches to a tick.
    #[inline(never)]
    fn touch_later(&self, word: u64, nanos: u64, tick_nanos: u64) -> bool {
        self.advance(word, round_up(nanos, tick_nanos), |word| word & BUSY)
    }

    /// Takes activity back that was recorded for later than `latest`. Returns when it was last active, then.
    ///
    /// `again` is asked for `latest` once more before anything is taken back: the caller may have read the clock a
    /// while ago, and what was in the future then need not be so now. It must be asked after the word was read.
    pub(crate) fn clamp(&self, latest: u64, again: impl Fn() -> u64) -> Option<u64> {
        let mut word = self.word.load(Ordering::Relaxed);
        while word != GONE && word >> 1 > latest {
            let latest = again();
            if word >> 1 <= latest {
                break;
            }
            let clamped = (latest << 1) | (word & BUSY);
            match (self.word).compare_exchange_weak(
                word,
                clamped,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(latest),
                Err(other) => word = other,
            }
        }
        (word != GONE).then_some(word >> 1)
    }

    /// Writes later activity, with the busy bit that `busy` makes of the word.
    fn advance(&self, mut word: u64, nanos: u64, busy: impl Fn(u64) -> u64) -> bool {
        loop {
            if word == GONE {
                return false;
            }
            let next = (nanos << 1).max(word & !BUSY) | busy(word);
            let exchanged =
                (self.word).compare_exchange_weak(word, next, Ordering::Release, Ordering::Relaxed);
            match exchanged {
                Ok(_) => return true,
                Err(other) => word = other,
            }
        }
    }

    /// One more guard: busy from now on. False when it is gone, or there are too many; then no guard is held.
    pub(crate) fn enter(&self) -> bool {
        let mut guards = self.guards.lock();
        let Some(more) = guards.plus_one() else {
            return false;
        };
        let word = self.word.load(Ordering::Relaxed);
        let alive = self.advance(word, 0, |_| BUSY);
        if alive {
            *guards = more;
        }
        alive
    }

    /// One guard less; the last one's release at `nanos` counts as activity.
    pub(crate) fn leave(&self, nanos: u64, tick_nanos: u64) {
        let mut guards = self.guards.lock();
        *guards = guards.minus_one();
        let last = *guards == Guards::default();
        let word = self.word.load(Ordering::Relaxed);
        let nanos = round_up(nanos, tick_nanos);
        self.advance(word, nanos, |word| if last { 0 } else { word & BUSY });
    }

    /// When it was last active; `None` when it is gone.
    pub(crate) fn last(&self) -> Option<u64> {
        let word = self.word.load(Ordering::Relaxed);
        (word != GONE).then_some(word >> 1)
    }

    /// Whether a guard is held. Who finds that none is sees what was done before the last one left.
    pub(crate) fn is_busy(&self) -> bool {
        let word = self.word.load(Ordering::Acquire);
        word != GONE && word & BUSY != 0
    }

    /// Reaps it, if it was last active at `idle_since` or before and no guard is held.
    pub(crate) fn reap(&self, idle_since: u64) -> Reap {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word == GONE {
                return Reap::Gone;
            }
            if word & BUSY != 0 {
                return Reap::Busy;
            }
            if word >> 1 > idle_since {
                return Reap::Active(word >> 1);
            }
            match (self.word).compare_exchange_weak(
                word,
                GONE,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Reap::Reaped(word >> 1),
                Err(other) => word = other,
            }
        }
    }

    /// Ends the watching, whatever it was doing. Returns when it was last active; `None` when it was gone already.
    pub(crate) fn end(&self) -> Option<u64> {
        let word = self.word.swap(GONE, Ordering::Relaxed);
        (word != GONE).then_some(word >> 1)
    }
}

/// The first tick's begin that is not before `nanos`.
fn round_up(nanos: u64, tick_nanos: u64) -> u64 {
    let ticks = nanos.min(LATEST_NANOS).div_ceil(tick_nanos);
    ticks.saturating_mul(tick_nanos).min(LATEST_NANOS)
}

#[cfg(all(test, not(tickwheel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn activity_is_rounded_up_to_a_tick_and_never_goes_back() {
        let activity = Activity::new(0, 10, 0);
        assert!(activity.touch(11, 10));
        assert_eq!(activity.last(), Some(20));
        assert!(activity.touch(5, 10));
        assert_eq!(activity.last(), Some(20));
        assert!(activity.touch(21, 10));
        assert_eq!(activity.last(), Some(30));
    }

    #[test]
    fn what_is_far_in_the_future_is_clamped() {
        let activity = Activity::new(0, 1000, 0);
        assert!(activity.touch(u64::MAX, 1000));
        assert_eq!(activity.last(), Some(LATEST_NANOS));
        assert!(activity.touch(u64::MAX, 1000));
    }

    #[test]
    fn activity_in_the_future_can_be_taken_back_and_that_in_the_past_stays() {
        let activity = Activity::new(0, 1, 0);
        assert!(activity.touch(500, 1));
        assert_eq!(activity.clamp(200, || 200), Some(200));
        assert_eq!(activity.clamp(300, || unreachable!()), Some(200));
        assert_eq!(activity.last(), Some(200));
    }

    #[test]
    fn what_is_not_in_the_future_any_more_is_not_taken_back() {
        let activity = Activity::new(0, 1, 0);
        assert!(activity.touch(500, 1));
        assert_eq!(activity.clamp(200, || 600), Some(500));
        assert_eq!(activity.clamp(200, || 300), Some(300));
    }

    #[test]
    fn it_takes_two_words() {
        assert_eq!(size_of::<Activity>(), 16);
    }

    #[test]
    fn guards_are_counted_up_to_three_bytes_and_one_more_keeps_nothing() {
        let activity = Activity::new(0, 1, 0);
        *activity.guards.lock() = Guards::of(0xff_fffe).expect("that fits");
        assert!(activity.enter());
        assert!(!activity.enter(), "there are too many");
        activity.leave(1, 1);
        assert!(activity.enter());
        *activity.guards.lock() = Guards::of(0x100).expect("that fits");
        activity.leave(1, 1);
        assert_eq!(activity.guards.lock().count(), 0xff);
        assert!(activity.is_busy());
    }

    #[test]
    fn it_is_reaped_once_and_touches_say_so() {
        let activity = Activity::new(100, 1, 0);
        assert_eq!(activity.reap(99), Reap::Active(100));
        assert_eq!(activity.reap(100), Reap::Reaped(100));
        assert_eq!(activity.reap(100), Reap::Gone);
        assert!(!activity.touch(200, 1));
        assert!(!activity.touch(0, 1));
        assert!(!activity.enter());
        assert_eq!(activity.last(), None);
        assert_eq!(activity.end(), None);
    }

    #[test]
    fn a_guard_taken_when_it_is_gone_keeps_nothing_also_if_others_are_held() {
        let activity = Activity::new(0, 1, 0);
        assert!(activity.enter());
        assert_eq!(activity.end(), Some(0));
        assert!(!activity.enter());
        activity.leave(10, 1);
        assert_eq!(activity.last(), None);
    }

    #[test]
    fn it_is_busy_until_the_last_guard_leaves_and_idle_counts_from_there() {
        let activity = Activity::new(0, 1, 0);
        assert!(activity.enter());
        assert!(activity.enter());
        activity.leave(10, 1);
        assert_eq!(activity.reap(1000), Reap::Busy);
        activity.leave(20, 1);
        assert_eq!(activity.reap(19), Reap::Active(20));
        assert_eq!(activity.reap(20), Reap::Reaped(20));
    }
}
