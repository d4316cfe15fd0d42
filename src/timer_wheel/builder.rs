//! [`Builder`]: configures and starts a wheel.

use std::ops::RangeInclusive;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};

use super::TimerWheel;
use crate::actor::{Actor, ActorTimer, hosted};
use crate::clock::{self, ClockPolicy};
use crate::error::BuildError;
use crate::shared::notifier::ActorNotifier;
use crate::shared::{Config, Shared};
use crate::tick::Ticks;

/// The bounds of a tick.
const TICKS: RangeInclusive<Duration> = Duration::from_micros(1)..=Duration::from_secs(86_400);

/// How many buckets each level of the wheel has: far timers cascade through few levels, and a level
/// is small.
const SLOTS: usize = 256;

/// Configures and starts a [`TimerWheel`]. Made by [`TimerWheel::builder`]. Every setting has a
/// default.
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
    precise: bool,
    sleeps_on_wheel: bool,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Builder {
            tick: Duration::from_micros(100),
            slots: SLOTS,
            max_keyed: usize::MAX,
            late_warning: Duration::from_secs(1),
            name: String::from("tickwheel"),
            runtime: None,
            precise: false,
            // The unit tests are about the wheel.
            sleeps_on_wheel: cfg!(test),
        }
    }

    /// Sets the length of a tick, from a microsecond to a day. The default is 0.1 ms.
    ///
    /// A timer fires at the first tick that begins at its deadline or later: never early, and up to
    /// a tick late. The guide says [how to choose a tick](mod@crate::guide#accuracy-and-ticks).
    ///
    /// A shorter one makes timers more punctual only with [`precise`](Self::precise). At 1,000
    /// sleeps a second `precise` with 0.1 ms, 50, 20 and 10 us had a median lateness of 0.11, 0.09,
    /// 0.06 and 0.06 ms. The CPU time was the same down to 20 us, and a quarter more with 10 us. At
    /// 10,000 a second it made no difference, since the actor batches them.
    #[doc(alias = "resolution")]
    #[doc(alias = "granularity")]
    #[doc(alias = "precision")]
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// Limits how many keyed timers may be pending at once, over all sets of the wheel; at least 1.
    /// The default, 2<sup>29</sup>, is also the maximum.
    ///
    /// Watches of a [`Reaper`](crate::Reaper) count. Over the limit, setting a timer under a new
    /// key returns key and value in [`SetTimerError::Full`](crate::SetTimerError::Full).
    #[doc(alias = "capacity")]
    #[doc(alias = "max_pending")]
    #[doc(alias = "backpressure")]
    pub fn max_keyed(mut self, max_keyed: usize) -> Self {
        self.max_keyed = max_keyed;
        self
    }

    /// Sets how late a timer may fire before the actor logs a warning. The default is 1 s.
    ///
    /// It counts from the tick at which the timer could fire, or from when it was armed if that is
    /// later. The actor warns at most once in ten seconds. [The
    /// guide](mod@crate::guide#observability) has what the warning says.
    pub fn late_warning(mut self, late_warning: Duration) -> Self {
        self.late_warning = late_warning;
        self
    }

    /// Sets the wheel's name, which appears in logs and spans and names the thread of a
    /// [precise](Self::precise) wheel. The default is `"tickwheel"`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the runtime that the actor runs on. The default is the current one.
    ///
    /// [`time::install`](crate::time::install) accepts the current runtime only. For a wheel on a
    /// thread of its own, see the [recipe](mod@crate::guide::recipes#a-wheel-on-its-own-thread).
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Sets whether the actor waits on a precise timer of the operating system instead of Tokio's,
    /// which rounds up to a millisecond. The default is `false`. `true` needs the feature
    /// `precise`.
    ///
    /// Timers are then some 0.1 to 0.2 ms late while they are sparse. Where they are dense the
    /// actor batches them: once it has woken more often than every 0.7 ms for a while, it wakes no
    /// more often than that. The guide says [what that costs](mod@crate::guide#accuracy-and-ticks).
    ///
    /// It works on Linux, and takes a file descriptor and a thread. The runtime needs no I/O
    /// driver. On other systems, and where the descriptor or the thread cannot be made, the actor
    /// waits on Tokio's timer, and logs one warning. While the clock is paused it waits on Tokio's
    /// timer too.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::TimerWheel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tickwheel::BuildError> {
    /// # if !cfg!(feature = "precise") {
    /// #     let refused = TimerWheel::builder().precise(true).start();
    /// #     assert!(matches!(refused, Err(tickwheel::BuildError::NoPreciseFeature)));
    /// #     return Ok(());
    /// # }
    /// let precise = TimerWheel::builder().precise(true).start()?;
    /// let default = TimerWheel::builder().start()?;
    /// precise.sleep(Duration::from_micros(300)).await;
    /// default.sleep(Duration::from_micros(300)).await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Without the feature `precise`, [`start`](Self::start) returns
    /// [`BuildError::NoPreciseFeature`] if this is `true`.
    #[doc(alias = "timerfd")]
    #[doc(alias = "high_resolution")]
    pub fn precise(mut self, precise: bool) -> Self {
        self.precise = precise;
        self
    }

    /// Keeps sleeps on the wheel under a virtual clock too, for this crate's own tests. Otherwise
    /// they go to Tokio's timer.
    #[cfg(feature = "_tests")]
    #[doc(hidden)]
    pub fn sleeps_on_wheel(mut self) -> Self {
        self.sleeps_on_wheel = true;
        self
    }

    /// Sets how many buckets each level of the wheel has, for this crate's own tests: a power of
    /// two from 2 on.
    #[cfg(any(test, feature = "_tests"))]
    #[doc(hidden)]
    pub fn slots(mut self, slots: usize) -> Self {
        assert!(slots > 1 && slots.is_power_of_two());
        self.slots = slots;
        self
    }

    /// Starts the wheel's actor.
    ///
    /// # Errors
    ///
    /// [`BuildError`] names a setting that is out of bounds, with its value and bounds. Starting
    /// also fails without a runtime, and on one without a time driver.
    ///
    /// # Panics
    ///
    /// Only making a Tokio sleep shows whether a runtime has a time driver, by a panic. `start`
    /// catches it and returns [`BuildError::NoTimer`], after the panic hook has printed Tokio's
    /// message. With `panic = "abort"`, a runtime without a time driver aborts the process.
    pub fn start(self) -> Result<TimerWheel, BuildError> {
        if !TICKS.contains(&self.tick) {
            return Err(BuildError::Tick {
                value: self.tick,
                bounds: TICKS,
            });
        }
        if self.max_keyed == 0 {
            return Err(BuildError::MaxKeyed);
        }
        if self.precise && !cfg!(feature = "precise") {
            return Err(BuildError::NoPreciseFeature);
        }
        let runtime = match &self.runtime {
            Some(runtime) => runtime.clone(),
            None => Handle::try_current().map_err(|_| BuildError::NoRuntime)?,
        };
        // The clock that is read from here on is the runtime's.
        let within = runtime.enter();
        // Only making a sleep shows whether the runtime has a timer: see `# Panics` of `start`.
        catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO)))
            .map_err(|_| BuildError::NoTimer)?;
        let slots = self.slots;
        let timer = if self.precise {
            ActorTimer::precise(&self.name)
        } else {
            ActorTimer::tokio()
        };
        let shared = self.shared(ActorNotifier::new(&runtime), Some(&runtime));
        drop(within);
        let actor = Actor::new(Arc::clone(&shared), slots, timer);
        let actors = runtime.clone();
        drop(runtime.spawn(hosted::run(|driver| actor.run(driver, actors))));
        Ok(TimerWheel::new_handle(shared))
    }

    /// The runtime that was chosen, if any.
    pub(crate) fn chosen_runtime(&self) -> Option<&Handle> {
        self.runtime.as_ref()
    }

    /// Makes a wheel with an actor that the explorer drives: it calls [`Actor::step`], waits until
    /// `notify` is called or the clock reaches [`Actor::next_turn`], and drops the actor at the
    /// end.
    #[cfg(all(test, tickwheel_shuttle))]
    pub(crate) fn start_explored(self, notify: fn()) -> (TimerWheel, Actor) {
        let slots = self.slots;
        let shared = self.shared(ActorNotifier::explored(notify), None);
        let actor = Actor::new(Arc::clone(&shared), slots, ActorTimer::tokio());
        (TimerWheel::new_handle(shared), actor)
    }

    fn shared(self, notifier: ActorNotifier, runtime: Option<&Handle>) -> Arc<Shared> {
        let ticks = Ticks::new(clock::now(), self.tick).expect("`start` checks the bounds");
        // Tokio cannot pause the clock of a runtime with several workers.
        let can_pause =
            runtime.is_some_and(|runtime| runtime.runtime_flavor() != RuntimeFlavor::MultiThread);
        Arc::new(Shared::new(Config {
            name: self.name,
            ticks,
            late_warning: self.late_warning,
            max_keyed: self.max_keyed,
            notifier,
            clock: ClockPolicy::new(runtime.map(Handle::id), can_pause, self.sleeps_on_wheel),
        }))
    }
}
