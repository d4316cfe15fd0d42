//! Receiving expirations: one, many, by hand, as a `Stream`, and not at all.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::stream::FusedStream;
use futures::{StreamExt, poll};
use tickwheel::{TimerWheel, TryRecvError};
use tokio::time::{self, Instant};

use crate::support::{advance, assert_balanced, ms, received, timed};

#[derive(Default)]
struct CountWakes(AtomicUsize);

impl Wake for CountWakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl CountWakes {
    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

#[tokio::test(start_paused = true)]
async fn p10_consumer_that_never_reads_blocks_no_task() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let (others, mut other_stream) = wheel.keyed();
    for round in 0..100_u64 {
        for key in round * 100..round * 100 + 100 {
            timers.set_timer(key, round, ms(1)).unwrap();
        }
        others.set_timer(round, (), ms(1)).unwrap();
        let sleep = wheel.sleep(ms(1));
        advance(&wheel, ms(1)).await;
        let now = Instant::now();
        sleep.await;
        assert_eq!(Instant::now(), now, "a sleep was due too");
        assert_eq!(
            received(&mut other_stream),
            [(round, ())],
            "another set goes on"
        );
        let unread = usize::try_from(round + 1).unwrap() * 99;
        assert_eq!(timers.len(), unread + 1);
        assert_eq!(timers.remove_timer(&(round * 100)), Ok(Some(round)));
        assert_eq!(timers.len(), unread);
    }
    let unread = received(&mut stream);
    assert_eq!(unread.len(), 9_900);
    assert!(unread.is_sorted());
    assert!(timers.is_empty());
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn p10_shuts_down_though_no_task_reads() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    for key in 0..10_000 {
        timers.set_timer(key, (), ms(key % 2 * 1000)).unwrap();
    }
    advance(&wheel, ms(1)).await;
    wheel.shutdown().await;
    assert_eq!(received(&mut stream).len(), 5000);
    assert_eq!(stream.unexpired().len(), 5000);
}

#[tokio::test(start_paused = true)]
async fn lets_a_consumer_set_and_move_timers_in_its_loop() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let start = Instant::now();
    timers.set_timer('a', 0, ms(10)).unwrap();
    timers.set_timer('b', 0, ms(1000)).unwrap();
    for round in 1..=50 {
        let expired = stream.recv().await.unwrap();
        assert_eq!((expired.key, expired.value), ('a', round - 1));
        timers.set_timer('a', round, ms(10)).unwrap();
        timers.move_timer(&'b', ms(1000)).unwrap();
    }
    assert_eq!(start.elapsed(), ms(500));
    timers.remove_timer(&'a').unwrap();
    assert_eq!(timed(&mut stream, start, 1).await, [('b', 0, 1500)]);
}

#[tokio::test(start_paused = true)]
async fn appends_up_to_its_limit_by_recv_many() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    for key in 0..10 {
        timers.set_timer(key, (), ms(key / 5)).unwrap();
    }
    let mut into = Vec::new();
    assert_eq!(
        stream.recv_many(&mut into, 0).await,
        0,
        "a limit of zero waits for nothing"
    );
    assert_eq!(stream.recv_many(&mut into, 3).await, 3);
    assert_eq!(stream.recv_many(&mut into, 100).await, 2);
    assert_eq!(stream.recv_many(&mut into, 100).await, 5);
    assert!(into.iter().map(|e| e.key).eq(0..10));
    drop(timers);
    assert_eq!(stream.recv_many(&mut into, 100).await, 0, "the end");
    assert_eq!(into.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn distinguishes_empty_from_closed_in_try_recv() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    assert_eq!(stream.try_recv(), Err(TryRecvError::Empty));
    timers.set_timer(1, (), ms(1)).unwrap();
    drop(timers);
    assert_eq!(stream.try_recv(), Err(TryRecvError::Empty));
    advance(&wheel, ms(1)).await;
    assert_eq!(stream.try_recv().map(|e| e.key), Ok(1));
    assert_eq!(stream.try_recv(), Err(TryRecvError::Closed));
    assert_eq!(stream.try_recv(), Err(TryRecvError::Closed));
}

#[tokio::test(start_paused = true)]
async fn fires_the_rest_without_handles_and_then_ends_the_stream() {
    let wheel = TimerWheel::new();
    let (timers, stream) = wheel.keyed();
    for key in 0..5_u64 {
        timers.set_timer(key, (), ms(10 * key)).unwrap();
    }
    let clone = timers.clone();
    drop(timers);
    clone.remove_timer(&3).unwrap();
    drop(clone);
    let keys: Vec<_> = stream.map(|expired| expired.key).collect().await;
    assert_eq!(keys, [0, 1, 2, 4]);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn wakes_a_waiting_stream_when_the_last_handle_is_dropped() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u8, u8>();
    let waiting = tokio::spawn(async move { stream.recv().await });
    tokio::task::yield_now().await;
    drop(timers);
    assert_eq!(waiting.await.unwrap(), None);

    let (timers, mut stream) = wheel.keyed::<u8, u8>();
    timers.set_timer(1, 1, ms(10_000)).unwrap();
    let waiting = tokio::spawn(async move { stream.recv().await });
    tokio::task::yield_now().await;
    timers.remove_timer(&1).unwrap();
    drop(timers);
    assert_eq!(waiting.await.unwrap(), None);
    assert!(!wheel.is_shutdown());
}

#[tokio::test(start_paused = true)]
async fn p3_wakes_only_the_last_pollers_waker_and_once() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let wakes = [Arc::<CountWakes>::default(), Arc::default()];
    let wakers = wakes.each_ref().map(|w| Waker::from(Arc::clone(w)));
    for waker in [&wakers[0], &wakers[1], &wakers[1]] {
        assert_eq!(
            stream.poll_recv(&mut Context::from_waker(waker)),
            Poll::Pending
        );
    }
    for key in 0..20 {
        timers.set_timer(key, (), ms(key)).unwrap();
    }
    advance(&wheel, ms(20)).await;
    advance(&wheel, ms(20)).await;
    assert_eq!([wakes[0].get(), wakes[1].get()], [0, 1]);
    let polled = stream.poll_recv(&mut Context::from_waker(&wakers[0]));
    assert!(matches!(polled, Poll::Ready(Some(e)) if e.key == 0));
    assert_eq!(received(&mut stream).len(), 19);
}

#[tokio::test(start_paused = true)]
async fn loses_nothing_by_a_dropped_recv() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let mut into = Vec::new();
    for key in 0..50 {
        timers.set_timer(key, (), ms(1)).unwrap();
        {
            let mut recv = pin!(stream.recv());
            assert!(poll!(&mut recv).is_pending());
            // It fires while the future exists, and the future is not polled again.
            advance(&wheel, ms(1)).await;
        }
        {
            let mut many = pin!(stream.recv_many(&mut into, 10));
            assert_eq!(poll!(&mut many), Poll::Ready(1));
        }
        let mut many = pin!(stream.recv_many(&mut into, 10));
        assert!(poll!(&mut many).is_pending());
    }
    assert!(into.iter().map(|e| e.key).eq(0..50));
}

#[tokio::test(start_paused = true)]
async fn loses_nothing_in_select_between_recv_and_timeout() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    timers.set_interval((), 7, ms(10)).unwrap();
    let mut received = 0;
    let mut timeouts = 0;
    while received < 100 {
        tokio::select! {
            Some(expired) = stream.recv() => received += usize::from(expired.value == 7),
            () = wheel.sleep(ms(3)) => timeouts += 1,
        }
    }
    assert!(timeouts >= 300, "{timeouts}");
    assert_eq!(wheel.metrics().keyed_fired, 100);
}

#[tokio::test(start_paused = true)]
async fn does_nothing_for_futures_dropped_before_a_poll() {
    let wheel = TimerWheel::new();
    let (timers, _stream) = wheel.keyed();
    timers.set_timer(1, 'v', ms(10)).unwrap();
    drop(wheel.shutdown());
    drop(wheel.settle());
    time::advance(ms(5)).await;
    assert!(!wheel.is_shutdown());
    assert_eq!(timers.remove_timer(&1), Ok(Some('v')));
}

#[tokio::test(start_paused = true)]
async fn has_no_effect_when_settle_is_dropped_halfway() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    for key in 0..20 {
        timers.set_timer(key, (), ms(0)).unwrap();
        let mut settle = pin!(wheel.settle());
        assert!(poll!(&mut settle).is_pending());
    }
    wheel.settle().await;
    assert_eq!(received(&mut stream).len(), 20);
}

#[tokio::test(start_paused = true)]
async fn lets_other_tasks_run_beside_a_reader_of_a_full_stream() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    for key in 0..10_000 {
        timers.set_timer(key, (), ms(0)).unwrap();
    }
    wheel.settle().await;
    let other = tokio::spawn(async {});
    let mut reads_before_other = 0;
    for _ in 0..10_000 {
        stream.recv().await.unwrap();
        reads_before_other += usize::from(!other.is_finished());
    }
    assert!(reads_before_other < 1000, "{reads_before_other}");
}

#[tokio::test(start_paused = true)]
async fn ends_the_stream_though_a_weak_handle_is_left() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let weak = timers.downgrade();
    let upgraded = weak.upgrade().expect("a handle is left");
    assert_eq!(upgraded.set_timer(1, 'a', ms(5)), Ok(None));
    assert_eq!(timers.remove_timer(&1), Ok(Some('a')), "it is one set");
    drop(timers);
    assert_eq!(stream.try_recv(), Err(TryRecvError::Empty));
    let again = weak.clone().upgrade().expect("an upgraded handle is one");
    drop(upgraded);
    again.set_timer(2, 'b', ms(5)).unwrap();
    drop(again);
    assert!(weak.upgrade().is_none(), "a timer is no handle");
    assert_eq!(stream.recv().await.map(|e| e.key), Some(2));
    assert_eq!(stream.recv().await, None);
    assert!(weak.upgrade().is_none());
}

#[tokio::test(start_paused = true)]
async fn stream_is_terminated_once_it_has_returned_none() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    timers.set_timer(1, (), ms(1)).unwrap();
    assert!(poll!(stream.next()).is_pending() && !stream.is_terminated());
    drop(timers);
    assert_eq!(stream.next().await.unwrap().key, 1);
    assert!(!stream.is_terminated());
    let (mut ended, mut ticks) = (0, 0);
    let mut interval = tickwheel::time::IntervalStream::new(wheel.interval(ms(1)));
    while ticks < 3 {
        // A stream that is terminated is not polled any more.
        futures::select! {
            expired = stream.next() => ended += usize::from(expired.is_none()),
            tick = interval.next() => ticks += usize::from(tick.is_some()),
        }
    }
    assert!(stream.is_terminated() && !interval.is_terminated());
    assert_eq!(ended, 1);
}
