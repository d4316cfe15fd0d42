//! Two thousand real connections on loopback under the real clock. No connection that chats is
//! reaped. Each one that falls silent is reaped once, and not early. The tests do not assert how
//! soon.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tickwheel::{Expirations, Reaper, TimerWheel};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{self, Instant};

const IDLE: Duration = Duration::from_millis(500);

/// How long a test may take.
const TIME_LIMIT: Duration = Duration::from_secs(180);

/// A server's record of a connection at its end.
#[derive(Debug)]
struct Ended {
    last_touch: Instant,
    /// The instant at which its server received it, and whether a touch counted then; `None` if the
    /// peer hung up before.
    reaped: Option<(Instant, bool)>,
}

type Server = Reaper<SocketAddr, oneshot::Sender<()>>;

async fn accept(
    listener: TcpListener,
    reaper: Server,
    ended: mpsc::UnboundedSender<(SocketAddr, Ended)>,
) {
    loop {
        let (socket, peer) = listener.accept().await.expect("it listens");
        tokio::spawn(echo(socket, peer, reaper.clone(), ended.clone()));
    }
}

async fn echo(
    mut socket: TcpStream,
    peer: SocketAddr,
    reaper: Server,
    ended: mpsc::UnboundedSender<(SocketAddr, Ended)>,
) {
    let (close, mut closed) = oneshot::channel();
    let mut last_touch = Instant::now();
    let watch = reaper.watch(peer, close).expect("the wheel runs");
    let mut buf = [0; 64];
    let reaped = loop {
        let n = tokio::select! {
            _ = &mut closed => break Some((Instant::now(), watch.touch())),
            read = socket.read(&mut buf) => read.unwrap_or(0),
        };
        if n == 0 {
            break None;
        }
        let now = Instant::now();
        if !watch.touch_at(now) {
            // It has been reaped, and its server closes it soon; going on would be cut off. The
            // clock is read again: `now` may be older than the reaping, if this thread was paused
            // in between.
            (&mut closed).await.expect("the reaper closes it");
            break Some((Instant::now(), watch.touch()));
        }
        last_touch = now;
        if socket.write_all(&buf[..n]).await.is_err() {
            break None;
        }
    };
    drop(watch);
    let reaped = match reaped {
        // Its peer hung up, and it may have been reaped in the same moment. If not, its value went
        // with the watch.
        None => closed.await.ok().map(|()| (Instant::now(), false)),
        told => told,
    };
    let ended_as = Ended { last_touch, reaped };
    let _ = ended.send((peer, ended_as));
}

async fn reap(mut idle: Expirations<SocketAddr, oneshot::Sender<()>>, reaped: Arc<AtomicUsize>) {
    while let Some(expired) = idle.recv().await {
        reaped.fetch_add(1, Ordering::Relaxed);
        let _ = expired.value.send(());
    }
}

/// Sends bytes `times` times, a quarter of the idle duration apart, and then hangs up or stays
/// silent. Returns its address, and how long after its last bytes the server hung up.
async fn client(
    server: SocketAddr,
    times: u32,
    hangs_up: bool,
    opening: Arc<Semaphore>,
) -> (SocketAddr, Option<Duration>) {
    // The connections begin one after the other, because the queue of a listener is short.
    let permit = opening.acquire().await.expect("it is open");
    let mut last_word = Instant::now();
    let mut socket = TcpStream::connect(server).await.expect("it is accepted");
    drop(permit);
    let address = socket.local_addr().expect("it has one");
    for _ in 0..times {
        time::sleep(IDLE / 4).await;
        let before = Instant::now();
        let mut word = *b"hello";
        let echoed = async {
            socket.write_all(&word).await?;
            socket.read_exact(&mut word).await
        };
        if let Err(error) = echoed.await {
            // A machine that stops for longer than the idle duration looks silent.
            let silent = last_word.elapsed();
            assert!(silent >= IDLE, "it was chatting {silent:?} ago: {error}");
            return (address, None);
        }
        last_word = before;
    }
    if hangs_up {
        return (address, None);
    }
    let end = socket.read(&mut [0; 8]).await;
    match end {
        Ok(n) => assert_eq!(n, 0, "nothing was said"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    (address, Some(last_word.elapsed()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reaps_two_thousand_sockets_once_silent_and_not_before() {
    const CONNECTIONS: u32 = 2_000;
    let all = async {
        let wheel = TimerWheel::new();
        let (reaper, idle) = wheel.reaper(IDLE);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let server = listener.local_addr().expect("it has one");
        let (ended, mut ends) = mpsc::unbounded_channel();
        let reaped = Arc::new(AtomicUsize::new(0));
        let accepting = tokio::spawn(accept(listener, reaper.clone(), ended));
        let reaping = tokio::spawn(reap(idle, Arc::clone(&reaped)));

        let opening = Arc::new(Semaphore::new(64));
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|n| {
                // Silent from the start, or after up to six words; one in eight hangs up.
                let client = client(server, n % 7, n % 8 == 3, Arc::clone(&opening));
                tokio::spawn(client)
            })
            .collect();
        let mut seen = HashMap::new();
        for client in clients {
            let (address, after) = client.await.expect("it does not panic");
            // An address may be used again by another.
            seen.entry(address).or_insert_with(Vec::new).push(after);
        }

        let mut told = 0;
        for _ in 0..CONNECTIONS {
            let (address, end) = ends.recv().await.expect("each ends");
            assert!(seen.contains_key(&address));
            if let Some((at, touched)) = end.reaped {
                told += 1;
                assert!(!touched, "a touch after the end counted");
                let idle = at - end.last_touch;
                assert!(idle >= IDLE, "{address} was reaped early, after {idle:?}");
            }
        }
        assert_eq!(reaped.load(Ordering::Relaxed), told, "one was reaped twice");
        let mut closed = 0;
        for after in seen.into_values().flatten().flatten() {
            closed += 1;
            assert!(after >= IDLE, "a client was closed early, after {after:?}");
        }
        assert!(
            told >= closed,
            "{closed} clients were closed, {told} reaped"
        );
        // One in eight hung up, if it got to that; all others were left to the reaper.
        assert!(told >= 1_750, "{told}");
        assert!(reaper.is_empty());
        let metrics = wheel.metrics();
        assert_eq!(metrics.keyed_set, u64::from(CONNECTIONS));
        assert_eq!(metrics.keyed_fired, told as u64);
        assert_eq!(metrics.keyed_removed, u64::from(CONNECTIONS) - told as u64);
        accepting.abort();
        drop(reaper);
        let _ = accepting.await;
        // With the last handle the stream ends.
        reaping.await.expect("it does not panic");
    };
    time::timeout(TIME_LIMIT, all).await.expect("it hangs");
}

/// The same through the stream wrapper: no task but the connection's own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn times_out_streams_on_sockets_once_silent_not_before() {
    const CONNECTIONS: u32 = 200;
    let all = async {
        let wheel = TimerWheel::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let server = listener.local_addr().expect("it has one");
        let accepting = tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.expect("it listens");
                let mut socket = wheel.idle_stream(socket, IDLE);
                tokio::spawn(async move {
                    let (mut reading, mut writing) = tokio::io::split(&mut socket);
                    let copied = tokio::io::copy(&mut reading, &mut writing).await;
                    copied.is_err_and(|error| error.kind() == ErrorKind::TimedOut)
                });
            }
        });
        let opening = Arc::new(Semaphore::new(64));
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|n| tokio::spawn(client(server, n % 7, false, Arc::clone(&opening))))
            .collect();
        for client in clients {
            let (_, after) = client.await.expect("it does not panic");
            assert!(after.is_none_or(|after| after >= IDLE), "{after:?}");
        }
        accepting.abort();
    };
    time::timeout(TIME_LIMIT, all).await.expect("it hangs");
}
