//! A guide to the crate. Documentation only; its examples are tests.
//!
//! 1. [Which timer for what](#which-timer-for-what)
//! 2. [Switch from `tokio::time`](#switch-from-tokiotime)
//! 3. [Holding the wheel](#holding-the-wheel)
//! 4. [Keyed timers](#keyed-timers)
//! 5. [Idle connections and sessions](#idle-connections-and-sessions)
//! 6. [Accuracy and ticks](#accuracy-and-ticks)
//! 7. [Testing with paused time](#testing-with-paused-time)
//! 8. [Shutting down](#shutting-down)
//! 9. [Observability](#observability)
//!
//! Further chapters: [recipes] for debounce, throttle and a map whose items expire; [services] on hyper, axum, tower
//! and quinn; [what each operation costs](costs); [how the crate is built](design).
//!
//! # Which timer for what
//!
//! | to | use |
//! |---|---|
//! | wait | [`TimerWheel::sleep`] |
//! | limit how long a future may take | [`TimerWheel::timeout`] |
//! | do something periodically, in a task | [`TimerWheel::interval`] |
//! | act on *a thing with a name* unless it is prevented: an order, a request, a retry | [`TimerWheel::keyed`] |
//! | act once a burst of events is over, or at most once in a while | keyed timers, by the recipes for [debounce](recipes#debounce) and [throttle](recipes#throttle) |
//! | expire the items of a map | keyed timers, [with care](recipes#a-map-whose-items-expire) |
//! | repeat something for many keys, without a task for each | [`KeyedTimers::set_interval`] |
//! | expire an unused session | [`TimerWheel::reaper`] |
//! | close idle connections from one place | [`TimerWheel::reaper`] |
//! | fail reads and writes on a silent connection | [`TimerWheel::idle_stream`] |
//! | close a keep-alive connection between requests, but never during one | [`IdleLimits::keep_alive`](crate::IdleLimits::keep_alive), or a [`BusyGuard`] for each request |
//! | detect in one task that nothing has happened for a while | [`TimerWheel::idle_timer`] |
//! | drive timers from an event loop other than Tokio's | [`wheel::Wheel`](crate::wheel::Wheel) |
//!
//! A session can also be a keyed timer that each request moves. Where requests are frequent, prefer the reaper: a touch
//! compares one word, a move locks the set.
//!
//! The futures work like those of [`tokio::time`]:
//!
//! ```
//! use std::time::Duration;
//! use tickwheel::TimerWheel;
//!
//! /// Asks a server that may never answer.
//! async fn ask(wheel: &TimerWheel) -> std::io::Result<String> {
//!     let answer = std::future::pending::<String>();
//!     // `Elapsed` becomes an `io::Error` of kind `TimedOut`.
//!     Ok(wheel.timeout(Duration::from_secs(5), answer).await?)
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let wheel = TimerWheel::new();
//! let error = ask(&wheel).await.unwrap_err();
//! assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
//! # }
//! ```
//!
//! ## When to stay with `tokio::time`
//!
//! * The program has a handful of timers, or most of its timers fire instead of being cancelled. There is little to
//!   gain.
//! * A single-threaded runtime arms few timeouts. Nothing contends for Tokio's timer lock there.
//! * Timers must be precise far below a millisecond. The actor waits on Tokio's timer, whose resolution is a
//!   millisecond. On a [thread of its own](Builder::dedicated_thread) it is as precise as the operating system wakes a
//!   thread. Only a spinning thread is more precise.
//! * The code is a library, which should not choose its users' timers.
//! * Tasks must be woken while every worker thread is blocked. No timer can do that. With [`Builder::dedicated_thread`],
//!   expirations are delivered on time even then, to a thread that receives them.
//! * You watch timers in `tokio-console`, which does not show these. There are [metrics](#observability) instead.
//!
//! [`DelayQueue`](https://docs.rs/tokio-util/latest/tokio_util/time/delay_queue/) of `tokio-util` needs no task of its
//! own. It is the simpler choice where one task owns the queue and consumes it, and no deadline is more than two years
//! away. Keyed timers are for sets that several tasks change, for keys that you choose, and for expirations in order.
//!
//! # Switch from `tokio::time`
//!
//! [`time`](crate::time) has all that `tokio::time` has. It starts a wheel for each runtime at its first use:
//!
//! ```
//! use tickwheel::time; // was: use tokio::time;
//! # use tickwheel::time::{Duration, error::Elapsed};
//!
//! async fn ask() -> Result<u32, Elapsed> {
//!     time::timeout(Duration::from_secs(5), async {
//!         time::sleep(Duration::from_millis(20)).await;
//!         42
//!     })
//!     .await
//! }
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() { assert_eq!(ask().await, Ok(42)) }
//! ```
//!
//! The module [lists what differs](mod@crate::time#what-differs-from-tokiotime).
//!
//! Libraries keep the timers they were written for. [`time::wheel`](crate::time::wheel) returns the handle for keyed
//! timers and metrics, and [`time::install`](crate::time::install) sets the tick, the name or a dedicated thread before
//! the first use.
//!
//! # Holding the wheel
//!
//! Start one wheel for the process, and a second one only for another tick, runtime or limit.
//!
//! | how code gets the wheel | what that costs |
//! |---|---|
//! | the functions of [`time`](crate::time) | finding the current runtime, as for each of Tokio's own timers: 13 ns a timer on one thread, 11 to 47 ns on two workers |
//! | a reference, `&TimerWheel` or a field of a shared struct | nothing |
//! | a clone for each task or connection | two atomic additions when made, and two when dropped |
//! | a clone for each timeout | the same, on words that all threads write: about 300 ns a timeout instead of 70 on two busy workers |
//! | a `static` | one load; but each test with a paused clock needs a wheel in its own runtime |
//!
//! So clone the wheel once per connection or task, and pass references:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use tickwheel::TimerWheel;
//!
//! struct Service {
//!     wheel: TimerWheel,
//! }
//!
//! impl Service {
//!     async fn call(&self) -> Result<u32, tickwheel::Elapsed> {
//!         self.wheel.timeout(Duration::from_secs(5), async { 42 }).await
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let service = Arc::new(Service { wheel: TimerWheel::new() });
//! assert_eq!(service.call().await, Ok(42));
//! # }
//! ```
//!
//! # Keyed timers
//!
//! A set of keyed timers has a handle to set, move and remove them, and a stream of those that expire. Any number of
//! sets share one wheel.
//!
//! ```
//! use std::time::Duration;
//! use tickwheel::TimerWheel;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let wheel = TimerWheel::new();
//! let (timers, mut expirations) = wheel.keyed::<String, u32>();
//! let minute = Duration::from_secs(60);
//!
//! assert_eq!(timers.set_timer("order 1".into(), 20, minute)?, None);
//! assert_eq!(timers.set_timer("order 2".into(), 30, minute)?, None);
//! // Set again: value and deadline are replaced.
//! assert_eq!(timers.set_timer("order 2".into(), 35, minute)?, Some(30));
//!
//! // Order 1 was paid. `Some` means that its timer will never expire, `None` that it was too late.
//! assert_eq!(timers.remove_timer("order 1")?, Some(20));
//! // Order 2 gets more time. `false` would mean that there is no such timer.
//! assert!(timers.move_timer("order 2", 2 * minute)?);
//!
//! let expired = expirations.recv().await.ok_or("closed")?;
//! assert_eq!((expired.key.as_str(), expired.value), ("order 2", 35));
//! # Ok(())
//! # }
//! ```
//!
//! * A call takes effect before it returns: [`len`](KeyedTimers::len), [`deadline`](KeyedTimers::deadline) and
//!   [`contains`](KeyedTimers::contains) return the present state.
//! * A timer has expired once its expiration lies in the stream, received or not. From then on it cannot be removed,
//!   and setting its key makes a new timer. So a consumer may receive the expiration of a key that has a timer again.
//!   Where that matters, ask `contains`, as in [a map whose items expire](recipes#a-map-whose-items-expire).
//! * [`set_if_absent`](KeyedTimers::set_if_absent) sets a timer for one of many callers at once.
//!   [`retain`](KeyedTimers::retain) visits all timers and removes some.
//! * The stream has no bound and no backpressure, because the actor never waits for its reader. [`Builder::max_keyed`]
//!   bounds the number of pending timers.
//! * An error of [`set_timer`](KeyedTimers::set_timer) holds key and value. [`SetTimerError::without_value`] drops
//!   them, so that `?` works with a value that is only `Send`.
//! * A timer of [`set_interval`](KeyedTimers::set_interval) keeps to its schedule. Missed periods are coalesced into
//!   one expiration, whose `missed` counts them.
//! * [`Expirations::dispatch`] runs a handler for each expiration, with a limit on how many run at once.
//!
//! The stream ends when no handle and no timer is left. A handler that sets timers of its own set holds a
//! [`WeakKeyedTimers`](crate::WeakKeyedTimers), which does not keep the stream open:
//!
//! ```
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let wheel = tickwheel::TimerWheel::new();
//! let (timers, mut expirations) = wheel.keyed::<&str, u32>();
//! let weak = timers.downgrade();
//! timers.set_timer("upload", 1, Duration::from_secs(5)).unwrap();
//! tokio::spawn(async move {
//!     tokio::time::sleep(Duration::from_secs(60)).await; // the service runs for a minute
//!     drop(timers);
//! });
//!
//! let retry = |expired: tickwheel::Expired<&'static str, u32>| {
//!     let weak = weak.clone();
//!     async move {
//!         let attempt = expired.value;
//!         if attempt < 3 {
//!             if let Some(timers) = weak.upgrade() {
//!                 let backoff = Duration::from_secs(5 << attempt);
//!                 timers.set_timer(expired.key, attempt + 1, backoff).unwrap();
//!             }
//!         }
//!     }
//! };
//! expirations.dispatch(16, retry).await; // returns once the stream has ended
//! # assert_eq!(wheel.metrics().keyed_fired, 3);
//! # }
//! ```
//!
//! # Idle connections and sessions
//!
//! An idle timer is *touched* when there is activity, and completes when there has been none for its idle duration. A
//! touch wakes no task and sends no command. The actor reads the last activity when the wheel reaches the timer, about
//! once in each idle duration.
//!
//! | use | when | idle means | result |
//! |---|---|---|---|
//! | [`IdleStream`] | a task owns the connection, and any byte is activity | nothing was read and nothing written; other [limits](crate::IdleLimits) count one direction, or only the time between requests | pending and later operations fail with [`TimedOut`](std::io::ErrorKind::TimedOut) |
//! | [`IdleTimer`] | a task owns the connection, and you say what activity is | no task touched it, and no [`BusyGuard`] is held | a future to race with the work |
//! | [`Reaper`] | one place decides for many connections or sessions | the same, for each [`WatchGuard`](crate::WatchGuard) | an expiration with key and value, from one stream |
//!
//! "Idle" can mean *no bytes* or *no request in flight*. For the first, touch at each read and write, or wrap the
//! stream. For the second, hold a [`BusyGuard`] during each request; the idle duration then counts from the release of
//! the last guard.
//!
//! A server that answers requests, such as hyper or axum, wants the second meaning: a limit on all bytes would close
//! the connection while a slow handler works. [`IdleLimits::keep_alive`](crate::IdleLimits::keep_alive) does not count
//! from the moment a request is read until its response begins. On HTTP/2, where the server also writes on its own,
//! take a guard for each request from [`IdleStream::handle`].
//!
//! A server that writes on its own, such as a chat, limits reading alone, by
//! [`IdleLimits::read`](crate::IdleLimits::read): otherwise every line it sends would keep a silent listener alive.
//!
//! ```
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let wheel = tickwheel::TimerWheel::new();
//! let (reaper, mut idle) = wheel.reaper::<u64, &str>(Duration::from_secs(60));
//!
//! let session = reaper.watch(1, "a session").unwrap();
//! let request = session.busy();
//! tokio::time::sleep(Duration::from_secs(3600)).await;
//! assert!(idle.try_recv().is_err(), "a request is in flight");
//!
//! drop(request);
//! let reaped = idle.recv().await.unwrap(); // sixty seconds later
//! assert_eq!(reaped.key, 1);
//! assert!(!session.touch(), "too late");
//! # }
//! ```
//!
//! [`Reaper`] says how late a connection is reaped, and that it is touched or expired, never both.
//! [`Expired::cause`](crate::Expired::cause) says whether it was idle, reached its maximum age, or was ended by
//! [`WatchGuard::expire_now`](crate::WatchGuard::expire_now), such as at a logout.
//!
//! [`WatchOptions::max_age`](crate::WatchOptions::max_age) ends a watch at an age, however active it is.
//!
//! ## Closing gracefully
//!
//! Tell the peer before you close an idle connection: stop reading, say goodbye, give the peer a grace period, then
//! drop the connection.
//!
//! ```
//! use std::io::{self, ErrorKind};
//! use std::time::Duration;
//! use tickwheel::TimerWheel;
//! use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
//!
//! async fn serve(
//!     wheel: &TimerWheel,
//!     socket: impl AsyncRead + AsyncWrite + Unpin,
//! ) -> io::Result<()> {
//!     let mut socket = wheel.idle_stream(socket, Duration::from_secs(30));
//!     let mut buffer = [0; 1024];
//!     loop {
//!         match socket.read(&mut buffer).await {
//!             Ok(0) => return Ok(()),
//!             Ok(n) => socket.write_all(&buffer[..n]).await?,
//!             Err(error) if error.kind() == ErrorKind::TimedOut => break,
//!             Err(error) => return Err(error),
//!         }
//!     }
//!     // The inner stream is untouched: say goodbye on it, and wait for the peer to close.
//!     let mut socket = socket.into_inner();
//!     let goodbye = async {
//!         socket.write_all(b"idle, closing\n").await?;
//!         socket.shutdown().await?;
//!         while socket.read(&mut buffer).await? > 0 {}
//!         Ok(())
//!     };
//!     // A peer that does not close is dropped after the grace period.
//!     wheel.timeout(Duration::from_secs(5), goodbye).await.unwrap_or(Ok(()))
//! }
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! # let wheel = TimerWheel::new();
//! # let (server, mut client) = tokio::io::duplex(64);
//! # let serving = tokio::spawn(async move { serve(&wheel, server).await });
//! # let mut heard = String::new();
//! # client.read_to_string(&mut heard).await.unwrap();
//! # assert_eq!(heard, "idle, closing\n");
//! # drop(client);
//! # serving.await.unwrap().unwrap();
//! # }
//! ```
//! The examples `graceful_close` and `http_keepalive` do this.
//!
//! # Accuracy and ticks
//!
//! The wheel counts time in ticks of equal length, 0.1 ms unless [`Builder::tick`] says otherwise. It rounds a deadline *up* to
//! a tick and the clock *down*, so no timer is early. How late a timer can be is a sum:
//!
//! | part | at most |
//! |---|---|
//! | the deadline, rounded up to a tick | less than one tick |
//! | Tokio's timer, on which the actor waits and which rounds up to a millisecond | less than 1 ms |
//! | the operating system, which wakes the runtime's thread | usually far under a millisecond; not bounded |
//! | the actor and then the woken task, which wait for a worker thread | what the other tasks take; not bounded |
//!
//! At the default tick, timers are as late as Tokio's own. With a longer tick the actor wakes less often and fires more
//! timers each time: for timeouts of seconds, 10 ms or 100 ms are as good. A shorter tick, down to a microsecond, makes
//! the *order* of timers finer. It hardly changes the instant, because Tokio's millisecond stays, unless the actor has
//! a [thread of its own](Builder::dedicated_thread).
//!
//! With a tick of 1 ms, timers are later than Tokio's: ticks and Tokio's milliseconds do not begin at the same
//! instants, so a deadline is rounded up twice.
//!
//! A duration of zero and a deadline in the past are no errors. A sleep is then ready at its first poll. A keyed timer
//! expires on the actor's next turn, or with the next tick if its deadline lies within the current one. A deadline 292
//! years or more after the start of the wheel, such as [`Duration::MAX`] gives, never fires, and shows as that instant.
//!
//! ```
//! use std::time::Duration;
//! use tokio::time::Instant;
//! use tickwheel::TimerWheel;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tickwheel::BuildError> {
//! let start = Instant::now();
//! let wheel = TimerWheel::builder().tick(Duration::from_millis(100)).start()?;
//!
//! wheel.sleep(Duration::from_millis(250)).await;
//! assert!(start.elapsed() >= Duration::from_millis(300)); // the first tick that begins at 250 ms or later
//!
//! assert!(wheel.timeout(Duration::MAX, async {}).await.is_ok());
//! # Ok(())
//! # }
//! ```
//!
//! # Testing with paused time
//!
//! A wheel follows the clock of its runtime, so Tokio's paused clock works on it: when every task waits, the clock
//! jumps to the next deadline. Tests need Tokio's feature `test-util`, in the dev-dependencies of your crate.
//!
//! ```
//! # // What `#[tokio::test(start_paused = true)]` does.
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! use std::time::Duration;
//! use tokio::time::Instant;
//!
//! let wheel = tickwheel::TimerWheel::new();
//! let start = Instant::now();
//! wheel.sleep(Duration::from_secs(3600)).await;
//! assert_eq!(start.elapsed(), Duration::from_secs(3600));
//! # }
//! ```
//!
//! A test sees what it would see with `tokio::time`: once the clock has been paused, sleeps, timeouts and intervals [go
//! to Tokio's own timer](mod@crate::time#under-a-virtual-clock). Keyed timers, idle timers and reapers stay on the
//! wheel. They are exact for deadlines at whole milliseconds, and otherwise up to a tick and one of Tokio's
//! milliseconds late.
//!
//! ## `advance`, then `settle`
//!
//! [`tokio::time::advance`][advance] moves the clock and lets other tasks run once; the actor may not have had its turn
//! by then. [`TimerWheel::settle`] is a barrier: when it returns, every call made before it is applied, and every timer
//! due by then has fired. A test of a stream needs it; a test of a [`Sleep`] needs what Tokio's sleep needs.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! use std::time::Duration;
//!
//! let wheel = tickwheel::TimerWheel::new();
//! let (timers, mut expirations) = wheel.keyed::<&str, ()>();
//! timers.set_timer("lease", (), Duration::from_secs(10)).unwrap();
//!
//! tokio::time::advance(Duration::from_millis(9_999)).await;
//! wheel.settle().await;
//! assert!(expirations.try_recv().is_err(), "not a millisecond early");
//!
//! tokio::time::advance(Duration::from_millis(1)).await;
//! wheel.settle().await;
//! assert_eq!(expirations.try_recv().unwrap().key, "lease");
//! # }
//! ```
//!
//! ## Another runtime's clock
//!
//! Deadlines come from the clock of the *caller's* runtime, and the actor compares them with the clock of the runtime
//! in which it was *started*. As long as neither is paused, both are the same clock, and a wheel can be used from any
//! runtime and from threads without one. If one of them is paused, timers fire by the actor's clock:
//!
//! * Only the **wheel's** runtime is paused: as soon as it is idle, its clock jumps to the deadline. The timer fires at
//!   once, early by the caller's clock.
//! * Only the **caller's** runtime is paused: the timer takes real time while the caller's clock stands still. That
//!   clock does not jump to it, so a `tokio::time` timer in the same test fires first, however late its deadline.
//!
//! A thread that begins to use a wheel for sleeps in either way logs a warning where the crate can detect it. So start
//! a wheel in each test, within the test's runtime, and do not keep one in a static.
//!
//! # Shutting down
//!
//! Explicit shutdown is optional. When the last handle is dropped, the actor goes on until nothing is armed and then
//! ends. [`KeyedTimers`] and [`WatchGuard`](crate::WatchGuard) count as handles. When the actor's runtime is dropped,
//! the wheel closes as at a shutdown.
//!
//! [`TimerWheel::shutdown`] ends the actor and waits for its end. Nothing is lost: pending sleeps go on with Tokio's own
//! timer, delivered expirations can still be received, and [`Expirations::unexpired`] returns the other keyed timers.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! use std::time::Duration;
//!
//! let wheel = tickwheel::TimerWheel::new();
//! let (timers, mut expirations) = wheel.keyed::<u32, &str>();
//! timers.set_timer(1, "much later", Duration::from_secs(20)).unwrap();
//! timers.set_timer(2, "later", Duration::from_secs(10)).unwrap();
//!
//! wheel.shutdown().await;
//! assert!(expirations.recv().await.is_none());
//! let left: Vec<_> = expirations.unexpired().into_iter().map(|e| e.value).collect();
//! assert_eq!(left, ["later", "much later"]);
//!
//! let refused = timers.set_timer(3, "too late", Duration::ZERO).unwrap_err();
//! assert_eq!(refused.into_inner(), (3, "too late"));
//!
//! wheel.sleep(Duration::from_secs(1)).await; // on Tokio's timer
//! # }
//! ```
//! # Observability
//!
//! [`TimerWheel::metrics`] counts timers and the actor's turns, and has a [histogram](crate::LatenessHistogram) of how
//! late timers fired.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! # use std::time::Duration;
//! # let wheel = tickwheel::TimerWheel::new();
//! for _ in 0..1000 {
//!     let quick = tokio::task::yield_now();
//!     wheel.timeout(Duration::from_secs(30), quick).await.unwrap();
//! }
//! let metrics = wheel.metrics();
//! assert_eq!(metrics.sleeps_cancelled, 1000);
//! // A thousand timeouts, and one command: all but the first used the entry of the one before.
//! assert_eq!(metrics.commands, 1);
//! # }
//! ```
//!
//! The crate logs through [`tracing`]: a span for each actor at debug level, with the wheel's [name](Builder::name),
//! and a span for each turn at trace level. The actor warns when timers fire later than [`Builder::late_warning`], at
//! most once in ten seconds, and names the cause: blocked worker threads, or more work than it can do. A panic caught
//! in a waker, handler, key or value is logged as an error that says what it costs.
//!
//! [`Duration::MAX`]: std::time::Duration::MAX
//! [advance]: https://docs.rs/tokio/latest/tokio/time/fn.advance.html

pub mod costs;
pub mod design;
pub mod recipes;
pub mod services;

// For the links above.
#[allow(unused_imports)]
use crate::{
    Builder, BusyGuard, Expirations, IdleStream, IdleTimer, KeyedTimers, Reaper, SetTimerError,
    Sleep, TimerWheel,
};
