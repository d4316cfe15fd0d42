//! Fleets of connections to a server: sockets on the loopback interface as far as the limit of open
//! files goes, and streams in memory for the rest.

use std::net::SocketAddr;
use std::pin::Pin;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit};
use tokio::io::DuplexStream;
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_util::either::Either;

use crate::intervals::Ticks;
use crate::measure::emit;
use crate::sides::{Floor, Tickwheel, Timer, Tokio};

pub type Stream = Either<TcpStream, DuplexStream>;

/// What a stream in memory holds in each direction. A longer message waits for its reader.
const BUFFER: usize = 64;

/// Files that are left for the rest of the process.
const OTHER_FILES: u64 = 500;

/// A timer with all that a server takes from it.
pub trait Keeper: Timer {
    type Idle: Idle;
    type Ticks: Ticks;

    fn idle(&self, length: Duration) -> Self::Idle;

    fn interval_at(&self, start: Instant, period: Duration) -> Self::Ticks;
}

/// Completes once a connection has been idle.
pub trait Idle: Future<Output = ()> + Send {
    /// Begins the idle duration again.
    fn touch(self: Pin<&mut Self>, length: Duration);
}

impl Idle for tickwheel::IdleTimer {
    fn touch(self: Pin<&mut Self>, _: Duration) {
        tickwheel::IdleTimer::touch(&self);
    }
}

impl Idle for tokio::time::Sleep {
    fn touch(self: Pin<&mut Self>, length: Duration) {
        self.reset(tokio::time::Instant::now() + length);
    }
}

impl Idle for std::future::Pending<()> {
    fn touch(self: Pin<&mut Self>, _: Duration) {}
}

impl Keeper for Tickwheel {
    type Idle = tickwheel::IdleTimer;
    type Ticks = tickwheel::Interval;

    fn idle(&self, length: Duration) -> Self::Idle {
        self.0.idle_timer(length)
    }

    fn interval_at(&self, start: Instant, period: Duration) -> Self::Ticks {
        self.0.interval_at(start.into(), period)
    }
}

impl Keeper for Tokio {
    type Idle = tokio::time::Sleep;
    type Ticks = tokio::time::Interval;

    fn idle(&self, length: Duration) -> Self::Idle {
        tokio::time::sleep(length)
    }

    fn interval_at(&self, start: Instant, period: Duration) -> Self::Ticks {
        tokio::time::interval_at(start.into(), period)
    }
}

/// Limits nothing. Its intervals are those of Tokio: without them there is no workload.
impl Keeper for Floor {
    type Idle = std::future::Pending<()>;
    type Ticks = tokio::time::Interval;

    fn idle(&self, _: Duration) -> Self::Idle {
        std::future::pending()
    }

    fn interval_at(&self, start: Instant, period: Duration) -> Self::Ticks {
        tokio::time::interval_at(start.into(), period)
    }
}

/// Where clients connect to a server.
#[derive(Debug)]
pub struct Entrance {
    address: SocketAddr,
    memory: UnboundedSender<DuplexStream>,
}

/// Starts a server with a task for each connection, which ends with an error when its peer leaves.
pub fn serve<C, F>(runtime: &Runtime, connection: fn(Stream, C) -> F, context: C) -> Entrance
where
    C: Clone + Send + 'static,
    F: Future<Output = std::io::Result<()>> + Send + 'static,
{
    let _guard = runtime.enter();
    let socket = TcpSocket::new_v4().expect("files may be opened");
    let bound = socket.bind("127.0.0.1:0".parse().expect("it is an address"));
    bound.expect("there is a free port");
    // As many as Linux allows: what finds the queue full comes again after a second.
    let listener = socket.listen(4096).expect("it is bound");
    let address = listener.local_addr().expect("it is bound");
    let (memory, mut arriving) = unbounded_channel();
    let shared = context.clone();
    runtime.spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.expect("files may be opened");
            socket.set_nodelay(true).expect("a stream of TCP");
            tokio::spawn(connection(Either::Left(socket), shared.clone()));
        }
    });
    runtime.spawn(async move {
        while let Some(stream) = arriving.recv().await {
            tokio::spawn(connection(Either::Right(stream), context.clone()));
        }
    });
    Entrance { address, memory }
}

impl Entrance {
    /// Connects the client of this number of a fleet.
    pub async fn connect(&self, number: u64, of: u64) -> Stream {
        if !is_socket(number, of) {
            let (client, server) = tokio::io::duplex(BUFFER);
            self.memory.send(server).expect("the server runs");
            return Either::Right(client);
        }
        let client = TcpStream::connect(self.address).await.expect("it listens");
        client.set_nodelay(true).expect("a stream of TCP");
        Either::Left(client)
    }
}

/// How many clients of a fleet have sockets. Both ends are files of this process.
pub fn sockets(of: u64) -> u64 {
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limit can be read");
    of.min(limit.saturating_sub(OTHER_FILES) / 2)
}

/// Sockets are spread evenly over the fleet.
fn is_socket(number: u64, of: u64) -> bool {
    let sockets = sockets(of);
    number * sockets / of < (number + 1) * sockets / of
}

/// Emits how long answers took, in milliseconds.
pub fn emit_latencies(series: &str, mut seen: Vec<Duration>) {
    assert!(!seen.is_empty(), "nothing was answered");
    seen.sort_unstable();
    let millis = |share: usize| seen[(seen.len() - 1) * share / 100].as_secs_f64() * 1e3;
    emit(series, "answer p50", millis(50));
    emit(series, "answer p99", millis(99));
}
