//! `Debug` of every public type, the texts of errors, and the warning about late timers.

#[path = "../../src/actor/task/tests/warnings.rs"]
pub(crate) mod warnings;

use std::sync::Arc;
use std::task::{Wake, Waker};

use self::warnings::Warnings;
use crate::support::{advance, builder, jump, ms, poll_idly, poll_with, start_wheel};
use tickwheel::{BuildError, ClosedError, SetTimerError, TimerWheel};
use tokio::runtime::{Builder, Runtime};
use tokio_test::assert_pending;
use tracing::Level;

#[tokio::test(start_paused = true)]
async fn shows_the_state_of_everything_public() {
    let wheel = start_wheel();
    let (timers, expirations) = wheel.keyed::<u64, ()>();
    timers.set_timer(1, (), ms(5)).unwrap();
    let (reaper, reaped) = wheel.reaper::<u64, ()>(ms(10));
    let watch = reaper.watch(1, ()).unwrap();
    let idle = wheel.idle_timer(ms(10));
    let handle = idle.handle();
    let busy = handle.busy();
    let stream = wheel.idle_stream(tokio::io::empty(), ms(10));
    let mut sleep = wheel.sleep(ms(5));
    assert_pending!(poll_idly(&mut sleep));
    let shown = [
        (
            format!("{timers:?}"),
            "KeyedTimers { len: 1, is_closed: false, .. }",
        ),
        (format!("{expirations:?}"), "Expirations"),
        (
            format!("{reaper:?}"),
            "Reaper { len: 1, is_closed: false, .. }",
        ),
        (format!("{reaped:?}"), "Expirations"),
        (format!("{watch:?}"), "WatchGuard { is_watched: true, .. }"),
        (format!("{idle:?}"), "IdleTimer { idle_duration: 10ms, "),
        (format!("{handle:?}"), "IdleHandle { last_active: "),
        (format!("{busy:?}"), "BusyGuard { is_effective: true, .. }"),
        (format!("{stream:?}"), "IdleStream { "),
        (format!("{sleep:?}"), "Sleep { deadline: "),
        (format!("{wheel:?}"), "TimerWheel"),
        (format!("{:?}", wheel.metrics()), "sleeps_pending: 3"),
        (
            format!("{:?}", wheel.metrics().lateness),
            "DurationHistogram { count: 0, ",
        ),
    ];
    for (shown, part) in shown {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn names_the_fault_in_every_error() {
    let (timers, stream) = start_wheel().keyed::<u64, ()>();
    drop(stream);
    let closed: ClosedError = timers.remove_timer(&1).unwrap_err();
    let texts = [
        (BuildError::NoTimer.to_string(), "enable_time()"),
        (BuildError::NoRuntime.to_string(), "Builder::runtime"),
        (BuildError::MaxKeyed.to_string(), "max_keyed is 0"),
        (
            BuildError::NoPreciseFeature.to_string(),
            "feature `precise`",
        ),
        (SetTimerError::Full(1, 'v').to_string(), "max_keyed"),
        (
            SetTimerError::Closed(1, 'v', ClosedError::RuntimeEnded).to_string(),
            "the wheel's runtime has ended",
        ),
        (ClosedError::Shutdown.to_string(), "the wheel was shut down"),
        (closed.to_string(), "their stream was dropped"),
        // Keys and values need not be `Debug`.
        (format!("{:?}", SetTimerError::Full((), ())), "Full(..)"),
        (
            format!("{:?}", SetTimerError::Closed((), (), ClosedError::Shutdown)),
            "Closed(.., Shutdown)",
        ),
    ];
    for (text, part) in texts {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn warns_when_lateness_exceeds_threshold() {
    let warnings = Arc::new(Warnings::default());
    let _here = tracing::subscriber::set_default(Arc::clone(&warnings));
    for (late_by, warned) in [(ms(50), 0), (ms(51), 1)] {
        let wheel = builder().late_warning(ms(50)).start().unwrap();
        let mut sleep = wheel.sleep(ms(5));
        assert_pending!(poll_idly(&mut sleep));
        wheel.settle().await;
        jump(ms(5) + late_by);
        wheel.settle().await;
        assert!(sleep.is_elapsed());
        assert_eq!(warnings.count(), warned, "late by {late_by:?}");
    }
    let [warning] = &*warnings.texts(Level::WARN) else {
        unreachable!("there is one");
    };
    // It could have run when the sleep was due.
    for fact in ["waited for 51ms", "turns took 0ns", "fired 1 "] {
        assert!(warning.contains(fact), "{fact} is not in: {warning}");
    }
}

struct PanicsWhenWoken;

impl Wake for PanicsWhenWoken {
    fn wake(self: Arc<Self>) {
        panic!("woken");
    }
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

// Each said "only its own timer is lost".
#[tokio::test(start_paused = true)]
async fn panic_log_names_the_party_and_the_loss() {
    let warnings = Arc::new(Warnings::default());
    let _here = tracing::subscriber::set_default(Arc::clone(&warnings));
    let wheel = start_wheel();
    let mut sleep = wheel.sleep(ms(5));
    assert_pending!(poll_with(
        &mut sleep,
        &Waker::from(Arc::new(PanicsWhenWoken))
    ));
    advance(&wheel, ms(5)).await;
    let (timers, stream) = wheel.keyed();
    timers.set_timer(1, PanicsWhenDropped, ms(5)).unwrap();
    drop(stream);
    let logged = warnings.texts(Level::ERROR);
    assert_eq!(
        logged,
        [
            "a waker panicked: its task may not be woken",
            "a key or value panicked when it was dropped: what it owns may leak",
        ]
    );
}

#[test]
fn missing_time_driver_is_an_error_and_no_log() {
    let warnings = Arc::new(Warnings::default());
    let _here = tracing::subscriber::set_default(Arc::clone(&warnings));
    let timeless = Builder::new_current_thread().build().unwrap();
    let started = builder().runtime(timeless.handle().clone()).start();
    assert!(matches!(started, Err(BuildError::NoTimer)));
    assert_eq!(warnings.texts(Level::ERROR), [""; 0]);
}

#[test]
fn warns_when_used_from_another_runtime_under_a_paused_clock() {
    let runtime = |paused| -> Runtime {
        let mut builder = Builder::new_current_thread();
        builder.enable_time().start_paused(paused).build().unwrap()
    };
    let (paused, also_paused) = (runtime(true), runtime(true));
    let (real, also_real) = (runtime(false), runtime(false));
    let warnings = Arc::new(Warnings::default());
    let _here = tracing::subscriber::set_default(Arc::clone(&warnings));
    for (own, other, warned) in [
        (&paused, Some(&real), 1),
        (&paused, Some(&also_paused), 1),
        (&paused, Some(&paused), 0),
        (&paused, None, 1),
        (&real, Some(&paused), 1),
        (&real, Some(&also_real), 0),
        (&real, None, 0),
    ] {
        let before = warnings.count();
        let builder = builder().runtime(own.handle().clone());
        let wheel = builder.start().unwrap();
        {
            let _within = other.map(Runtime::enter);
            drop((wheel.sleep(ms(5)), wheel.sleep(ms(5))));
        }
        assert_eq!(warnings.count() - before, warned, "{own:?} {other:?}");
    }
}

type Call = fn(&TimerWheel);

// The deadline was of the clock here, and fired at once or hours late, without a word.
#[test]
fn keyed_timers_and_watches_warn_of_another_clock_once() {
    let mut paused = Builder::new_current_thread();
    let paused = { paused.enable_time().start_paused(true) }.build().unwrap();
    let mut here = Builder::new_current_thread();
    let here = here.enable_time().build().unwrap();
    let warnings = Arc::new(Warnings::default());
    let _here = tracing::subscriber::set_default(Arc::clone(&warnings));
    let calls: [(&str, Call); 5] = [
        ("set_timer", |wheel| {
            let (timers, _expirations) = wheel.keyed();
            assert_eq!(timers.set_timer(1, (), ms(5)), Ok(None));
        }),
        ("set_interval", |wheel| {
            let (timers, _expirations) = wheel.keyed();
            assert_eq!(timers.set_interval(1, (), ms(5)), Ok(None));
        }),
        ("set_if_absent", |wheel| {
            let (timers, _expirations) = wheel.keyed();
            assert_eq!(timers.set_if_absent(1, (), ms(5)), Ok(None));
        }),
        ("move_timer", |wheel| {
            let (timers, _expirations) = wheel.keyed::<u32, ()>();
            assert_eq!(timers.move_timer(&1, ms(5)), Ok(false));
        }),
        ("watch", |wheel| {
            let (reaper, _expirations) = wheel.reaper(ms(5));
            drop(reaper.watch(1, ()).unwrap());
        }),
    ];
    for (name, call) in calls {
        let wheel = { builder().runtime(paused.handle().clone()) }
            .start()
            .unwrap();
        let before = warnings.count();
        paused.block_on(async { call(&wheel) });
        assert_eq!(
            warnings.count() - before,
            0,
            "{name}, on the clock of the wheel"
        );
        let _within = here.enter();
        call(&wheel);
        call(&wheel);
        assert_eq!(warnings.count() - before, 1, "{name}");
    }
}
