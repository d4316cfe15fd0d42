//! Closes an idle connection gracefully: says goodbye, waits a grace period for the peer's last
//! bytes, then drops it.
//!
//! An [`IdleStream`](tickwheel::IdleStream) fails when it is idle, and its inner stream is still
//! usable. The program has three clients, and exits with 1 if one of them sees anything
//! else.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use tickwheel::TimerWheel;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{self, Instant};

#[path = "support/say.rs"]
#[macro_use]
mod say;

const IDLE: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_millis(600);

const GOODBYE: &[u8] = b"idle for too long, goodbye\n";

/// How a connection ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The peer hung up within the grace period, after sending this.
    Gracefully(String),
    /// The peer did not hang up, and the connection was dropped.
    Dropped,
    /// The peer hung up before the connection was idle.
    NotIdle,
}

/// Echoes until the connection is idle, then closes it.
async fn serve(wheel: &TimerWheel, socket: TcpStream) -> io::Result<End> {
    let mut stream = wheel.idle_stream(socket, IDLE);
    let mut buf = [0; 1024];
    loop {
        match stream.read(&mut buf).await {
            Ok(0) => return Ok(End::NotIdle),
            Ok(n) => stream.write_all(&buf[..n]).await?,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => break,
            Err(error) => return Err(error),
        }
    }

    let mut socket = stream.into_inner();
    let mut last_words = String::new();
    let goodbye = async {
        socket.write_all(GOODBYE).await?;
        socket.shutdown().await?;
        // Dropping a socket with unread bytes resets the connection, and the peer may lose the
        // goodbye.
        socket.read_to_string(&mut last_words).await
    };
    match wheel.timeout(GRACE, goodbye).await {
        Ok(said) => said.map(|_| End::Gracefully(last_words)),
        Err(_) => Ok(End::Dropped),
    }
}

async fn accept(listener: TcpListener, ended: mpsc::UnboundedSender<io::Result<End>>) {
    let wheel = TimerWheel::new();
    while let Ok((socket, _)) = listener.accept().await {
        let (wheel, ended) = (wheel.clone(), ended.clone());
        tokio::spawn(async move {
            let _ = ended.send(serve(&wheel, socket).await);
        });
    }
}

/// How a client behaves after the server's goodbye.
#[derive(Debug, Clone, Copy)]
enum Client {
    /// Hangs up.
    Polite,
    /// Sends one more line, then hangs up.
    Talkative,
    /// Ignores the goodbye.
    Deaf,
}

/// The times from a client's last bytes to the goodbye, and to its hanging up.
struct Heard {
    goodbye: Duration,
    hung_up: Duration,
}

/// Sends something, falls silent, and receives the goodbye.
async fn client(server: SocketAddr, client: Client) -> io::Result<Heard> {
    let mut socket = TcpStream::connect(server).await?;
    let spoke = Instant::now();
    socket.write_all(b"hello\n").await?;
    let mut heard = Vec::new();
    socket.read_to_end(&mut heard).await?;
    let goodbye = spoke.elapsed();
    let expected = [b"hello\n", GOODBYE].concat();
    if heard != expected {
        let heard = String::from_utf8_lossy(&heard);
        return Err(io::Error::other(format!("{client:?} heard {heard:?}")));
    }
    match client {
        Client::Polite => {}
        Client::Talkative => {
            time::sleep(GRACE / 3).await;
            socket.write_all(b"one thing more").await?;
        }
        Client::Deaf => time::sleep(GRACE * 2).await,
    }
    drop(socket);
    Ok(Heard {
        goodbye,
        hung_up: spoke.elapsed(),
    })
}

#[tokio::main]
async fn main() -> io::Result<ExitCode> {
    say::takes_no_arguments("Idle connections that are told before they are closed");
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let server = listener.local_addr()?;
    let (ended, mut ends) = mpsc::unbounded_channel();
    tokio::spawn(accept(listener, ended));

    say!("idle after {IDLE:?}, and then {GRACE:?} of grace");
    let mut held = true;
    for (kind, expected) in [
        (Client::Polite, End::Gracefully(String::new())),
        (Client::Talkative, End::Gracefully("one thing more".into())),
        (Client::Deaf, End::Dropped),
    ] {
        let (heard, end) = tokio::join!(client(server, kind), ends.recv());
        let Heard { goodbye, hung_up } = heard?;
        let end = end.unwrap_or_else(|| Err(io::Error::other("the server has ended")))?;
        say!("{kind:?} client: told goodbye after {goodbye:.1?}; the server saw {end:?}");
        // On a machine that stops for so long a client hangs up too late, and the server is right
        // to drop it.
        let too_late = end == End::Dropped && hung_up >= IDLE + GRACE;
        held &= goodbye >= IDLE && (end == expected || too_late);
    }
    say!("{}", if held { "it held" } else { "it did NOT hold" });
    Ok(if held {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
