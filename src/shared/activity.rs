//! The last activity of a timer, stream or watch: one word that touches write without a lock.
//!
//! # The word
//!
//! | bits | meaning |
//! |---|---|
//! | 63 | [`GONE`]: decided to be idle, or the watch ended otherwise |
//! | 1 to 62 | the last activity, in nanoseconds from the wheel's origin, rounded *up* to a tick |
//! | 0 | [`BUSY`]: at least one guard is held |
//!
//! Rounding up makes touches cheap. A touch is one load if the current tick is recorded already, so
//! threads that touch the same word share its cache line; the first touch of a tick is a
//! compare-and-exchange loop. Rounding up is also safe: it delays the end of an idle duration by
//! less than a tick and never brings it forward.
//!
//! # Touched or idle, never both
//!
//! Four kinds of threads use the word: those that [`touch`](Activity::touch) it, those that hold
//! guards ([`enter`](Activity::enter), [`leave`](Activity::leave)), the one that decides
//! ([`reap_if`](Activity::reap_if)), and the owner ([`end`](Activity::end),
//! [`revive`](Activity::revive)).
//!
//! 1. Every change but the owner's is one successful compare-and-exchange of the word, so changes
//!    are totally ordered.
//! 2. `reap_if` sets [`GONE`] only in a word that is not busy and whose activity is long ago.
//! 3. Only `revive` changes a word that is gone: `touch`, `enter`, `leave` and `clamp` leave it
//!    alone. So it keeps the last activity that counted.
//! 4. `touch` and `enter` return `true` only if the word was not gone when they took effect.
//! 5. The recorded activity never decreases, except by `clamp` (which takes activity in the future
//!    back) and `revive`.
//! 6. In a word that is not gone, [`BUSY`] is set if and only if the number of guards is above
//!    zero.
//!
//! From 1 to 4: a touch or guard that returns `true` comes before the decision, which then finds a
//! word that is busy or active later, or it comes after `revive`. One that comes between the
//! decision and `revive` returns `false`.
//!
//! The word orders nothing but itself, so accesses are relaxed, except that observing zero guards
//! in [`is_busy`](Activity::is_busy) happens after every write made before the last guard dropped.
//!
//! # Guards
//!
//! A mutex of their own counts the guards. The first guard sets the bit; the last one clears it and
//! records its release as activity, in one exchange, so the word is never idle between the two.
//!
//! The loom models beside this file hold the invariants for up to four threads.

use std::sync::atomic::AtomicU32;

use crate::sync::SpinMutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::tick::{LATEST_NANOS, round_up_to_tick};

#[cfg(all(test, tickwheel_loom))]
mod model;

/// Set by the decision, or by the end of a watch.
const GONE: u64 = 1 << 63;

const BUSY: u64 = 1;

/// The activity in a word.
fn nanos_of(word: u64) -> u64 {
    (word & !GONE) >> 1
}

fn is_gone(word: u64) -> bool {
    word >= GONE
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Activity {
    word: AtomicU64,
    guards: SpinMutex<Guards>,
    /// That of a watch in its set, once it has one. Not part of the protocol.
    pub(crate) index: AtomicU32,
}

/// The number of guards: three bytes, which together with the mutex and the index fill one word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Guards([u8; 3]);

impl Guards {
    fn count(self) -> u32 {
        let [a, b, c] = self.0;
        u32::from_le_bytes([a, b, c, 0])
    }

    /// `None` if three bytes cannot hold the count.
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

/// The latest activity that counts at `now` for a limit: one limit ahead.
pub(crate) fn latest_counted(now: u64, limit: u64) -> u64 {
    now.saturating_add(limit).min(LATEST_NANOS)
}

/// The outcome of an attempt to decide that something is idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Reap {
    /// It is idle, and was last active then. Touches return `false` from now on.
    Reaped(u64),
    /// It was last active then, which is too recent.
    Active(u64),
    /// A guard is held.
    Busy,
    /// The decision was made before.
    Gone,
}

impl Activity {
    /// An activity that was last recorded at `nanos`.
    pub(crate) fn new(nanos: u64, tick_nanos: u64) -> Self {
        Activity {
            word: AtomicU64::new(round_up_to_tick(nanos, tick_nanos) << 1),
            guards: SpinMutex::new(Guards::default()),
            index: AtomicU32::new(0),
        }
    }

    /// Records activity at `nanos`, unless later activity is recorded. Returns `false` if it is
    /// gone.
    #[inline]
    pub(crate) fn touch(&self, nanos: u64, tick_nanos: u64) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        // A word that is gone is later than every instant that can be recorded.
        if nanos <= word >> 1 {
            return !is_gone(word);
        }
        self.touch_later(word, nanos, tick_nanos)
    }

    /// Records activity later than `word`. Not inlined: a tick sees thousands of touches and one of
    /// these.
    #[inline(never)]
    fn touch_later(&self, word: u64, nanos: u64, tick_nanos: u64) -> bool {
        self.advance(word, round_up_to_tick(nanos, tick_nanos), |word| {
            word & BUSY
        })
    }

    /// The last activity that counts at `now` for a limit: `now` while a guard is held, and the
    /// [latest](latest_counted) at most. `None` if gone. `read_now` reads the time again.
    pub(crate) fn last_counted(
        &self,
        now: u64,
        limit: u64,
        read_now: impl Fn() -> u64,
    ) -> Option<u64> {
        if self.is_busy() {
            return Some(now);
        }
        self.clamp(latest_counted(now, limit), || {
            latest_counted(read_now(), limit)
        })
    }

    /// Lowers activity that was recorded for later than `latest`. Returns the last activity; `None`
    /// if gone.
    ///
    /// `again` reads `latest` again before anything is lowered: the caller may have read the clock
    /// a while ago, and activity that was in the future then need not be so now. It is called after
    /// the word was loaded.
    pub(crate) fn clamp(&self, latest: u64, again: impl Fn() -> u64) -> Option<u64> {
        let mut word = self.word.load(Ordering::Relaxed);
        while !is_gone(word) && nanos_of(word) > latest {
            let latest = again();
            if nanos_of(word) <= latest {
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
        (!is_gone(word)).then_some(nanos_of(word))
    }

    /// Records activity at `nanos` with the busy bit that `busy` derives from the current word.
    /// Returns `false` if gone.
    fn advance(&self, mut word: u64, nanos: u64, busy: impl Fn(u64) -> u64) -> bool {
        loop {
            if is_gone(word) {
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

    /// Adds a guard: busy from now on. Returns `false`, and adds none, if it is gone or there are
    /// too many.
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

    /// Removes a guard and records its release at `nanos` as activity.
    pub(crate) fn leave(&self, nanos: u64, tick_nanos: u64) {
        let mut guards = self.guards.lock();
        *guards = guards.minus_one();
        let last = *guards == Guards::default();
        let word = self.word.load(Ordering::Relaxed);
        let nanos = round_up_to_tick(nanos, tick_nanos);
        self.advance(word, nanos, |word| if last { 0 } else { word & BUSY });
    }

    /// The last activity, also once it is gone.
    pub(crate) fn last(&self) -> u64 {
        nanos_of(self.word.load(Ordering::Relaxed))
    }

    pub(crate) fn is_gone(&self) -> bool {
        is_gone(self.word.load(Ordering::Relaxed))
    }

    /// Whether a guard is held. Observing that none is happens after every write made before the
    /// last one dropped.
    pub(crate) fn is_busy(&self) -> bool {
        let word = self.word.load(Ordering::Acquire);
        !is_gone(word) && word & BUSY != 0
    }

    /// Decides that it is idle, if its last activity was at `idle_since` or before and no guard is
    /// held.
    #[cfg(test)]
    pub(crate) fn reap(&self, idle_since: u64) -> Reap {
        self.reap_if(|last| last <= idle_since)
    }

    /// Decides that it is idle, if `is_over` says so of its last activity and no guard is held.
    pub(crate) fn reap_if(&self, is_over: impl Fn(u64) -> bool) -> Reap {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if is_gone(word) {
                return Reap::Gone;
            }
            if word & BUSY != 0 {
                return Reap::Busy;
            }
            let last = nanos_of(word);
            if !is_over(last) {
                return Reap::Active(last);
            }
            match (self.word).compare_exchange_weak(
                word,
                word | GONE,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Reap::Reaped(last),
                Err(other) => word = other,
            }
        }
    }

    /// Makes it active at `nanos` after [`reap_if`](Self::reap_if) decided that it was idle. Only
    /// its owner may call this.
    pub(crate) fn revive(&self, nanos: u64, tick_nanos: u64) {
        let word = round_up_to_tick(nanos, tick_nanos) << 1;
        let was = self.word.swap(word, Ordering::Relaxed);
        // By invariant 3 no other thread writes a word that is gone, and by 2 no guard was held.
        debug_assert!(is_gone(was), "revived without being idle");
    }

    /// Ends it, in any state. Returns the last activity; `None` if it was gone already.
    pub(crate) fn end(&self) -> Option<u64> {
        let word = self.word.fetch_or(GONE, Ordering::Relaxed);
        (!is_gone(word)).then_some(nanos_of(word))
    }
}

#[cfg(all(test, not(tickwheel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn rounds_activity_up_to_tick_and_never_goes_back() {
        let activity = Activity::new(0, 10);
        assert!(activity.touch(11, 10));
        assert_eq!(activity.last(), 20);
        assert!(activity.touch(5, 10));
        assert_eq!(activity.last(), 20);
        assert!(activity.touch(21, 10));
        assert_eq!(activity.last(), 30);
        assert_eq!(Activity::new(11, 10).last(), 20);
        assert!(activity.enter());
        activity.leave(31, 10);
        assert_eq!(activity.last(), 40);
    }

    #[test]
    fn limits_activity_far_in_the_future() {
        let activity = Activity::new(0, 1000);
        assert!(activity.touch(u64::MAX, 1000));
        assert_eq!(activity.last(), LATEST_NANOS);
        assert!(activity.touch(u64::MAX, 1000));
    }

    #[test]
    fn clamp_takes_back_future_activity_only() {
        let activity = Activity::new(0, 1);
        assert!(activity.touch(500, 1));
        assert_eq!(activity.clamp(200, || 200), Some(200));
        assert_eq!(activity.clamp(300, || unreachable!()), Some(200));
        assert_eq!(activity.last(), 200);
    }

    #[test]
    fn clamp_reads_clock_again_before_taking_back() {
        let activity = Activity::new(0, 1);
        assert!(activity.touch(500, 1));
        assert_eq!(activity.clamp(200, || 600), Some(500));
        assert_eq!(activity.clamp(200, || 300), Some(300));
    }

    #[test]
    fn takes_two_words() {
        assert_eq!(size_of::<Activity>(), 16);
    }

    #[test]
    fn counts_guards_up_to_three_bytes() {
        let activity = Activity::new(0, 1);
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
    fn is_reaped_once_and_refuses_touches_after() {
        let activity = Activity::new(100, 1);
        assert_eq!(activity.reap(99), Reap::Active(100));
        assert_eq!(activity.reap(100), Reap::Reaped(100));
        assert_eq!(activity.reap(100), Reap::Gone);
        assert!(!activity.touch(200, 1));
        assert!(!activity.touch(0, 1));
        assert!(!activity.enter());
        assert!(!activity.is_busy());
        assert!(activity.is_gone());
        assert_eq!(activity.last(), 100, "the last that counted");
        assert_eq!(activity.end(), None);
    }

    #[test]
    fn revives_at_given_instant() {
        let activity = Activity::new(100, 10);
        assert_eq!(activity.reap(100), Reap::Reaped(100));
        activity.revive(201, 10);
        assert_eq!(activity.last(), 210);
        assert!(activity.touch(150, 10), "earlier, but it is not gone");
        assert_eq!(activity.last(), 210);
        assert!(activity.enter());
        assert_eq!(activity.reap(1000), Reap::Busy);
    }

    #[test]
    fn refuses_guard_once_gone_while_others_are_held() {
        let activity = Activity::new(0, 1);
        assert!(activity.enter());
        assert_eq!(activity.end(), Some(0));
        assert!(!activity.enter());
        activity.leave(10, 1);
        assert!(activity.is_gone());
    }

    #[test]
    fn is_busy_until_last_guard_leaves() {
        let activity = Activity::new(0, 1);
        assert!(activity.enter());
        assert!(activity.enter());
        activity.leave(10, 1);
        assert_eq!(activity.reap(1000), Reap::Busy);
        activity.leave(20, 1);
        assert_eq!(activity.reap(19), Reap::Active(20));
        assert_eq!(activity.reap(20), Reap::Reaped(20));
    }
}
