//! Sets the reminders, starts and kills the workers, and counts what became of them.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::join_all;
use tickwheel::TimerWheel;
use tickwheel_durable::{Counts, Error, Moved, Removed};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::Outcome;
use super::store::{self, POLL, RETRY, Reminders, TIME_LIMIT, may_pass};
use super::totals::{Delivery, Totals, parse_unacknowledged};
use super::worker::micros;

const WORKERS: usize = 3;

/// The first reminder is due after this, and the last so much later.
const FIRST: Duration = Duration::from_secs(3);
const SPREAD: Duration = Duration::from_secs(12);

/// One in so many is moved, and one in so many removed, each second.
const SOME: u32 = 100;

/// A line of a worker, and its number.
type Lines = mpsc::UnboundedSender<(u32, String)>;

pub(crate) async fn run(timers: u32, store: Option<String>) -> Outcome<bool> {
    // By default the file lies in a folder that goes with the program.
    let folder = std::env::temp_dir().join(format!("reminders-{}", std::process::id()));
    let store = if let Some(store) = store {
        store
    } else {
        std::fs::create_dir_all(&folder)?;
        folder.join("reminders.db").display().to_string()
    };
    let outcome = play(timers, &store).await;
    // It may not be there.
    let _ = std::fs::remove_dir_all(&folder);
    outcome
}

async fn play(timers: u32, store: &str) -> Outcome<bool> {
    let wheel = TimerWheel::new();
    let (reminders, due) = store::start(&wheel, store).await?;
    // This process sets; the workers claim.
    drop(due);
    let (left_over, _) = until_answered(async || reminders.admin().purge().await).await?;
    // A URL may hold a password.
    let shown = store.split_once("://").map_or(store, |(scheme, _)| scheme);
    println!("{shown}: {left_over} reminders of an earlier run thrown away");

    let mut totals = Totals::default();
    set_all(&reminders, timers, &mut totals).await?;
    let (lines, mut said) = mpsc::unbounded_channel();
    let mut workers = Vec::new();
    let mut number = 0;
    while workers.len() < WORKERS {
        workers.push(Worker::start(&mut number, store, &lines)?);
    }

    let began = Instant::now();
    let last = began + FIRST + SPREAD;
    let probe = tokio::spawn(totals.leases.outages.clone().probe(reminders.clone()));
    let mut second = interval(Duration::from_secs(1));
    // An unreachable store delays everything.
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    second.tick().await;
    let mut kill = interval(Duration::from_secs(1));
    kill.reset();
    let mut look = interval(POLL);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while totals.open() > 0 && Instant::now() < last + TIME_LIMIT {
        tokio::select! {
            line = said.recv() => {
                let Some((worker, line)) = line else { break };
                take_down(&mut totals, worker, &line);
            }
            _ = kill.tick(), if Instant::now() < last => {
                let victim = fastrand::usize(..workers.len());
                let worker = workers.swap_remove(victim);
                totals.killed(worker.number);
                let at = began.elapsed().as_secs_f64();
                println!("{at:>4.0?} s: worker {} killed", worker.number);
                worker.kill().await?;
                until_answered(async || totals.leases.look(&reminders).await).await?;
                workers.push(Worker::start(&mut number, store, &lines)?);
                // A lease lasts whole seconds, and would always end as another worker does.
                kill.reset_after(Duration::from_millis(fastrand::u64(500..1500)));
            }
            _ = look.tick() => {
                // The next time will do.
                let _ = totals.leases.look(&reminders).await;
            }
            _ = second.tick() => {
                if Instant::now() < last {
                    change_some(&reminders, timers, &mut totals).await?;
                }
                let (at, delivered) = (began.elapsed().as_secs_f64(), totals.delivered);
                match reminders.counts().await {
                    Ok(counts) => println!(
                        "{at:>4.0?} s: {:>6} waiting {:>5} in flight {delivered:>6} delivered",
                        counts.waiting, counts.in_flight
                    ),
                    Err(error) => println!("{at:>4.0?} s: {error}"),
                }
            }
        }
    }
    // Deliveries to workers that were killed come again.
    let mut counts = count(&reminders).await?;
    while counts.waiting + counts.in_flight > 0 && Instant::now() < last + TIME_LIMIT {
        sleep(RETRY).await;
        counts = count(&reminders).await?;
    }
    probe.abort();
    for worker in workers {
        worker.stop().await?;
    }
    drop(lines);
    while let Some((worker, line)) = said.recv().await {
        take_down(&mut totals, worker, &line);
    }
    let counts = count(&reminders).await?;
    println!(
        "{} waiting and {} in flight are left in the store",
        counts.waiting, counts.in_flight
    );
    Ok(totals.conclude() && counts.waiting + counts.in_flight == 0)
}

/// Calls until the store answers. Also returns how many calls have failed before: each may have
/// taken effect.
async fn until_answered<T>(mut call: impl AsyncFnMut() -> Result<T, Error>) -> Outcome<(T, u32)> {
    let began = Instant::now();
    let mut failed = 0;
    loop {
        match call().await {
            Ok(answer) => return Ok((answer, failed)),
            Err(error) if may_pass(&error) && began.elapsed() < TIME_LIMIT => failed += 1,
            Err(error) => return Err(error.into()),
        }
        sleep(RETRY).await;
    }
}

async fn count(reminders: &Reminders) -> Outcome<Counts> {
    Ok(until_answered(async || reminders.counts().await).await?.0)
}

/// Sets all reminders, at deadlines that are spread evenly.
async fn set_all(reminders: &Reminders, timers: u32, totals: &mut Totals) -> Outcome<()> {
    let began = Instant::now();
    let first = SystemTime::now() + FIRST;
    let mut sets = Vec::new();
    for key in 0..timers {
        let deadline = whole_micros(first + SPREAD.mul_f64(fastrand::f64()));
        totals.set(key, micros(deadline));
        let text = format!("remember number {key}");
        sets.push(async move {
            // No worker claims yet, so setting one twice is harmless.
            until_answered(async || reminders.set_timer_at(&key, &text, deadline).await).await
        });
    }
    for set in join_all(sets).await {
        totals.retried += set?.1;
    }
    println!("{timers} reminders set in {:.2?}", began.elapsed());
    Ok(())
}

/// Moves some reminders, and removes some.
async fn change_some(reminders: &Reminders, timers: u32, totals: &mut Totals) -> Outcome<()> {
    // Each only once: calls that are made again do not keep their order.
    let some = || -> BTreeSet<u32> {
        let keys = (0..timers / SOME).map(|_| fastrand::u32(..timers));
        keys.collect()
    };
    let moves = some().into_iter().map(async |key| {
        let deadline = SystemTime::now() + Duration::from_secs(4).mul_f64(fastrand::f64());
        let deadline = whole_micros(deadline);
        let moved = until_answered(async || reminders.move_timer_at(&key, deadline).await).await;
        (key, deadline, moved)
    });
    for (key, deadline, moved) in join_all(moves).await {
        let (moved, failed) = moved?;
        totals.retried += failed;
        if moved == Moved::Done {
            totals.moved(key, micros(deadline));
        } else if failed > 0 {
            totals.may_be_moved(key, micros(deadline));
        }
    }
    let removes = some().into_iter().map(async |key| {
        let removed = until_answered(async || reminders.remove_timer(&key).await).await;
        (key, removed)
    });
    for (key, removed) in join_all(removes).await {
        let (removed, failed) = removed?;
        totals.retried += failed;
        if matches!(removed, Removed::Done(_)) {
            totals.removed(key);
        } else if failed > 0 {
            totals.may_be_removed(key);
        }
    }
    Ok(())
}

/// The instant as a clock in microseconds shows it.
fn whole_micros(time: SystemTime) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros(time))
}

fn take_down(totals: &mut Totals, worker: u32, line: &str) {
    // A killed worker may leave half a line, of a claim that it had no time to acknowledge.
    if let Some(delivery) = Delivery::parse(line) {
        totals.delivered(worker, &delivery);
    } else if let Some(key) = parse_unacknowledged(line) {
        totals.unacknowledged(worker, key);
    }
}

struct Worker {
    number: u32,
    process: Child,
}

impl Worker {
    fn start(number: &mut u32, store: &str, lines: &Lines) -> Outcome<Self> {
        *number += 1;
        let mut process = Command::new(std::env::current_exe()?)
            .args(["--worker", "--store", store])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (number, lines) = (*number, lines.clone());
        let out = process.stdout.take().ok_or("the worker has no output")?;
        tokio::spawn(async move {
            let mut out = BufReader::new(out).lines();
            while let Ok(Some(line)) = out.next_line().await {
                if lines.send((number, line)).is_err() {
                    break;
                }
            }
        });
        Ok(Worker { number, process })
    }

    /// Kills it with SIGKILL.
    async fn kill(mut self) -> Outcome<()> {
        Ok(self.process.kill().await?)
    }

    /// Lets the worker end by itself: it unloads its timers.
    async fn stop(mut self) -> Outcome<()> {
        drop(self.process.stdin.take());
        if timeout(TIME_LIMIT, self.process.wait()).await.is_err() {
            return Err(format!("a worker has not ended in {TIME_LIMIT:?}").into());
        }
        Ok(())
    }
}
