//! Tokio's panics without a runtime, or without its time driver, at the caller's line.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use super::current_thread;
use crate::support::{HOUR, ms};
use tickwheel::time::{self, Duration, Instant, ext::FutureExt};
use tokio::runtime::{Builder, Runtime};

const ZERO: Duration = Duration::ZERO;

thread_local! {
    static SEEN: RefCell<Option<(String, String, u32)>> = const { RefCell::new(None) };
}

/// The message, file and line of the panic in `f`.
fn panic_of<R>(f: impl FnOnce() -> R) -> (String, String, u32) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let payload = info.payload();
            let message = payload
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned());
            let message = message.or_else(|| payload.downcast_ref().cloned());
            if let Some(at) = info.location() {
                SEEN.set(Some((
                    message.unwrap_or_default(),
                    at.file().to_owned(),
                    at.line(),
                )));
            }
            previous(info);
        }));
    });
    assert!(catch_unwind(AssertUnwindSafe(|| drop(f()))).is_err());
    SEEN.take().expect("the hook has seen it")
}

/// The call panics at its own line, with the message of Tokio's function.
macro_rules! assert_panics {
    ($ours:expr, as $theirs:expr) => {
        let (expected, ..) = panic_of(|| $theirs);
        let (message, file, line) = panic_of(|| $ours);
        assert_eq!((message, file.as_str(), line), (expected, file!(), line!()));
    };
    ($ours:expr) => {
        assert_panics!($ours, as tokio::time::sleep(HOUR));
    };
}

fn assert_all_panic_as_tokios() {
    let deadline = Instant::now() + HOUR;
    let stuck = std::future::pending::<()>;
    assert_panics!(time::sleep(HOUR));
    assert_panics!(time::sleep(ZERO));
    assert_panics!(time::sleep_until(deadline));
    assert_panics!(time::timeout(HOUR, stuck()));
    assert_panics!(time::timeout_at(deadline, stuck()));
    assert_panics!(time::interval(HOUR));
    assert_panics!(time::interval_at(deadline, HOUR));
    assert_panics!(stuck().timeout(HOUR));
    assert_panics!(stuck().timeout_at(deadline));
    assert_panics!(time::wheel());
}

#[test]
fn panics_as_tokio_does_outside_a_runtime() {
    assert_all_panic_as_tokios();
    let (message, ..) = panic_of(|| time::sleep(HOUR));
    assert!(message.contains("there is no reactor running"), "{message}");
}

#[test]
fn panics_as_tokio_does_outside_a_runtime_after_using_one() {
    let runtime = current_thread();
    runtime.block_on(async { time::sleep(ms(1)).await });
    assert_all_panic_as_tokios();
    drop(runtime);
    assert_all_panic_as_tokios();
}

#[test]
fn panics_as_tokio_does_without_a_time_driver() {
    let without_timer = |mut builder: Builder| -> Runtime { builder.build().unwrap() };
    for runtime in [
        without_timer(Builder::new_current_thread()),
        without_timer(Builder::new_multi_thread()),
    ] {
        runtime.block_on(async { assert_all_panic_as_tokios() });
        let task = runtime.spawn(async { assert_all_panic_as_tokios() });
        runtime.block_on(task).unwrap();
        let (message, ..) = {
            let _within = runtime.enter();
            panic_of(|| time::sleep(HOUR))
        };
        assert!(message.contains("timers are disabled"), "{message}");
    }
}

#[test]
fn runtime_without_a_time_driver_panics_after_another() {
    let (with, without) = (
        current_thread(),
        Builder::new_current_thread().build().unwrap(),
    );
    with.block_on(async {
        time::sleep(ms(1)).await;
        let within = without.enter();
        assert_all_panic_as_tokios();
        drop(within);
        time::sleep(ms(1)).await;
    });
}

#[tokio::test]
async fn panics_at_a_period_of_zero_as_tokio_does() {
    let now = Instant::now();
    assert_panics!(time::interval(ZERO), as tokio::time::interval(ZERO));
    assert_panics!(time::interval_at(now, ZERO), as tokio::time::interval(ZERO));
}
