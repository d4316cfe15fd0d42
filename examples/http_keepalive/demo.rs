//! The server and real clients, on the loopback interface.

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

/// An idle connection that is not closed by then, with time for a machine that is busy, was forgotten.
const SLACK: Duration = Duration::from_secs(2);

/// How many clients there are of each kind.
const CLIENTS: usize = 100;

/// What a client does before it says nothing more.
struct Kind {
    name: &'static str,
    /// What it asks for, again and again on the same connection.
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
        name: "asks every 0.7 s",
        requests: &["/", "/", "/", "/", "/"],
        pause: Duration::from_millis(700),
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

/// What became of a client.
struct Seen {
    kind: usize,
    answers: usize,
    /// From when the server had nothing to do for it any more, at the earliest, until it closed the connection.
    idle: Duration,
}

/// Runs it; the exit code says whether each connection was closed when it was idle, and only then.
pub(crate) async fn run() -> io::Result<ExitCode> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let server = listener.local_addr()?;
    let clients = KINDS.len() * CLIENTS;
    println!("{clients} clients of a server that closes idle connections after {IDLE:?}");
    tokio::spawn(run_server(listener, TimerWheel::new(), IDLE, |_, _| {}));

    let mut running = JoinSet::new();
    for n in 0..clients {
        running.spawn(client(server, n % KINDS.len()));
    }
    let mut seen = Vec::new();
    while let Some(client) = running.join_next().await {
        seen.push(client.map_err(io::Error::other)??);
        if seen.len() % CLIENTS == 0 {
            println!("{} connections are closed", seen.len());
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
    let mut answers = 0;
    for (n, path) in requests.iter().enumerate() {
        if n > 0 {
            time::sleep(pause).await;
        }
        idle_since = Instant::now();
        if !ask(&mut socket, path).await? {
            break;
        }
        answers += 1;
    }
    if answers == requests.len() {
        idle_since += takes;
    }
    let end = time::timeout(IDLE + SLACK, socket.read(&mut [0; 1])).await;
    match end {
        // Closed, or not; the difference is in how long it took.
        Ok(Ok(0)) | Err(_) => {}
        Ok(Ok(_)) => return Err(io::Error::other("an answer without a question")),
        Ok(Err(error)) => return Err(error),
    }
    Ok(Seen {
        kind,
        answers,
        idle: idle_since.elapsed(),
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
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.parse().ok())?
    });
    match length {
        Some(length) => body.len() >= length,
        None => body.ends_with("0\r\n\r\n"),
    }
}

fn judge(seen: &[Seen]) -> ExitCode {
    println!();
    println!("a client that              connections  all answered  closed when idle for");
    let mut held = true;
    for (number, kind) in KINDS.iter().enumerate() {
        let of_kind = || seen.iter().filter(|seen| seen.kind == number);
        let answered = of_kind().filter(|seen| seen.answers == kind.requests.len());
        let answered = answered.count();
        let least = of_kind().map(|seen| seen.idle).min().unwrap_or_default();
        let most = of_kind().map(|seen| seen.idle).max().unwrap_or_default();
        println!(
            "{:<25}  {:>11}  {answered:>12}  {:.3} to {:.3} s",
            kind.name,
            of_kind().count(),
            least.as_secs_f64(),
            most.as_secs_f64(),
        );
        held &= answered == CLIENTS && least >= IDLE && most < IDLE + SLACK;
    }
    println!();
    if held {
        println!("every connection was closed when it was idle, and none that was busy");
        ExitCode::SUCCESS
    } else {
        println!("it did NOT hold: a busy connection was closed, or an idle one was not");
        ExitCode::FAILURE
    }
}
