//! Tasks that run later unless they are revoked, in the manner of Celery: "cancel the order in twenty minutes unless
//! it is paid".
//!
//! A task is a keyed timer, and `dispatch` runs the workers. `remove_timer` revokes a task and returns whether it was in
//! time. Tasks that have not run when the scheduler stops are returned, to be stored and scheduled again at the next start.
//!
//! A minute of this demonstration takes 50 ms.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tickwheel::{Expired, KeyedTimers, SetTimerError, TimerWheel};
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
    workers: JoinHandle<Vec<Expired<u64, Task>>>,
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
    async fn stop(self) -> Vec<Expired<u64, Task>> {
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
    let mut revoked = 0;
    for order in (0..12).step_by(3) {
        revoked += u32::from(scheduler.revoke(tasks[order]));
    }
    say!("minute 10: {revoked} orders are paid");
    scheduler.reschedule(tasks[11], 60 * MINUTE);
    say!("minute 10: order 11 gets another hour");

    scheduler.wheel.sleep(20 * MINUTE).await;
    let cancelled = shop.cancelled();
    say!("minute 30: orders {cancelled:?} are cancelled");
    let too_late = !scheduler.revoke(tasks[1]);
    say!("minute 30: order 1 cannot be saved any more: {too_late}");

    let left = scheduler.stop().await;
    for expired in &left {
        say!("not run: {:?}", expired.value);
    }
    let reports = shop.reports.load(Ordering::Relaxed);
    say!("{reports} reports were written");

    let order_11_is_left = |e: &Expired<u64, Task>| matches!(e.value, Task::CancelOrder(11));
    let holds = revoked == 4
        && cancelled == BTreeSet::from([1, 2, 4, 5, 7, 8, 10])
        && too_late
        && left.len() == 2
        && left.iter().any(order_11_is_left)
        && reports >= 3
        && shop.early.load(Ordering::Relaxed) == 0;
    if !holds {
        eprintln!("that is not what should have happened");
    }
    Ok(ExitCode::from(u8::from(!holds)))
}
