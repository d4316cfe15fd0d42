//! The service under a load of clients, on the loopback interface.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use tickwheel::TimerWheel;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::Client;
use crate::server::{self, Ends, READ_LIMIT, REQUEST_LIMIT};

const IDLE: Duration = Duration::from_millis(1_500);

/// How long the clients that ask again and again do so.
const LOAD: Duration = Duration::from_secs(6);

/// The behaviour of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Busy,
    Slow,
    Stuck,
    Silent,
    Half,
}

use Kind::{Busy, Half, Silent, Slow, Stuck};

/// How many clients there are of each kind, and what they do.
const KINDS: [(Kind, usize, &str); 5] = [
    (Busy, 50, "asks again and again"),
    (Slow, 50, "asks for what takes 1 s, four times"),
    (Stuck, 50, "asks for what never comes, three times"),
    (Silent, 100, "asks once and falls silent"),
    (Half, 50, "sends half a request"),
];

/// The observations of one client.
#[derive(Debug, Default)]
struct Seen {
    answered: usize,
    timed_out: usize,
    /// How long the server left an idle connection, or half a request, before it closed the
    /// connection.
    closed_after: Option<Duration>,
}

impl Seen {
    /// Asks once, and counts what comes back.
    async fn ask(&mut self, client: &mut Client, path: &str) -> io::Result<()> {
        match client.get(path).await? {
            (200, _) => self.answered += 1,
            (503, _) => self.timed_out += 1,
            (status, _) => return Err(io::Error::other(format!("{path} gave {status}"))),
        }
        Ok(())
    }
}

/// Runs it; the exit code says whether every limit held, and none cut what it should not.
pub(crate) async fn run() -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let server = listener.local_addr()?;
    let wheel = TimerWheel::new();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn({
        let wheel = wheel.clone();
        async move {
            let stop = async { drop(stopped.await) };
            server::run(listener, &wheel, IDLE, stop).await
        }
    });
    let clients: usize = KINDS.iter().map(|(_, clients, _)| clients).sum();
    say!(
        "{clients} clients for {LOAD:?}; a request gets {REQUEST_LIMIT:?}, an idle connection {IDLE:?}"
    );

    let began = Instant::now();
    let mut running = JoinSet::new();
    for (kind, clients, _) in KINDS {
        for _ in 0..clients {
            running.spawn(async move { Ok((kind, client(server, kind).await?)) });
        }
    }
    let mut seen = Vec::new();
    while let Some(outcome) = running.join_next().await {
        let outcome: io::Result<_> = outcome?;
        seen.push(outcome?);
        if seen.len() % 50 == 0 {
            let at = began.elapsed().as_secs_f64();
            say!("{at:4.1} s: {} of {clients} clients are done", seen.len());
        }
    }
    let load = began.elapsed();
    let (status, page) = Client::connect(server).await?.get("/metrics").await?;
    let is_published = status == 200 && page.contains("tickwheel_lateness_seconds_bucket");
    drop(stop);
    let ends = serving.await??;
    wheel.settle().await;
    let held = judge(&seen) && is_published;
    report(&wheel, &seen, load, ends);
    wheel.shutdown().await;
    say!();
    if held {
        say!("every limit held, and no request in flight was cut");
        Ok(ExitCode::SUCCESS)
    } else {
        say!("it did NOT hold: a limit was missed, or a request was cut");
        Ok(ExitCode::FAILURE)
    }
}

/// Does what its kind does.
async fn client(server: SocketAddr, kind: Kind) -> io::Result<Seen> {
    let mut seen = Seen::default();
    let mut client = Client::connect(server).await?;
    match kind {
        Busy => {
            let began = Instant::now();
            let mut asked = began;
            while began.elapsed() < LOAD {
                let last_asked = std::mem::replace(&mut asked, Instant::now());
                if let Err(error) = seen.ask(&mut client, "/").await {
                    // On a machine that stops for so long the server is right.
                    if last_asked.elapsed() < IDLE {
                        return Err(error);
                    }
                    client = Client::connect(server).await?;
                }
            }
        }
        Slow => {
            for _ in 0..4 {
                seen.ask(&mut client, "/slow/1").await?;
            }
        }
        Stuck => {
            for _ in 0..3 {
                seen.ask(&mut client, "/slow/1e9").await?;
            }
        }
        Silent => {
            let asked = Instant::now();
            seen.ask(&mut client, "/").await?;
            client.closed().await?;
            seen.closed_after = Some(asked.elapsed());
        }
        Half => {
            let sent = Instant::now();
            client.send("GET / HT").await?;
            client.closed().await?;
            seen.closed_after = Some(sent.elapsed());
        }
    }
    Ok(seen)
}

/// Prints what the clients of each kind have seen. Whether it is what they should have.
fn judge(seen: &[(Kind, Seen)]) -> bool {
    say!();
    say!("a client that                             clients  answered  timed out  closed after");
    let mut held = true;
    for (kind, clients, name) in KINDS {
        let of_kind = || {
            seen.iter()
                .filter(|(k, _)| *k == kind)
                .map(|(_, seen)| seen)
        };
        let answered: usize = of_kind().map(|seen| seen.answered).sum();
        let timed_out: usize = of_kind().map(|seen| seen.timed_out).sum();
        let mut closed: Vec<Duration> = of_kind().filter_map(|seen| seen.closed_after).collect();
        closed.sort_unstable();
        let when = match closed[..] {
            [least, .., most] => {
                format!("{:.3} - {:.3} s", least.as_secs_f64(), most.as_secs_f64())
            }
            _ => "-".to_owned(),
        };
        say!("{name:<40}  {clients:>7}  {answered:>8}  {timed_out:>9}  {when}");
        let all_closed_from = |limit| closed.len() == clients && closed[0] >= limit;
        held &= match kind {
            Busy => answered >= clients,
            Slow => (answered, timed_out) == (4 * clients, 0),
            Stuck => (answered, timed_out) == (0, 3 * clients),
            Silent => answered == clients && all_closed_from(IDLE),
            Half => all_closed_from(READ_LIMIT),
        };
    }
    held
}

/// Prints what it cost.
#[allow(clippy::cast_precision_loss)] // counts of some seconds
fn report(wheel: &TimerWheel, seen: &[(Kind, Seen)], load: Duration, ends: Ends) {
    let sum = |count: fn(&Seen) -> usize| seen.iter().map(|(_, seen)| count(seen)).sum();
    let (answered, timed_out): (usize, usize) = (sum(|s| s.answered), sum(|s| s.timed_out));
    let requests = (answered + timed_out) as f64;
    let metrics = wheel.metrics();
    let lateness = &metrics.lateness;
    let millis = |q| lateness.quantile(q).as_secs_f64() * 1e3;
    say!();
    say!(
        "requests                {requests}, {:.0} a second",
        requests / load.as_secs_f64()
    );
    say!("  timed out             {timed_out}");
    say!("{ends}");
    say!(
        "timers per request      {:.2} made, {:.4} commands to the actor",
        metrics.sleeps_made as f64 / requests,
        metrics.commands as f64 / requests,
    );
    say!(
        "timers that fired       {}, late by {:.1} ms (median), {:.1} ms (99 %), {:.1} ms (most)",
        lateness.count(),
        millis(0.5),
        millis(0.99),
        millis(1.0),
    );
}
