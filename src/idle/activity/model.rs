//! The word of an activity against its reaper, as loom sees it. [`crate::model`] says how.
//!
//! Each model names changes, of `activity.rs`, that make it fail; each was tried.

use std::sync::Arc;
use std::sync::atomic::AtomicU64 as PlainU64;

use loom::thread;

use super::{Activity, Reap};
use crate::model::check;
use crate::sync::atomic::{AtomicU64, Ordering};

/// What idle timers round to; the models say which nanosecond they mean.
const GRAIN: u64 = 1;

/// Runs `other` in a thread of its own and `this` in this one, on an activity that `prepare` made of one last active
/// at 0. Returns what they returned, and the activity.
fn both<A: 'static, B>(
    prepare: impl FnOnce(&Activity),
    other: impl FnOnce(&Activity) -> A + 'static,
    this: impl FnOnce(&Activity) -> B,
) -> (A, B, Arc<Activity>) {
    let activity = Arc::new(Activity::new(0, GRAIN, 0));
    prepare(&activity);
    let other = thread::spawn({
        let activity = Arc::clone(&activity);
        move || other(&activity)
    });
    let this = this(&activity);
    (other.join().unwrap(), this, activity)
}

fn nothing(_: &Activity) {}

fn busy(activity: &Activity) {
    assert!(activity.enter());
}

// --- touches ---

/// A connection is touched while it is reaped: exactly one of them happens, and the touch says which.
///
/// Fails if [`Activity::reap`] stores [`GONE`](super::GONE) instead of exchanging it, and without the question for it
/// in `advance`.
#[test]
fn touch_against_reap() {
    check(None, || {
        let (touched, reaped, activity) = both(nothing, |a| a.touch(5, GRAIN), |a| a.reap(3));
        if touched {
            assert_eq!(reaped, Reap::Active(5));
            assert_eq!(activity.last(), Some(5));
            assert_eq!(activity.reap(4), Reap::Active(5));
        } else {
            assert_eq!(reaped, Reap::Reaped(0));
            assert_eq!(activity.last(), None);
        }
    });
}

/// Two tasks touch it: the later touch counts, whichever comes last.
///
/// Fails without `max` in `advance`, and if that stores the word instead of exchanging it.
#[test]
fn touch_against_touch() {
    check(None, || {
        let touch = |nanos| move |a: &Activity| a.touch(nanos, GRAIN);
        let (first, second, activity) = both(nothing, touch(7), touch(5));
        assert!(first && second);
        assert_eq!(activity.last(), Some(7));
        assert_eq!(activity.reap(6), Reap::Active(7));
    });
}

/// Two touches and a reaper: if both are told that they counted, it is not reaped.
///
/// Fails as [`touch_against_reap`] does.
#[test]
fn two_touches_against_reap() {
    check(None, || {
        let touches = |a: &Activity| (a.touch(5, GRAIN), a.touch(6, GRAIN));
        let (touched, reaped, activity) = both(nothing, touches, |a| a.reap(5));
        match reaped {
            // The first touch is no reason against it: it is idle since 5.
            Reap::Reaped(since) => assert_eq!(touched, (since == 5, false)),
            Reap::Active(last) => {
                assert_eq!(touched, (true, true));
                assert_eq!((last, activity.last()), (6, Some(6)));
            }
            Reap::Busy | Reap::Gone => unreachable!(),
        }
    });
}

// --- guards ---

/// A request begins while the connection is reaped: exactly one of them happens, and the guard says which.
///
/// Fails if [`Activity::reap`] does not ask for the busy bit or stores [`GONE`](super::GONE), and without the question
/// for that in `advance`.
#[test]
fn enter_against_reap() {
    check(None, || {
        let (entered, reaped, activity) = both(nothing, Activity::enter, |a| a.reap(9));
        if entered {
            assert_eq!(reaped, Reap::Busy);
            assert_eq!(activity.reap(u64::MAX), Reap::Busy);
        } else {
            assert_eq!(reaped, Reap::Reaped(0));
            assert_eq!(activity.last(), None);
        }
    });
}

/// The last request ends while the connection, not active otherwise for long, is looked at: it is not idle in between.
///
/// Fails if [`Activity::leave`] first clears the bit and then records the release, or does not record it.
#[test]
fn leave_against_reap() {
    check(None, || {
        let ((), reaped, activity) = both(busy, |a| a.leave(5, GRAIN), |a| a.reap(3));
        assert!(matches!(reaped, Reap::Busy | Reap::Active(5)), "{reaped:?}");
        assert!(!activity.is_busy());
        assert_eq!(activity.reap(4), Reap::Active(5));
        assert_eq!(activity.reap(5), Reap::Reaped(5));
    });
}

/// The last request ends while there is traffic: it is not busy for ever, and the later of them counts.
///
/// Fails if [`Activity::touch`] keeps the busy bit of the word that it read first, if `advance` stores the word instead
/// of exchanging it, and without `max` there.
#[test]
fn leave_against_touch() {
    for (left, touched) in [(5, 7), (7, 5)] {
        check(None, move || {
            let (counted, (), activity) = both(
                busy,
                move |a| a.touch(touched, GRAIN),
                |a| a.leave(left, GRAIN),
            );
            assert!(counted);
            assert!(!activity.is_busy());
            assert_eq!(activity.last(), Some(7));
        });
    }
}

/// A request begins while there is traffic: neither is lost.
///
/// Fails if [`Activity::touch`] keeps the busy bit of the word that it read first, and without `max` in `advance`.
#[test]
fn enter_against_touch() {
    check(None, || {
        let (counted, entered, activity) = both(nothing, |a| a.touch(5, GRAIN), Activity::enter);
        assert!(counted && entered);
        assert!(activity.is_busy());
        assert_eq!(activity.last(), Some(5));
    });
}

/// One request begins while another ends: it is busy, until that one ends too.
///
/// Fails if [`Activity::enter`] or [`Activity::leave`] lets the mutex go before it writes the word.
#[test]
fn enter_against_leave() {
    check(None, || {
        let (entered, (), activity) = both(busy, Activity::enter, |a| a.leave(5, GRAIN));
        assert!(entered);
        assert_eq!(activity.reap(9), Reap::Busy);
        activity.leave(7, GRAIN);
        assert_eq!(activity.reap(9), Reap::Reaped(7));
    });
}

/// Two requests end: it is not busy then, and idle since the later.
///
/// Fails if [`Activity::leave`] decides by the word whether it was the last, and without `max` in `advance`.
#[test]
fn leave_against_leave() {
    check(None, || {
        let twice = |a: &Activity| {
            busy(a);
            busy(a);
        };
        let leave = |nanos| move |a: &Activity| a.leave(nanos, GRAIN);
        let ((), (), activity) = both(twice, leave(5), leave(7));
        assert!(!activity.is_busy());
        assert_eq!(activity.reap(9), Reap::Reaped(7));
    });
}

/// What was noted elsewhere before the last guard left, who finds it gone sees.
///
/// Fails if the exchange in `advance`, or the load in [`Activity::is_busy`], is relaxed.
#[test]
fn leave_against_is_busy() {
    check(None, || {
        let noted = Arc::new(AtomicU64::new(0));
        let leave = {
            let noted = Arc::clone(&noted);
            move |a: &Activity| {
                noted.store(5, Ordering::Relaxed);
                a.leave(5, GRAIN);
                // Traffic after it hides nothing.
                a.touch(6, GRAIN);
            }
        };
        let ((), (), _) = both(busy, leave, |a| {
            if !a.is_busy() {
                assert_eq!(noted.load(Ordering::Relaxed), 5);
            }
        });
    });
}

// --- the end ---

/// A watch is dropped while it is reaped: exactly one of them ends it.
///
/// Fails if [`Activity::end`] loads and stores instead of swapping, and if [`Activity::reap`] stores.
#[test]
fn end_against_reap() {
    check(None, || {
        let (ended, reaped, activity) = both(nothing, Activity::end, |a| a.reap(3));
        match ended {
            Some(last) => assert_eq!((last, reaped), (0, Reap::Gone)),
            None => assert_eq!(reaped, Reap::Reaped(0)),
        }
        assert_eq!(activity.last(), None);
    });
}

/// A watch ends while another task touches it and takes a guard: they do not bring it back, and are counted only if
/// they came before.
///
/// Fails without the question for [`GONE`](super::GONE) in `advance`, and if that stores the word.
#[test]
fn end_against_touch_and_guard() {
    check(None, || {
        let use_it = |a: &Activity| {
            let touched = a.touch(5, GRAIN);
            let entered = a.enter();
            if entered {
                a.leave(7, GRAIN);
            }
            (touched, entered)
        };
        let ((touched, entered), ended, activity) = both(nothing, use_it, Activity::end);
        assert_eq!(activity.last(), None);
        match ended {
            Some(0) => assert_eq!((touched, entered), (false, false)),
            Some(5) => assert!(touched),
            Some(7) => assert_eq!((touched, entered), (true, true)),
            other => unreachable!("{other:?}"),
        }
        assert!(!activity.enter());
    });
}

/// A connection is at its greatest age while a second request begins: the guard is told if it is too late.
///
/// Fails if [`Activity::enter`] does not ask for [`GONE`](super::GONE) while a guard is held.
#[test]
fn end_against_second_guard() {
    check(None, || {
        let (entered, ended, activity) = both(busy, Activity::enter, Activity::end);
        assert_eq!(ended, Some(0));
        // It may have come before.
        if entered {
            activity.leave(5, GRAIN);
        }
        assert!(!activity.enter());
        activity.leave(7, GRAIN);
        assert_eq!(activity.last(), None);
    });
}

// --- the future ---

/// Activity in the future is taken back while there is real traffic, by an actor that read the clock before: the
/// traffic is not taken back with it.
///
/// Fails if [`Activity::clamp`] does not ask again, if it asks before it has read the word, and if it stores the word.
#[test]
fn clamp_against_touch() {
    check(None, || {
        const LIMIT: u64 = 10;
        // Not loom's: reading a clock orders nothing.
        let clock = Arc::new(PlainU64::new(0));
        let traffic = {
            let clock = Arc::clone(&clock);
            move |a: &Activity| {
                clock.store(20, Ordering::Relaxed);
                assert!(a.touch(20, GRAIN));
            }
        };
        let ahead = |a: &Activity| assert!(a.touch(15, GRAIN));
        let latest = || clock.load(Ordering::Relaxed) + LIMIT;
        let ((), clamped, activity) = both(ahead, traffic, |a| a.clamp(LIMIT, latest));
        assert_eq!(activity.last(), Some(20));
        assert!(matches!(clamped, Some(10 | 15 | 20)), "{clamped:?}");
    });
}

/// A guard is taken, and the watch ends, while activity in the future is taken back: it stays busy, and gone.
///
/// Fails if [`Activity::clamp`] forgets the busy bit, if it does not ask for [`GONE`](super::GONE), and if it stores the
/// word.
#[test]
fn clamp_against_enter_and_against_end() {
    let ahead = |a: &Activity| assert!(a.touch(1000, GRAIN));
    check(None, move || {
        let (entered, _, activity) = both(ahead, Activity::enter, |a| a.clamp(10, || 10));
        assert!(entered && activity.is_busy());
        assert_eq!(activity.last(), Some(10));
    });
    check(None, move || {
        let (_, clamped, activity) = both(ahead, Activity::end, |a| a.clamp(10, || 10));
        assert!(matches!(clamped, None | Some(10)), "{clamped:?}");
        assert_eq!(activity.last(), None);
    });
}
