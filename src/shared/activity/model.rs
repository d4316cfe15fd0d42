//! Loom models of the activity word. [`crate::model`] explains how they run.
//!
//! Each model names changes, of `activity.rs`, that make it fail; each was tried.

use std::sync::Arc;
use std::sync::atomic::AtomicU64 as PlainU64;

use loom::thread;

use super::{Activity, Reap};
use crate::model::check;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The length of a tick: activity is not rounded.
const GRAIN: u64 = 1;

/// The state that two threads share.
struct World {
    /// Last active at 0.
    activity: Activity,
    /// Not loom's: reading a clock orders nothing.
    clock: PlainU64,
    /// A word that another thread writes before it drops its guard.
    note: AtomicU64,
}

/// Runs one operation on each of two threads, after `prepare`, and passes their results and the
/// activity to `judge`.
///
/// Runs twice, with the roles of the spawning and the spawned thread exchanged: loom remembers only
/// the last access to an atomic, so a load that another thread's load follows is forgotten, and
/// some interleavings are tried in one of the roles only.
fn race<A: 'static, B: 'static>(
    prepare: impl Fn(&Activity) + Copy + Send + Sync + 'static,
    one: impl Fn(&World) -> A + Copy + Send + Sync + 'static,
    two: impl Fn(&World) -> B + Copy + Send + Sync + 'static,
    judge: impl Fn(A, B, &Activity) + Copy + Send + Sync + 'static,
) {
    let world = move || {
        let world = World {
            activity: Activity::new(0, GRAIN),
            clock: PlainU64::new(0),
            note: AtomicU64::new(0),
        };
        prepare(&world.activity);
        Arc::new(world)
    };
    check(None, move || {
        let world = world();
        let other = thread::spawn({
            let world = Arc::clone(&world);
            move || two(&world)
        });
        let one = one(&world);
        judge(one, other.join().unwrap(), &world.activity);
    });
    check(None, move || {
        let world = world();
        let other = thread::spawn({
            let world = Arc::clone(&world);
            move || one(&world)
        });
        let two = two(&world);
        judge(other.join().unwrap(), two, &world.activity);
    });
}

fn nothing(_: &Activity) {}

fn busy(activity: &Activity) {
    assert!(activity.enter());
}

fn touch(nanos: u64) -> impl Fn(&World) -> bool + Copy {
    move |world| world.activity.touch(nanos, GRAIN)
}

fn reap(idle_since: u64) -> impl Fn(&World) -> Reap + Copy {
    move |world| world.activity.reap(idle_since)
}

fn enter(world: &World) -> bool {
    world.activity.enter()
}

fn leave(nanos: u64) -> impl Fn(&World) + Copy {
    move |world| world.activity.leave(nanos, GRAIN)
}

fn end(world: &World) -> Option<u64> {
    world.activity.end()
}

// --- touches ---

/// A connection is touched while it is reaped: exactly one of them happens, and the touch says
/// which.
///
/// Fails if [`Activity::reap`] stores the word instead of exchanging it, and without
/// the question for it in `advance`.
#[test]
fn touch_against_reap() {
    race(nothing, touch(5), reap(3), |touched, reaped, activity| {
        if touched {
            assert_eq!(reaped, Reap::Active(5));
            assert_eq!(activity.last(), 5);
            assert_eq!(activity.reap(4), Reap::Active(5));
        } else {
            assert_eq!(reaped, Reap::Reaped(0));
            assert!(activity.is_gone());
        }
    });
}

/// Two tasks touch it: the later touch counts, whichever comes last.
///
/// Fails without `max` in `advance`, and if that stores the word instead of exchanging it.
#[test]
fn touch_against_touch() {
    race(nothing, touch(7), touch(5), |first, second, activity| {
        assert!(first && second);
        assert_eq!(activity.last(), 7);
        assert_eq!(activity.reap(6), Reap::Active(7));
    });
}

/// Two touches, one after the other, and a reaper: if both return `true`, it is not reaped.
///
/// Fails as [`touch_against_reap`] does.
#[test]
fn two_touches_against_reap() {
    let touches = |world: &World| (touch(5)(world), touch(6)(world));
    race(nothing, touches, reap(5), |touched, reaped, activity| {
        match reaped {
            // The first touch is no reason against it: it is idle since 5.
            Reap::Reaped(since) => assert_eq!(touched, (since == 5, false)),
            Reap::Active(last) => {
                assert_eq!(touched, (true, true));
                assert_eq!((last, activity.last()), (6, 6));
            }
            Reap::Busy | Reap::Gone => unreachable!(),
        }
    });
}

// --- guards ---

/// A request begins while the connection is reaped: exactly one of them happens, and the guard says
/// which.
///
/// Fails if [`Activity::reap`] does not ask for the busy bit or stores [`GONE`](super::GONE), and
/// without the question for that in `advance`.
#[test]
fn enter_against_reap() {
    race(nothing, enter, reap(9), |entered, reaped, activity| {
        if entered {
            assert_eq!(reaped, Reap::Busy);
            assert_eq!(activity.reap(u64::MAX), Reap::Busy);
        } else {
            assert_eq!(reaped, Reap::Reaped(0));
            assert!(activity.is_gone());
        }
    });
}

/// The last request ends while the reaper processes a connection that was not active otherwise: it
/// is not idle in between.
///
/// Fails if [`Activity::leave`] first clears the bit and then records the release, or does not
/// record it.
#[test]
fn leave_against_reap() {
    race(busy, leave(5), reap(3), |(), reaped, activity| {
        let expected = matches!(reaped, Reap::Busy | Reap::Active(5));
        assert!(expected, "{reaped:?}");
        assert!(!activity.is_busy());
        assert_eq!(activity.reap(4), Reap::Active(5));
        assert_eq!(activity.reap(5), Reap::Reaped(5));
    });
}

/// The last request ends while there is traffic: it does not stay busy, and the later of them
/// counts.
///
/// Fails if [`Activity::touch`] keeps the busy bit of the word that it read first, if `advance`
/// stores the word instead of exchanging it, and without `max` there.
#[test]
fn leave_against_touch() {
    for (left, touched) in [(5, 7), (7, 5)] {
        race(
            busy,
            leave(left),
            touch(touched),
            |(), counted, activity| {
                assert!(counted);
                assert!(!activity.is_busy());
                assert_eq!(activity.last(), 7);
            },
        );
    }
}

/// A request begins while there is traffic: neither is lost.
///
/// Fails if [`Activity::touch`] keeps the busy bit of the word that it read first, and without
/// `max` in `advance`.
#[test]
fn enter_against_touch() {
    race(nothing, enter, touch(5), |entered, counted, activity| {
        assert!(counted && entered);
        assert!(activity.is_busy());
        assert_eq!(activity.last(), 5);
    });
}

/// One request begins while another ends: the watch is busy until both have ended.
///
/// Fails if [`Activity::enter`] or [`Activity::leave`] writes the word outside the mutex.
#[test]
fn enter_against_leave() {
    race(busy, enter, leave(5), |entered, (), activity| {
        assert!(entered);
        assert_eq!(activity.reap(9), Reap::Busy);
        activity.leave(7, GRAIN);
        assert_eq!(activity.reap(9), Reap::Reaped(7));
    });
}

/// Two requests end: the watch is not busy then, and was last active at the later end.
///
/// Fails if [`Activity::leave`] writes the word outside the mutex and by what it read of it before,
/// and without `max` in `advance`.
#[test]
fn leave_against_leave() {
    let twice = |activity: &Activity| {
        busy(activity);
        busy(activity);
    };
    race(twice, leave(5), leave(7), |(), (), activity| {
        assert!(!activity.is_busy());
        assert_eq!(activity.reap(9), Reap::Reaped(7));
    });
}

/// Observing zero guards happens after every write made before the last guard dropped.
///
/// Fails if the exchange in `advance`, or the load in [`Activity::is_busy`], is relaxed.
#[test]
fn leave_against_is_busy() {
    let leave = |world: &World| {
        world.note.store(5, Ordering::Relaxed);
        leave(5)(world);
        touch(6)(world);
    };
    let look = |world: &World| world.activity.is_busy() || world.note.load(Ordering::Relaxed) == 5;
    race(busy, leave, look, |(), holds, _| assert!(holds));
}

// --- the end ---

/// A watch is dropped while it is reaped: exactly one of them ends it.
///
/// Fails if [`Activity::end`] loads and stores instead of swapping, and if [`Activity::reap`]
/// stores.
#[test]
fn end_against_reap() {
    race(nothing, end, reap(3), |ended, reaped, activity| {
        match ended {
            Some(last) => assert_eq!((last, reaped), (0, Reap::Gone)),
            None => assert_eq!(reaped, Reap::Reaped(0)),
        }
        assert!(activity.is_gone());
    });
}

/// A watch ends while another task touches it and takes a guard: they do not revive it, and return
/// `true` only if they came before.
///
/// Fails without the check for [`GONE`](super::GONE) in `advance`, and if that stores the word.
#[test]
fn end_against_touch_and_guard() {
    let use_it = |world: &World| {
        let touched = touch(5)(world);
        let entered = enter(world);
        if entered {
            leave(7)(world);
        }
        (touched, entered)
    };
    race(
        nothing,
        use_it,
        end,
        |(touched, entered), ended, activity| {
            assert!(activity.is_gone());
            match ended {
                Some(0) => assert_eq!((touched, entered), (false, false)),
                Some(5) => assert!(touched),
                Some(7) => assert_eq!((touched, entered), (true, true)),
                other => unreachable!("{other:?}"),
            }
            assert!(!activity.enter());
        },
    );
}

/// A watch reaches its maximum age while a second request begins: the guard has no effect if it
/// comes too late.
///
/// Fails if [`Activity::enter`] does not check for [`GONE`](super::GONE) while a guard is held.
#[test]
fn end_against_second_guard() {
    race(busy, enter, end, |entered, ended, activity| {
        assert_eq!(ended, Some(0));
        // It may have come before.
        if entered {
            activity.leave(5, GRAIN);
        }
        assert!(!activity.enter());
        activity.leave(7, GRAIN);
        assert!(activity.is_gone());
    });
}

// --- the future ---

/// An actor that read the clock earlier lowers activity in the future while there is real traffic.
/// It does not lower the traffic's activity.
///
/// Fails if [`Activity::clamp`] does not read the clock again, if it reads it before the word, and
/// if it stores the word without an exchange.
#[test]
fn clamp_against_touch() {
    const LIMIT: u64 = 10;
    let ahead = |activity: &Activity| assert!(activity.touch(15, GRAIN));
    let traffic = |world: &World| {
        world.clock.store(20, Ordering::Relaxed);
        touch(20)(world)
    };
    let clamp = |world: &World| {
        let latest = || world.clock.load(Ordering::Relaxed) + LIMIT;
        world.activity.clamp(LIMIT, latest)
    };
    race(ahead, traffic, clamp, |counted, clamped, activity| {
        assert!(counted);
        assert!(matches!(clamped, Some(10 | 15 | 20)), "{clamped:?}");
        assert_eq!(activity.last(), 20);
    });
}

/// A guard is taken, and the watch ends, while activity in the future is lowered: it stays busy,
/// and gone.
///
/// Fails if [`Activity::clamp`] forgets the busy bit, if it does not check for
/// [`GONE`](super::GONE), and if it stores the word.
#[test]
fn clamp_against_enter_and_against_end() {
    let ahead = |activity: &Activity| assert!(activity.touch(1000, GRAIN));
    let clamp = |world: &World| world.activity.clamp(10, || 10);
    race(ahead, enter, clamp, |entered, _, activity| {
        assert!(entered && activity.is_busy());
        assert_eq!(activity.last(), 10);
    });
    race(ahead, end, clamp, |_, clamped, activity| {
        assert!(matches!(clamped, None | Some(10)), "{clamped:?}");
        assert!(activity.is_gone());
    });
}
