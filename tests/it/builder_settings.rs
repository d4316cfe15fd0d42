//! Settings without bounds: the name of the thread, and the lateness at which the actor warns.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::display::warnings::Warnings;
use crate::support::{HOUR, builder, jump, ms, poll_idly, poll_with, waker_fn};
use futures::executor::block_on;
use tickwheel::Builder;
use tokio_test::assert_pending;

/// The name of the thread on which the wheel wakes tasks.
fn thread_name(builder: Builder) -> String {
    let wheel = builder.dedicated_thread().start().unwrap();
    let name = Arc::new(Mutex::new(String::new()));
    let seen = Arc::clone(&name);
    let waker = waker_fn(move || {
        let name = thread::current().name().unwrap_or("unnamed").to_owned();
        *seen.lock().unwrap() = name;
    });
    let mut sleep = wheel.sleep(HOUR);
    assert_pending!(poll_with(&mut sleep, &waker));
    // A sleep that waits is woken when the actor ends, to go on with Tokio's timer.
    block_on(wheel.shutdown());
    let name = name.lock().unwrap();
    name.clone()
}

#[test]
fn names_its_dedicated_thread() {
    assert_eq!(thread_name(builder()), "tickwheel");
    assert_eq!(thread_name(builder().name("calls")), "calls");
}

#[test]
fn starts_a_thread_whose_name_has_a_nul() {
    let name = thread_name(builder().name("a\0b"));
    assert!(name.starts_with('a') && name.ends_with('b'), "{name:?}");
    assert!(!name.contains('\0'), "{name:?}");
}

/// How many warnings a wheel logs whose actor processes timers of these lengths after `by`, in one
/// turn.
async fn warnings_after(builder: Builder, lengths: &[Duration], by: Duration) -> usize {
    let warnings = Arc::new(Warnings::default());
    let _here = tracing::subscriber::set_default(Arc::clone(&warnings));
    let wheel = builder.start().unwrap();
    let sleeps = lengths.iter().map(|&length| wheel.sleep(length));
    let mut sleeps: Vec<_> = sleeps.collect();
    for sleep in &mut sleeps {
        assert_pending!(poll_idly(sleep));
    }
    wheel.settle().await;
    jump(by);
    wheel.settle().await;
    assert!(sleeps.iter().all(tickwheel::Sleep::is_elapsed));
    assert_eq!(wheel.metrics().lateness.max(), by.abs_diff(lengths[0]));
    warnings.count()
}

#[tokio::test(start_paused = true)]
async fn warns_by_default_when_later_than_a_second() {
    let usual = builder;
    assert_eq!(warnings_after(usual(), &[ms(5)], ms(1_005)).await, 0);
    assert_eq!(warnings_after(usual(), &[ms(5)], ms(1_006)).await, 1);
}

#[tokio::test(start_paused = true)]
async fn warns_of_the_latest_timer_of_a_turn() {
    // The first is 65 ms late, the last of the same turn 10 ms.
    let builder = builder().late_warning(ms(50));
    let lengths = [ms(5), ms(60)];
    assert_eq!(warnings_after(builder, &lengths, ms(70)).await, 1);
}
