use std::time::Duration;
use tickwheel::TimerWheel;
use tokio::time::{self, Instant};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[tokio::test(start_paused = true)]
async fn sleeps() {
    let wheel = TimerWheel::new();
    for n in [
        0,
        1,
        63,
        64,
        65,
        4095,
        4096,
        4097,
        1 << 30,
        (1u64 << 36) + 1,
    ] {
        let start = Instant::now();
        wheel.sleep(ms(n)).await;
        assert_eq!(start.elapsed(), ms(n));
    }
    assert!(
        wheel
            .timeout(ms(5), std::future::pending::<()>())
            .await
            .is_err()
    );
    drop(wheel.timeout(Duration::MAX, async {}).await.unwrap());
    println!("{:?}", wheel.metrics());
    wheel.shutdown().await;
    let start = Instant::now();
    wheel.sleep(ms(7)).await;
    assert_eq!(start.elapsed(), ms(7));
}

#[tokio::test(start_paused = true)]
async fn keyed() {
    let wheel = TimerWheel::new();
    let (timers, mut exp) = wheel.keyed();
    timers.set_timer(7u64, "x", ms(40)).unwrap();
    timers.set_timer(8, "y", ms(40)).unwrap();
    timers.move_timer(7, ms(50)).unwrap();
    timers.remove_timer(&8).unwrap();
    timers.set_timer(9, "z", ms(20)).unwrap();
    timers.move_timer(9, ms(10)).unwrap();
    assert_eq!(timers.len(), 2);
    let start = Instant::now();
    let e = exp.recv().await.unwrap();
    assert_eq!((e.key, start.elapsed()), (9, ms(10)));
    let e = exp.recv().await.unwrap();
    assert_eq!((e.key, start.elapsed()), (7, ms(50)));
    timers.set_interval(1, "i", ms(10)).unwrap();
    for i in 1..5 {
        let e = exp.recv().await.unwrap();
        assert_eq!((e.key, start.elapsed()), (1, ms(50 + 10 * i)));
    }
    assert_eq!(timers.drain().await.unwrap().len(), 1);
    for i in 0..2000 {
        timers.set_timer(i, "n", ms(i % 7)).unwrap();
    }
    time::advance(ms(7)).await;
    wheel.settle().await;
    let mut v = vec![];
    assert_eq!(exp.recv_many(&mut v, 5000).await, 2000);
    assert!(v.is_sorted_by_key(|e| (e.key % 7, e.key)));
    timers.set_timer(1, "a", ms(100)).unwrap();
    timers.set_timer(2, "b", ms(50)).unwrap();
    println!("{:?}", wheel.metrics());
    wheel.shutdown().await;
    assert!(timers.set_timer(1, "a", ms(100)).unwrap_err().is_closed());
    assert!(exp.recv().await.is_none());
    assert_eq!(
        exp.unexpired().iter().map(|e| e.key).collect::<Vec<_>>(),
        [2, 1]
    );
}

#[tokio::test]
async fn ends_by_itself() {
    let wheel = TimerWheel::new();
    let s = wheel.sleep(ms(50));
    let dropped = wheel.sleep(Duration::from_secs(3600));
    let mut dropped = Box::pin(dropped);
    let _ = futures::poll!(&mut dropped);
    drop(dropped);
    wheel.settle().await;
    drop(wheel);
    s.await;
    assert_eq!(
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks(),
        0
    );
}
