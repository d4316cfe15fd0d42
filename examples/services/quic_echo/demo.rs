//! The server under a load of clients, on the loopback interface.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quinn::rustls::RootCertStore;
use quinn::{ClientConfig, Connection, ConnectionError, TransportConfig};
use tickwheel::TimerWheel;
use tokio::net::UdpSocket;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::Outcome;
use crate::server::{self, Ends, Identity, endpoint};

const IDLE: Duration = Duration::from_secs(2);

/// quinn takes the time, then looks for datagrams: a thread that is delayed in between finds them
/// older by the delay.
const HELD_UP: Duration = Duration::from_millis(200);

/// A connection that is ended later than this after its idle timeout wants an explanation.
const LONG_AFTER: Duration = Duration::from_millis(500);

/// How often a client that keeps its connection alive does so.
const PING: Duration = Duration::from_millis(400);

/// How long the clients that do not fall silent stay.
const LOAD: Duration = Duration::from_secs(5);

/// The behaviour of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Busy,
    Kept,
    Silent,
}

use Kind::{Busy, Kept, Silent};

/// How many clients there are of each kind, and what they do.
const KINDS: [(Kind, usize, &str); 3] = [
    (Busy, 20, "opens one stream after the other"),
    (Kept, 50, "sends nothing but pings"),
    (Silent, 50, "falls silent"),
];

/// The observations of one client.
#[derive(Debug, Default)]
struct Seen {
    echoed: usize,
    /// How long after its last stream was opened the connection was ended by idle timeout.
    ended_after: Option<Duration>,
}

impl Seen {
    /// Has one stream echoed.
    async fn ask(&mut self, connection: &Connection) -> Outcome<()> {
        // Each has another length and another content.
        let first = self.echoed % 251;
        let bytes = (0..=250).cycle().skip(first);
        let sent: Vec<u8> = bytes.take(1 << (self.echoed % 15)).collect();
        let (mut send, mut receive) = connection.open_bi().await?;
        send.write_all(&sent).await?;
        send.finish()?;
        if receive.read_to_end(sent.len()).await? != sent {
            return Err("what came back is not what was sent".into());
        }
        self.echoed += 1;
        Ok(())
    }
}

/// Runs it; the exit code says whether all was echoed, and the right connections were ended.
pub(crate) async fn run() -> Outcome<ExitCode> {
    let held_up = Arc::new(AtomicU64::new(0));
    tokio::spawn(watch_tokio(Arc::clone(&held_up)));
    let outcome = demonstrate().await;
    say!();
    if matches!(outcome, Ok(true)) {
        say!("every stream was echoed, and idle connections were ended, and no other");
        return Ok(ExitCode::SUCCESS);
    }
    say!("it did NOT hold: a stream was not echoed, or the wrong connections were ended");
    if let Err(error) = &outcome {
        say!("{error}");
    }
    let held_up = Duration::from_millis(held_up.load(Ordering::Relaxed));
    if held_up >= IDLE / 4 {
        say!(
            "Tokio's timers were up to {held_up:?} late too: a program that is held up for so long looks silent"
        );
        return Ok(ExitCode::SUCCESS);
    }
    outcome.map(|_| ExitCode::FAILURE)
}

/// The control: by how many milliseconds a timer of Tokio was late at most.
async fn watch_tokio(latest: Arc<AtomicU64>) {
    loop {
        let deadline = Instant::now() + Duration::from_millis(20);
        tokio::time::sleep_until(deadline).await;
        let late = u64::try_from(deadline.elapsed().as_millis()).unwrap_or(u64::MAX);
        latest.fetch_max(late, Ordering::Relaxed);
    }
}

/// Whether all was echoed, and the right connections were ended.
async fn demonstrate() -> Outcome<bool> {
    let loopback = async || UdpSocket::bind("127.0.0.1:0").await;
    let identity = Identity::new()?;
    let mut roots = RootCertStore::empty();
    roots.add(identity.certificate.clone())?;
    let roots = Arc::new(roots);
    // The figures are the server's, so the clients have their own wheel.
    let (wheel, clients_wheel) = (TimerWheel::new(), TimerWheel::new());
    let server = endpoint(&wheel, loopback().await?, Some(identity.config(IDLE)?))?;
    let address = server.local_addr()?;
    let endpoint = endpoint(&clients_wheel, loopback().await?, None)?;
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn({
        let (server, wheel) = (server.clone(), wheel.clone());
        async move { server::run(&server, &wheel, async { drop(stopped.await) }).await }
    });
    let clients: usize = KINDS.iter().map(|(_, clients, _)| clients).sum();
    say!("{clients} clients for {LOAD:?}; the idle timeout is {IDLE:?}, pings come each {PING:?}");

    let began = Instant::now();
    let mut running = JoinSet::new();
    // If all shook hands at once, those who are done would be silent while they wait for the
    // others.
    let turns = Arc::new(Semaphore::new(4));
    for (kind, clients, _) in KINDS {
        let mut transport = TransportConfig::default();
        transport.keep_alive_interval((kind == Kept).then_some(PING));
        let mut config = ClientConfig::with_root_certificates(Arc::clone(&roots))?;
        config.transport_config(Arc::new(transport));
        for _ in 0..clients {
            let (endpoint, config) = (endpoint.clone(), config.clone());
            let (wheel, turns) = (clients_wheel.clone(), Arc::clone(&turns));
            running.spawn(async move {
                let turn = turns.acquire().await?;
                let connection = endpoint.connect_with(config, address, "localhost")?.await?;
                drop(turn);
                Ok((kind, client(connection, &wheel, kind).await?))
            });
        }
    }
    let mut seen = Vec::new();
    let mut second = wheel.interval(Duration::from_secs(1));
    second.tick().await;
    loop {
        tokio::select! {
            outcome = running.join_next() => match outcome {
                Some(outcome) => seen.push({ let outcome: Outcome<_> = outcome?; outcome? }),
                None => break,
            },
            _ = second.tick() => say!(
                "{:4.1} s: {} connections are open; the server has moved timers {} times",
                began.elapsed().as_secs_f64(),
                server.open_connections(),
                wheel.metrics().sleeps_moved,
            ),
        }
    }
    let load = began.elapsed();
    drop(stop);
    let ends = serving.await?;
    endpoint.wait_idle().await;
    wheel.settle().await;
    let held = judge(&seen, ends);
    report(&wheel, load, ends);
    wheel.shutdown().await;
    clients_wheel.shutdown().await;
    Ok(held)
}

/// Does what its kind does.
async fn client(connection: Connection, wheel: &TimerWheel, kind: Kind) -> Outcome<Seen> {
    let mut seen = Seen::default();
    let began = Instant::now();
    seen.ask(&connection).await?;
    match kind {
        Busy => {
            while began.elapsed() < LOAD {
                seen.ask(&connection).await?;
            }
        }
        Kept => {
            wheel.sleep(LOAD).await;
            seen.ask(&connection).await?;
        }
        Silent => match connection.closed().await {
            ConnectionError::TimedOut => seen.ended_after = Some(began.elapsed()),
            other => return Err(other.into()),
        },
    }
    connection.close(0_u32.into(), b"done");
    Ok(seen)
}

/// Prints what the clients of each kind have seen. Whether it is what they should have.
fn judge(seen: &[(Kind, Seen)], ends: Ends) -> bool {
    say!();
    say!("a client that                     clients  streams echoed  ended by idle timeout after");
    let mut held = true;
    for (kind, clients, name) in KINDS {
        let of_kind = || {
            seen.iter()
                .filter(|(k, _)| *k == kind)
                .map(|(_, seen)| seen)
        };
        let echoed: usize = of_kind().map(|seen| seen.echoed).sum();
        let mut ended: Vec<Duration> = of_kind().filter_map(|seen| seen.ended_after).collect();
        ended.sort_unstable();
        let when = match ended[..] {
            [least, .., most] => {
                format!("{:.3} - {:.3} s", least.as_secs_f64(), most.as_secs_f64())
            }
            _ => "-".to_owned(),
        };
        say!("{name:<32}  {clients:>7}  {echoed:>14}  {when}");
        if kind == Silent && ended.last().is_some_and(|&most| most >= IDLE + LONG_AFTER) {
            say!(
                "  QUIC leaves a silent client three times the time in which it expects an acknowledgement, if that"
            );
            say!(
                "  is longer than {IDLE:?}, and counts from the last datagram; a busy machine looks like a long way."
            );
        }
        held &= match kind {
            Busy => echoed > clients,
            Kept => echoed == 2 * clients,
            Silent => {
                ended.len() == clients && ended[0] + HELD_UP >= IDLE && ends.idle == clients as u64
            }
        };
    }
    let echoed: usize = seen.iter().map(|(_, seen)| seen.echoed).sum();
    held && ends.failed == 0 && ends.streams == echoed as u64
}

/// Prints what it cost the server.
#[allow(clippy::cast_precision_loss)] // counts of some seconds
fn report(wheel: &TimerWheel, load: Duration, ends: Ends) {
    let metrics = wheel.metrics();
    let lateness = &metrics.lateness;
    let millis = |q| lateness.quantile(q).as_secs_f64() * 1e3;
    let datagrams = ends.datagrams as f64;
    say!();
    say!(
        "streams                 {}, {:.0} a second",
        ends.streams,
        ends.streams as f64 / load.as_secs_f64()
    );
    say!("datagrams               {datagrams} received and sent");
    say!("{ends}");
    say!(
        "timers per datagram     {:.4} made, {:.4} moved, {:.4} fired, {:.4} commands to the actor",
        metrics.sleeps_made as f64 / datagrams,
        metrics.sleeps_moved as f64 / datagrams,
        metrics.sleeps_fired as f64 / datagrams,
        metrics.commands as f64 / datagrams,
    );
    say!(
        "timers that fired       {}, late by {:.1} ms (median), {:.1} ms (99 %), {:.1} ms (most)",
        lateness.count(),
        millis(0.5),
        millis(0.99),
        millis(1.0),
    );
}
