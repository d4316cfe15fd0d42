//! Reconnect storms: all clients of a server lose it at once and come back within a second. Each
//! connection has three timers: a handshake limit, an idle limit and a request limit.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::clients::{BODY, REQUEST};
use crate::fleet::{Entrance, Stream, emit_latencies, serve, sockets};
use crate::idle::other_threads;
use crate::measure::{Scale, Spent, emit, max_rss};
use crate::proxy::within;
use crate::sides::{Floor, PendingOnce, Side, Tickwheel, Timer, Tokio, runtime, wheel_on};

/// The time within which all clients come.
const SPREAD: Duration = Duration::from_secs(1);

/// The limits of a handshake, of a request, and of the time between requests.
const HANDSHAKE: Duration = Duration::from_secs(30);
const LIMIT: Duration = Duration::from_secs(20);
const IDLE: Duration = Duration::from_mins(1);

pub fn run(scale: Scale, side: Side) {
    let clients = scale.pick(10_000, 100_000);
    let before = max_rss();
    let server = runtime(2);
    let entrance = Arc::new(match side {
        Side::Floor => serve(&server, connection, Floor),
        Side::Tickwheel => serve(&server, connection, Tickwheel(wheel_on(&server))),
        _ => serve(&server, connection, Tokio),
    });
    let (spent, seen) = runtime(1).block_on(async {
        let (fleet, _) = come(&entrance, clients).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let (began, cpu_before) = (Instant::now(), other_threads());
        drop(fleet);
        let (fleet, seen) = come(&entrance, clients).await;
        let wall = began.elapsed();
        // The rest of the lost connections ends too.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let cpu = other_threads().saturating_sub(cpu_before);
        drop(fleet);
        (Spent { wall, cpu }, seen)
    });
    let series = side.name();
    emit(series, "cpu", spent.per(clients).cpu / 1e3);
    emit(series, "wall", spent.wall.as_secs_f64());
    emit_latencies(series, seen);
    emit(series, "rss", (max_rss() - before) / clients as f64);
    emit(series, "sockets", sockets(clients) as f64);
}

async fn connection<T: Timer>(mut client: Stream, timer: T) -> io::Result<()> {
    let mut request = [0; REQUEST.len()];
    within(&timer, HANDSHAKE, async {
        client.read_exact(&mut request).await?;
        client.write_all(BODY.as_bytes()).await
    })
    .await?;
    loop {
        within(&timer, IDLE, client.read_exact(&mut request)).await?;
        within(&timer, LIMIT, async {
            // The handler waits once, as one that asks a database does.
            PendingOnce::default().await;
            client.write_all(BODY.as_bytes()).await
        })
        .await?;
    }
}

/// Lets all clients connect, each at its time, and ask once. How long each took counts from its
/// time, also if the clients cannot keep up.
async fn come(entrance: &Arc<Entrance>, clients: u64) -> (Vec<Stream>, Vec<Duration>) {
    let begin = Instant::now();
    let mut tasks = Vec::new();
    for number in 0..clients {
        let due = begin + SPREAD.mul_f64(number as f64 / clients as f64);
        if due > Instant::now() {
            tokio::time::sleep_until(due.into()).await;
        }
        let entrance = Arc::clone(entrance);
        tasks.push(tokio::spawn(async move {
            let mut stream = entrance.connect(number, clients).await;
            let mut body = [0; BODY.len()];
            // Once for the handshake.
            for _ in 0..2 {
                stream.write_all(REQUEST).await.expect("it is open");
                stream.read_exact(&mut body).await.expect("it is answered");
            }
            (stream, due.elapsed())
        }));
        if number % 64 == 0 {
            tokio::task::yield_now().await;
        }
    }
    let (mut fleet, mut seen) = (Vec::new(), Vec::new());
    for task in tasks {
        let (stream, took) = task.await.expect("it is answered");
        fleet.push(stream);
        seen.push(took);
    }
    (fleet, seen)
}
