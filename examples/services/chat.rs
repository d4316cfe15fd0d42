//! A chat over WebSocket: who says nothing is kicked, who has gone is noticed, and who does not
//! read delays no other member.
//!
//! | a member | is found by | and |
//! |---|---|---|
//! | says nothing for the idle duration | a [`Reaper`] of all members | told so, with the close code 4000 |
//! | answers no pings, because its host has gone | [`IdleLimits::read`] on its connection | cut |
//! | reads nothing | [`IdleLimits::write`] on its connection | cut |
//! | is there when the server stops | [`drain`] | told so, with the close code 1001 |
//!
//! Without arguments it demonstrates itself; with `--listen` it serves until Ctrl-C or SIGTERM.
//! `--help` says more.

use std::error::Error;
use std::future::{Future, pending};
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::get;
use futures_util::{SinkExt, StreamExt};
use tickwheel::{Expirations, IdleLimits, Reaper, TimerWheel};
use tickwheel_adapters::axum::{IdleListener, drain};
use tokio::net::TcpListener;
use tokio::sync::{broadcast, oneshot, watch};
use tokio_tungstenite::tungstenite;

use crate::server_args::Server;

#[path = "../support/say.rs"]
#[macro_use]
mod say;
#[path = "../support/server_args.rs"]
mod server_args;
#[path = "../support/stop.rs"]
mod stop;

const HELP: &str = "\
A chat over WebSocket that kicks silent members, as an example of tickwheel.

Usage: chat
       chat --listen ADDRESS [--idle SECONDS]

Without options it demonstrates itself on the loopback interface: one member talks, the other says nothing.

Options:
  --listen ADDRESS  serve any client at this address, such as 127.0.0.1:8000, until Ctrl-C or SIGTERM; port 0 takes a free one.
                    /chat/NAME is the WebSocket: a text goes to all members
  --idle SECONDS    kick a member who has said nothing for so long, such as 2.5  [default: 1]
  -h, --help        print this
";

const DEFAULT_IDLE: Duration = Duration::from_secs(1);

/// How often each member is pinged.
const PING: Duration = Duration::from_secs(1);

/// How long a connection may bring no byte, not even the answer to a ping, or take none.
const SILENT: Duration = Duration::from_secs(4);

/// A member who is this many texts behind is too slow.
const BEHIND: usize = 256;

const IDLE_CODE: u16 = 4000;
const SLOW_CODE: u16 = 4001;
const GOING_AWAY_CODE: u16 = 1001;

#[tokio::main]
async fn main() -> ExitCode {
    let server = Server {
        name: "chat",
        help: HELP,
        default_idle: DEFAULT_IDLE,
    };
    server.run(demonstrate, listen).await
}

/// What all members share.
#[derive(Clone)]
struct Chat {
    wheel: TimerWheel,
    room: broadcast::Sender<String>,
    /// Each member's connection by a number, with what kicks it.
    members: Reaper<u64, oneshot::Sender<()>>,
    numbers: Arc<AtomicU64>,
    stopping: watch::Receiver<bool>,
}

/// Tells silent members to go.
async fn kick(mut silent: Expirations<u64, oneshot::Sender<()>>) {
    while let Some(member) = silent.recv().await {
        // It may just have left.
        let _ = member.value.send(());
    }
}

async fn join(
    upgrade: WebSocketUpgrade,
    Path(name): Path<String>,
    State(chat): State<Chat>,
) -> Response {
    // Before the client knows that it has joined: it misses no text from then on.
    let room = chat.room.subscribe();
    upgrade.on_upgrade(move |socket| talk(socket, name, room, chat))
}

/// Serves one member until one of both sides ends it.
async fn talk(
    mut socket: WebSocket,
    name: String,
    mut room: broadcast::Receiver<String>,
    mut chat: Chat,
) {
    let (kick, mut kicked) = oneshot::channel();
    let number = chat.numbers.fetch_add(1, Ordering::Relaxed);
    let Ok(watched) = chat.members.watch(number, kick) else {
        return;
    };
    let mut pings = chat.wheel.interval(PING);
    let (code, reason) = loop {
        let message = tokio::select! {
            received = socket.recv() => match received {
                Some(Ok(Message::Text(text))) => {
                    // Touched or kicked, never both: after the kick it is too late to talk.
                    if watched.touch() {
                        let _ = chat.room.send(format!("{name}: {text}"));
                    }
                    continue;
                }
                // The answer to a ping, which says that the host is there, not that a member talks.
                Some(Ok(Message::Pong(_) | Message::Ping(_) | Message::Binary(_))) => continue,
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
            },
            said = room.recv() => match said {
                Ok(text) => Message::Text(text.into()),
                Err(_) => break (SLOW_CODE, "too slow"),
            },
            _ = pings.tick() => Message::Ping(Bytes::new()),
            _ = &mut kicked => break (IDLE_CODE, "idle"),
            _ = chat.stopping.wait_for(|stopping| *stopping) => break (GOING_AWAY_CODE, "going away"),
        };
        // A client that reads nothing is cut by its connection's limit.
        if socket.send(message).await.is_err() {
            return;
        }
    };
    let reason = reason.into();
    let _ = socket
        .send(Message::Close(Some(CloseFrame { code, reason })))
        .await;
}

/// Serves until `stop` completes and each member has been told.
async fn serve(
    listener: TcpListener,
    idle: Duration,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let wheel = TimerWheel::new();
    let (members, silent) = wheel.reaper(idle);
    tokio::spawn(kick(silent));
    let (stop_all, stopping) = watch::channel(false);
    let chat = Chat {
        wheel: wheel.clone(),
        room: broadcast::Sender::new(BEHIND),
        members,
        numbers: Arc::default(),
        stopping,
    };
    let app = Router::new()
        .route("/chat/{name}", get(join))
        .with_state(chat);
    let stop = async move {
        stop.await;
        stop_all.send_replace(true);
    };
    let limits = IdleLimits::none().read(SILENT).write(SILENT);
    let (listener, drained) = drain(listener, stop);
    let listener = IdleListener::with_limits(listener, &wheel, SILENT, limits);
    axum::serve(listener, app)
        .with_graceful_shutdown(drained)
        .await
}

/// Serves until Ctrl-C or SIGTERM.
async fn listen(address: &str, idle: Duration) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| format!("cannot listen on {address:?}: {error}"))?;
    // Before it says that it runs: a signal that follows is caught.
    let stop = stop::asked_to_stop();
    say!(
        "listening on {}; members who say nothing for {idle:?} are kicked",
        listener.local_addr()?
    );
    serve(listener, idle, stop).await?;
    say!("stopped");
    Ok(())
}

/// One member talks, and the other says nothing.
async fn demonstrate() -> Result<ExitCode, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let server = listener.local_addr()?;
    tokio::spawn(serve(listener, DEFAULT_IDLE, pending()));
    let (mut anna, mut ben) = (enter(server, "anna").await?, enter(server, "ben").await?);
    tokio::spawn(async move {
        for number in 1.. {
            let text = tungstenite::Message::text(format!("number {number}"));
            if anna.send(text).await.is_err() {
                break;
            }
            tokio::time::sleep(DEFAULT_IDLE / 4).await;
        }
    });
    while let Some(message) = ben.next().await {
        match message? {
            tungstenite::Message::Text(text) => say!("ben reads {text}"),
            tungstenite::Message::Close(Some(close)) => {
                say!("ben is kicked: {} {}", close.code, close.reason);
                return Ok(ExitCode::SUCCESS);
            }
            // The answers to pings are sent as it reads on.
            _ => {}
        }
    }
    Err("ben was cut".into())
}

type Client =
    tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>>;

async fn enter(server: SocketAddr, name: &str) -> Result<Client, tungstenite::Error> {
    let url = format!("ws://{server}/chat/{name}");
    let (client, _) = tokio_tungstenite::connect_async(url).await?;
    Ok(client)
}
