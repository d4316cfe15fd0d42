//! Promise P18: time in which the runtime stood still is not silence. Real connections on loopback,
//! by the real clock: while the server stands still for longer than the idle duration, most peers
//! go on sending, and some fall silent. The server closes those alone.

use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tickwheel::{Reaper, TimerWheel};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::time;

/// The connections of each kind that go on sending.
const HEALTHY: usize = 12;

/// What watches a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reaper,
    Timer,
    Stream,
}

const KINDS: [Kind; 3] = [Kind::Reaper, Kind::Timer, Kind::Stream];

fn current_thread() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("it starts")
}

fn multi_thread() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build();
    runtime.expect("it starts")
}

/// How many connections of each kind were closed as idle, of those that sent and of those that were
/// silent.
#[derive(Debug, Default)]
struct Closed {
    healthy: [AtomicUsize; 3],
    silent: [AtomicUsize; 3],
}

impl Closed {
    fn count(&self) -> [[usize; 3]; 2] {
        let of_kinds = |of: &[AtomicUsize; 3]| of.each_ref().map(|n| n.load(Ordering::Relaxed));
        [&self.healthy, &self.silent].map(of_kinds)
    }
}

/// Reads until the peer closes. Returns whether the connection was idle before.
async fn is_idle(
    kind: Kind,
    mut socket: TcpStream,
    wheel: &TimerWheel,
    reaper: &Reaper<(), oneshot::Sender<()>>,
    idle: Duration,
) -> bool {
    let mut buf = [0; 64];
    match kind {
        Kind::Reaper => {
            let (close, mut closed) = oneshot::channel();
            let watch = reaper.watch((), close).expect("the wheel runs");
            loop {
                tokio::select! {
                    _ = &mut closed => return true,
                    read = socket.read(&mut buf) => match read {
                        Ok(1..) if watch.touch() => {}
                        Ok(1..) => return true,
                        _ => return false,
                    },
                }
            }
        }
        Kind::Timer => {
            let mut timer = wheel.idle_timer(idle);
            loop {
                tokio::select! {
                    () = &mut timer => return true,
                    read = socket.read(&mut buf) => match read {
                        Ok(1..) => assert!(timer.touch()),
                        _ => return false,
                    },
                }
            }
        }
        Kind::Stream => {
            let mut socket = wheel.idle_stream(socket, idle);
            loop {
                match socket.read(&mut buf).await {
                    Ok(1..) => {}
                    Ok(0) => return false,
                    Err(error) => return error.kind() == ErrorKind::TimedOut,
                }
            }
        }
    }
}

async fn serve(listener: TcpListener, wheel: TimerWheel, idle: Duration, closed: Arc<Closed>) {
    let (reaper, mut idle_ones) = wheel.reaper::<(), oneshot::Sender<()>>(idle);
    tokio::spawn(async move {
        while let Some(expired) = idle_ones.recv().await {
            let _ = expired.value.send(());
        }
    });
    for number in 0.. {
        let (mut socket, _) = listener.accept().await.expect("it listens");
        let (wheel, reaper, closed) = (wheel.clone(), reaper.clone(), Arc::clone(&closed));
        tokio::spawn(async move {
            // The first byte says whether the peer goes on sending.
            let is_healthy = socket.read_u8().await.is_ok_and(|byte| byte == 1);
            let kind = KINDS[number % KINDS.len()];
            if is_idle(kind, socket, &wheel, &reaper, idle).await {
                let closed = if is_healthy {
                    &closed.healthy
                } else {
                    &closed.silent
                };
                closed[kind as usize].fetch_add(1, Ordering::Relaxed);
            }
        });
    }
}

/// What the peers do.
#[derive(Debug, Default)]
struct Peers {
    /// Some of them fall silent.
    hush: AtomicBool,
    stop: AtomicBool,
}

/// Sends on all connections, then on the healthy ones. Returns the longest time without a byte.
fn send(address: SocketAddr, every: Duration, peers: &Peers) -> Duration {
    let connect = |first: u8| {
        let mut socket = std::net::TcpStream::connect(address).expect("it listens");
        socket.write_all(&[first]).expect("the server is there");
        socket
    };
    let mut silent = KINDS.map(|_| connect(0));
    let mut healthy: Vec<_> = (0..HEALTHY * KINDS.len()).map(|_| connect(1)).collect();
    let (mut longest, mut sent) = (Duration::ZERO, Instant::now());
    while !peers.stop.load(Ordering::Relaxed) {
        let is_hushed = peers.hush.load(Ordering::Relaxed);
        let also = if is_hushed {
            &mut [][..]
        } else {
            &mut silent[..]
        };
        for socket in healthy.iter_mut().chain(also) {
            // An error means that it was closed, which the server counts.
            let _ = socket.write_all(b"x");
        }
        longest = longest.max(sent.elapsed());
        sent = Instant::now();
        thread::sleep(every);
    }
    longest
}

/// The server stands still. `None` if the peers did too, on a busy machine.
fn closed_after_a_stall(
    runtime: &Runtime,
    actors: Option<&Runtime>,
    idle: Duration,
) -> Option<[[usize; 3]; 2]> {
    let peers = Arc::new(Peers::default());
    let closed = Arc::new(Closed::default());
    let longest = runtime.block_on(async {
        let builder = TimerWheel::builder();
        let builder = match actors {
            Some(actors) => builder.runtime(actors.handle().clone()),
            None => builder,
        };
        let wheel = builder.start().expect("the settings are good");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("it binds");
        let address = listener.local_addr().expect("it is bound");
        tokio::spawn(serve(listener, wheel, idle, Arc::clone(&closed)));
        let sending = thread::spawn({
            let peers = Arc::clone(&peers);
            move || send(address, idle / 10, &peers)
        });
        time::sleep(idle * 5 / 2).await;
        let before = closed.count();
        peers.hush.store(true, Ordering::Relaxed);
        let block = || tokio::spawn(async move { thread::sleep(idle * 3) });
        let blocked: Vec<_> = (0..2).map(|_| block()).collect();
        for task in blocked {
            task.await.expect("it sleeps");
        }
        time::sleep(idle * 3).await;
        peers.stop.store(true, Ordering::Relaxed);
        let longest = sending.join().expect("they end");
        (before == [[0; 3]; 2]).then_some(longest)
    })?;
    (longest < idle / 2).then(|| closed.count())
}

/// Runs it with longer durations until the peers have not stood still.
fn closes_silent_ones_only(runtime: &Runtime, actors: Option<&Runtime>) {
    let durations = [200, 400, 1600, 6400].map(Duration::from_millis);
    let mut runs = durations
        .iter()
        .map(|&idle| closed_after_a_stall(runtime, actors, idle));
    let closed = runs.find_map(|closed| closed);
    let [healthy, silent] = closed.expect("the machine runs for some seconds");
    assert_eq!(healthy, [0; 3], "healthy connections are closed");
    assert_eq!(silent, [1; 3], "silent ones are closed all the same");
}

#[test]
fn p18_blocked_thread_closes_no_healthy_connection() {
    closes_silent_ones_only(&current_thread(), None);
}

#[test]
fn p18_blocked_workers_close_no_healthy_connection() {
    closes_silent_ones_only(&multi_thread(), None);
}

/// The actor is on time, and notices nothing.
#[test]
fn p18_healthy_connections_stay_if_the_actor_runs_elsewhere() {
    let actors = multi_thread();
    closes_silent_ones_only(&current_thread(), Some(&actors));
    closes_silent_ones_only(&multi_thread(), Some(&actors));
}

/// A pause too short for a stall: a task that is woken by bytes and by its timer reads first,
/// whichever of the two it polls first.
#[test]
fn p18_bytes_count_that_are_there_when_the_timer_is_due() {
    let idle = Duration::from_millis(100);
    current_thread().block_on(async {
        let wheel = TimerWheel::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("it binds");
        let address = listener.local_addr().expect("it is bound");
        let mut tasks = Vec::new();
        let mut peers = Vec::new();
        for _ in 0..32 {
            peers.push(std::net::TcpStream::connect(address).expect("it listens"));
            let (mut socket, _) = listener.accept().await.expect("it listens");
            let mut timer = wheel.idle_timer(idle);
            tasks.push(tokio::spawn(async move {
                tokio::select! {
                    () = &mut timer => false,
                    read = socket.read_u8() => read.is_ok(),
                }
            }));
        }
        time::sleep(idle / 2).await;
        for peer in &mut peers {
            peer.write_all(b"x").expect("the server is there");
        }
        // The runtime learns of the bytes when all timers are due.
        thread::sleep(idle / 2 + Duration::from_millis(10));
        for task in tasks {
            assert!(task.await.expect("it ends"), "a byte was there");
        }
    });
}

#[tokio::test]
async fn p18_touch_saves_a_watch_that_a_poll_has_found_due() {
    let wheel = TimerWheel::new();
    let idle = Duration::from_millis(50);
    let (reaper, mut idle_ones) = wheel.reaper::<_, ()>(idle);
    let watch = reaper.watch("touched", ()).expect("the wheel runs");
    let other = reaper.watch("silent", ()).expect("the wheel runs");
    time::sleep(idle + Duration::from_millis(5)).await;
    wheel.settle().await;
    {
        let mut next = tokio_test::task::spawn(idle_ones.recv());
        assert!(next.poll().is_pending(), "others have their turn first");
        assert!(watch.touch());
    }
    let expired = idle_ones.recv().await.expect("the wheel runs");
    assert_eq!(expired.key, "silent");
    assert!(watch.touch(), "it was touched in time");
    assert!(!other.touch());
}
