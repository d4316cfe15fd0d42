//! The timer with which a sleep goes on when its wheel has ended.

use std::future::{Future, pending};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::thread;

use tokio::runtime::{self, Handle};
use tokio::task::coop;
use tokio::time::{self, Instant};

use super::{Sleep, Stage};
use crate::metrics::Event;
use crate::tick::{NEVER, far_future};

impl Sleep {
    /// Polls the timer, and makes it if there is none yet.
    #[cold]
    pub(super) fn poll_fallback(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.stage == Stage::Fallback {
            if self.is_due() {
                self.stage = Stage::Done;
                return Poll::Ready(());
            }
        } else {
            if self.is_due() {
                return self.poll_due();
            }
            // Making a timer may panic, so the sleep is counted after that.
            self.fallback = Some(Arc::new(sleep_until(self.tokios_deadline())));
            self.stage = Stage::Fallback;
            self.count(Event::SleepHandedOver);
        }
        let is_never = self.tick == NEVER;
        let Some(mut fallback) = self.fallback() else {
            return Poll::Ready(());
        };
        loop {
            // The caller takes care of the budget: a timeout elapses even when its future has used
            // all of it.
            ready!(pin!(coop::unconstrained(fallback.as_mut())).poll(cx));
            if !is_never {
                break;
            }
            // It fired at the instant that stands for never, decades away.
            fallback.as_mut().reset(far_future());
        }
        self.stage = Stage::Done;
        Poll::Ready(())
    }

    pub(super) fn fallback(&mut self) -> Option<Pin<&mut time::Sleep>> {
        // No other reference exists.
        Some(Arc::get_mut(self.fallback.as_mut()?)?.as_mut())
    }
}

/// A timer of the current Tokio runtime. Outside a runtime, it belongs to a thread of the process
/// that starts at first use and stays.
///
/// # Panics
///
/// Panics within a runtime that has no time driver, and if the thread cannot be started.
pub(super) fn sleep_until(deadline: Instant) -> Pin<Box<time::Sleep>> {
    let is_outside = Handle::try_current().is_err();
    let _within = is_outside.then(|| process_runtime().enter());
    Box::pin(time::sleep_until(deadline))
}

/// The runtime, one for the process, that drives the timers of tasks outside any runtime.
fn process_runtime() -> &'static Handle {
    static RUNTIME: OnceLock<Handle> = OnceLock::new();
    RUNTIME.get_or_init(|| match start() {
        Ok(handle) => handle,
        Err(error) => panic!(
            "a sleep was polled outside a Tokio runtime after its `TimerWheel` had ended, and the thread with whose \
             timer it would go on could not be started: {error}. Keep the wheel running, or poll within a runtime."
        ),
    })
}

fn start() -> io::Result<Handle> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new()
        .name(String::from("tickwheel-fallback"))
        .spawn(move || runtime.block_on(pending::<()>()))?;
    Ok(handle)
}
