//! Deadlines of remote calls: each call that waits for its response has a timer under its number.
//! The timer's value is the channel to the caller.
//!
//! So the timers are the table of pending calls. A response removes the timer; if there is none,
//! the call has timed out. Each call has exactly one outcome.

use std::fmt;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tickwheel::{Expirations, KeyedTimers, TimerWheel};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time;

#[path = "support/say.rs"]
#[macro_use]
mod say;

/// A frame on the wire: the number of the call and its text.
type Frame = (u64, String);
type Outcome = Result<String, CallError>;

#[derive(Debug, PartialEq, Eq)]
enum CallError {
    TimedOut,
    Disconnected,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CallError::TimedOut => "no response in time",
            CallError::Disconnected => "the connection is gone",
        })
    }
}

struct Client {
    pending: KeyedTimers<u64, oneshot::Sender<Outcome>>,
    to_server: mpsc::UnboundedSender<Frame>,
    next_number: AtomicU64,
    late: Arc<AtomicU64>,
}

impl Client {
    fn new(
        wheel: &TimerWheel,
        to_server: mpsc::UnboundedSender<Frame>,
        from_server: mpsc::UnboundedReceiver<Frame>,
    ) -> Self {
        let (pending, expirations) = wheel.keyed();
        let late = Arc::new(AtomicU64::new(0));
        tokio::spawn(time_out(expirations));
        tokio::spawn(respond(from_server, pending.clone(), Arc::clone(&late)));
        Client {
            pending,
            to_server,
            next_number: AtomicU64::new(0),
            late,
        }
    }

    async fn call(&self, request: &str, deadline: Duration) -> Outcome {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let (tell, told) = oneshot::channel();
        // Before the request is sent: the response may come at once.
        (self.pending.set_timer(number, tell, deadline)).map_err(|_| CallError::Disconnected)?;
        if self.to_server.send((number, request.to_owned())).is_err() {
            let _ = self.pending.remove_timer(&number);
            return Err(CallError::Disconnected);
        }
        told.await.unwrap_or(Err(CallError::Disconnected))
    }
}

/// Informs the callers of calls that have timed out.
async fn time_out(mut expirations: Expirations<u64, oneshot::Sender<Outcome>>) {
    while let Some(expired) = expirations.recv().await {
        // An error means that the caller has stopped waiting.
        let _ = expired.value.send(Err(CallError::TimedOut));
    }
}

/// Hands responses to the callers that wait for them.
async fn respond(
    mut from_server: mpsc::UnboundedReceiver<Frame>,
    pending: KeyedTimers<u64, oneshot::Sender<Outcome>>,
    late: Arc<AtomicU64>,
) {
    while let Some((number, response)) = from_server.recv().await {
        match pending.remove_timer(&number) {
            Ok(Some(tell)) => drop(tell.send(Ok(response))),
            Ok(None) => {
                late.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => break,
        }
    }
}

/// A server that answers "quick" soon and "slow" after the deadline, and forgets everything else.
async fn server(
    mut requests: mpsc::UnboundedReceiver<Frame>,
    responses: mpsc::UnboundedSender<Frame>,
) {
    while let Some((number, request)) = requests.recv().await {
        let delay = match request.as_str() {
            "quick" => Duration::from_millis(number % 20),
            "slow" => DEADLINE * 2,
            _ => continue,
        };
        let responses = responses.clone();
        tokio::spawn(async move {
            time::sleep(delay).await;
            let _ = responses.send((number, format!("{request} answer to {number}")));
        });
    }
}

const CALLS: usize = 1_000;
const DEADLINE: Duration = Duration::from_millis(700);
/// An answer that has not come by then never will.
const TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> ExitCode {
    say::takes_no_arguments("Deadlines of remote calls");
    let wheel = TimerWheel::new();
    let (to_server, requests) = mpsc::unbounded_channel();
    let (responses, from_server) = mpsc::unbounded_channel();
    tokio::spawn(server(requests, responses));
    let client = Arc::new(Client::new(&wheel, to_server, from_server));

    // In each ten calls seven are quick, two are slow, and one is never answered.
    let kind = |n: usize| match n % 10 {
        0..7 => "quick",
        7..9 => "slow",
        _ => "lost",
    };
    // A quick call times out on a machine that stops for as long as the deadline; its response is
    // late then.
    let mut calls = JoinSet::new();
    for request in (0..CALLS).map(kind) {
        let client = Arc::clone(&client);
        calls.spawn(async move { (request, client.call(request, DEADLINE).await) });
    }
    let mut wrong = 0;
    let (mut answered, mut timed_out) = (0, 0_u64);
    for (request, outcome) in calls.join_all().await {
        match (request, &outcome) {
            ("quick" | "slow", Ok(response)) if response.starts_with(request) => answered += 1,
            (_, Err(CallError::TimedOut)) => timed_out += 1,
            (_, Ok(response)) => {
                eprintln!("a {request} call got {response:?}");
                wrong += 1;
            }
            (_, Err(error)) => {
                eprintln!("a {request} call failed: {error}");
                wrong += 1;
            }
        }
    }
    say!("{CALLS} calls: {answered} answered, {timed_out} timed out, {wrong} wrong");
    say!("{} pending", client.pending.len());

    // The responses to the other calls are still to come, but for those that are lost. No caller
    // waits for them.
    let lost = (0..CALLS).filter(|&n| kind(n) == "lost").count();
    let to_come = timed_out - lost as u64;
    let late = || client.late.load(Ordering::Relaxed);
    let all_late = async {
        while late() < to_come {
            time::sleep(DEADLINE / 10).await;
        }
    };
    let all_came = wheel.timeout(TIMEOUT, all_late).await.is_ok();
    say!("{} late responses, which reached no caller", late());

    let holds = wrong == 0 && client.pending.is_empty() && all_came && late() == to_come;
    wheel.shutdown().await;
    ExitCode::from(u8::from(!holds))
}
