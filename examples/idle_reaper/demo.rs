//! The demonstration: real clients, of which half chat and half fall silent, and a table of what
//! became of them.
//!
//! The clients keep time with Tokio's timers, so that the wheel does not check itself.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use indicatif::HumanCount;
use tickwheel::{TimerWheel, WheelMetrics};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{self, Instant};

use crate::progress::Progress;
use crate::{End, Event, machine, run_server};

const CLIENTS: u64 = 2_000;

/// The server closes what is silent for this long.
const IDLE: Duration = Duration::from_secs(3);

/// How long the chatting clients chat.
const CHAT: Duration = Duration::from_secs(9);

/// A silent client that is still open so long after it should have been closed has been forgotten.
const GRACE: Duration = Duration::from_secs(60);

/// The demonstration ends after this time in every case.
const GIVE_UP: Duration = Duration::from_secs(90);

/// How many clients connect at once: the server's queue is not endless.
const CONNECTING: usize = 100;

/// Files that are open besides the two sockets of each connection.
const OTHER_FILES: u64 = 100;

const MESSAGE: &[u8] = b"is anybody there?\n";

/// The outcome that a client has seen.
#[derive(Debug)]
enum Outcome {
    /// It chatted to the end.
    Chatted,
    /// It chatted, and the server closed the connection.
    Interrupted,
    /// It was silent, and the server closed the connection.
    Reaped,
    /// It was silent, and the server closed the connection before its time.
    ReapedEarly,
    /// It was silent, and nothing happened.
    Forgotten,
    /// It could not connect, or its greeting was not echoed.
    Failed(io::Error),
}

/// The outcomes of all clients.
#[derive(Debug, Default)]
struct Tally {
    chatted: u64,
    interrupted: u64,
    reaped: u64,
    reaped_early: u64,
    forgotten: u64,
    failed: u64,
    first_failure: Option<String>,
    /// As the server sees it.
    opened: u64,
    /// By how much the server closed each connection after it had been silent for long enough.
    lateness: Vec<Duration>,
    /// Connections the server closed before that.
    early: u64,
}

impl Tally {
    fn client(&mut self, outcome: Outcome) {
        let count = match outcome {
            Outcome::Chatted => &mut self.chatted,
            Outcome::Interrupted => &mut self.interrupted,
            Outcome::Reaped => &mut self.reaped,
            Outcome::ReapedEarly => &mut self.reaped_early,
            Outcome::Forgotten => &mut self.forgotten,
            Outcome::Failed(error) => {
                self.first_failure.get_or_insert_with(|| error.to_string());
                &mut self.failed
            }
        };
        *count += 1;
    }

    fn server(&mut self, event: Event) {
        match event {
            Event::Opened(_) => self.opened += 1,
            Event::Ended {
                end: End::Reaped,
                silent,
                ..
            } => match silent.checked_sub(IDLE) {
                Some(late) => self.lateness.push(late),
                None => self.early += 1,
            },
            Event::Ended { .. } => {}
            Event::Refused(error) => {
                self.first_failure.get_or_insert_with(|| error.to_string());
            }
        }
    }

    /// The promises that were broken.
    fn complaints(&self, clients: u64) -> Vec<String> {
        let early = self.early.max(self.reaped_early);
        let seen = self.reaped + self.reaped_early + self.interrupted;
        let reaped = self.lateness.len() as u64 + self.early;
        let mut complaints = Vec::new();
        let mut expect_none = |n: u64, what: &str| {
            if n > 0 {
                complaints.push(format!("{} {what}", HumanCount(n)));
            }
        };
        expect_none(self.interrupted, "chatting clients were closed");
        expect_none(self.forgotten, "silent clients were not closed");
        expect_none(early, "clients were closed early");
        expect_none(
            seen.abs_diff(reaped),
            "clients saw another end than the server",
        );
        expect_none(
            clients.abs_diff(self.opened),
            "connections are not accounted for",
        );
        let why = self.first_failure.as_deref().unwrap_or("no reason known");
        expect_none(
            self.failed,
            &format!("clients failed before they were silent ({why})"),
        );
        complaints
    }
}

/// Demonstrates the server, and says whether it did what it should.
pub(crate) async fn run() -> ExitCode {
    let Some(clients) = affordable_clients() else {
        return ExitCode::FAILURE;
    };
    let listener = match TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await {
        Ok(listener) => listener,
        Err(error) => return fail(&format!("cannot listen on the loopback interface: {error}")),
    };
    let half = HumanCount(clients / 2);
    say!(
        "{} clients: {half} chat and {half} fall silent; the server closes what is silent for {IDLE:?}",
        HumanCount(clients)
    );

    let began = Instant::now();
    let wheel = TimerWheel::new();
    let mut tally = Tally::default();
    let run = time::timeout(
        GIVE_UP,
        serve_and_connect(listener, &wheel, clients, &mut tally),
    );
    let in_time = match run.await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => return fail(&format!("cannot demonstrate: {error}")),
        Err(_) => false,
    };
    let metrics = wheel.metrics();
    wheel.shutdown().await;

    print_table(&mut tally, &metrics, clients, began.elapsed());
    let mut complaints = tally.complaints(clients);
    if !in_time {
        complaints.push(format!("it was not done after {GIVE_UP:?}"));
    }
    if complaints.is_empty() {
        say!("Every silent connection was closed, and no chatting one.");
        return ExitCode::SUCCESS;
    }
    fail(&complaints.join("; "))
}

/// As many clients as there may be open sockets for; `None`, after saying so, when that is not even
/// a few.
fn affordable_clients() -> Option<u64> {
    let wanted = 2 * CLIENTS + OTHER_FILES;
    let allowed = machine::allow_open_files(wanted).unwrap_or(wanted);
    if allowed >= wanted {
        return Some(CLIENTS);
    }
    let why = format!("this process may have only {allowed} files open");
    let remedy = format!("run `ulimit -n {wanted}` as root before");
    // Half of them chat and half are silent: a multiple of two.
    let clients = allowed.saturating_sub(OTHER_FILES) / 4 * 2;
    if clients < 10 {
        fail(&format!("{why}, which is too few; {remedy}"));
        return None;
    }
    say!(
        "{why}: {clients} clients instead of {}; for all of them {remedy}",
        HumanCount(CLIENTS)
    );
    Some(clients)
}

fn fail(why: &str) -> ExitCode {
    eprintln!("idle_reaper: {why}");
    ExitCode::FAILURE
}

/// Runs the server until every client has seen its end.
async fn serve_and_connect(
    listener: TcpListener,
    wheel: &TimerWheel,
    clients: u64,
    tally: &mut Tally,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let (report, mut events) = mpsc::unbounded_channel();
    let server = {
        let wheel = wheel.clone();
        tokio::spawn(async move {
            let stopped = async { drop(stopped.await) };
            // An error means that the demonstration has ended.
            let report = move |event| drop(report.send(event));
            run_server(listener, &wheel, IDLE, stopped, report).await
        })
    };

    let connecting = Arc::new(Semaphore::new(CONNECTING));
    let mut outcomes: JoinSet<Outcome> = (0..clients)
        .map(|number| client(number, address, Arc::clone(&connecting)))
        .collect();

    let mut progress = Progress::new(CHAT);
    let mut refresh = time::interval(Duration::from_millis(100));
    loop {
        tokio::select! {
            Some(event) = events.recv() => tally.server(event),
            outcome = outcomes.join_next() => match outcome {
                Some(outcome) => tally.client(outcome?),
                None => break,
            },
            _ = refresh.tick() => progress.show(|| format!(
                "{} of {} opened, {} reaped",
                HumanCount(tally.opened),
                HumanCount(clients),
                HumanCount(tally.lateness.len() as u64)
            )),
        }
    }
    progress.finish();

    drop(stop);
    server.await?;
    while let Some(event) = events.recv().await {
        tally.server(event);
    }
    Ok(())
}

/// One client: the even ones chat, the odd ones fall silent.
async fn client(number: u64, address: SocketAddr, connecting: Arc<Semaphore>) -> Outcome {
    let connected = {
        let _permit = connecting.acquire().await;
        TcpStream::connect(address).await
    };
    let socket = match connected {
        Ok(socket) => socket,
        Err(error) => return Outcome::Failed(error),
    };
    let variant = u32::try_from(number / 2 % 8).unwrap_or(0);
    if number % 2 == 0 {
        chatting(socket, Duration::from_millis(100) * (variant + 1)).await
    } else {
        silent(socket, variant).await
    }
}

/// Sends a message every `pause`, and expects it back.
async fn chatting(mut socket: TcpStream, pause: Duration) -> Outcome {
    let mut active = Instant::now();
    let end = active + CHAT;
    while Instant::now() < end {
        let last_active = std::mem::replace(&mut active, Instant::now());
        if chat(&mut socket).await.is_err() {
            // On a machine that stops for so long the client was silent, and the server is right.
            let was_silent = last_active.elapsed() >= IDLE;
            return if was_silent {
                Outcome::Reaped
            } else {
                Outcome::Interrupted
            };
        }
        time::sleep(pause).await;
    }
    Outcome::Chatted
}

/// Chats `messages` times, or not even once, and then says nothing until the server closes the
/// connection.
async fn silent(mut socket: TcpStream, messages: u32) -> Outcome {
    let mut active = Instant::now();
    for _ in 0..messages {
        time::sleep(Duration::from_millis(250)).await;
        let last_active = std::mem::replace(&mut active, Instant::now());
        if let Err(error) = chat(&mut socket).await {
            let was_silent = last_active.elapsed() >= IDLE;
            return if was_silent {
                Outcome::Reaped
            } else {
                Outcome::Failed(error)
            };
        }
    }
    match time::timeout(IDLE + GRACE, socket.read(&mut [0])).await {
        // Before the first message the server may have begun to count a little before the client
        // knew.
        Ok(_) if messages > 0 && active.elapsed() < IDLE => Outcome::ReapedEarly,
        Ok(_) => Outcome::Reaped,
        Err(_) => Outcome::Forgotten,
    }
}

/// Sends one message and reads its echo.
async fn chat(socket: &mut TcpStream) -> io::Result<()> {
    let mut echo = [0; MESSAGE.len()];
    socket.write_all(MESSAGE).await?;
    socket.read_exact(&mut echo).await?;
    if echo != MESSAGE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a wrong echo"));
    }
    Ok(())
}

fn print_table(tally: &mut Tally, metrics: &WheelMetrics, clients: u64, took: Duration) {
    let row = |name: &str, value: String| say!("  {name:<36}{value:>20}");
    let of_half = |n| format!("{} of {}", HumanCount(n), HumanCount(clients / 2));
    let late = &mut tally.lateness;
    late.sort_unstable();
    // The smallest lateness that this share of them did not exceed.
    let quantile = |percent: usize| match (late.len() * percent).div_ceil(100) {
        0 => "n/a".to_owned(),
        rank => format!("{:.2} ms", late[rank - 1].as_secs_f64() * 1e3),
    };

    say!();
    row(
        "silent connections reaped",
        of_half(tally.reaped + tally.reaped_early),
    );
    row("chatting connections reaped", of_half(tally.interrupted));
    row(
        "reaped before their time",
        HumanCount(tally.early.max(tally.reaped_early)).to_string(),
    );
    row("reaped late by, median", quantile(50));
    row("reaped late by, 99th percentile", quantile(99));
    row("reaped late by, at most", quantile(100));
    row(
        "commands to the wheel's actor",
        HumanCount(metrics.commands).to_string(),
    );
    row(
        "wake-ups of the wheel's actor",
        HumanCount(metrics.wake_ups).to_string(),
    );
    row(
        "CPU time, clients included",
        machine::cpu_time().map_or("n/a".to_owned(), |cpu| {
            format!("{:.2} s", cpu.as_secs_f64())
        }),
    );
    row("time", format!("{:.1} s", took.as_secs_f64()));
    say!();
}
