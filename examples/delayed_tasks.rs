//! Tasks that run later unless they are revoked: "cancel the order in twenty minutes unless it is
//! paid".
//!
//! A task is a keyed timer, and `dispatch` runs the workers. `remove_timer` revokes a task and
//! returns whether it was in time. The scheduler returns tasks that have not run when it stops, to
//! be scheduled again at the next start.
//!
//! A minute of this demonstration takes 50 ms.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tickwheel::{Expired, KeyedTimers, SetTimerError, TimerWheel, Unexpired};
use tokio::task::JoinHandle;
use tokio::time::Instant;

#[path = "support/say.rs"]
#[macro_use]
mod say;

const MINUTE: Duration = Duration::from_millis(50);

/// How many tasks run at once.
const WORKERS: usize = 4;

#[derive(Debug, Clone)]
enum Task {
    CancelOrder(u32),
    Report,
    /// A task with a bug.
    Buggy,
}

struct Scheduler {
    timers: KeyedTimers<u64, Task>,
    next_id: AtomicU64,
    workers: JoinHandle<Vec<Unexpired<u64, Task>>>,
    wheel: TimerWheel,
}

impl Scheduler {
    fn start(shop: Arc<Shop>) -> Self {
        let wheel = TimerWheel::new();
        let (timers, mut expirations) = wheel.keyed();
        let workers = tokio::spawn(async move {
            // Until the wheel is shut down.
            let work = |expired| run(Arc::clone(&shop), expired);
            expirations.dispatch(WORKERS, work).await;
            expirations.unexpired()
        });
        Scheduler {
            timers,
            next_id: AtomicU64::new(0),
            workers,
            wheel,
        }
    }

    /// Runs the task once, `countdown` from now.
    fn schedule(&self, task: Task, countdown: Duration) -> Result<u64, SetTimerError<u64, Task>> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.timers.set_timer(id, task, countdown)?;
        Ok(id)
    }

    /// Runs the task again and again.
    fn every(&self, task: Task, period: Duration) -> Result<u64, SetTimerError<u64, Task>> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.timers.set_interval(id, task, period)?;
        Ok(id)
    }

    /// Another countdown for a task that has not run, from now.
    fn reschedule(&self, id: u64, countdown: Duration) {
        // An error means that the scheduler stops.
        let _ = self.timers.move_timer(&id, countdown);
    }

    /// Whether the task will not run because of this call.
    fn revoke(&self, id: u64) -> bool {
        matches!(self.timers.remove_timer(&id), Ok(Some(_)))
    }

    /// Stops, and returns the tasks that have not run, the next one first.
    async fn stop(self) -> Vec<Unexpired<u64, Task>> {
        self.wheel.shutdown().await;
        self.workers.await.unwrap_or_default()
    }
}

/// The state that the tasks work on.
#[derive(Debug, Default)]
struct Shop {
    cancelled: Mutex<BTreeSet<u32>>,
    reports: AtomicU64,
    early: AtomicU64,
}

impl Shop {
    fn cancelled(&self) -> BTreeSet<u32> {
        let cancelled = self.cancelled.lock();
        cancelled.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn run(shop: Arc<Shop>, expired: Expired<u64, Task>) {
    if Instant::now() < expired.deadline {
        shop.early.fetch_add(1, Ordering::Relaxed);
    }
    match expired.value {
        Task::CancelOrder(order) => {
            tokio::task::yield_now().await; // a database, say
            let mut cancelled = shop
                .cancelled
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            cancelled.insert(order);
        }
        Task::Report => {
            shop.reports.fetch_add(1, Ordering::Relaxed);
        }
        Task::Buggy => panic!("a bug in a task; the others go on"),
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode, SetTimerError<u64, Task>> {
    say::takes_no_arguments("Tasks that run later unless they are revoked");
    // The panic of the buggy task in one line, without a backtrace.
    std::panic::set_hook(Box::new(|panic| say!("{panic}")));

    let shop = Arc::new(Shop::default());
    let scheduler = Scheduler::start(Arc::clone(&shop));

    // Twelve orders. Each is cancelled unless it is paid within twenty minutes.
    let mut tasks = Vec::new();
    for order in 0..12 {
        tasks.push(scheduler.schedule(Task::CancelOrder(order), 20 * MINUTE)?);
    }
    scheduler.every(Task::Report, 5 * MINUTE)?;
    scheduler.schedule(Task::Buggy, 2 * MINUTE)?;

    scheduler.wheel.sleep(10 * MINUTE).await;
    let paid = [0, 3, 6, 9].into_iter();
    let mut saved: BTreeSet<u32> = paid
        .filter(|&n| scheduler.revoke(tasks[n as usize]))
        .collect();
    say!("minute 10: orders {saved:?} are paid");
    scheduler.reschedule(tasks[11], 60 * MINUTE);
    say!("minute 10: order 11 gets another hour");

    scheduler.wheel.sleep(20 * MINUTE).await;
    let cancelled = shop.cancelled();
    say!("minute 30: orders {cancelled:?} are cancelled");
    let too_late = !scheduler.revoke(tasks[1]);
    say!("minute 30: order 1 cannot be saved any more: {too_late}");
    if !too_late {
        saved.insert(1);
    }

    let left = scheduler.stop().await;
    for expired in &left {
        say!("not run: {:?}", expired.value);
    }
    let reports = shop.reports.load(Ordering::Relaxed);
    say!("{reports} reports were written");

    // Each order is saved, or left, or cancelled: exactly one of them, whenever the machine runs
    // this program.
    let left = left.iter().filter_map(|expired| match expired.value {
        Task::CancelOrder(order) => Some(order),
        _ => None,
    });
    let mut ends: Vec<u32> = left.chain(saved).chain(shop.cancelled()).collect();
    ends.sort_unstable();
    let holds =
        ends.into_iter().eq(0..12) && reports >= 1 && shop.early.load(Ordering::Relaxed) == 0;
    if !holds {
        eprintln!("that is not what should have happened");
    }
    Ok(ExitCode::from(u8::from(!holds)))
}
