//! Failed calls that are tried again in the background.
//!
//! A call that fails waits for its next attempt as a keyed timer, twice as long each time: the
//! handler of `dispatch` says `Again`. At most a hundred may wait: the wheel's `max_keyed` refuses
//! the next one and returns it, so a backend that is down for long does not fill the memory of its
//! callers.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tickwheel::{Expired, KeyedTimers, Outcome, TimerWheel};
use tokio::time::Instant;

#[path = "support/say.rs"]
#[macro_use]
mod say;

const MAX_PENDING: usize = 100;
const MAX_ATTEMPTS: u32 = 5;
const FIRST_BACKOFF: Duration = Duration::from_millis(200);
/// An event that has not happened by then never will.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How many handlers of retries run at once.
const CONCURRENCY: usize = 8;

/// A call that is to be made.
#[derive(Debug)]
struct Notification {
    text: String,
    attempts: u32,
}

#[derive(Clone)]
struct Failback {
    waiting: KeyedTimers<u64, Notification>,
    backend: Arc<Backend>,
    outcomes: Arc<Outcomes>,
}

#[derive(Debug, Default)]
struct Outcomes {
    delivered: AtomicU64,
    /// Given up after as many attempts as there may be.
    exhausted: AtomicU64,
    /// Refused since too many were waiting.
    refused: AtomicU64,
    attempts: AtomicU64,
    most_waiting: AtomicUsize,
    /// Retries that came before their time.
    early: AtomicU64,
}

impl Failback {
    /// Makes the first attempt. A retry follows if that fails.
    async fn send(&self, number: u64, text: String) {
        let mut notification = Notification { text, attempts: 0 };
        let Some(backoff) = self.attempt(&mut notification).await else {
            return;
        };
        if let Err(error) = self.waiting.set_timer(number, notification, backoff) {
            // A service would log what it lost.
            let (_number, _notification) = error.into_inner();
            count(&self.outcomes.refused);
        }
        let waiting = self.waiting.len();
        (self.outcomes.most_waiting).fetch_max(waiting, Ordering::Relaxed);
    }

    /// Makes one attempt. Returns how long to wait for the next one, if there is one.
    async fn attempt(&self, notification: &mut Notification) -> Option<Duration> {
        notification.attempts += 1;
        count(&self.outcomes.attempts);
        if self.backend.receive(notification).await.is_ok() {
            count(&self.outcomes.delivered);
            return None;
        }
        if notification.attempts == MAX_ATTEMPTS {
            count(&self.outcomes.exhausted);
            return None;
        }
        Some(FIRST_BACKOFF * 2_u32.pow(notification.attempts - 1))
    }

    /// Handles a retry that is due.
    async fn retry(self, expired: Expired<u64, Notification>) -> Outcome<Notification> {
        if Instant::now() < expired.deadline {
            count(&self.outcomes.early);
        }
        let mut notification = expired.value;
        match self.attempt(&mut notification).await {
            Some(backoff) => Outcome::Again(notification, backoff),
            None => Outcome::Done,
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Something far away that is down at first.
#[derive(Debug, Default)]
struct Backend {
    up: AtomicBool,
}

impl Backend {
    async fn receive(&self, notification: &Notification) -> Result<(), &'static str> {
        tokio::task::yield_now().await;
        if notification.text.is_empty() {
            return Err("there is nothing in it");
        }
        if !self.up.load(Ordering::Relaxed) {
            return Err("connection refused");
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    say::takes_no_arguments("Failed calls that are tried again, with limits");
    let wheel = TimerWheel::builder()
        .name("failback")
        .max_keyed(MAX_PENDING)
        .start()
        .expect("there is a runtime, and the limit is not zero");
    let (waiting, mut expirations) = wheel.keyed();
    let failback = Failback {
        waiting,
        backend: Arc::default(),
        outcomes: Arc::default(),
    };
    let retrying = {
        let failback = failback.clone();
        tokio::spawn(async move {
            let retry = |expired| failback.clone().retry(expired);
            expirations.dispatch(CONCURRENCY, retry).await;
        })
    };

    // The backend is down, and there are more calls than may wait. A tenth can never succeed.
    let calls: u64 = 130;
    let began = Instant::now();
    for number in 0..calls {
        let text = if number % 10 == 0 {
            String::new()
        } else {
            format!("order {number} was paid")
        };
        failback.send(number, text).await;
    }
    // Else the first retries have come meanwhile, and made room: the machine has stopped.
    let is_full = began.elapsed() < FIRST_BACKOFF;
    let outcomes = &failback.outcomes;
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    say!(
        "the backend is down: of {calls} calls {} wait for their second attempt",
        failback.waiting.len()
    );
    say!("and {} are refused", get(&outcomes.refused));

    wheel.sleep(2 * FIRST_BACKOFF).await;
    failback.backend.up.store(true, Ordering::Relaxed);
    say!("the backend is up again");

    let limit = Instant::now() + TIMEOUT;
    let settled = || get(&outcomes.delivered) + get(&outcomes.exhausted) + get(&outcomes.refused);
    while settled() < calls && Instant::now() < limit {
        wheel.sleep(2 * FIRST_BACKOFF).await;
        say!(
            "{} delivered after {} attempts, {} given up, {} waiting",
            get(&outcomes.delivered),
            get(&outcomes.attempts),
            get(&outcomes.exhausted),
            failback.waiting.len(),
        );
    }
    wheel.shutdown().await;
    let retried = retrying.await.is_ok();

    // Each call has one outcome. The first hundred wait; of these each tenth is given up in the
    // end.
    let holds = retried
        && settled() == calls
        && outcomes.most_waiting.load(Ordering::Relaxed) <= MAX_PENDING
        && (!is_full || get(&outcomes.refused) == calls - MAX_PENDING as u64)
        && (!is_full || get(&outcomes.exhausted) >= MAX_PENDING as u64 / 10)
        && get(&outcomes.early) == 0;
    if !holds {
        eprintln!("that is not what should have happened: {outcomes:?}");
    }
    ExitCode::from(u8::from(!holds))
}
