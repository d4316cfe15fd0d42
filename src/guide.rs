//! A guide to the crate. Documentation only; its example is a test.
//!
//! 1. [Which timer for what](#which-timer-for-what)
//! 2. [Holding the wheel](#holding-the-wheel)
//! 3. [Keyed timers](#keyed-timers)
//! 4. [Idle connections and sessions](#idle-connections-and-sessions)
//! 5. [Accuracy and ticks](#accuracy-and-ticks)
//! 6. [Testing with paused time](#testing-with-paused-time)
//! 7. [Shutting down](#shutting-down)
//! 8. [Observability](#observability)
//!
//! Further chapters: [switching] from `tokio::time`; [coming from](coming_from) another timer, and
//! durable timers [instead of](instead_of) a job queue; [recipes] for debounce, throttle, a map
//! whose items expire, and a wheel on its own thread; [what each operation costs](costs); [how the
//! crate is built](design).
//!
//! # Which timer for what
//!
//! | to | use |
//! |---|---|
//! | switch a program over from `tokio::time` | the module [`time`](crate::time), with [these edits](switching) |
//! | wait | [`TimerWheel::sleep`] |
//! | limit how long a future may take | [`TimerWheel::timeout`]; [`Elapsed`](crate::Elapsed) becomes an `io::Error` of kind `TimedOut` |
//! | do something periodically, in a task | [`TimerWheel::interval`] |
//! | run something for a named thing unless it is cancelled first: an order, a request, a retry | [`TimerWheel::keyed`] |
//! | act after a burst of events, or at most once in a while | keyed timers: [debounce](recipes#debounce) and [throttle](recipes#throttle) |
//! | expire the items of a map | keyed timers: [the set is the map](recipes#a-map-whose-items-expire) |
//! | repeat something for many keys, without a task for each | [`KeyedTimers::set_interval`] |
//! | expire unused sessions, or close idle connections from one place | [`TimerWheel::reaper`] |
//! | fail reads and writes on a silent connection | [`TimerWheel::idle_stream`] |
//! | close a connection between requests, never during one | a [`BusyGuard`] for each request, or `KeepAliveStream` of [`tickwheel-adapters`](https://docs.rs/tickwheel-adapters) |
//! | limit requests, bodies and connections of axum, hyper, tower or quinn | the package [`tickwheel-adapters`](https://docs.rs/tickwheel-adapters) |
//! | detect in one task that nothing has happened for a while | [`TimerWheel::idle_timer`] |
//! | drive timers from an event loop or runtime other than Tokio's | [`wheel::Wheel`](crate::wheel::Wheel); the example `other_runtime` in the repository makes sleeps of it for any executor |
//!
//! ## When to watch, and when to move
//!
//! A keyed timer that each request moves can watch a connection or session too. The two differ:
//!
//! | | a watch of a [`Reaper`] that is touched | a keyed timer that is moved |
//! |---|---|---|
//! | says | nothing was heard for so long | it is so late |
//! | after a [stall](Reaper#after-a-stall) of the runtime or the process | silence begins to count when others have been heard | a deadline is a deadline: every timer that fell due in it expires |
//! | activity costs | a comparison of one word | a lock of the set, and a look-up |
//! | found by | its guard | its key |
//!
//! So watch what may speak, such as connections, sessions and heartbeats. Move what has a deadline,
//! such as a debounced save, an offer or a lease whose end others rely on.
//!
//! The [README](https://docs.rs/crate/tickwheel/latest) says when to stay with `tokio::time` or
//! `DelayQueue`.
//!
//! # Holding the wheel
//!
//! Start one wheel for the process, and a second one only for another tick, runtime or limit. Clone
//! it once for each connection or task, and pass references from there.
//!
//! | how code gets the wheel | what that costs |
//! |---|---|
//! | the functions of [`time`](crate::time) | finding the current runtime: 13 ns a timer on one thread, 11 to 47 ns on two workers |
//! | a reference, or a field of a shared struct | nothing |
//! | a clone for each task or connection | four atomic additions in its life |
//! | a clone for each timeout | the same, on words that all threads write: some 230 ns more a timeout on two busy workers |
//! | a `static` | one load; but each test with a paused clock needs a wheel in its own runtime |
//!
//! # Keyed timers
//!
//! Any number of sets share one wheel. Each has a [handle](KeyedTimers), and a
//! [stream](Expirations) of the timers that expire.
//!
//! * A timer expires as it is received. Until then every call works on it, also if it is overdue:
//!   it can be removed, moved and set again. [`deadline`](KeyedTimers::deadline) compared with the
//!   clock says whether it is too late.
//! * The actor never waits for a reader. [`Builder::max_keyed`] bounds the number of timers, those
//!   that wait for a reader included.
//! * [`update`](KeyedTimers::update) and [`set_or_update`](KeyedTimers::set_or_update) look at a
//!   timer and change it in one step: value, deadline, or both.
//! * [`dispatch`](Expirations::dispatch) runs a handler for each expiration, one for a key at a
//!   time. A handler that fails returns [`Outcome::Again`](crate::Outcome::Again), and a removal in
//!   the meantime wins over that.
//! * A consumer that sets timers in its own set holds a
//!   [`WeakKeyedTimers`](crate::WeakKeyedTimers), so that the stream can end. Keep a strong handle
//!   elsewhere, or the consumer can set none.
//!
//! # Idle connections and sessions
//!
//! An idle timer is *touched* when there is activity, and completes when there has been none for
//! its idle duration. A touch wakes no task and sends no command.
//!
//! | use | when | idle means | result |
//! |---|---|---|---|
//! | [`IdleStream`] | a task owns the connection, and any byte is activity | nothing was read or written; other [limits](crate::IdleLimits) count one direction | operations fail with [`TimedOut`](std::io::ErrorKind::TimedOut) |
//! | [`IdleTimer`] | a task owns the connection, and you say what activity is | no task touched it, and no [`BusyGuard`] is held | a future to race with the work |
//! | [`Reaper`] | one place decides for many connections or sessions | the same, for each [`WatchGuard`](crate::WatchGuard) | an expiration with key and value, from one stream |
//!
//! "Idle" means *no bytes* or *no request in flight*. For the first, touch at each read and write,
//! or wrap the stream. For the second, hold a [`BusyGuard`] during each request. A server that
//! answers requests wants the second: a limit on bytes would close the connection while a slow
//! handler works. `KeepAliveStream` of the package `tickwheel-adapters` approximates it from the
//! bytes alone, and lists where it cannot.
//!
//! A consumer that removes guards from a map by their keys
//! [asks them first](crate::WatchGuard::is_watched): a key may have a new watch.
//!
//! [`WatchOptions`](crate::WatchOptions) give one watch its own idle duration, or a maximum age at
//! which it ends however active it is, at once or when its last guard is dropped.
//! [`WatchGuard::expire_now`](crate::WatchGuard::expire_now) ends it at once, for example at a
//! logout. [`Expired::cause`](crate::Expired::cause) says why it ended.
//!
//! The consumer can keep a watch that is due, for instance to ping its peer first: see
//! [`recv_if`](Expirations::recv_if). A server that stops ends idle connections with
//! [`drain_idle`](Reaper::drain_idle), and the others after their requests.
//!
//! ## Closing gracefully
//!
//! Tell the peer before you close an idle connection: stop reading, say goodbye, and give the peer
//! a grace period. Then drop one that has not closed:
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
//!     // Say goodbye on the inner stream, and wait for the peer to close.
//!     let mut socket = socket.into_inner();
//!     let goodbye = async {
//!         socket.write_all(b"idle, closing\n").await?;
//!         socket.shutdown().await?;
//!         while socket.read(&mut buffer).await? > 0 {}
//!         Ok(())
//!     };
//!     wheel.timeout(Duration::from_secs(5), goodbye).await.unwrap_or(Ok(()))
//! }
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! # for closes in [true, false] {
//! # let wheel = TimerWheel::new();
//! # let start = tokio::time::Instant::now();
//! # let (server, mut client) = tokio::io::duplex(64);
//! # let serving = tokio::spawn(async move { serve(&wheel, server).await });
//! # let mut heard = String::new();
//! # client.read_to_string(&mut heard).await.unwrap();
//! # assert_eq!(heard, "idle, closing\n");
//! # let client = (!closes).then_some(client);
//! # serving.await.unwrap().unwrap();
//! # drop(client);
//! # let secs = start.elapsed().as_secs();
//! # assert_eq!(secs, if closes { 30 } else { 35 });
//! # }
//! # }
//! ```
//!
//! # Accuracy and ticks
//!
//! The wheel counts time in ticks, of 0.1 ms unless [`Builder::tick`] says otherwise. It rounds a
//! deadline *up* to a tick and the clock *down*, so no timer is early. A timer is late by the sum
//! of:
//!
//! | part | at most |
//! |---|---|
//! | the deadline, rounded up to a tick | less than one tick |
//! | Tokio's timer, on which the actor waits | less than 1 ms, by rounding up |
//! | the operating system, waking the runtime's thread | usually far under a millisecond; not bounded |
//! | the wait of the actor, then of the woken task, for a worker thread | what the other tasks take; not bounded |
//!
//! [`Builder::precise`] takes the second row away, on Linux and with the feature `precise`, and
//! costs a thread and wake-ups:
//!
//! | | `tokio::time` | tick of 0.1 ms | the same, precise |
//! |---|---|---|---|
//! | median lateness of a lone sleep, of 100 us or of any length | 1.1 ms | 1.1 ms | 0.1 ms |
//! | median lateness at 10,000 sleeps a second | 1.1 ms | 0.7 ms | 0.4 ms |
//! | CPU time for each of 1,000 sleeps a second, on two workers | 1x | 1.1x to 1.4x | 2x to 3x |
//! | of 10,000 | 1x | 1.2x | 1.8x |
//! | of 100,000 | 1x | 1.2x | 2x |
//!
//! Dense timers share wake-ups, as [`Builder::precise`] says. Precision returns after a quiet
//! period.
//!
//! At the default tick, timers that are not precise are as late as Tokio's own. With a longer
//! tick the actor wakes less often: for timeouts of seconds, 10 ms or 100 ms are as good. A tick of
//! 1 ms makes timers later than Tokio's, because its ticks and Tokio's milliseconds begin at
//! different instants and each rounds the deadline up. A shorter tick, down to a microsecond, makes
//! the *order* of timers finer; [`Builder::tick`] says when it makes them more punctual.
//!
//! Where tasks that are always ready keep a runtime busy, timers are as late as Tokio's own. On a
//! wheel with [its own thread](recipes#a-wheel-on-its-own-thread) they were 0.1 times as late,
//! beside 200 such tasks on a `current_thread` runtime. A sleep that is shorter than a round of
//! those tasks, and due before all other timers, is later: its command waits for a turn of the
//! actor.
//!
//! A duration of zero and a deadline in the past are no errors. A sleep is then ready at its first
//! poll. A keyed timer expires on the actor's next turn, or with the next tick if its deadline lies
//! within the current one. A deadline 292 years or more after the start of the wheel, such as
//! [`Duration::MAX`] gives, never fires.
//!
//! # Testing with paused time
//!
//! A wheel follows the clock of its runtime, so Tokio's paused clock works on it: when every task
//! waits, the clock jumps to the next deadline. Tests need Tokio's feature `test-util`.
//!
//! Once the clock has been paused, sleeps, timeouts and intervals [are Tokio's
//! own](mod@crate::time#under-a-virtual-clock). Keyed timers, idle timers and reapers stay on the
//! wheel. They are exact for deadlines at whole milliseconds, and otherwise up to a tick and one of
//! Tokio's milliseconds late.
//!
//! The actor may not have had its turn when [`tokio::time::advance`][advance] returns. Call
//! [`TimerWheel::settle`], a barrier: it waits until every earlier call is applied and every due
//! timer has fired.
//!
//! ## Another runtime's clock
//!
//! Deadlines come from the clock of the *caller's* runtime. The actor compares them with the clock
//! of the runtime in which it was *started*. While neither is paused, any runtime, and any thread
//! without one, can use the wheel. If one is paused, timers fire by the actor's clock:
//!
//! * Only the **wheel's** runtime is paused: once idle, its clock jumps to the deadline. The timer
//!   fires early by the caller's clock.
//! * Only the **caller's** runtime is paused: the timer takes real time while the caller's clock
//!   stands still. A `tokio::time` timer in the same test fires first, however late its deadline.
//!   An idle timer that has completed completes again at each poll, since no time has passed.
//!
//! The crate logs a warning where it can detect either. So start a wheel in each test, within the
//! test's runtime, and keep none in a static.
//!
//! # Shutting down
//!
//! Explicit [`shutdown`](TimerWheel::shutdown) is optional. When the last handle is dropped, the
//! actor goes on until nothing is armed, and ends. When the actor's runtime is dropped, the wheel
//! shuts down. Neither loses anything.
//!
//! # Observability
//!
//! [`TimerWheel::metrics`] counts timers and the actor's turns, and has a
//! [histogram](crate::DurationHistogram) of how late timers fired. `commands` far below
//! `sleeps_made` shows that timeouts reuse entries.
//!
//! The crate logs through [`tracing`], with a span for each actor and each turn. It logs panics in
//! wakers, handlers, keys and values as errors. The actor warns when timers fire later than
//! [`Builder::late_warning`], with what it has measured since everything due had last fired:
//!
//! | field | meaning |
//! |---|---|
//! | `lateness` | by how much the latest timer was late |
//! | `waited` | how long the actor waited for its turns, though it could have run: tasks or other programs had the processors, or a task blocked its worker |
//! | `turns_took` | how long its turns took |
//! | `fired`, `more_are_due` | how many timers those turns fired, and whether more are due |
//! | `clock` | `virtual` once a test has paused the clock, which it may have moved past many deadlines |
//!
//! Where `waited` is most of the lateness, look for code that blocks, and for processors that are
//! too few. Where `turns_took` is, many timers were due at once, or many calls were made.
//!
//! A waker that panics runs the panic hook of the program within the turn of the actor, which
//! delays the other timers for as long. With `RUST_BACKTRACE=1` the first backtrace of a process
//! reads its symbols: 0.7 to 1.1 s on a busy machine, where the panic without one took no time.
//!
//! With the feature `console`, [tokio-console](https://docs.rs/tokio-console) shows timers among
//! its resources, as it does Tokio's: their types, the lines that made them, their durations, the
//! polls of the tasks that wait for them. Sets of keyed timers and reapers are not
//! among them. Build as for any use of the console, with `--cfg tokio_unstable`: without it this
//! feature compiles, and emits the same spans and events, but Tokio emits no tasks and
//! `console-subscriber` does not start. While no subscriber wants the spans, the feature costs an
//! atomic load for each timer and a word in it. Without the feature it costs nothing.
//!
//! [`Duration::MAX`]: std::time::Duration::MAX
//! [advance]: https://docs.rs/tokio/latest/tokio/time/fn.advance.html

pub mod coming_from;
pub mod costs;
pub mod design;
#[allow(clippy::doc_markdown, reason = "names of products are no code")]
#[doc = include_str!("../docs/instead-of.md")]
pub mod instead_of {}
pub mod recipes;
pub mod switching;

// For the links above.
#[allow(unused_imports)]
use crate::{
    Builder, BusyGuard, Expirations, IdleStream, IdleTimer, KeyedTimers, Reaper, TimerWheel,
};
