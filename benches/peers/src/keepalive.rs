//! A proxy with many keep-alive connections that are idle most of the time. Each has an idle timer,
//! which each request moves, and each request has a limit for the answer of the server behind.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::clients::{BODY, REQUEST};
use crate::fleet::{Idle as _, Keeper, Stream, emit_latencies, serve, sockets};
use crate::idle::other_threads;
use crate::measure::{Scale, Spent, emit, max_rss};
use crate::proxy::{self, within};
use crate::sides::{Floor, Side, Tickwheel, Tokio, runtime, wheel_on};

/// So many clients ask at once, each on all of its connections in turn.
const CLIENTS: usize = 64;

/// Long enough for a round of the clients, and short enough to end within the measurement for one
/// that is never moved.
const IDLE: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(10);

/// The connections to the server behind that are not in use.
#[derive(Debug, Clone)]
struct Behind {
    address: SocketAddr,
    free: Arc<Mutex<Vec<TcpStream>>>,
}

pub fn run(scale: Scale, side: Side) {
    let connections = scale.pick(10_000, 100_000);
    let length = Duration::from_secs(scale.pick(2, 6));
    let before = max_rss();
    let (client, server) = (runtime(1), runtime(2));
    let behind = Behind {
        address: proxy::serve(&client, proxy::answer, ()),
        free: Arc::default(),
    };
    let entrance = Arc::new(match side {
        Side::Floor => serve(&server, forward, (Floor, behind)),
        Side::Tickwheel => {
            let timer = Tickwheel(wheel_on(&server));
            serve(&server, forward, (timer, behind))
        }
        _ => serve(&server, forward, (Tokio, behind)),
    });
    let (spent, seen, closed) = client.block_on(async {
        let connecting: Vec<_> = (0..CLIENTS as u64)
            .map(|client| {
                let entrance = Arc::clone(&entrance);
                tokio::spawn(async move {
                    let mut streams = Vec::new();
                    for number in (client..connections).step_by(CLIENTS) {
                        streams.push(entrance.connect(number, connections).await);
                    }
                    streams
                })
            })
            .collect();
        let mut fleet = Vec::new();
        for connected in connecting {
            fleet.push(connected.await.expect("it is connected"));
        }
        let (began, cpu_before) = (Instant::now(), other_threads());
        let end = began + length;
        let tasks: Vec<_> = (fleet.into_iter())
            .map(|streams| tokio::spawn(ask(streams, end)))
            .collect();
        let (mut seen, mut closed, mut left) = (Vec::new(), 0, Vec::new());
        for task in tasks {
            let (streams, latencies, lost) = task.await.expect("it does not panic");
            left.push(streams);
            seen.extend(latencies);
            closed += lost;
        }
        let (wall, cpu) = (began.elapsed(), other_threads().saturating_sub(cpu_before));
        drop(left);
        (Spent { wall, cpu }, seen, closed)
    });
    let series = side.name();
    let cost = spent.per(seen.len() as u64);
    emit(series, "cpu", cost.cpu / 1e3);
    emit(series, "wall", cost.wall / 1e3);
    emit_latencies(series, seen);
    emit(series, "closed", f64::from(closed));
    emit(series, "rss", (max_rss() - before) / connections as f64);
    emit(series, "sockets", sockets(connections) as f64);
}

async fn forward<T: Keeper>(mut client: Stream, (timer, behind): (T, Behind)) -> io::Result<()> {
    let mut idle = pin!(timer.idle(IDLE));
    let (mut request, mut response) = ([0; REQUEST.len()], [0; BODY.len()]);
    loop {
        tokio::select! {
            read = client.read_exact(&mut request) => read?,
            () = &mut idle => return Err(io::ErrorKind::TimedOut.into()),
        };
        let free = behind.free.lock().expect("no task panics").pop();
        let mut server = match free {
            Some(server) => server,
            None => TcpStream::connect(behind.address).await?,
        };
        within(&timer, ANSWER, async {
            server.write_all(&request).await?;
            server.read_exact(&mut response).await
        })
        .await?;
        behind.free.lock().expect("no task panics").push(server);
        client.write_all(&response).await?;
        idle.as_mut().touch(IDLE);
    }
}

/// Asks on one connection after the other. Returns them, how long answers took, and how many
/// connections the server had closed.
async fn ask(mut streams: Vec<Stream>, end: Instant) -> (Vec<Stream>, Vec<Duration>, u32) {
    let (mut seen, mut closed) = (Vec::new(), 0);
    let mut body = [0; BODY.len()];
    while Instant::now() < end && !streams.is_empty() {
        let mut kept = Vec::with_capacity(streams.len());
        for mut stream in streams {
            let asked = Instant::now();
            if asked < end {
                let written = stream.write_all(REQUEST).await;
                if written.is_err() || stream.read_exact(&mut body).await.is_err() {
                    closed += 1;
                    continue;
                }
                seen.push(asked.elapsed());
            }
            kept.push(stream);
        }
        streams = kept;
    }
    (streams, seen, closed)
}
