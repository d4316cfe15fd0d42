//! Does one operation so often: `gate OPERATION ROUNDS`. `gate` alone lists the operations.
//!
//! Everything runs on one thread, and next to nothing depends on how fast it runs, so that the
//! number of instructions is the same each time but for a few. For that the wheels have a long
//! tick: the first timeout of each tick takes more instructions than the others, and how many there
//! are in a tick depends on the machine. The work before and after does not depend on the number of
//! rounds: the difference between two runs is what the rounds took.

use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::pin::Pin;
use std::process::ExitCode;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tickwheel::time;
use tickwheel::wheel::Wheel;
use tickwheel::{Timeout, TimerWheel};
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

const LONG: Duration = Duration::from_secs(36_000);

/// The longest operation takes a few seconds under valgrind.
const TICK: Duration = Duration::from_secs(60);

/// Timers that are there all the time.
const RESIDENT: u64 = 1000;

type Operation = fn(u64);

const OPERATIONS: [(&str, Operation); 14] = [
    ("clock", clock),
    ("timeout", timeout),
    ("timeout-mixed", timeout_mixed),
    ("timeout-ambient", timeout_ambient),
    ("timeout-ambient-1", timeout_ambient_1),
    ("reset", reset),
    ("touch", touch),
    ("touch-at", touch_at),
    ("keyed-set-again", keyed_set_again),
    ("keyed-move", keyed_move),
    ("keyed-set-remove", keyed_set_remove),
    ("wheel-insert-remove", wheel_insert_remove),
    ("wheel-replace", wheel_replace),
    ("wheel-advance", wheel_advance),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [] => {
            for (name, _) in OPERATIONS {
                println!("{name}");
            }
            return ExitCode::SUCCESS;
        }
        [name, rounds] => {
            let operation = OPERATIONS.iter().find(|(known, _)| known == name);
            if let (Some((_, operation)), Ok(rounds)) = (operation, rounds.parse()) {
                operation(rounds);
                return ExitCode::SUCCESS;
            }
        }
        _ => {}
    }
    eprintln!("gate OPERATION ROUNDS");
    ExitCode::from(2)
}

fn on_a_wheel(test: impl AsyncFnOnce(TimerWheel)) {
    let runtime: Runtime = Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("the runtime starts");
    runtime.block_on(async {
        // Also the one that is found.
        let wheel = time::install(TimerWheel::builder().tick(TICK));
        test(wheel.expect("the runtime has none yet")).await;
    });
}

/// Reads the clock, which every timer has to do.
fn clock(rounds: u64) {
    for _ in 0..rounds {
        black_box(Instant::now());
    }
}

/// Pending when polled first. Nothing is woken: it is polled again at once by hand.
struct PendingOnce(bool);

impl Future for PendingOnce {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

async fn churn<F>(lengths: &[Duration], rounds: u64, timeout: F)
where
    F: Fn(Duration, PendingOnce) -> Timeout<PendingOnce>,
{
    // The waker of a real task: its clone is counted.
    let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
    let mut cx = Context::from_waker(&waker);
    let mut lengths = lengths.iter().cycle();
    for _ in 0..rounds {
        let length = *lengths.next().expect("it goes round");
        let mut timeout = timeout(length, PendingOnce(false));
        assert!(Pin::new(&mut timeout).poll(&mut cx).is_pending());
        assert!(Pin::new(&mut timeout).poll(&mut cx).is_ready());
    }
}

fn timeout(rounds: u64) {
    on_a_wheel(async |wheel| churn(&[LONG], rounds, |length, f| wheel.timeout(length, f)).await);
}

fn timeout_mixed(rounds: u64) {
    let lengths = [LONG, LONG / 2, LONG / 4];
    on_a_wheel(async |wheel| churn(&lengths, rounds, |length, f| wheel.timeout(length, f)).await);
}

/// The wheel is found: here on a worker thread, which asks Tokio once in a millisecond.
fn timeout_ambient(rounds: u64) {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_time().build();
    let runtime = runtime.expect("the runtime starts");
    let task = runtime.spawn(async move {
        time::install(TimerWheel::builder().tick(TICK)).expect("the runtime has none yet");
        churn(&[LONG], rounds, time::timeout).await;
    });
    runtime.block_on(task).expect("no round panics");
}

/// And here where Tokio is asked each time.
fn timeout_ambient_1(rounds: u64) {
    on_a_wheel(async |_| churn(&[LONG], rounds, time::timeout).await);
}

fn poll_once(future: Pin<&mut impl Future<Output = ()>>) {
    let mut context = Context::from_waker(Waker::noop());
    assert!(future.poll(&mut context).is_pending());
}

fn reset(rounds: u64) {
    on_a_wheel(async |wheel| {
        let mut sleep = wheel.sleep(LONG);
        poll_once(Pin::new(&mut sleep));
        for _ in 0..rounds {
            Pin::new(&mut sleep).reset(Instant::now() + LONG);
        }
    });
}

fn touch(rounds: u64) {
    on_a_wheel(async |wheel| {
        let mut timer = wheel.idle_timer(LONG);
        poll_once(Pin::new(&mut timer));
        let handle = timer.handle();
        for _ in 0..rounds {
            black_box(handle.touch());
        }
    });
}

fn touch_at(rounds: u64) {
    on_a_wheel(async |wheel| {
        let mut timer = wheel.idle_timer(LONG);
        poll_once(Pin::new(&mut timer));
        let handle = timer.handle();
        // Each in another tick, so that none is spared the store.
        let mut at = Instant::now();
        for _ in 0..rounds {
            at += 2 * TICK;
            black_box(handle.touch_at(black_box(at)));
        }
    });
}

/// Uses keys in an order that seems random and is the same in every run.
async fn keyed(
    wheel: TimerWheel,
    rounds: u64,
    operation: impl Fn(&tickwheel::KeyedTimers<u64, u64>, u64),
) {
    let (timers, _expirations) = wheel.keyed();
    for key in 0..RESIDENT {
        timers.set_timer(key, key, LONG).expect("there is room");
    }
    wheel.settle().await;
    for n in 0..rounds {
        operation(&timers, n * 7919 % RESIDENT);
        if n % 64 == 0 {
            // The actor's work counts too.
            tokio::task::yield_now().await;
        }
    }
    wheel.settle().await;
}

fn keyed_set_again(rounds: u64) {
    on_a_wheel(async |wheel| {
        keyed(wheel, rounds, |timers, key| {
            timers.set_timer(key, 1, LONG).expect("there is room");
        })
        .await;
    });
}

fn keyed_move(rounds: u64) {
    on_a_wheel(async |wheel| {
        keyed(wheel, rounds, |timers, key| {
            timers.move_timer(&key, LONG).expect("it is open");
        })
        .await;
    });
}

fn keyed_set_remove(rounds: u64) {
    on_a_wheel(async |wheel| {
        keyed(wheel, rounds, |timers, key| {
            let key = key + RESIDENT;
            timers.set_timer(key, 1, LONG).expect("there is room");
            timers.remove_timer(&key).expect("it is open");
        })
        .await;
    });
}

/// Ticks within an hour, spread evenly.
fn tick(n: u64) -> u64 {
    1 + n * 2_654_435_761 % 3_600_000
}

fn filled() -> (Wheel<u64>, Vec<tickwheel::wheel::Token>) {
    let mut wheel = Wheel::new();
    let tokens = (0..RESIDENT).map(|n| wheel.insert(tick(n), n)).collect();
    (wheel, tokens)
}

fn wheel_insert_remove(rounds: u64) {
    let (mut wheel, _) = filled();
    for n in 0..rounds {
        let token = wheel.insert(black_box(tick(n)), n);
        assert_eq!(wheel.remove(token), Some(n));
    }
}

fn wheel_replace(rounds: u64) {
    let (mut wheel, mut tokens) = filled();
    for n in 0..rounds {
        let at = usize::try_from(n * 7919 % RESIDENT).expect("it is small");
        let item = wheel.remove(tokens[at]).expect("it is there");
        tokens[at] = wheel.insert(black_box(tick(n)), item);
    }
}

/// Each round hands out one item and inserts it again.
fn wheel_advance(rounds: u64) {
    let (mut wheel, _) = filled();
    let mut yielded = 0;
    while yielded < rounds {
        let next = wheel.next_wake().expect("it is never empty");
        let item = wheel.advance(next, 1).next();
        if let Some(item) = item {
            yielded += 1;
            wheel.insert(next + tick(yielded), item);
        }
    }
}
