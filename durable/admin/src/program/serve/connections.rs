//! The connections of the page's server. A client that is slow or silent takes up no more than its
//! place, and that for seconds only:
//!
//! | limit | |
//! |---|---|
//! | [`HEADERS`] | from the start of a connection, or from the end of a request, until the head of the next one is there: an idle connection is closed then |
//! | [`BODY`] | for the body of a request |
//! | [`SILENCE`] | a connection whose client does not read its response |
//! | [`CONNECTIONS`] | so many at once; others wait |

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use tickwheel::TimerWheel;
use tickwheel_adapters::hyper::WheelTimer;
use tickwheel_adapters::keep_alive::KeepAliveStream;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tower_service::Service as _;

use super::guard;
use crate::page::User;

const HEADERS: Duration = Duration::from_secs(10);
pub(super) const BODY: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(15);
const CONNECTIONS: usize = 512;

/// After the server was asked to stop.
const STOP: Duration = Duration::from_secs(5);

/// After the system has refused a connection, as when no file can be opened.
const REFUSED: Duration = Duration::from_millis(100);

/// Serves until it is asked to stop. Then it answers the requests that it has.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    wheel: TimerWheel,
    stop: impl Future<Output = ()>,
) {
    let mut http = http1::Builder::new();
    http.timer(WheelTimer::new(&wheel))
        .header_read_timeout(HEADERS);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let open = GracefulShutdown::new();
    let accepting = async {
        loop {
            let place = Arc::clone(&places).acquire_owned().await;
            let Ok((socket, peer)) = listener.accept().await else {
                wheel.sleep(REFUSED).await;
                continue;
            };
            let router = router.clone();
            let answer = service_fn(move |mut request: Request<Incoming>| {
                let user = User(guard::who(peer, request.headers()));
                request.extensions_mut().insert(user);
                router.clone().call(request)
            });
            let socket = TokioIo::new(KeepAliveStream::new(socket, &wheel, SILENCE));
            let connection = open.watch(http.serve_connection(socket, answer));
            tokio::spawn(async move {
                // A client that breaks its connection is its own affair.
                let _ = connection.await;
                drop(place);
            });
        }
    };
    tokio::select! {
        () = accepting => {}
        () = stop => {}
    }
    // Those that are left are cut.
    let _ = wheel.timeout(STOP, open.shutdown()).await;
}
