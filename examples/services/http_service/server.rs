//! The service: what it answers, and what limits its connections.

use std::error::Error;
use std::fmt;
use std::future::{Future, ready};
use std::io;
use std::iter::successors;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Path;
use axum::extract::rejection::BytesRejection;
use axum::http::{Request, StatusCode};
use axum::routing::{get, post};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tickwheel::{Elapsed, IdleHandle, TimerWheel};
use tickwheel_adapters::hyper::WheelTimer;
use tickwheel_adapters::keep_alive::KeepAliveStream;
use tickwheel_adapters::metrics::Reporter;
use tickwheel_adapters::tower::{RequestBodyTimeoutLayer, StatusTimeoutLayer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::backlog;

/// How long a response may take.
pub(crate) const REQUEST_LIMIT: Duration = Duration::from_secs(2);

/// How long a client may send nothing of a head it owes, or of a body.
pub(crate) const READ_LIMIT: Duration = Duration::from_secs(3);

/// How long a server that is asked to stop waits for the requests in flight.
const DRAIN: Duration = Duration::from_secs(10);

/// How often the counts of the wheel are published.
const REPORTS: Duration = Duration::from_millis(500);

/// How the connections came to their ends.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Ends {
    /// By the client, or because the server stopped.
    pub(crate) closed: usize,
    /// By the server: no request was in flight for too long.
    pub(crate) idle: usize,
    /// By the server: the head of a request did not arrive.
    pub(crate) unread: usize,
    pub(crate) failed: usize,
}

impl Ends {
    fn count(&mut self, end: &hyper::Result<()>) {
        let Err(error) = end else {
            self.closed += 1;
            return;
        };
        let source = error.source().and_then(|source| source.downcast_ref());
        let is_idle = source.is_some_and(|e: &io::Error| e.kind() == io::ErrorKind::TimedOut);
        let count = match error {
            _ if is_idle => &mut self.idle,
            error if error.is_timeout() => &mut self.unread,
            _ => &mut self.failed,
        };
        *count += 1;
    }
}

impl fmt::Display for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ends {
            closed,
            idle,
            unread,
            failed,
        } = self;
        write!(
            f,
            "connections: {closed} closed, {idle} reaped, {unread} unread, {failed} failed"
        )
    }
}

/// The routes of the service. The layers limit the routes above them. An echo takes as long as its
/// body keeps coming in.
fn application(wheel: &TimerWheel, page: PrometheusHandle) -> Router {
    let slow = {
        let wheel = wheel.clone();
        async move |Path(seconds): Path<f64>| match Duration::try_from_secs_f64(seconds) {
            Ok(duration) => {
                wheel.sleep(duration).await;
                Ok("that took a while\n")
            }
            Err(_) => Err(StatusCode::BAD_REQUEST),
        }
    };
    Router::new()
        .route("/", get(|| ready("hello\n")))
        .route("/slow/{seconds}", get(slow))
        .layer(StatusTimeoutLayer::new(
            wheel,
            REQUEST_LIMIT,
            StatusCode::SERVICE_UNAVAILABLE,
        ))
        .route("/echo", post(echo))
        .layer(RequestBodyTimeoutLayer::new(wheel, READ_LIMIT))
        .route("/metrics", get(move || ready(page.render())))
}

/// axum takes bodies of up to 2 MB. It would answer a body that stalls with 400.
async fn echo(body: Result<Bytes, BytesRejection>) -> Result<Bytes, StatusCode> {
    body.map_err(|rejection| match rejection.status() {
        _ if is_elapsed(&rejection) => StatusCode::REQUEST_TIMEOUT,
        status => status,
    })
}

/// Whether an error is, or was caused by, a limit that has passed.
fn is_elapsed(error: &(dyn Error + 'static)) -> bool {
    successors(Some(error), |&error| error.source()).any(<dyn Error>::is::<Elapsed>)
}

/// Installs the recorder for Prometheus, with buckets from a millisecond to ten seconds.
fn install_recorder() -> Result<PrometheusHandle, BuildError> {
    let lateness = Matcher::Full("tickwheel_lateness_seconds".to_owned());
    let buckets = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 1.0, 10.0];
    PrometheusBuilder::new()
        .set_buckets_for_metric(lateness, &buckets)?
        .install_recorder()
}

/// Serves until `stop` completes and the requests that were sent by then are answered.
pub(crate) async fn run(
    listener: TcpListener,
    wheel: &TimerWheel,
    idle: Duration,
    stop: impl Future<Output = ()>,
) -> Result<Ends, Box<dyn Error + Send + Sync>> {
    let page = install_recorder()?;
    let reporting = tokio::spawn(Reporter::new(wheel).run(REPORTS));
    let application = application(wheel, page);
    let (stopping, stopped) = watch::channel(());
    let mut ends = Ends::default();
    let mut connections = JoinSet::new();
    let serve = |socket| {
        serve(
            socket,
            wheel.clone(),
            idle,
            application.clone(),
            stopped.clone(),
        )
    };
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => drop(connections.spawn(serve(socket))),
                // Most likely too many files are open, which passes.
                Err(_) => wheel.sleep(Duration::from_millis(100)).await,
            },
            Some(Ok(end)) = connections.join_next() => ends.count(&end),
            () = &mut stop => break,
        }
    }
    for socket in backlog::close(listener)? {
        connections.spawn(serve(socket));
    }
    drop(stopping);
    let drained = async {
        while let Some(end) = connections.join_next().await {
            ends.count(&end.unwrap_or(Ok(())));
        }
    };
    let _ = wheel.timeout(DRAIN, drained).await;
    reporting.abort();
    Ok(ends)
}

/// Serves one connection until it is idle, or the server stops: `stopped` is closed.
async fn serve(
    socket: TcpStream,
    wheel: TimerWheel,
    idle: Duration,
    service: Router,
    mut stopped: watch::Receiver<()>,
) -> hyper::Result<()> {
    let socket = KeepAliveStream::new(socket, &wheel, idle);
    let handle = socket.handle();
    // The bytes show when the first of several pipelined requests is answered, and not that the
    // next is being handled.
    let service = ServiceExt::<Request<Incoming>>::map_future(service, move |answer| {
        let busy = handle.as_ref().map(IdleHandle::busy);
        async move {
            let answer = answer.await;
            drop(busy);
            answer
        }
    });
    let mut http = http1::Builder::new();
    // hyper counts from the end of the request before: the sum leaves an idle connection to the
    // limit above.
    http.header_read_timeout(idle.saturating_add(READ_LIMIT))
        .timer(WheelTimer::new(&wheel));
    let service = TowerToHyperService::new(service);
    let connection = http.serve_connection(TokioIo::new(socket), service);
    let mut connection = pin!(connection);
    let stop = async {
        let _ = stopped.changed().await;
        backlog::last_look().await;
    };
    tokio::select! {
        // A request that lies in the socket comes before the end.
        biased;
        ended = connection.as_mut() => return ended,
        () = stop => {}
    }
    // Closes it now if no request is in flight, else after the response, which says that it is the
    // last.
    connection.as_mut().graceful_shutdown();
    connection.await
}
