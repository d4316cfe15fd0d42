//! A server of hyper under a keep-alive load on the loopback interface: without limits, with
//! Tokio's timers, and with the wheel's.
//!
//! Each request has the two timers that servers have: hyper's for the head, and tower's for the
//! response.

use std::convert::Infallible;
use std::net::SocketAddr;

use hyper::body::Incoming;
use hyper::rt::Timer;
use hyper::server::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tickwheel_adapters::hyper::WheelTimer;
use tickwheel_adapters::tower::TimeoutLayer;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tower::{BoxError, Service, ServiceBuilder, service_fn};

use crate::churn::LONG;
use crate::clients::{BODY, alternate_under_load};
use crate::measure::{Scale, emit};
use crate::sides::{PendingOnce, runtime, wheel_on};

pub fn run(scale: Scale) {
    let server = runtime(2);
    let wheel = wheel_on(&server);
    // The handler waits once, as one that asks a database does.
    let service = service_fn(|_: Request<Incoming>| async {
        PendingOnce::default().await;
        Ok::<_, Infallible>(Response::new(BODY.to_owned()))
    });
    let tokio = ServiceBuilder::new().timeout(LONG).service(service);
    let ours = ServiceBuilder::new()
        .layer(TimeoutLayer::new(&wheel, LONG))
        .service(service);
    let series = ["no limits", "tokio::time", "tickwheel"];
    let addresses = [
        serve(&server, None::<TokioTimer>, service),
        serve(&server, Some(TokioTimer::new()), tokio),
        serve(&server, Some(WheelTimer::new(&wheel)), ours),
    ];
    let requests = alternate_under_load(scale, &runtime(1), &series, &addresses);
    let metrics = wheel.metrics();
    emit(
        "tickwheel",
        "timers",
        metrics.sleeps_made as f64 / requests[2] as f64,
    );
    emit(
        "tickwheel",
        "commands",
        metrics.commands as f64 / requests[2] as f64,
    );
}

/// Starts a server that limits the head of a request if it has a timer.
fn serve<T, S>(runtime: &Runtime, timer: Option<T>, service: S) -> SocketAddr
where
    T: Timer + Clone + Send + Sync + 'static,
    S: Service<Request<Incoming>, Response = Response<String>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"));
    let listener = listener.expect("there is a free port");
    let address = listener.local_addr().expect("it is bound");
    let mut http = http1::Builder::new();
    match timer {
        Some(timer) => http.timer(timer).header_read_timeout(LONG),
        None => http.header_read_timeout(None),
    };
    runtime.spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.expect("files may be opened");
            socket.set_nodelay(true).expect("a stream of TCP");
            let service = TowerToHyperService::new(service.clone());
            tokio::spawn(http.serve_connection(TokioIo::new(socket), service));
        }
    });
    address
}
