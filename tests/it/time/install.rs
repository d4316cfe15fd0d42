//! Wheels that a program installs for its runtime.

use std::error::Error;
use std::time::Duration;

use super::{current_thread, multi_thread, paused};
use crate::support::{HOUR, builder, ms};
use tickwheel::time::{self, InstallError, Instant, install};
use tickwheel::{BuildError, TimerWheel};

#[tokio::test(start_paused = true)]
async fn uses_the_wheel_installed() {
    let installed = install(builder().name("mine").tick(ms(10))).unwrap();
    assert_eq!(time::wheel().name(), "mine");
    let start = Instant::now();
    time::sleep(ms(11)).await;
    assert_eq!(start.elapsed(), ms(20));
    tokio::spawn(time::sleep(ms(1))).await.unwrap();
    assert_eq!(installed.metrics().sleeps_fired, 2);
}

#[tokio::test]
async fn install_error_says_whether_it_was_twice_or_too_late() {
    let installed = install(TimerWheel::builder()).unwrap();
    let twice = install(TimerWheel::builder()).unwrap_err();
    assert!(matches!(twice, InstallError::AlreadyInstalled));
    assert_eq!(
        twice.to_string(),
        "a wheel was installed for this runtime before"
    );

    installed.shutdown().await;
    drop(time::sleep(HOUR));
    let too_late = install(TimerWheel::builder()).unwrap_err();
    assert!(matches!(too_late, InstallError::AlreadyInUse));
    assert!(too_late.to_string().contains("install it first"));
    assert!(too_late.source().is_none());
    // A refused builder starts nothing: its tick would be out of bounds.
    let refused = install(TimerWheel::builder().tick(ms(0)));
    assert!(matches!(refused.unwrap_err(), InstallError::AlreadyInUse));

    time::wheel().shutdown().await;
    install(TimerWheel::builder().name("again")).unwrap();
    assert_eq!(time::wheel().name(), "again");
}

#[tokio::test]
async fn installs_nothing_that_does_not_start() {
    let error = install(TimerWheel::builder().tick(Duration::ZERO)).unwrap_err();
    assert!(matches!(
        error,
        InstallError::Build(BuildError::Tick { .. })
    ));
    // Each error of the chain says something of its own. The text of the second was in the first
    // one's, too.
    assert_eq!(error.to_string(), "the wheel could not be started");
    let source = error.source().unwrap();
    assert!(source.to_string().contains("tick is 0ns"));
    assert!(matches!(
        source.downcast_ref(),
        Some(BuildError::Tick { .. })
    ));
    assert!(source.source().is_none());
    install(TimerWheel::builder()).unwrap();
}

#[test]
fn installs_nothing_outside_a_runtime() {
    let error = install(TimerWheel::builder()).unwrap_err();
    assert!(matches!(error, InstallError::Build(BuildError::NoRuntime)));
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

// The setting was taken for where the actor runs, without a word: the wheel was that of the current
// runtime all the same.
#[test]
fn installs_nothing_for_another_runtime() {
    let (here, elsewhere) = (current_thread(), multi_thread(1));
    here.block_on(async {
        let builder = TimerWheel::builder().runtime(elsewhere.handle().clone());
        let error = install(builder).unwrap_err();
        assert!(matches!(error, InstallError::OtherRuntime));
        for name in ["Builder::runtime", "time::install"] {
            assert!(error.to_string().contains(name), "{error}");
        }
        assert!(error.source().is_none());
        // Naming the current runtime is no contradiction.
        let builder = TimerWheel::builder().runtime(here.handle().clone());
        install(builder.name("here")).unwrap();
        assert_eq!(time::wheel().name(), "here");
    });
}
