//! An HTTP service with every limit on one wheel: axum on hyper, with tower's layers
//! and a page of metrics.
//!
//! | limited | by |
//! |---|---|
//! | a handler | `StatusTimeoutLayer`: the response is 503 |
//! | a body that stalls | `RequestBodyTimeoutLayer` |
//! | the arrival of a head | hyper's `header_read_timeout`, with the wheel as its timer |
//! | a connection on which no request is in flight | `KeepAliveStream` |
//!
//! Without arguments it demonstrates itself; with `--listen` it serves until Ctrl-C or SIGTERM, and
//! then answers every request that a client has sent. `--help` says more.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use tickwheel::TimerWheel;
use tokio::net::TcpListener;

use crate::server_args::Server;

#[path = "../../support/say.rs"]
#[macro_use]
mod say;
#[path = "../../support/backlog.rs"]
mod backlog;
mod client;
mod demo;
mod server;
#[path = "../../support/server_args.rs"]
mod server_args;
#[path = "../../support/stop.rs"]
mod stop;

const NAME: &str = "http_service";

const DEFAULT_IDLE: Duration = Duration::from_secs(5);

const HELP: &str = "\
An HTTP/1.1 service with request timeouts, keep-alive limits and metrics on one timer wheel, as an example of tickwheel.

Usage: http_service
       http_service --listen ADDRESS [--idle SECONDS]

Without options it demonstrates itself on the loopback interface: clients that ask again and again, that ask for what
takes long or too long, that fall silent, and that send half a request. It prints a table, and exits with 1 if a limit
did not hold.

Options:
  --listen ADDRESS  serve any client at this address, such as 127.0.0.1:8000, until Ctrl-C or SIGTERM; port 0 takes a free one.
                    / answers at once, /slow/1.5 after 1.5 s, or with 503 after 2 s; POST /echo answers with its body, or
                    with 408 when 3 s pass without a byte of it; /metrics is the page for Prometheus. When it is asked to stop
                    it first answers the requests that were sent by then, and a second signal ends it at once
  --idle SECONDS    close a connection after this long without a request, such as 2.5  [default: 5]
  -h, --help        print this
";

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
async fn listen(address: &str, idle: Duration) -> Result<(), Box<dyn Error + Send + Sync>> {
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| format!("cannot listen on {address:?}: {error}"))?;
    // Before it says that it runs: a signal that follows is caught.
    let stop = stop::asked_to_stop();
    say!(
        "listening on {}; requests get {:?}, connections without one are closed after {idle:?}",
        listener.local_addr()?,
        server::REQUEST_LIMIT,
    );
    let wheel = TimerWheel::new();
    let ends = server::run(listener, &wheel, idle, stop).await?;
    wheel.shutdown().await;
    say!("stopped; {ends}");
    Ok(())
}
