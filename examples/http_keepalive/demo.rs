//! The server and real clients, on the loopback interface.

use std::future;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use tickwheel::TimerWheel;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{self, Instant};

use crate::run_server;

const IDLE: Duration = Duration::from_secs(1);

/// An idle connection that is not closed by then, with time for a machine that is busy, was
/// forgotten.
const SLACK: Duration = Duration::from_secs(60);

/// How many clients there are of each kind.
const CLIENTS: usize = 40;

/// The behaviour of a client before it falls silent.
struct Kind {
    name: &'static str,
    /// The paths that it requests again and again on the same connection.
    requests: &'static [&'static str],
    /// Its pause between them.
    pause: Duration,
    /// How long the server takes for the last one at least.
    takes: Duration,
}

const KINDS: [Kind; 5] = [
    Kind {
        name: "says nothing at all",
        requests: &[],
        pause: Duration::ZERO,
        takes: Duration::ZERO,
    },
    Kind {
        name: "asks once",
        requests: &["/"],
        pause: Duration::ZERO,
        takes: Duration::ZERO,
    },
    Kind {
        name: "asks every 0.4 s",
        requests: &["/", "/", "/", "/", "/", "/", "/"],
        pause: Duration::from_millis(400),
        takes: Duration::ZERO,
    },
    Kind {
        name: "waits 3 s for an answer",
        requests: &["/", "/slow/3"],
        pause: Duration::ZERO,
        takes: Duration::from_secs(3),
    },
    Kind {
        name: "downloads for 3 s",
        requests: &["/", "/trickle/3"],
        pause: Duration::ZERO,
        takes: Duration::from_secs(3),
    },
];

/// The outcome of a client.
struct Seen {
    kind: usize,
    /// Whether all its requests were answered.
    answered: bool,
    /// From when the server had nothing to do for it any more, at the earliest, until it closed the
    /// connection.
    idle: Duration,
    /// Whether it did close it.
    closed: bool,
}

/// Runs it; the exit code says whether each connection was closed when it was idle, and only then.
pub(crate) async fn run() -> io::Result<ExitCode> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let server = listener.local_addr()?;
    let clients = KINDS.len() * CLIENTS;
    say!("{clients} clients of a server that closes idle connections after {IDLE:?}");
    tokio::spawn(async move {
        let wheel = TimerWheel::new();
        run_server(listener, &wheel, IDLE, future::pending(), |_, _| {}).await
    });

    let mut running = JoinSet::new();
    for n in 0..clients {
        running.spawn(client(server, n % KINDS.len()));
    }
    let mut seen = Vec::new();
    while let Some(client) = running.join_next().await {
        seen.push(client.map_err(io::Error::other)??);
        if seen.len() % CLIENTS == 0 {
            say!("{} of {clients} connections are closed", seen.len());
        }
    }
    Ok(judge(&seen))
}

/// Does what its kind does, and waits for the server to close the connection.
async fn client(server: SocketAddr, kind: usize) -> io::Result<Seen> {
    let Kind {
        requests,
        pause,
        takes,
        ..
    } = KINDS[kind];
    let mut idle_since = Instant::now();
    let mut socket = TcpStream::connect(server).await?;
    for (n, path) in requests.iter().enumerate() {
        if n > 0 {
            time::sleep(pause).await;
        }
        let asked = Instant::now();
        if !ask(&mut socket, path).await? {
            // On a machine that stops for so long that a pause is too long, the server is right.
            // While a request is in flight it never is.
            let in_flight = if path.len() > 1 {
                asked
            } else {
                Instant::now()
            };
            let idle = in_flight - idle_since;
            return Ok(Seen {
                kind,
                answered: idle >= IDLE,
                idle,
                closed: true,
            });
        }
        idle_since = asked;
    }
    idle_since += takes;
    let end = time::timeout(IDLE + SLACK, socket.read(&mut [0; 1])).await;
    let closed = match end {
        Ok(Ok(0)) => true,
        Ok(Ok(_)) => return Err(io::Error::other("an answer without a question")),
        Ok(Err(error)) => return Err(error),
        Err(_) => false,
    };
    Ok(Seen {
        kind,
        answered: true,
        idle: idle_since.elapsed(),
        closed,
    })
}

/// Sends one request and reads its answer; false if the server has closed the connection instead.
async fn ask(socket: &mut TcpStream, path: &str) -> io::Result<bool> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: example\r\n\r\n");
    if socket.write_all(request.as_bytes()).await.is_err() {
        return Ok(false);
    }
    let mut answer = Vec::new();
    while !is_whole(&answer) {
        if socket.read_buf(&mut answer).await.unwrap_or(0) == 0 {
            return Ok(false);
        }
    }
    if answer.starts_with(b"HTTP/1.1 200 ") {
        return Ok(true);
    }
    Err(io::Error::other("an answer that is not OK"))
}

/// Whether an answer has arrived in full: the length it announces, or its last chunk.
fn is_whole(answer: &[u8]) -> bool {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let Some((head, body)) = end.map(|end| answer.split_at(end + 4)) else {
        return false;
    };
    let head = String::from_utf8_lossy(head);
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.parse().ok())?
    });
    match length {
        Some(length) => body.len() >= length,
        None => body.ends_with(b"0\r\n\r\n"),
    }
}

fn judge(seen: &[Seen]) -> ExitCode {
    say!();
    say!("a client that              connections  all answered  closed  when idle for");
    let mut held = true;
    for (number, kind) in KINDS.iter().enumerate() {
        let of_kind = || seen.iter().filter(|seen| seen.kind == number);
        let answered = of_kind().filter(|seen| seen.answered).count();
        let closed = of_kind().filter(|seen| seen.closed).count();
        let least = of_kind().map(|seen| seen.idle).min().unwrap_or_default();
        let most = of_kind().map(|seen| seen.idle).max().unwrap_or_default();
        say!(
            "{:<25}  {CLIENTS:>11}  {answered:>12}  {closed:>6}  {:.3} to {:.3} s",
            kind.name,
            least.as_secs_f64(),
            most.as_secs_f64(),
        );
        held &= answered == CLIENTS && closed == CLIENTS && least >= IDLE;
    }
    say!();
    if held {
        say!("every connection was closed when it was idle, and none that was busy");
        ExitCode::SUCCESS
    } else {
        say!("it did NOT hold: a busy connection was closed, or an idle one was not");
        ExitCode::FAILURE
    }
}
