//! A proxy under a keep-alive load on the loopback interface, with four timers for each request:
//! for the request to arrive, for the whole of it, for the answer of the server behind, and for the
//! response to be taken.
//!
//! The server behind runs on the thread that measures, like the clients.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use crate::clients::{BODY, REQUEST, alternate_under_load};
use crate::measure::Scale;
use crate::sides::{Floor, Tickwheel, Timer, Tokio, runtime, wheel_on};

/// How long the timers of each request are, in seconds, where lengths are not mixed.
const LENGTHS: [u64; 4] = [30, 60, 10, 5];

/// How long the timers of a request are: always the same, or each at random between ten seconds and
/// thirty. The first also runs while it is the turn of other sides, which takes seconds.
fn lengths(mixed: bool) -> [Duration; 4] {
    LENGTHS.map(|secs| {
        if mixed {
            Duration::from_millis(fastrand::u64(10_000..30_000))
        } else {
            Duration::from_secs(secs)
        }
    })
}

pub fn run(scale: Scale, mixed: bool) {
    let (client, proxies) = (runtime(1), runtime(2));
    let wheel = wheel_on(&proxies);
    let behind = serve(&client, answer, ());
    let series = ["no limits", "tokio::time", "tickwheel"];
    let addresses = [
        serve(&proxies, forward, (Floor, mixed, behind)),
        serve(&proxies, forward, (Tokio, mixed, behind)),
        serve(&proxies, forward, (Tickwheel(wheel), mixed, behind)),
    ];
    alternate_under_load(scale, &client, &series, &addresses);
}

/// Starts a server with a task for each connection, which ends with an error when its peer leaves.
pub(crate) fn serve<C, F>(
    runtime: &Runtime,
    connection: fn(TcpStream, C) -> F,
    context: C,
) -> SocketAddr
where
    C: Clone + Send + 'static,
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"));
    let listener = listener.expect("there is a free port");
    let address = listener.local_addr().expect("it is bound");
    runtime.spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.expect("files may be opened");
            socket.set_nodelay(true).expect("a stream of TCP");
            tokio::spawn(connection(socket, context.clone()));
        }
    });
    address
}

/// The server behind.
pub(crate) async fn answer(mut client: TcpStream, (): ()) -> io::Result<()> {
    let mut request = [0; REQUEST.len()];
    loop {
        client.read_exact(&mut request).await?;
        client.write_all(BODY.as_bytes()).await?;
    }
}

async fn forward<T: Timer>(
    mut client: TcpStream,
    (timer, mixed, behind): (T, bool, SocketAddr),
) -> io::Result<()> {
    let mut server = TcpStream::connect(behind).await?;
    server.set_nodelay(true)?;
    let (mut request, mut response) = ([0; REQUEST.len()], [0; BODY.len()]);
    loop {
        let [head, whole, answer, reply] = lengths(mixed);
        within(&timer, head, client.read_exact(&mut request)).await?;
        within(&timer, whole, async {
            server.write_all(&request).await?;
            within(&timer, answer, server.read_exact(&mut response)).await
        })
        .await?;
        within(&timer, reply, client.write_all(&response)).await?;
    }
}

/// The result of the future, or an error once its time is over.
pub(crate) async fn within<T: Timer, R: Send>(
    timer: &T,
    length: Duration,
    future: impl Future<Output = io::Result<R>> + Send,
) -> io::Result<R> {
    let mut result = Err(io::ErrorKind::TimedOut.into());
    timer.timeout(length, async { result = future.await }).await;
    result
}
