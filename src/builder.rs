//! How a wheel is started.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::actor::Actor;
use crate::error::BuildError;
use crate::panic::catch_panic;
use crate::shared::notifier::ActorNotifier;
use crate::shared::{Config, Shared};
use crate::tick::{Ticks, clock_is_virtual};
use crate::timer_wheel::TimerWheel;
use crate::wheel::Wheel;

/// Configures and starts a [`TimerWheel`]. Made by [`TimerWheel::builder`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tickwheel::TimerWheel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tickwheel::BuildError> {
/// let wheel = TimerWheel::builder()
///     .name("connections")
///     .tick(Duration::from_millis(100))
///     .max_keyed(100_000)
///     .start()?;
/// # wheel.shutdown().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is started"]
pub struct Builder {
    tick: Duration,
    slots: usize,
    max_keyed: usize,
    late_warning: Duration,
    name: String,
    runtime: Option<Handle>,
    dedicated_thread: bool,
}

impl Builder {
    /// The ticks a wheel can have: from a microsecond to a day.
    pub const TICKS: RangeInclusive<Duration> =
        Duration::from_micros(1)..=Duration::from_secs(86_400);

    pub(crate) fn new() -> Self {
        Builder {
            tick: Duration::from_millis(1),
            slots: 64,
            max_keyed: usize::MAX,
            late_warning: Duration::from_secs(1),
            name: String::from("tickwheel"),
            runtime: None,
            dedicated_thread: false,
        }
    }

    /// The length of a tick; 1 ms unless said otherwise. Within [`Builder::TICKS`].
    ///
    /// A timer fires at the first tick that begins at its deadline or after it: never early, and up to a tick late. A
    /// longer tick lets the actor handle more timers in one go. Tokio's own timer, on which the actor waits, has a
    /// resolution of a millisecond, so a finer tick makes the order in which timers fire finer, not the instant.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// The number of slots of each level; 64 unless said otherwise. A power of two within [`Wheel::SLOTS`].
    ///
    /// More slots mean fewer levels for a timer to come down, and more memory for each level.
    pub fn slots(mut self, slots: usize) -> Self {
        self.slots = slots;
        self
    }

    /// How many keyed timers may be pending at once, over all sets of the wheel; no limit unless said otherwise.
    ///
    /// Beyond it, setting a timer under a new key gives key and value back as
    /// [`SetTimerError::Full`](crate::SetTimerError::Full). Sleeps are not limited.
    pub fn max_keyed(mut self, max_keyed: usize) -> Self {
        self.max_keyed = max_keyed;
        self
    }

    /// How late a timer may fire before the actor logs a warning, at most one every ten seconds; 1 s unless said
    /// otherwise.
    pub fn late_warning(mut self, late_warning: Duration) -> Self {
        self.late_warning = late_warning;
        self
    }

    /// The wheel's name in logs and spans; "tickwheel" unless said otherwise.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The runtime the actor runs on; the current one unless said otherwise.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Runs the actor on a thread of its own instead of as a task; then it needs no runtime.
    ///
    /// Timers fire on time even while every worker of the runtime is blocked, and a tick under a millisecond is as fine as
    /// the operating system wakes a thread. The tasks that are woken still wait for a worker, as they would with any
    /// timer. The thread ends with the wheel.
    pub fn dedicated_thread(mut self) -> Self {
        self.dedicated_thread = true;
        self
    }

    /// Starts the wheel's actor.
    ///
    /// # Errors
    ///
    /// A [`BuildError`] that names the field, its value and its bounds; or that says that there is no runtime, or one
    /// without a timer; or that a dedicated thread was asked for while the clock is paused, or could not be started.
    ///
    /// # Panics
    ///
    /// Tokio has no way to ask a runtime whether it has a timer, other than making a sleep, which panics if it has none.
    /// That panic is caught here and becomes [`BuildError::NoTimer`]; the panic hook has run by then and has printed
    /// Tokio's message. In a program that is built with `panic = "abort"` nothing can be caught, and a runtime without a
    /// timer aborts the process, as its first use of any Tokio timer would. A
    /// [dedicated thread](Self::dedicated_thread) needs no timer and is not affected.
    pub fn start(self) -> Result<TimerWheel, BuildError> {
        if !Self::TICKS.contains(&self.tick) {
            return Err(BuildError::Tick {
                value: self.tick,
                bounds: Self::TICKS,
            });
        }
        let bounds = Wheel::<()>::SLOTS;
        if !self.slots.is_power_of_two() || !bounds.contains(&self.slots) {
            return Err(BuildError::Slots {
                value: self.slots,
                bounds,
            });
        }
        if self.max_keyed == 0 {
            return Err(BuildError::MaxKeyed);
        }
        let shared = if self.dedicated_thread {
            self.start_thread()?
        } else {
            self.start_task()?
        };
        Ok(TimerWheel::new_handle(shared))
    }

    /// Starts the actor as a task.
    fn start_task(self) -> Result<Arc<Shared>, BuildError> {
        let runtime = match &self.runtime {
            Some(runtime) => runtime.clone(),
            None => Handle::try_current().map_err(|_| BuildError::NoRuntime)?,
        };
        // Within the runtime: its clock is the one that is read.
        let within = runtime.enter();
        // Tokio tells in no other way whether there is a timer: see `# Panics` of `start`.
        let has_timer = catch_panic("Tokio's timer", || drop(tokio::time::sleep(Duration::ZERO)));
        has_timer.ok_or(BuildError::NoTimer)?;
        let slots = self.slots;
        let shared = self.shared(ActorNotifier::for_task(&runtime), Some(runtime.id()))?;
        drop(within);
        drop(runtime.spawn(Actor::new(Arc::clone(&shared), slots).run()));
        Ok(shared)
    }

    /// Starts the actor on a thread of its own.
    fn start_thread(self) -> Result<Arc<Shared>, BuildError> {
        if clock_is_virtual() {
            return Err(BuildError::PausedClock);
        }
        let slots = self.slots;
        // A thread's name cannot have a zero byte.
        let name = self.name.replace('\0', " ");
        let shared = self.shared(ActorNotifier::for_thread(), None)?;
        let actor = Actor::new(Arc::clone(&shared), slots);
        let thread = thread::Builder::new().name(name);
        match thread.spawn(|| actor.run_on_thread()) {
            Ok(_) => Ok(shared),
            Err(error) => Err(BuildError::Thread(error.kind())),
        }
    }

    fn shared(
        self,
        notifier: ActorNotifier,
        runtime: Option<tokio::runtime::Id>,
    ) -> Result<Arc<Shared>, BuildError> {
        let ticks = Ticks::new(Instant::now(), self.tick).ok_or(BuildError::Tick {
            value: self.tick,
            bounds: Self::TICKS,
        })?;
        Ok(Arc::new(Shared::new(Config {
            name: self.name,
            ticks,
            late_warning: self.late_warning,
            max_keyed: self.max_keyed,
            notifier,
            runtime,
            virtual_clock: clock_is_virtual(),
        })))
    }
}
