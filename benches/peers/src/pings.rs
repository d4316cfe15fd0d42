//! A server that pings its clients, as those of websockets do: an interval for each connection, and
//! a limit for each pong.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::fleet::{Keeper, Stream, emit_latencies, serve, sockets};
use crate::idle::other_threads;
use crate::intervals::Ticks;
use crate::measure::{Scale, Spent, emit, emit_lateness, max_rss};
use crate::proxy::within;
use crate::sides::{Side, Tickwheel, Tokio, runtime, wheel_on};

const CONNECTIONS: u64 = 10_000;

/// So many clients also send messages, which the server sends back: each the next one so long after
/// an answer.
const TALKERS: u64 = 16;
const PAUSE: Duration = Duration::from_millis(10);

const PERIOD: Duration = Duration::from_secs(1);
const PONG_LIMIT: Duration = Duration::from_secs(5);

/// All frames have one length.
type Frame = [u8; 8];
const PING: Frame = *b"ping....";
const PONG: Frame = *b"pong....";
const MESSAGE: Frame = *b"message.";

type Late = UnboundedSender<Vec<u32>>;
type Window = (Instant, Instant);

pub fn run(scale: Scale, side: Side) {
    let before = max_rss();
    let server = runtime(2);
    let begin = Instant::now() + Duration::from_secs(scale.pick(2, 3));
    let window = (begin, begin + Duration::from_secs(scale.pick(2, 5)));
    let (sender, mut lateness) = unbounded_channel();
    let entrance = Arc::new(if side == Side::Tickwheel {
        let timer = Tickwheel(wheel_on(&server));
        serve(&server, connection, (timer, window, sender))
    } else {
        serve(&server, connection, (Tokio, window, sender))
    });
    let (spent, seen, late) = runtime(1).block_on(async {
        let mut tasks = Vec::new();
        for number in 0..CONNECTIONS {
            let stream = entrance.connect(number, CONNECTIONS).await;
            // Talkers have sockets as often as others.
            let is_talker = number % (CONNECTIONS / TALKERS) == 0;
            tasks.push(tokio::spawn(client(stream, is_talker, window)));
        }
        assert!(Instant::now() < begin, "connecting took too long");
        tokio::time::sleep_until(begin.into()).await;
        let cpu_before = other_threads();
        tokio::time::sleep_until(window.1.into()).await;
        let (wall, cpu) = (begin.elapsed(), other_threads().saturating_sub(cpu_before));
        let mut seen = Vec::new();
        for task in tasks {
            seen.extend(task.await.expect("it does not panic"));
        }
        let mut late = Vec::new();
        for _ in 0..CONNECTIONS {
            late.extend(lateness.recv().await.expect("the server runs"));
        }
        (Spent { wall, cpu }, seen, late)
    });
    let series = side.name();
    emit(series, "cpu", spent.per(late.len() as u64).cpu / 1e3);
    emit_lateness(series, late, 0);
    emit_latencies(series, seen);
    emit(series, "rss", (max_rss() - before) / CONNECTIONS as f64);
    emit(series, "sockets", sockets(CONNECTIONS) as f64);
}

/// Sends what it has seen of its pings when it ends.
async fn connection<T: Keeper>(
    client: Stream,
    (timer, window, sender): (T, Window, Late),
) -> io::Result<()> {
    let mut late = Vec::new();
    let ended = ping(client, timer, window, &mut late).await;
    let _ = sender.send(late);
    ended
}

async fn ping<T: Keeper>(
    mut client: Stream,
    timer: T,
    (begin, end): Window,
    late: &mut Vec<u32>,
) -> io::Result<()> {
    let start = Instant::now() + PERIOD.mul_f64(fastrand::f64());
    let mut pings = timer.interval_at(start, PERIOD);
    let mut frame = Frame::default();
    loop {
        tokio::select! {
            due = pings.tick() => {
                let due = due.into_std();
                if (begin..end).contains(&due) {
                    late.push(u32::try_from(due.elapsed().as_micros()).unwrap_or(u32::MAX));
                }
                client.write_all(&PING).await?;
                within(&timer, PONG_LIMIT, pong(&mut client)).await?;
            }
            read = client.read_exact(&mut frame) => {
                read?;
                client.write_all(&frame).await?;
            }
        }
    }
}

/// Waits for the pong, and serves the client meanwhile.
async fn pong(client: &mut Stream) -> io::Result<()> {
    let mut frame = Frame::default();
    while frame != PONG {
        client.read_exact(&mut frame).await?;
        if frame != PONG {
            client.write_all(&frame).await?;
        }
    }
    Ok(())
}

/// Answers pings until the window ends. Returns how long the answers to its messages took.
async fn client(mut stream: Stream, is_talker: bool, window: Window) -> Vec<Duration> {
    let mut seen = Vec::new();
    let talk = talk(&mut stream, is_talker, window, &mut seen);
    let _ = tokio::time::timeout_at(window.1.into(), talk).await;
    seen
}

async fn talk(
    stream: &mut Stream,
    is_talker: bool,
    (begin, end): Window,
    seen: &mut Vec<Duration>,
) {
    let (mut sent, mut next) = (None, begin);
    let mut frame = Frame::default();
    loop {
        let is_quiet = is_talker && sent.is_none() && next < end;
        tokio::select! {
            () = tokio::time::sleep_until(next.into()), if is_quiet => {
                sent = Some(Instant::now());
                stream.write_all(&MESSAGE).await.expect("it is open");
            }
            read = stream.read_exact(&mut frame) => {
                read.expect("it is open");
                if frame == PING {
                    stream.write_all(&PONG).await.expect("it is open");
                } else if let Some(sent) = sent.take() {
                    seen.push(sent.elapsed());
                    next = Instant::now() + PAUSE;
                }
            }
        }
    }
}
