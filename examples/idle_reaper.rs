//! A TCP echo server that closes idle connections: a reaper watches each of them.
//!
//! Without arguments it demonstrates itself with thousands of clients; with `--listen` it serves
//! any client. `--help` says more. The files beside it are the [arguments](args) and the
//! [demonstration](demo).

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use tickwheel::{Expirations, TimerWheel, Unexpired, WatchGuard};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::server_args::Server;

#[path = "support/say.rs"]
#[macro_use]
mod say;
#[path = "idle_reaper/args.rs"]
mod args;
#[path = "idle_reaper/demo.rs"]
mod demo;
#[path = "idle_reaper/machine.rs"]
mod machine;
#[path = "idle_reaper/progress.rs"]
mod progress;
#[path = "support/server_args.rs"]
mod server_args;
#[path = "support/stop.rs"]
mod stop;

const NAME: &str = "idle_reaper";

/// How a connection came to its end.
#[derive(Debug)]
enum End {
    /// Nothing happened on it for too long.
    Reaped,
    /// The server stops.
    Stopped,
    /// The client closed it.
    Closed,
    Failed(io::Error),
}

/// An event that a server reports while it runs.
#[derive(Debug)]
enum Event {
    Opened(SocketAddr),
    Ended {
        peer: SocketAddr,
        end: End,
        /// The time since the connection was opened, or bytes went through it.
        silent: Duration,
    },
    /// A connection could not be accepted.
    Refused(io::Error),
}

/// Echoes what clients send, and closes connections that are silent for `idle`, until `stop`
/// completes.
///
/// Returns the connections that were open then, the one that was next to be reaped first, each with
/// the time at which it would have been.
async fn run_server(
    listener: TcpListener,
    wheel: &TimerWheel,
    idle: Duration,
    stop: impl Future<Output = ()>,
    mut report: impl FnMut(Event),
) -> Vec<(SocketAddr, Instant)> {
    let (reaper, idle_ones) = wheel.reaper(idle);
    tokio::spawn(reap(idle_ones));

    let mut stop = pin!(stop);
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, peer)) => {
                    let (end, ended) = oneshot::channel();
                    let opened = Instant::now();
                    let Ok(watch) = reaper.watch(peer, end) else {
                        continue; // the wheel is full or shut down: the socket is dropped
                    };
                    report(Event::Opened(peer));
                    tasks.spawn(serve(socket, peer, watch, opened, ended));
                }
                Err(error) => {
                    // Most likely too many files are open. Reaping goes on, and makes room.
                    report(Event::Refused(error));
                    wheel.sleep(Duration::from_millis(100)).await;
                }
            },
            Some(Ok(event)) = tasks.join_next() => report(event),
            () = &mut stop => break,
        }
    }

    // From here on nothing is accepted, and every connection that is still watched is open.
    drop(listener);
    let left = reaper.drain().unwrap_or_default();
    let open = left
        .iter()
        .map(|watch| (watch.key, watch.deadline))
        .collect();
    for Unexpired { value: end, .. } in left {
        let _ = end.send(End::Stopped);
    }
    while let Some(ended) = tasks.join_next().await {
        ended.into_iter().for_each(&mut report);
    }
    open
}

/// Closes each connection that was idle for too long. Ends with the server.
async fn reap(mut idle_ones: Expirations<SocketAddr, oneshot::Sender<End>>) {
    while let Some(expired) = idle_ones.recv().await {
        // One that has come to its end meanwhile does not listen any more.
        let _ = expired.value.send(End::Reaped);
    }
}

/// Serves one connection until the client, an error, or `ended` ends it.
async fn serve(
    mut socket: TcpStream,
    peer: SocketAddr,
    watch: WatchGuard,
    opened: Instant,
    ended: oneshot::Receiver<End>,
) -> Event {
    let mut active = opened;
    let touch = || {
        let now = Instant::now();
        // Not if it was reaped, or the server stops: `ended` says so too.
        if watch.touch_at(now) {
            active = now;
        }
    };
    let end = tokio::select! {
        end = echo(&mut socket, touch) => end,
        end = ended => end.unwrap_or(End::Stopped),
    };
    let silent = active.elapsed();
    drop(watch);
    drop(socket);
    Event::Ended { peer, end, silent }
}

/// Sends back what comes in, and calls `touch` whenever bytes went through.
async fn echo(socket: &mut TcpStream, mut touch: impl FnMut()) -> End {
    let mut buffer = [0; 2048];
    loop {
        match socket.read(&mut buffer).await {
            Ok(0) => return End::Closed,
            Ok(n) => {
                touch();
                if let Err(error) = socket.write_all(&buffer[..n]).await {
                    return End::Failed(error);
                }
                touch();
            }
            Err(error) => return End::Failed(error),
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let server = Server {
        name: NAME,
        help: args::HELP,
        default_idle: args::DEFAULT_IDLE,
    };
    server
        .run(async || Ok::<_, Infallible>(demo::run().await), listen)
        .await
}

/// The plain server: says what happens, until Ctrl-C.
async fn listen(address: &str, idle: Duration) -> Result<(), String> {
    let bound = TcpListener::bind(address).await;
    let bound = bound.and_then(|l| l.local_addr().map(|local| (l, local)));
    let (listener, local) =
        bound.map_err(|error| format!("cannot listen on {address:?}: {error}"))?;
    // Before it says that it runs: a signal that follows is caught.
    let stop = stop::asked_to_stop();
    say!("listening on {local}; closing what is silent for {idle:?}; Ctrl-C stops");

    let wheel = TimerWheel::new();
    let (mut served, mut reaped) = (0, 0);
    let open = run_server(listener, &wheel, idle, stop, |event| match event {
        Event::Opened(peer) => {
            served += 1;
            say!("{peer} opened");
        }
        Event::Ended { peer, end, silent } => {
            reaped += u64::from(matches!(end, End::Reaped));
            match end {
                End::Reaped => say!("{peer} reaped: silent for {silent:.3?}"),
                End::Closed => say!("{peer} closed by the client"),
                End::Failed(error) => say!("{peer} failed: {error}"),
                // Told below.
                End::Stopped => {}
            }
        }
        Event::Refused(error) => say!("cannot accept a connection: {error}"),
    })
    .await;

    let now = Instant::now();
    say!(
        "stopped: {served} served, {reaped} reaped, {} still open",
        open.len()
    );
    for (peer, deadline) in open {
        let left = deadline.saturating_duration_since(now);
        say!("  {peer}, {left:.3?} before it would be reaped");
    }
    wheel.shutdown().await;
    Ok(())
}
