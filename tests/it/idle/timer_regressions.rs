//! Bugs that idle timers once had.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use crate::support::HANG_TIMEOUT;
use tickwheel::{IdleHandle, IdleTimer, TimerWheel};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// How long the stress tests run. The code without the fixes fails within a tenth of that.
const STRESS: Duration = Duration::from_secs(3);

const IDLE: Duration = Duration::from_micros(300);

/// The other thread's operation at the deadline.
struct Done {
    /// It returned that it counted.
    counted: bool,
    /// The earliest instant at which it took place.
    at: Instant,
}

/// Polls timers on one thread, without pause, while another calls `act` as close to the deadline as
/// it can. If `act` had an effect, the timer completes an idle duration after it, or later.
fn stress_deadline(act: fn(&IdleHandle) -> bool) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .expect("a runtime");
    let _inside = runtime.enter();
    let wheel = TimerWheel::builder()
        .tick(Duration::from_micros(1))
        .start()
        .expect("it starts");
    let (aim, mut aims) = mpsc::unbounded_channel::<(IdleHandle, Instant)>();
    let (tell, mut told) = mpsc::unbounded_channel();
    let acting = thread::spawn(move || {
        while let Some((handle, when)) = aims.blocking_recv() {
            while Instant::now() < when {
                std::hint::spin_loop();
            }
            let at = Instant::now();
            let counted = act(&handle);
            let _ = tell.send(Done { counted, at });
        }
    });

    let began = Instant::now();
    let (mut counted, mut refused) = (0, 0);
    let mut cx = Context::from_waker(Waker::noop());
    for round in 0_u64.. {
        // On a busy machine it takes longer until both have happened.
        let took = began.elapsed();
        if took > STRESS && (counted > 0 && refused > 0 || took > HANG_TIMEOUT) {
            break;
        }
        let mut idle: IdleTimer = wheel.idle_timer(IDLE);
        let deadline = idle.last_active() + IDLE;
        let jitter = Duration::from_nanos(round * 37 % 4_000);
        let aimed = deadline - Duration::from_micros(1) + jitter;
        aim.send((idle.handle(), aimed)).expect("it listens");
        while Pin::new(&mut idle).poll(&mut cx).is_pending() {
            std::hint::spin_loop();
        }
        let completed = Instant::now();
        let done = told.blocking_recv().expect("it answers");
        if done.counted {
            counted += 1;
            let after = completed.saturating_duration_since(done.at);
            assert!(
                after >= IDLE,
                "round {round}: completed {after:?} after it counted"
            );
        } else {
            refused += 1;
        }
    }
    drop(aim);
    acting.join().expect("it does not panic");
    assert!(
        counted > 0 && refused > 0,
        "missed the deadline: {counted}, {refused}"
    );
}

/// In an earlier version, a touch between the check of the activity and the mark of its end
/// returned `true`, and the timer completed nevertheless.
#[test]
fn touch_or_completion_but_never_both() {
    stress_deadline(IdleHandle::touch);
}

/// The same with a guard.
#[test]
fn guard_or_completion_but_never_both() {
    static HELD: AtomicU64 = AtomicU64::new(0);
    stress_deadline(|handle| {
        let busy = handle.busy();
        HELD.fetch_add(1, Ordering::Relaxed);
        busy.is_effective()
    });
}

/// A thread without a runtime adds up the nodes that it leaves on the wheel, and a paused clock
/// would stop at their ticks.
#[tokio::test(start_paused = true)]
async fn timers_dropped_by_another_thread_do_not_stop_a_paused_clock() {
    let wheel = TimerWheel::new();
    let (armed, all_armed) = std::sync::mpsc::channel();
    let (drop_all, may_drop) = std::sync::mpsc::channel::<()>();
    let (dropped, all_dropped) = std::sync::mpsc::channel();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let thread = thread::spawn({
        let wheel = wheel.clone();
        move || {
            let length = |n: u64| Duration::from_secs(3_600 + n);
            let mut timers: Vec<_> = (0..30).map(|n| wheel.idle_timer(length(n))).collect();
            for idle in &mut timers {
                tokio_test::assert_pending!(tokio_test::task::spawn(idle).poll());
            }
            armed.send(()).expect("it is awaited");
            let _ = may_drop.recv();
            drop(timers);
            dropped.send(()).expect("it is awaited");
            let _ = stopped.recv();
        }
    });
    all_armed.recv().expect("they are armed");
    wheel.settle().await;
    drop(drop_all);
    all_dropped.recv().expect("they are dropped");
    let before = wheel.metrics().turns;
    tokio::time::sleep(Duration::from_secs(7_200)).await;
    let turns = wheel.metrics().turns - before;
    assert!(turns < 10, "{turns}");
    drop(stop);
    thread.join().expect("it does not panic");
}

/// The wheel's clock is paused and jumps; the task's is not. An instant that one clock has reached
/// is decided, and not checked again and again.
#[test]
fn completes_by_wheels_clock_when_clocks_differ() {
    let (stop, stopped) = oneshot::channel::<()>();
    let (give, given) = std::sync::mpsc::channel();
    let paused = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            give.send(TimerWheel::new()).expect("it is awaited");
            let _ = stopped.await;
        });
    });
    let wheel = given.recv().expect("it is made");
    let (tell, told) = std::sync::mpsc::channel();
    let waiting = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let mut idle = wheel.idle_timer(Duration::from_secs(3_600));
            (&mut idle).await;
            tell.send(idle.touch()).expect("it is awaited");
        });
    });
    let touched = told.recv_timeout(HANG_TIMEOUT);
    assert_eq!(touched, Ok(false));
    drop(stop);
    waiting.join().expect("it does not panic");
    paused.join().expect("it does not panic");
}
