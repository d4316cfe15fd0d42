//! The cost of idle timers: a stream that is watched, and a million connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use tickwheel::{TimerWheel, WheelMetrics};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::churn::LONG;
use crate::measure::{Meter, Scale, alternate, cpu, emit, emit_cost};
use crate::sides::{runtime, wheel_on, wheel_on_thread};

const MESSAGE: usize = 64;

/// Echo on the loopback: round trips over a plain stream, and over one that its server closes when
/// it is idle.
pub fn echo(scale: Scale) {
    let runtime = runtime(1);
    let wheel = wheel_on(&runtime);
    let series = ["plain", "IdleStream"];
    let mut clients: Vec<TcpStream> = runtime.block_on(async {
        let mut clients = Vec::new();
        for side in 0..series.len() {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let address = listener.local_addr().expect("it is bound");
            let client = TcpStream::connect(address).await.expect("it listens");
            let (server, _) = listener.accept().await.expect("it was connected to");
            for stream in [&client, &server] {
                stream.set_nodelay(true).expect("a stream of TCP");
            }
            if side == 0 {
                tokio::spawn(answer(server));
            } else {
                tokio::spawn(answer(wheel.idle_stream(server, LONG)));
            }
            clients.push(client);
        }
        clients
    });
    let costs = alternate(scale, series.len(), |side, rounds| {
        let client = &mut clients[side];
        runtime.block_on(async move {
            let mut buffer = [7; MESSAGE];
            let meter = Meter::start();
            for _ in 0..rounds {
                client.write_all(&buffer).await.expect("it answers");
                client.read_exact(&mut buffer).await.expect("it answers");
            }
            meter.stop()
        })
    });
    for costs in costs {
        for (series, cost) in series.iter().zip(costs) {
            emit_cost(series, cost);
        }
    }
}

/// Gives back what it gets.
async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let mut buffer = [0; MESSAGE];
    while stream.read_exact(&mut buffer).await.is_ok() {
        if stream.write_all(&buffer).await.is_err() {
            return;
        }
    }
}

/// How often each connection is touched in its idle period, on average.
const TOUCHES: u32 = 10;

/// How many idle periods are measured, after a first one.
const PERIODS: u32 = 2;

/// A million connections, touched at random while the actor, on its own thread, sees to it
/// that none is reaped that should not be.
pub fn watches(scale: Scale) {
    let connections: usize = scale.pick(100_000, 1_000_000);
    let idle = Duration::from_secs(scale.pick(2, 12));
    let wheel = wheel_on_thread(TimerWheel::builder());
    let (reaper, mut expirations) = wheel.reaper::<usize, ()>(idle);
    let watches: Arc<[_]> = (0..connections)
        .map(|key| reaper.watch(key, ()).expect("there is room"))
        .collect();
    let mut rng = Rng::with_seed(connections as u64);
    let touches = connections as u64 * u64::from(TOUCHES);
    let mut touch_for = |periods: u32| {
        let began = Instant::now();
        let rate = touches as f64 / idle.as_secs_f64();
        let all = touches * u64::from(periods);
        let mut done = 0;
        let mut expired = 0_u64;
        while done < all {
            for _ in 0..1000 {
                if !watches[rng.usize(..connections)].touch() {
                    expired += 1;
                }
            }
            done += 1000;
            let due = began + Duration::from_secs_f64(done as f64 / rate);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            while expirations.try_recv().is_ok() {}
        }
        expired
    };
    touch_for(1);
    let (before, cpu_before) = (wheel.metrics(), other_threads());
    touch_for(PERIODS);
    let (after, used) = (wheel.metrics(), other_threads().saturating_sub(cpu_before));
    let of = |count: fn(&WheelMetrics) -> u64| (count(&after) - count(&before)) as f64;
    let reschedules = of(|m| m.rescheduled);
    emit("tickwheel", "commands", of(|m| m.commands));
    emit(
        "tickwheel",
        "reschedules",
        reschedules / connections as f64 / f64::from(PERIODS),
    );
    emit(
        "tickwheel",
        "cpu of a reschedule",
        used.as_secs_f64() * 1e9 / reschedules,
    );
    let time = idle.as_secs_f64() * f64::from(PERIODS);
    emit(
        "tickwheel",
        "share of a core",
        used.as_secs_f64() / time * 100.0,
    );
}

/// The CPU time that the threads but this one have used.
pub(crate) fn other_threads() -> Duration {
    cpu().saturating_sub(this_thread())
}

/// The CPU time that this thread has used.
fn this_thread() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("a thread may ask for its own usage");
    let micros = |time: nix::sys::time::TimeVal| {
        Duration::from_micros(u64::try_from(time.num_microseconds()).unwrap_or(0))
    };
    micros(usage.user_time()) + micros(usage.system_time())
}
