//! Wheels of one's own choice.

use std::error::Error;

use super::{current_thread, made, multi_thread, paused};
use crate::support::{HOUR, ms};
use tickwheel::time::{self, InstallError, Instant, install};
use tickwheel::{BuildError, TimerWheel};

#[tokio::test(start_paused = true)]
async fn uses_the_wheel_installed() {
    let installed = install(TimerWheel::builder().name("mine").tick(ms(10))).unwrap();
    assert_eq!(time::wheel().name(), "mine");
    let start = Instant::now();
    time::sleep(ms(11)).await;
    assert_eq!(start.elapsed(), ms(20));
    tokio::spawn(time::sleep(ms(1))).await.unwrap();
    assert_eq!(installed.metrics().sleeps_fired, 2);
}

#[tokio::test]
async fn says_whether_it_was_twice_or_too_late() {
    let installed = install(TimerWheel::builder()).unwrap();
    let twice = install(TimerWheel::builder()).unwrap_err();
    assert_eq!(twice, InstallError::AlreadyInstalled);
    assert_eq!(
        twice.to_string(),
        "a wheel was installed for this runtime before"
    );

    installed.shutdown().await;
    drop(time::sleep(HOUR));
    let too_late = install(TimerWheel::builder()).unwrap_err();
    assert_eq!(too_late, InstallError::AlreadyInUse);
    assert!(too_late.to_string().contains("install it first"));
    assert!(too_late.source().is_none());
    // A refused builder starts nothing: its tick would be out of bounds.
    let refused = install(TimerWheel::builder().tick(ms(0)));
    assert_eq!(refused.unwrap_err(), InstallError::AlreadyInUse);

    time::wheel().shutdown().await;
    install(TimerWheel::builder().name("again")).unwrap();
    assert_eq!(time::wheel().name(), "again");
}

#[tokio::test]
async fn installs_nothing_that_does_not_start() {
    let error = install(TimerWheel::builder().slots(3)).unwrap_err();
    assert!(matches!(
        error,
        InstallError::Build(BuildError::Slots { value: 3, .. })
    ));
    assert!(error.to_string().contains("slots is 3"));
    assert!(error.source().is_some());
    install(TimerWheel::builder()).unwrap();
}

#[test]
fn installs_nothing_outside_a_runtime() {
    let error = install(TimerWheel::builder()).unwrap_err();
    assert_eq!(error, InstallError::Build(BuildError::NoRuntime));
}

#[test]
fn installs_for_the_current_runtime_only() {
    let (first, second) = (current_thread(), multi_thread(1));
    first.block_on(async { drop(install(TimerWheel::builder().name("first")).unwrap()) });
    second.block_on(async { drop(install(TimerWheel::builder().name("second")).unwrap()) });
    for _ in 0..2 {
        assert_eq!(
            first.block_on(async { time::wheel().name().to_owned() }),
            "first"
        );
        let task = async { time::wheel().name().to_owned() };
        assert_eq!(second.block_on(second.spawn(task)).unwrap(), "second");
    }
    paused().block_on(async { assert_eq!(time::wheel().name(), "tickwheel") });
}

#[test]
fn drives_a_runtime_from_a_wheel_that_runs_elsewhere() {
    let elsewhere = multi_thread(1);
    let builders = [
        TimerWheel::builder().runtime(elsewhere.handle().clone()),
        TimerWheel::builder().dedicated_thread(),
    ];
    for builder in builders {
        let here = current_thread();
        let wheel = here.block_on(async {
            let wheel = install(builder).unwrap();
            time::sleep(ms(5)).await;
            assert_eq!(made(), 1);
            wheel
        });
        drop(here);
        elsewhere.block_on(async { assert_eq!(made(), 0) });
        elsewhere.block_on(wheel.shutdown());
    }
}
