//! A guide to the crate: which timer to use, how accurate it is, how to test with it, how to shut it down, and how it
//! is built. Documentation only; its examples are tests.
//!
//! 1. [Which timer to use](#which-timer-to-use)
//! 2. [Keyed timers](#keyed-timers)
//! 3. [Idle connections](#idle-connections)
//! 4. [Accuracy and ticks](#accuracy-and-ticks)
//! 5. [Testing with paused time](#testing-with-paused-time)
//! 6. [Shutting down](#shutting-down)
//! 7. [Watching it](#watching-it)
//! 8. [How it is built](#how-it-is-built)
//!
//! # Which timer to use
//!
//! | to | take |
//! |---|---|
//! | wait | [`TimerWheel::sleep`] |
//! | give a future a limit | [`TimerWheel::timeout`] |
//! | do something every so often, in a task | [`TimerWheel::interval`] |
//! | have something happen to *a thing with a name* unless somebody prevents it: a session, a request, a retry | [`TimerWheel::keyed`] |
//! | the same again and again, without a task for each | [`KeyedTimers::set_interval`] |
//! | find out that nothing has happened for a while, on a connection, say | [`TimerWheel::idle_timer`], [`idle_stream`](TimerWheel::idle_stream) or [`reaper`](TimerWheel::reaper) |
//! | drive timers from an event loop that is not Tokio's | [`wheel::Wheel`](crate::wheel::Wheel) |
//!
//! The futures do what those of [`tokio::time`] do, and are polled, raced and dropped at the same places:
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
//! Start one wheel for the process and hand out clones of [`TimerWheel`]; they are cheap. A second wheel makes sense
//! for another tick, another runtime, or a limit of its own. A thread keeps spare entries for the four wheels it used
//! last.
//!
//! ## When to stay with `tokio::time`
//!
//! * A program with a handful of timers, or one whose timers mostly fire instead of being cancelled: there is little to
//!   gain, and one dependency and one task to lose.
//! * A single-threaded runtime with few timeouts: Tokio's timer lock has nobody to contend with.
//! * Precision far below a millisecond. As a task the actor waits on Tokio's timer, which has none; on a
//!   [thread of its own](Builder::dedicated_thread) it is as precise as the operating system wakes a thread; a spinning
//!   thread is more so.
//! * A library that should not choose its users' timers.
//! * Tasks that must be woken while every worker thread is blocked. No timer can do that. (What need not be a task can
//!   be had: with [`Builder::dedicated_thread`] expirations lie in their streams on time, for a thread that reads them.)
//!
//! [`DelayQueue`](https://docs.rs/tokio-util/latest/tokio_util/time/delay_queue/) of `tokio-util` needs no task of its
//! own. Where one task owns both the collection and its consumer, with deadlines under two years, it is the simpler
//! choice. Keyed timers are for when others than the consumer set, move and remove, when keys are yours and not the
//! queue's, and when expirations have to come in order.
//!
//! # Keyed timers
//!
//! A set of keyed timers is a handle to set, move and remove, and a stream of those that fire. Any number of sets, of
//! different types, share one wheel.
//!
//! ```
//! use std::time::Duration;
//! use tickwheel::TimerWheel;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let wheel = TimerWheel::new();
//! let (timers, mut expirations) = wheel.keyed::<u64, String>();
//!
//! timers.set_timer(1, "order 1".into(), Duration::from_secs(60))?;
//! timers.set_timer(2, "order 2".into(), Duration::from_secs(60))?;
//!
//! // Order 1 was paid. `Some`: its timer will never fire. `None`: it was too late.
//! assert!(timers.take_timer(1).await?.is_some());
//! // Order 2 gets more time.
//! timers.move_timer(2, Duration::from_secs(120))?;
//!
//! let expired = expirations.recv().await.ok_or("closed")?;
//! assert_eq!(expired.value, "order 2");
//! # Ok(())
//! # }
//! ```
//!
//! * Every call is applied when it returns: [`len`](KeyedTimers::len), [`deadline`](KeyedTimers::deadline) and
//!   [`take_timer`](KeyedTimers::take_timer) tell the present state, not one the actor has yet to reach.
//! * Setting a key that has a timer replaces value and deadline. Moving keeps the value.
//! * A timer has fired when its expiration lies in the stream, received or not. From then on it cannot be taken any
//!   more, and setting its key is a new timer.
//! * The stream is not bounded, since the actor never waits for its reader. What is bounded is the number of timers
//!   that are pending: [`Builder::max_keyed`], over all sets. A new key over the limit comes back in
//!   [`SetTimerError::Full`].
//! * To run a handler for each expiration, a bounded number at once, there is [`Expirations::dispatch`].
//!
//! # Idle connections
//!
//! An idle timer is *touched* when there is activity and completes when there has been none for its duration. The
//! activity is one word, shared with the actor: a touch compares, and writes at most once a tick. Nobody is woken and
//! nothing is sent; the wheel finds out when it looks, about once in each idle duration.
//!
//! | take | when | idle means | what comes of it |
//! |---|---|---|---|
//! | [`IdleStream`] | a task owns the connection, and any bytes are activity | nothing was read and nothing written; each direction can have a limit of its own | pending and later operations fail with [`TimedOut`](std::io::ErrorKind::TimedOut) |
//! | [`IdleTimer`] | a task owns the connection, and you say what activity is | nobody touched it, and no [`Busy`] guard is held | a future to race with the work |
//! | [`Reaper`] | one place owns the decision for many connections | as above, for each [`Watch`](crate::Watch) | an expiration with key and value, out of one stream |
//!
//! *No bytes* and *no requests in flight* are two readings of "idle", and both are served: touch at each read and write
//! for the first, hold a [`Busy`] guard for the length of each request for the second. Idle counts from the release of
//! the last guard.
//!
//! A stream behind a server that answers requests, such as hyper or axum, wants
//! [`IdleLimits::keep_alive`](crate::IdleLimits::keep_alive): it does not count from the moment a request is read until
//! its response begins, so a slow handler is not cut, and a silent connection is closed. A limit on all bytes cuts the
//! slow handler. On HTTP/2, where the server also writes on its own, take a guard for each request from
//! [`IdleStream::handle`].
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! use std::time::Duration;
//!
//! let wheel = tickwheel::TimerWheel::new();
//! let (reaper, mut idle) = wheel.reaper::<u64, &str>(Duration::from_secs(60));
//!
//! let watch = reaper.watch(1, "a connection").unwrap();
//! let request = watch.busy();
//! tokio::time::sleep(Duration::from_secs(3600)).await;
//! assert!(idle.try_recv().is_err(), "a request is in flight");
//!
//! drop(request);
//! let reaped = idle.recv().await.unwrap(); // sixty seconds later
//! assert_eq!(reaped.key, 1);
//! assert!(!watch.touch(), "too late");
//! # }
//! ```
//!
//! **Accuracy.** Activity is recorded to the tick, rounded up. A connection is reaped not earlier than the idle duration
//! after its last activity, and at most two ticks later (and what the [runtime adds](#accuracy-and-ticks)). A connection
//! that is touched before its expiration is *handed out* by the stream is not reaped; after that its touches return
//! false.
//!
//! **Greatest age.** [`WatchOptions::max_age`](crate::WatchOptions::max_age) ends a watch at an age, however active it
//! is, spread by a tenth so that clients do not all come back at once.
//!
//! **Closing gracefully.** Being idle is a reason to say goodbye, not yet to hang up. The pattern is: stop reading, tell
//! the peer, give it a grace period to answer, then drop the connection.
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
//!     // Idle. The inner stream is as good as before: say goodbye on it, and wait for the peer to close.
//!     let mut socket = socket.into_inner();
//!     let goodbye = async {
//!         socket.write_all(b"idle, closing\n").await?;
//!         socket.shutdown().await?;
//!         while socket.read(&mut buffer).await? > 0 {}
//!         Ok(())
//!     };
//!     // A peer that does not is dropped after the grace period.
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
//!
//! `examples/graceful_close.rs` and `examples/http_keepalive.rs` are servers that do it.
//!
//! # Accuracy and ticks
//!
//! Time is counted in ticks of equal length, 1 ms unless [`Builder::tick`] says otherwise. A deadline is rounded *up*
//! to a tick and the clock *down*, so a timer is never early. How late it can be is a sum:
//!
//! | part | at most |
//! |---|---|
//! | the deadline, rounded up to a tick | less than one tick |
//! | Tokio's timer, on which the actor waits and which rounds up to a millisecond too | less than 1 ms |
//! | the operating system waking the runtime's thread | usually far under a millisecond; not bounded |
//! | the actor, and then the task that was woken, waiting for their turn on the runtime | what the other tasks take; not bounded |
//!
//! A longer tick makes the actor's wake-ups fewer and each one fuller; for timeouts of seconds 10 ms or 100 ms are as
//! good as 1 ms. A shorter tick, down to a microsecond, makes the *order* in which timers fire finer, and not the
//! instant: Tokio's millisecond stays, unless the actor has a [thread of its own](Builder::dedicated_thread). The two
//! kinds of ticks do not begin at the same instants, since Tokio does not say when its own do; what lies between a tick
//! here and the next one there comes on top, the same for every timer of a wheel. With a tick of a tenth of a
//! millisecond nearly all of that goes, and timers are as late as Tokio's own.
//!
//! A duration of zero, or a deadline in the past, is not an error: a sleep is ready at its first poll, and a keyed
//! timer fires on the actor's next turn, or with the next tick if its deadline lies within this one. A deadline too far away is *never*: [`Duration::MAX`] is a way to say so. A
//! sleep reaches 584 years from the start of its wheel with any tick, a keyed timer 292.
//!
//! ```
//! use std::time::Duration;
//! use tokio::time::Instant;
//! use tickwheel::TimerWheel;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), tickwheel::BuildError> {
//! let wheel = TimerWheel::builder().tick(Duration::from_millis(100)).start()?;
//! let start = Instant::now();
//!
//! wheel.sleep(Duration::from_millis(250)).await;
//! assert_eq!(start.elapsed(), Duration::from_millis(300)); // the first tick that begins at 250 ms or after
//!
//! assert!(wheel.timeout(Duration::MAX, async {}).await.is_ok());
//! # Ok(())
//! # }
//! ```
//!
//! # Testing with paused time
//!
//! A wheel follows the clock of its runtime, so Tokio's paused clock works on it: when every task waits, the clock
//! jumps to the next deadline, and a test of an hour takes no time. It needs Tokio's feature `test-util`, in the
//! dev-dependencies of your crate.
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
//! It is as exact as the ticks are: with deadlines at whole milliseconds and ticks of one, to the nanosecond. Tokio's
//! clock itself stops at whole milliseconds only, so after `advance(Duration::from_micros(300))` its own timers and
//! those of a wheel are off by up to one.
//!
//! ## `advance`, then `settle`
//!
//! [`tokio::time::advance`][advance] moves the clock, and lets other tasks run once; whether the actor has had its turn
//! after that is not said. [`TimerWheel::settle`] waits until it has: all that was submitted is applied, all that is
//! due has fired, tasks are woken and expirations lie in their streams. (A [`Sleep`] that is polled compares its
//! deadline with the clock, so it needs no `settle`. Streams do.)
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
//! Each runtime has a clock of its own, and only a paused one differs from the others. A deadline is read off the clock
//! of the runtime that the *caller* is in; the actor compares it with the clock of the runtime it was *started* in. As
//! long as neither is paused that is the same clock, and a wheel can be used from any runtime and from threads without
//! one. When one of them is paused it is not, and timers fire when the actor's clock says so:
//!
//! * The **wheel's** runtime is paused and the caller's is not: as soon as the wheel's runtime is idle its clock jumps
//!   to the deadline. The timer fires at once, early by the caller's clock.
//! * The **caller's** runtime is paused and the wheel's is not: the timer takes real time, while the caller's clock
//!   stands still. It is not among the timers that the caller's clock jumps to, so a `tokio::time` timer in the same
//!   test fires first however late its deadline.
//!
//! A thread that begins to use a wheel for sleeps in either way logs a warning, where it can be told. So in tests:
//! start a wheel in each test, within the test's runtime; do not keep one in a static.
//!
//! # Shutting down
//!
//! [`TimerWheel::shutdown`] ends the actor and returns when it has ended. It can be called more than once, and from any
//! handle. Nothing is lost:
//!
//! * A [`Sleep`], [`Timeout`] or [`Interval`] that is pending goes on with Tokio's own timer, and so do those made
//!   later. They keep their deadlines; but polling them then needs a Tokio runtime with a timer.
//! * Expirations that have fired can still be received; then the stream ends.
//! * Keyed timers that have not fired come out of [`Expirations::unexpired`], earliest first.
//! * Setting a timer gives key and value back in [`SetTimerError::Closed`]; moving and removing say [`Closed`].
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
//!
//! Shutting down is not a duty. When the last handle is dropped ([`KeyedTimers`] is one too) the actor goes on until
//! nothing is armed any more, and ends. When its runtime is dropped under it, it closes what it holds in the same way
//! as at a shutdown; a sleep on another runtime goes on there. [`TimerWheel::is_shutdown`] tells whether the actor has
//! ended.
//!
//! # Watching it
//!
//! [`TimerWheel::metrics`] counts what was made, set, fired, cancelled, moved and removed, the actor's turns and
//! wake-ups, and has a histogram of lateness. The books balance, see [`WheelMetrics`].
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! # use std::time::Duration;
//! # let wheel = tickwheel::TimerWheel::new();
//! for _ in 0..1000 {
//!     let quick = tokio::task::yield_now();
//!     wheel.timeout(Duration::from_secs(30), quick).await.unwrap();
//! }
//! let metrics = wheel.metrics();
//! assert_eq!(metrics.sleeps_cancelled, 1000);
//! // A thousand timeouts, and one message: all but the first used the entry of the one before.
//! assert_eq!(metrics.commands, 1);
//! # }
//! ```
//!
//! Through [`tracing`] come a span for each actor at debug level with the wheel's [name](Builder::name), a span for
//! each turn at trace level, a warning, at most one in ten seconds, when timers fire later than
//! [`Builder::late_warning`], and an error for each panic of a waker, handler, key or value that was caught. Nothing is
//! logged for a single timer.
//!
//! # How it is built
//!
//! ## The one idea
//!
//! > The wheel holds a lower bound; the entry holds the truth.
//!
//! Every timer is an entry that knows its deadline. The wheel only knows a tick at which the entry has to be *looked
//! at*, and that tick is never after the deadline. When the wheel gets there, the actor looks: due, and it fires; due
//! later, and it is filed again; not armed any more, and it is let go.
//!
//! So moving a timer to *later* is a write to its entry, and so is cancelling it: the actor finds out when it looks.
//! Only *earlier* needs a message. And a cancelled entry is still on the wheel, with a look ahead of it; a new timeout
//! that is due no sooner than that look can take the entry over by writing its deadline and waker. Each thread keeps up
//! to 128 spare entries of a wheel and gives a new timeout the one, of the last eight, that is filed as late as its
//! deadline allows. So the number of entries on the wheel follows the number of timers there are *at once*, not the
//! number made a second. What a thread has no room for is taken off the wheel without waiting for its deadline.
//!
//! When a look comes while nobody uses the entry, the actor lets it go. It stays with its thread, and the next timeout
//! that takes it over sends a message once more: about one for each entry and length of a timeout, whatever the rate.
//!
//! Keyed timers work the same way. Their truth lies in the set, a table under one lock that handles and actor share; a
//! handle writes deadline and value there. If the actor would look too late for it, the handle notes the slot down and
//! queues the set, once.
//!
//! ## The wheel
//!
//! Levels of 64 buckets ([`Builder::slots`] says otherwise), each bucket of a level as wide as the whole level below.
//! An item lies in the lowest level that reaches its tick, and comes down a level when time reaches its bucket. A
//! bitmap for each level tells the next bucket that holds anything, so time jumps from one to the next: an hour of
//! silence costs nothing, and a timer a year away wakes the actor at most once per level. The [`wheel`](crate::wheel)
//! module has a worked example.
//!
//! The actor has two of them: one holds the entries of the sleeping futures, the other the slots of the keyed timers.
//! Their nodes lie in chunks of 4096, and commands travel in blocks of 512, so that neither growing nor shrinking ever
//! copies or frees megabytes within a turn. What a burst has left goes back a little each turn, also before the last
//! timer has fired.
//!
//! ## The wake rule
//!
//! A message does not wake the actor by itself. The actor publishes the tick at which it is going to look next. A
//! submitter puts its command into the queue, then reads that tick, and wakes the actor only if the command is needed
//! earlier, or if 512 commands have piled up in that queue. The actor publishes first and looks into the queues after
//! that, so one of the two sees the other: no command is missed. There is a queue for each core, on cache lines of its
//! own.
//!
//! ## The actor's turn
//!
//! ```text
//! loop {
//!     read the clock
//!     apply at most 4096 commands
//!     give some memory back, if there is any to spare
//!     look at at most 256 sleeps that are filed by now: fire them, or file them again
//!     look at at most 256 keyed timers that are filed by now: collect what is due of the sets
//!     deliver at most 256 expirations to their streams, in order
//!     anything left?  yield to the runtime, and go on
//!     publish the next tick; is there anything in the queues after all?  go on
//!     wait for Tokio's timer at that tick (for none when both wheels are empty), or for the signal
//! }
//! ```
//!
//! A turn is bounded, so neither a flood of commands nor a storm of expirations keeps the other waiting for long, nor
//! the tasks beside it. The actor awaits its signal, its sleep and `yield_now`; never a consumer. Wakers are woken and
//! values dropped when no lock is held, behind a guard that catches panics.
//!
//! ## What each operation costs
//!
//! "Own" means lines that no other core writes meanwhile: the thread's cache of entries and counts, and the entry
//! itself, whose lock is uncontended unless the actor is looking at just this entry, or the future has moved to another
//! thread. Reading the clock and cloning a waker are left out; both are there with any timer.
//!
//! | operation | allocation | message | lines it writes |
//! |---|---|---|---|
//! | make, poll and drop a sleep or timeout, with a spare entry filed soon enough | none | none | own |
//! | the same without a spare entry | the entry | one | own, the wheel's reference count, and a queue |
//! | a timeout whose future is ready at its first poll, with any spare entry | none | none | own |
//! | [`Sleep::reset`] to later | none | none | own |
//! | [`Sleep::reset`] to earlier than the actor's look | none | one | own, and a queue |
//! | dropping a sleep when the thread has 128 spare entries | none | one | own, and a queue |
//! | [`KeyedTimers::set_timer`], new key | amortised | one for the set, unless it has one under way | the set, and the wheel's count of keyed timers |
//! | [`KeyedTimers::set_timer`] of a key that has one, [`KeyedTimers::move_timer`] | none | if to earlier than the actor's look, and as above | the set |
//! | [`KeyedTimers::remove_timer`], [`KeyedTimers::take_timer`] | none | one for the set, unless it has one under way | the set, and the wheel's count of keyed timers |
//! | a touch: [`IdleHandle::touch`](crate::IdleHandle::touch), [`Watch::touch`](crate::Watch::touch) | none | none | the activity's word, once a tick |
//! | a [`Busy`] guard, taken and dropped | none | none | the activity's word and its count of guards |
//! | [`Reaper::watch`] | the activity; the rest is amortised | one for the set, unless it has one under way | the set, and the wheel's count of keyed timers |
//!
//! A message is a push into the queue of the thread's core, and a *read* of the published tick; it writes that tick's
//! line only to wake the actor. Threads meet on a queue only when there are more of them than cores. The set is one
//! lock for all who use it: two producers that write the same set meet there, and sets that should not meet are made
//! separately. Who finds a set taken stays away longer each time, for some microseconds in all, before it sleeps: that
//! lets the other do much at once.
//!
//! [`Duration::MAX`]: std::time::Duration::MAX
//! [advance]: https://docs.rs/tokio/latest/tokio/time/fn.advance.html

// For the links above.
#[allow(unused_imports)]
use crate::{
    Builder, Busy, Closed, Expirations, IdleStream, IdleTimer, Interval, KeyedTimers, Reaper,
    SetTimerError, Sleep, Timeout, TimerWheel, WheelMetrics,
};
