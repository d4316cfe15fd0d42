//! A QUIC server that echoes streams, with every timer on one wheel: quinn with the wheel as
//! its runtime's timer.
//!
//! A connection has one timer, and moves it with nearly every datagram: for lost datagrams, for
//! acknowledgements, and for the idle timeout of a silent client. Clients that want to stay send
//! pings, also by a timer.
//!
//! Without arguments it demonstrates itself; with `--listen` it serves until Ctrl-C or SIGTERM, and
//! then echoes what is in flight. `--help` says more.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use tickwheel::TimerWheel;
use tokio::net::UdpSocket;

use crate::server_args::Server;

#[path = "../../support/say.rs"]
#[macro_use]
mod say;
mod demo;
mod server;
#[path = "../../support/server_args.rs"]
mod server_args;
#[path = "../../support/stop.rs"]
mod stop;

const NAME: &str = "quic_echo";

const DEFAULT_IDLE: Duration = Duration::from_secs(5);

const HELP: &str = "\
A QUIC server that echoes streams, with all its timers on one timer wheel, as an example of tickwheel.

Usage: quic_echo
       quic_echo --listen ADDRESS [--idle SECONDS]

Without options it demonstrates itself on the loopback interface: clients that open one stream after the other, that are
silent and keep their connections alive, and that fall silent. It prints a table, and exits with 1 if a stream was not
echoed, or a connection was ended that should not have been, or was not that should have been.

Options:
  --listen ADDRESS  serve any client at this address, such as 127.0.0.1:4433, until Ctrl-C or SIGTERM; port 0 takes a free one.
                    It sends back what a bidirectional stream brings. The certificate is a new one for \"localhost\", signed
                    by itself, and clients offer no application protocol (ALPN). When it is asked to stop it first echoes the
                    open streams, and a second signal ends it at once
  --idle SECONDS    end a connection on which nothing comes in for this long, such as 2.5, in whole milliseconds  [default: 5]
  -h, --help        print this
";

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> ExitCode {
    let server = Server {
        name: NAME,
        help: HELP,
        default_idle: DEFAULT_IDLE,
    };
    server.run(demo::run, listen).await
}

/// Serves until Ctrl-C or SIGTERM.
async fn listen(address: &str, idle: Duration) -> Outcome<()> {
    let socket = UdpSocket::bind(address)
        .await
        .map_err(|error| format!("cannot listen on {address:?}: {error}"))?;
    let wheel = TimerWheel::new();
    let identity = server::Identity::new()?;
    let endpoint = server::endpoint(&wheel, socket, Some(identity.config(idle)?))?;
    // Before it says that it runs: a signal that follows is caught.
    let stop = stop::asked_to_stop();
    say!(
        "listening on {}; connections on which nothing comes in are ended after {idle:?}",
        endpoint.local_addr()?,
    );
    let ends = server::run(&endpoint, &wheel, stop).await;
    wheel.shutdown().await;
    say!("stopped; {} streams echoed; {ends}", ends.streams);
    Ok(())
}
