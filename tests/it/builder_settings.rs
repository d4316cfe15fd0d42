//! A setting without bounds: the lateness at which the actor warns.

use std::sync::Arc;
use std::time::Duration;

use crate::display::warnings::Warnings;
use crate::support::{builder, jump, ms, poll_idly};
use tickwheel::Builder;
use tokio_test::assert_pending;

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
