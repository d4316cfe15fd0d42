//! A server of hyper under a keep-alive load on the loopback interface: without limits, with Tokio's timers, and with the
//! wheel's.
//!
//! Each request has the two timers that servers have: hyper's for the head, and tower's for the response. The clients run on
//! the thread that measures, so what all other threads use is the server's CPU time.

use std::cell::RefCell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::rt::Timer;
use hyper::server::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tickwheel::adapters::tower::TimeoutLayer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tower::{BoxError, Service, ServiceBuilder, service_fn};

use crate::churn::LONG;
use crate::idle::this_thread;
use crate::measure::{Scale, Spent, alternate, cpu, emit, emit_cost};
use crate::sides::{PendingOnce, runtime, wheel_on};

const CONNECTIONS: u64 = 64;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: example\r\n\r\n";

const BODY: &str = "hello";

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
        serve(&server, Some(wheel.clone()), ours),
    ];
    let client = runtime(1);
    let mut clients = addresses.map(|address| client.block_on(connect(address)));
    let latencies = RefCell::new(Vec::new());
    let mut requests = 0;
    let costs = alternate(scale, series.len(), |side, rounds| {
        let each = rounds.div_ceil(CONNECTIONS);
        if side == 2 {
            requests += each * CONNECTIONS;
        }
        let (spent, seen) = client.block_on(load(&mut clients[side], each));
        latencies.borrow_mut().push((side, seen));
        spent
    });
    for costs in &costs {
        for (series, cost) in series.iter().zip(costs) {
            emit_cost(series, *cost);
        }
    }
    // The last turns are those that were measured; the ones before them found out how many rounds a turn has.
    let mut latencies = latencies.into_inner();
    let measured = latencies.split_off(latencies.len() - costs.len() * series.len());
    for (side, mut seen) in measured {
        seen.sort_unstable();
        let micros = |share: usize| seen[(seen.len() - 1) * share / 100].as_secs_f64() * 1e6;
        emit(series[side], "p50", micros(50));
        emit(series[side], "p99", micros(99));
    }
    let metrics = wheel.metrics();
    emit(
        "tickwheel",
        "timers",
        metrics.sleeps_made as f64 / requests as f64,
    );
    emit(
        "tickwheel",
        "commands",
        metrics.commands as f64 / requests as f64,
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

async fn connect(server: SocketAddr) -> Vec<TcpStream> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let client = TcpStream::connect(server).await.expect("it listens");
        client.set_nodelay(true).expect("a stream of TCP");
        clients.push(client);
    }
    clients
}

/// Lets each client ask so many times; what that took of the server, and how long each answer.
async fn load(clients: &mut Vec<TcpStream>, each: u64) -> (Spent, Vec<Duration>) {
    let server = || cpu().saturating_sub(this_thread());
    let (began, used) = (Instant::now(), server());
    let tasks: Vec<_> = clients
        .drain(..)
        .map(|client| tokio::spawn(ask(client, each)))
        .collect();
    let mut latencies = Vec::new();
    for task in tasks {
        let (client, seen) = task.await.expect("it is answered");
        clients.push(client);
        latencies.extend(seen);
    }
    let spent = Spent {
        wall: began.elapsed(),
        cpu: server().saturating_sub(used),
    };
    (spent, latencies)
}

async fn ask(mut client: TcpStream, times: u64) -> (TcpStream, Vec<Duration>) {
    let mut latencies = Vec::new();
    let mut response = Vec::new();
    for _ in 0..times {
        let asked = Instant::now();
        client.write_all(REQUEST).await.expect("it is open");
        response.clear();
        while !response.ends_with(BODY.as_bytes()) {
            let read = client.read_buf(&mut response).await.expect("it is open");
            assert!(read > 0, "it is kept alive");
        }
        latencies.push(asked.elapsed());
    }
    (client, latencies)
}
