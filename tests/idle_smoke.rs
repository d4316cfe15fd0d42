//! x
use std::time::Duration;
use tickwheel::TimerWheel;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{self, Instant},
};
fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}
#[tokio::test(start_paused = true)]
async fn timer() {
    let wheel = TimerWheel::new();
    let mut idle = wheel.idle_timer(ms(100));
    let start = Instant::now();
    let h = idle.handle();
    let t = tokio::spawn({
        let h = h.clone();
        async move {
            for _ in 0..10 {
                time::sleep(ms(90)).await;
                assert!(h.touch());
            }
        }
    });
    (&mut idle).await;
    assert_eq!(start.elapsed(), ms(1000));
    t.await.unwrap();
    assert!(!h.touch());
    let busy = h.busy();
    tokio::spawn(async move {
        time::sleep(ms(1234)).await;
        drop(busy)
    });
    (&mut idle).await;
    assert_eq!(start.elapsed(), ms(2334));
    idle.reset_idle(ms(50));
    h.touch();
    (&mut idle).await;
    assert_eq!(start.elapsed(), ms(2384));
}
#[tokio::test(start_paused = true)]
async fn reaper() {
    let wheel = TimerWheel::new();
    let (reaper, mut exp) = wheel.reaper::<u32, u32>(ms(100));
    let a = reaper.watch(1, 1).unwrap();
    let b = reaper.watch(2, 2).unwrap();
    let c = reaper.watch(3, 3).unwrap();
    let start = Instant::now();
    time::sleep(ms(60)).await;
    a.touch();
    drop(c);
    let e = exp.recv().await.unwrap();
    assert_eq!((e.key, start.elapsed()), (2, ms(100)));
    assert!(!b.touch());
    time::advance(ms(59)).await;
    let busy = a.busy();
    time::advance(ms(1000)).await;
    wheel.settle().await;
    assert!(exp.try_recv().is_err());
    drop(busy);
    time::advance(ms(100)).await;
    wheel.settle().await;
    assert!(a.touch(), "touched before it is handed out");
    assert!(exp.try_recv().is_err());
    let now = Instant::now();
    assert_eq!(exp.recv().await.unwrap().key, 1);
    assert_eq!(now.elapsed(), ms(100));
    assert_eq!(reaper.len(), 0);
    println!("{:?}", wheel.metrics());
}
#[tokio::test(start_paused = true)]
async fn stream() {
    let wheel = TimerWheel::new();
    let (a, mut b) = tokio::io::duplex(64);
    let a = wheel.idle_stream(a, ms(100));
    let (mut r, mut w) = tokio::io::split(a);
    let start = Instant::now();
    let r = tokio::spawn(async move {
        r.read_u8().await.unwrap();
        r.read_u8().await.unwrap_err().kind()
    });
    let w = tokio::spawn(async move {
        loop {
            if let Err(e) = w.write_all(&[0; 100]).await {
                return e.kind();
            }
        }
    });
    time::sleep(ms(50)).await;
    b.write_u8(1).await.unwrap();
    assert_eq!(r.await.unwrap(), std::io::ErrorKind::TimedOut);
    assert_eq!(w.await.unwrap(), std::io::ErrorKind::TimedOut);
    assert_eq!(start.elapsed(), ms(150));
}
