//! Configuring and starting an instance.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tickwheel::TimerWheel;

use crate::backoff::Backoff;
use crate::claims::Claims;
use crate::codec::{Codec, Coder, Json};
use crate::error::BuildError;
use crate::instance;
use crate::settings::Settings;
use crate::store::{Missed, Store};
use crate::timers::DurableTimers;

/// Configures an instance on the timers of a namespace, with keys `K` and values `V`.
///
/// The namespace separates timers in the same store: 1 to 64 ASCII letters, digits, `_`, `-` and
/// `.`. All instances that share timers use the same namespace, types and
/// [charter](crate::Charter).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tickwheel_durable::{Memory, builder};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let wheel = tickwheel::TimerWheel::new();
/// let (timers, mut claims) = builder::<String, u32>("orders")
///     .lease(Duration::from_secs(20))
///     .start(&wheel, Memory::new())
///     .await?;
///
/// timers.set_timer("order 1", &30, Duration::from_secs(3_600)).await?;
///
/// let claim = claims.recv().await.ok_or("closed")?;
/// assert_eq!((claim.key.as_str(), claim.value, claim.attempt), ("order 1", 30, 1));
/// claim.ack().await?;
/// # Ok(())
/// # }
/// ```
pub fn builder<K, V>(namespace: impl Into<String>) -> Builder<K, V> {
    Builder {
        namespace: namespace.into(),
        settings: Settings::default(),
        codec: Json,
        types: PhantomData,
    }
}

/// Configures and starts an instance. Made by [`builder`].
///
/// Every setting has a default; [`start`](Self::start) checks them all.
/// [`operating`](crate::operating) says how to size them.
#[must_use = "a builder does nothing until it is started"]
pub struct Builder<K, V, C = Json> {
    namespace: String,
    settings: Settings,
    codec: C,
    types: PhantomData<fn(K, V)>,
}

/// A name has at most so many characters.
const NAME: usize = 200;

impl<K, V, C: Codec> Builder<K, V, C> {
    /// Names the instance for operators, such as by its program, host and process. [`Admin`] and
    /// the page of `tickwheel-admin` show the name. By default it has none.
    ///
    /// What follows the first 200 characters is left out, and an empty name is none. Names need not
    /// differ.
    ///
    /// [`Admin`]: crate::Admin::instances
    ///
    /// # Examples
    ///
    /// ```
    /// let host = std::env::var("HOSTNAME").unwrap_or_default();
    /// let name = format!("mailer on {host}, process {}", std::process::id());
    /// let builder = tickwheel_durable::builder::<String, String>("mails").name(name);
    /// # drop(builder);
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        let name: String = name.into().chars().take(NAME).collect();
        self.settings.name = (!name.is_empty()).then_some(name);
        self
    }

    /// Sets how long before its deadline a timer is loaded onto the wheel: at least two polls, at
    /// most 30 days. The default is 30 s.
    pub fn window(mut self, window: Duration) -> Self {
        self.settings.window = window;
        self
    }

    /// Sets how long this instance holds a claim, counted from when it fired: from 10 ms to 30
    /// days. The default is 60 s.
    ///
    /// The lease limits how soon the claims of a crashed process are delivered again, not how long
    /// handlers may take: [`dispatch`](crate::Claims::dispatch) renews it while they run.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// Sets how many claims may be unsettled at once, those not received yet included: from 1 to a
    /// million. The default is 1024.
    ///
    /// The capacity bounds programs that receive claims and do not wait for their handlers.
    /// Otherwise [demand](crate::Claims#demand) decides how many timers are claimed:
    /// `dispatch(16, ..)` has few more than 16 at once, or 32 while its handlers are quick, and up
    /// to 512 more while they are quicker than the store fires.
    ///
    /// The parts of a namespace that is spread share it: each has as many as the others, and one at
    /// least.
    pub fn capacity(mut self, capacity: usize) -> Self {
        self.settings.capacity = capacity;
        self
    }

    /// Sets what repeating timers do about missed occurrences. The default is [`Missed::FireOnce`].
    pub fn missed(mut self, missed: Missed) -> Self {
        self.settings.missed = missed;
        self
    }

    /// Does not deliver an occurrence of a repeating timer while an earlier one is in flight: while
    /// its handler runs on any instance, while it waits for its next attempt, and after a crash
    /// until its lease has ended and it is handled.
    ///
    /// Later occurrences count as missed meanwhile, and [`missed`](Self::missed) decides about them
    /// at the first scheduled time at which none is in flight: `FireOnce` delivers one for all of
    /// them; `FireAll` delivers the oldest, and one more at each such time after that; `Skip`
    /// delivers only the occurrence of that time.
    ///
    /// Dead occurrences that are retried are not held back. All instances of a namespace have the
    /// same setting: it is part of the [charter](crate::Charter).
    pub fn no_overlap(mut self) -> Self {
        self.settings.no_overlap = true;
        self
    }

    /// Sets how often the instance asks the store for timers, from 10 ms to a day. The default is 1
    /// s. Each wait is up to a tenth longer, so that instances spread.
    ///
    /// Timers are loaded long before they are due, so polling does not bound their accuracy. But
    /// where the store has no hints, a timer that another process has set to be due soon may be
    /// late by a poll. When an instance has not loaded for three polls, other instances take its
    /// rows.
    pub fn poll(mut self, poll: Duration) -> Self {
        self.settings.poll = poll;
        self
    }

    /// Sets how long a call waits for the store, from 1 ms to a day. The default is 5 s.
    pub fn call_timeout(mut self, call_timeout: Duration) -> Self {
        self.settings.call_timeout = call_timeout;
        self
    }

    /// Sets how long a handler of [`dispatch`](crate::Claims::dispatch) may take, from 1 ms to 30
    /// days. The default is no limit.
    ///
    /// A handler that takes longer is dropped, counted and logged with its key. Its timer is
    /// delivered again after the [backoff](Self::backoff). Without a limit, a handler that never
    /// returns takes up a place of its `dispatch` forever.
    pub fn handler_timeout(mut self, handler_timeout: Duration) -> Self {
        self.settings.handler_timeout = Some(handler_timeout);
        self
    }

    /// Sets how often a timer is delivered before it is dead, from 1 to a million. The default is
    /// 25, which takes some 13 hours with the default [backoff](Self::backoff). With `None` a timer
    /// that fails comes again forever, also one that kills its process each time.
    ///
    /// A [dead](crate::operating#timers-that-fail) timer is not delivered any more. It is kept with
    /// its error for [some time](Self::keep_dead), to be [retried or
    /// discarded](crate::Admin#dead-timers).
    ///
    /// Each [attempt](crate::Claim::attempt) counts that did not end with an acknowledgement: an
    /// error, a panic, a claim that was put back or dropped, and one that a process had when it
    /// crashed. So a timer that crashes its process each time is dead in the end, too.
    ///
    /// Has no effect with [`at_most_once`](Self::at_most_once). Give all instances of a namespace
    /// the same limit: each applies its own.
    pub fn max_attempts(mut self, attempts: impl Into<Option<u32>>) -> Self {
        self.settings.max_attempts = attempts.into();
        self
    }

    /// Sets how long a timer that has failed waits for its next attempt, unless its handler [says
    /// so](crate::Retry::after). The default is [`Backoff::exponential`]: a second, two, four, up
    /// to an hour.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.settings.backoff = backoff;
        self
    }

    /// Sets how long dead timers are kept, from a second to ten years. The default is 7 days.
    ///
    /// Each instance discards those of its namespace that have been dead for longer: a minute after
    /// its start, and then every eighth of this time, at most an hour later. So the shortest
    /// setting of all instances counts.
    pub fn keep_dead(mut self, time: Duration) -> Self {
        self.settings.keep_dead = time;
        self
    }

    /// Delivers each timer at most once instead of at least once.
    ///
    /// The timer is deleted in the step that fires it. Claims that this instance has not handled
    /// when it crashes are lost, and so are those of a fire that the store could not answer.
    /// Acknowledging does nothing; [`extend`](crate::Claim::extend) and
    /// [`retry_after`](crate::Claim::retry_after) are errors.
    ///
    /// All instances of a namespace have the same setting: it is part of the
    /// [charter](crate::Charter).
    pub fn at_most_once(mut self) -> Self {
        self.settings.at_most_once = true;
        self
    }

    /// Sets how keys and values are encoded. The default is [`Json`]. Its name is part of the
    /// [charter](crate::Charter), and never changes.
    pub fn codec<D: Codec>(self, codec: D) -> Builder<K, V, D> {
        Builder {
            namespace: self.namespace,
            settings: self.settings,
            codec,
            types: PhantomData,
        }
    }

    /// Opens the store and starts the instance. Its tasks run on the current Tokio runtime.
    ///
    /// Takes a store, or a `Box<dyn Store>` that was chosen at run time. Timers that came due while
    /// no instance ran are delivered at once, earliest first.
    ///
    /// # Errors
    ///
    /// [`BuildError`] names the setting, its value and its bounds; or says why the store could not
    /// be opened.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn start(
        self,
        wheel: &TimerWheel,
        store: impl Into<Box<dyn Store>>,
    ) -> Result<(DurableTimers<K, V>, Claims<K, V>), BuildError>
    where
        K: Serialize + DeserializeOwned,
        V: Serialize + DeserializeOwned,
    {
        let (namespace, codec) = (&self.namespace, self.codec.name());
        let instance =
            instance::start(store.into().into(), namespace, codec, self.settings, wheel).await?;
        let coder: Arc<dyn Coder<K, V>> = Arc::new(self.codec);
        let timers = DurableTimers::new(&instance, Arc::clone(&coder));
        let claims = Claims::new(instance.cores, coder, instance.shutdown);
        Ok((timers, claims))
    }
}

impl<K, V, C: fmt::Debug> fmt::Debug for Builder<K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("namespace", &self.namespace)
            .field("settings", &self.settings)
            .field("codec", &self.codec)
            .finish_non_exhaustive()
    }
}
