//! Loom models of the decision that an idle timer or stream is idle. [`crate::model`] explains how
//! they run.
//!
//! Each model names changes, of `idle_clock.rs` or `activity.rs`, that make it fail; each was
//! tried.

use std::sync::Arc;
use std::time::Duration;

use loom::thread;
use tokio::time::Instant;

use super::{IdleClock, Kind, Reap};
use crate::model::check;
use crate::shared::stalls::Gap;
use crate::tick::Ticks;

/// A clock with activity at 0, and with ticks of a nanosecond: activity is not rounded.
fn clock(either: u64, kinds: [Option<u64>; 2]) -> Arc<IdleClock> {
    let ticks = Ticks::new(Instant::now(), Duration::from_nanos(1)).expect("not zero");
    let kinds = kinds.map(|limit| limit.map(Duration::from_nanos));
    let either = Some(Duration::from_nanos(either));
    Arc::new(IdleClock::new(ticks, Arc::default(), either, kinds, 0))
}

/// A thread that takes a guard and releases it at 6. Returns whether the guard had an effect.
fn hold_guard(clock: &Arc<IdleClock>) -> thread::JoinHandle<bool> {
    let clock = Arc::clone(clock);
    thread::spawn(move || {
        let entered = clock.enter();
        if entered {
            clock.leave(6);
        }
        entered
    })
}

/// A thread that touches. Returns whether that counted: then it is the last activity, or an earlier
/// one, also as this thread sees it.
fn touch(clock: &Arc<IdleClock>, nanos: u64) -> thread::JoinHandle<bool> {
    let clock = Arc::clone(clock);
    thread::spawn(move || {
        let touched = clock.touch(nanos);
        assert!(!touched || clock.either.activity.last() >= nanos);
        touched
    })
}

/// Two tasks touch, a guard is taken and dropped, and the owner decides. Touches and guards that
/// return `true` come before the decision, which is not made then. Those that come after it return
/// `false`.
///
/// Fails if `Activity::reap` stores `GONE` without an exchange, does not check the busy bit or
/// checks the activity only once, and without the check for `GONE` in `advance`.
#[test]
fn two_touchers_and_guard_against_decider() {
    check(Some(2), || {
        let clock = clock(10, [None; 2]);
        let touchers = [5, 7].map(|nanos| touch(&clock, nanos));
        let guard = hold_guard(&clock);
        // The idle duration has passed since the start, but not since any of the touches.
        let idle = clock.decide(11, Gap::default());
        let touched = touchers.map(|toucher| toucher.join().unwrap());
        let entered = guard.join().unwrap();
        if idle {
            assert_eq!((touched, entered), ([false; 2], false));
            assert_eq!(clock.either.activity.last(), 0);
            assert_eq!(clock.due_by(11, Gap::default(), || 11), Some(0));
            clock.revive(11);
            assert!(clock.touch(11) && clock.enter());
            assert_eq!(clock.either.activity.last(), 11);
        } else {
            assert_eq!((touched, entered), ([true; 2], true));
            assert_eq!(clock.due_by(11, Gap::default(), || 11), Some(17));
            assert!(!clock.decide(16, Gap::default()));
            assert!(clock.decide(17, Gap::default()));
        }
    });
}

/// A task touches, and has been silent for longer than the idle duration nevertheless: a touch that
/// returns `true` is the last activity, also as seen from other threads.
///
/// Fails if `Activity::reap` writes the activity that it has read first.
#[test]
fn touch_before_the_decision_is_the_last_activity() {
    check(None, || {
        let clock = clock(10, [None; 2]);
        let toucher = touch(&clock, 5);
        assert!(clock.decide(20, Gap::default()));
        let last = if toucher.join().unwrap() { 5 } else { 0 };
        assert_eq!(clock.either.activity.last(), last);
    });
}

/// The owner decides and begins a new period while a task touches: a touch that counts is in one of
/// the periods.
///
/// Fails without the check for `GONE` in `advance`.
#[test]
fn touch_against_decide_and_revive() {
    check(None, || {
        let clock = clock(10, [None; 2]);
        let toucher = touch(&clock, 12);
        let idle = clock.decide(11, Gap::default());
        if idle {
            clock.revive(11);
        }
        let touched = toucher.join().unwrap();
        let last = if touched { 12 } else { 11 };
        assert!(idle || touched);
        assert_eq!(clock.either.activity.last(), last);
        assert_eq!(clock.due_by(11, Gap::default(), || 11), Some(last + 10));
    });
}

/// A stream has limits of several kinds: a decision by one kind holds for all.
///
/// Fails if [`IdleClock::touch`] or [`IdleClock::enter`] leaves out a kind or ignores its answer,
/// if an `enter` that fails leaves a guard behind, if `touch` writes the activity of either kind
/// first, and if [`IdleClock::decide`] does not end it.
#[test]
fn touch_and_guard_against_decision_by_each_kind() {
    for deciding in [Kind::Read, Kind::Write] {
        check(Some(2), move || {
            let mut kinds = [Some(1_000); 2];
            kinds[deciding as usize] = Some(10);
            let clock = clock(1_000, kinds);
            let toucher = touch(&clock, 5);
            let guard = hold_guard(&clock);
            let idle = clock.decide(11, Gap::default());
            let (touched, entered) = (toucher.join().unwrap(), guard.join().unwrap());
            assert_eq!((touched, entered), (!idle, !idle));
            if idle {
                assert!(clock.decide(11, Gap::default()), "it is final");
                assert!(!clock.touch(12) && !clock.enter());
                clock.progress(deciding, 12);
                assert_eq!(
                    clock.either.activity.last(),
                    0,
                    "what came too late is not recorded"
                );
            } else {
                assert_eq!(clock.due_by(11, Gap::default(), || 11), Some(16));
                assert!(clock.decide(16, Gap::default()));
            }
        });
    }
}

/// A guard fails because another kind has decided, while a task touches: nothing stays busy.
#[test]
fn guard_that_fails_leaves_nothing_behind() {
    check(Some(2), || {
        let clock = clock(10, [Some(10), Some(10)]);
        // Reading takes place, and no limit on either direction is reached.
        let reading = clock.kind(Kind::Read).unwrap();
        for activity in [&clock.either.activity, reading] {
            assert!(activity.touch(9, 1));
        }
        let guard = {
            let clock = Arc::clone(&clock);
            thread::spawn(move || clock.enter())
        };
        let idle = clock.decide(12, Gap::default());
        let entered = guard.join().unwrap();
        assert_eq!(entered, !idle);
        if idle {
            // By the limit on reading, once its own duration has passed: it is not busy.
            let reading = clock.kind(Kind::Read).unwrap();
            assert_eq!(reading.reap(9), Reap::Reaped(9));
        }
    });
}
