//! The scripts of Netty's and go-zero's own tests, played to the code on the page.

use tickwheel::{KeyedTimers, SetTimerError, TimerWheel};
use tickwheel_coming_from::hashed_wheels::after;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::Instant;

use crate::support::{at, ms};

type Timers = KeyedTimers<String, u32>;

/// The timers that were executed, and when.
type Executed = UnboundedReceiver<(u128, String, u32)>;

fn start(wheel: &TimerWheel) -> (Timers, Executed) {
    let (executed, received) = mpsc::unbounded_channel();
    let start = Instant::now();
    let timers = after::start(wheel, move |key, value| {
        let executed = executed.clone();
        async move { drop(executed.send((at(start), key, value))) }
    });
    (timers, received)
}

fn set(timers: &Timers, key: &str, value: u32, delay: u64) {
    timers
        .set_timer(key.to_owned(), value, ms(delay))
        .expect("it is open");
}

#[tokio::test(start_paused = true)]
async fn set_again_replaces_value_and_deadline() {
    let (timers, mut executed) = start(&TimerWheel::new());
    set(&timers, "any", 3, 40);
    set(&timers, "any", 4, 70);
    drop(timers);
    assert_eq!(executed.recv().await, Some((70, "any".to_owned(), 4)));
    assert_eq!(executed.recv().await, None);
}

#[tokio::test(start_paused = true)]
async fn moved_timer_keeps_its_value() {
    for delay in [20, 70, 0] {
        let (timers, mut executed) = start(&TimerWheel::new());
        set(&timers, "any", 3, 40);
        assert_eq!(timers.move_timer("any", ms(delay)), Ok(true));
        assert_eq!(timers.move_timer("other", ms(delay)), Ok(false));
        drop(timers);
        assert_eq!(
            executed.recv().await,
            Some((u128::from(delay), "any".to_owned(), 3))
        );
        assert_eq!(executed.recv().await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn removed_timer_is_not_executed_and_says_so() {
    let (timers, mut executed) = start(&TimerWheel::new());
    set(&timers, "any", 3, 40);
    assert_eq!(timers.remove_timer("any"), Ok(Some(3)));
    assert_eq!(timers.remove_timer("any"), Ok(None));
    drop(timers);
    assert_eq!(executed.recv().await, None);
}

#[tokio::test(start_paused = true)]
async fn drain_returns_what_is_pending_earliest_first() {
    let (timers, mut executed) = start(&TimerWheel::new());
    for (key, value, delay) in [("b", 2, 80), ("a", 1, 40), ("c", 3, 90)] {
        set(&timers, key, value, delay);
    }
    let drained = timers.drain().expect("it is open");
    let drained: Vec<_> = drained
        .into_iter()
        .map(|timer| (timer.key, timer.value))
        .collect();
    assert_eq!(
        drained,
        [
            ("a".to_owned(), 1),
            ("b".to_owned(), 2),
            ("c".to_owned(), 3)
        ]
    );
    assert!(timers.is_empty());
    drop(timers);
    assert_eq!(executed.recv().await, None);
}

#[tokio::test(start_paused = true)]
async fn limit_hands_key_and_value_back() {
    let wheel = TimerWheel::builder()
        .max_keyed(1)
        .start()
        .expect("the settings are good");
    let (timers, _executed) = start(&wheel);
    set(&timers, "a", 1, 40);
    match timers.set_timer("b".to_owned(), 2, ms(40)) {
        Err(SetTimerError::Full(key, value)) => assert_eq!((key.as_str(), value), ("b", 2)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn calls_after_a_shutdown_fail() {
    let wheel = TimerWheel::new();
    let (timers, _executed) = start(&wheel);
    set(&timers, "a", 1, 40);
    wheel.shutdown().await;
    assert!(matches!(
        timers.set_timer("b".to_owned(), 2, ms(40)),
        Err(SetTimerError::Closed(..))
    ));
}
