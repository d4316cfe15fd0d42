//! Running it: sizes, failures, what to watch, and when to take a job queue instead. Documentation only.
//!
//! 1. [Sizing](#sizing)
//! 2. [What happens when](#what-happens-when)
//! 3. [What to watch](#what-to-watch)
//! 4. [Looking into the store](#looking-into-the-store)
//! 5. [Starting and stopping](#starting-and-stopping)
//! 6. [Writing handlers](#writing-handlers)
//! 7. [When to take a job queue](#when-to-take-a-job-queue)
//!
//! # Sizing
//!
//! The defaults suit services with up to some thousand timers a second. What each setting trades:
//!
//! | setting | default | larger | smaller |
//! |---|---|---|---|
//! | [`lease`](crate::Builder::lease) | 60 s | a process may stand still for longer, half a lease, without its timers going to others; fewer renewals | after a crash of the claimant the timer comes again sooner |
//! | [`window`](crate::Builder::window) | 30 s | the store may be away for longer without a late timer being noticed late; more memory | less on the wheel |
//! | [`poll`](crate::Builder::poll) | 1 s | fewer calls | after a crash what was loaded goes to others sooner, within four polls |
//! | [`capacity`](crate::Builder::capacity) | 1024 | a program may keep more claims unsettled | a bound for programs that receive without waiting for their handlers |
//! | [`handler_timeout`](crate::Builder::handler_timeout) | none | handlers may take longer | a handler that hangs frees its place sooner |
//! | [`call_timeout`](crate::Builder::call_timeout) | 5 s | rides out a slow store | callers learn sooner |
//!
//! * **Concurrency** is the one number to choose: how many handlers [`dispatch`](crate::Claims::dispatch) runs at once. What
//!   is claimed, and loaded, [follows](crate::protocol#demand).
//! * **Lease**: how long after a crash what was claimed comes again. It does not depend on how long handlers take, as
//!   `dispatch` renews it; a program that receives by itself uses [`auto_renew`](crate::Claim::auto_renew). The lease must be
//!   at least two round trips to the store, as measured at start.
//! * **Handler timeout**: set it, far above what a handler takes. Without it a handler that never returns keeps its place, and
//!   its timer, until the process ends.
//! * **Memory**: an instance has at most 16 times its capacity loaded, and may have 1,024. A loaded timer is a number and an
//!   instant on the wheel, about 100 bytes; keys and values come when it fires. A storm of a million timers due at once is
//!   loaded piece by piece, and shared among instances as they finish.
//! * **The wheel**: share one between instances and the rest of the program. If it has a bound (`max_keyed`) that is too small,
//!   the instance loads less and says so once in the log.
//! * **Many short timers**: a timer that is nearly always removed before it fires, such as a request timeout, does not belong
//!   into a store. Use the wheel itself.
//!
//! # What happens when
//!
//! | what | then |
//! |---|---|
//! | an instance is killed | what it had loaded goes to others within four polls; what it had claimed is delivered again within a poll after the lease has ended |
//! | an instance is shut down | at once: nothing is loaded by it any more, and what was not received is released |
//! | the store is away | calls fail with [`Error::Store`](crate::Error::Store) or, after the call timeout, [`Error::Timeout`](crate::Error::Timeout); nothing is delivered; the instance tries again each poll, and goes on when the store is back |
//! | the store is slow | lateness grows by the round trip; batches grow with it, so throughput does not fall |
//! | the disk of an SQLite file is full, or the file read-only | calls fail with [`StoreError::Refused`](crate::store::StoreError::Refused), which names the file; when there is room, the next call succeeds |
//! | another process locks an SQLite file, or is stopped (`SIGSTOP`, a debugger) while it has the lock | calls of all processes wait, and fail with [`Error::Timeout`](crate::Error::Timeout) when their time is over; after a second there is a warning with the file. SQLite cannot take a lock away: let the process go on, or end it. Looks go on |
//! | an SQLite file is deleted or replaced while it is open | calls fail with [`StoreError::Refused`](crate::store::StoreError::Refused), which names the file, until it is opened again |
//! | a Redis server hangs, and another one takes over its address | after the call timeout the connection is given up, and the next call connects to the other one |
//! | somebody locks rows in PostgreSQL by hand | moves, removes and acknowledgements of these timers fail with [`Error::Timeout`](crate::Error::Timeout), and they are delivered when the lock has ended; others are not held up |
//! | a value does not decode | the timer is quarantined: logged, counted, and in flight for ever, where the admin view shows it; others are not held up |
//! | a handler panics | in [`dispatch`](crate::Claims::dispatch) it is logged, and the timer comes again after a second, two, four, up to a minute |
//! | a handler kills the process each time | it comes again with each lease, and `attempt` grows: acknowledge it, or put it far away, when that is too often |
//! | more is due than the program takes | the rest waits, and other instances get what they ask for, within a poll and a half at first; `given_back` counts |
//! | a handler takes longer than its lease | the lease is renewed; it is logged once with its key, and `slow_handlers` counts |
//! | a handler never returns | it keeps one place; with a [time limit](crate::Builder::handler_timeout) it is cancelled, logged with its key, and tried again after a second, two, four, up to a minute |
//! | a program does not come for what it has asked for | the claims are given back once half of their lease is over, uncounted |
//! | hosts disagree about the time | nothing: the store's clock decides |
//! | the store's clock steps | forward, timers come sooner by as much; back, later |
//! | a newer version of the crate has changed the schema | an older one does not start: [`StoreError::Schema`](crate::store::StoreError::Schema) |
//! | a namespace is opened with another codec | it does not start: [`StoreError::Codec`](crate::store::StoreError::Codec) |
//!
//! # What to watch
//!
//! [`metrics`](crate::DurableTimers::metrics) costs nothing; [`counts`](crate::DurableTimers::counts) asks the store, which takes
//! milliseconds and delays nothing.
//!
//! | figure | means trouble when |
//! |---|---|
//! | `counts().earliest` before `counts().now` by seconds | nobody fires: no instance, no capacity, or the store is away |
//! | `lateness_micros.max` | it is far above the store's round trip |
//! | `redelivered` | it grows without crashes: handlers fail or panic, or claims are dropped |
//! | `lost` | a process stood still, or could not reach the store, for half a lease; or claims from `recv` are held for longer than one without [`auto_renew`](crate::Claim::auto_renew) |
//! | `lapsed` | the program asks for claims and does not come for them |
//! | `slow_handlers` | handlers take longer than a lease: a deadlock, or a lease that is too short for what they do |
//! | `timed_out` | handlers hang |
//! | `due` | it stays high: handlers are slow, or too few |
//! | `given_back` | it grows on all instances: handlers are slow, or too few |
//! | `failing` | one of its fields is set for longer than a blink |
//! | `quarantined` | it is not zero: a deployment has changed a type that old timers still have |
//! | `store_errors`, `store_latency_micros` | they grow |
//!
//! Every call of the store is a `tracing` span at debug level, `store`, with the namespace, the call and the number of items. Loads,
//! fires, writes and settles that begin to fail are one warning each, with the words of the store, and one line when they work
//! again. An error prints what its source says with `{:#}` only, or by what the program prints sources with.
//!
//! # Looking into the store
//!
//! [`Admin`](crate::Admin) lists what waits and what is in flight, whichever instance has it, shows one key, releases or throws
//! away a claim, and purges a namespace:
//!
//! ```
//! use std::time::Duration;
//! use tickwheel_durable::{Memory, builder};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let wheel = tickwheel::TimerWheel::new();
//! let (timers, _claims) = builder::<String, u32>("orders").start(&wheel, Memory::new()).await?;
//! timers.set_timer("order 1", &30, Duration::from_secs(3_600)).await?;
//!
//! let admin = timers.admin();
//! for entry in admin.pending(None, 100).await? {
//!     println!("{:?} is due at {:?}, attempt {}", entry.key, entry.deadline, entry.attempt);
//! }
//! for entry in admin.in_flight(None, 100).await? {
//!     let claim = entry.in_flight.ok_or("it has just been settled")?;
//!     if claim.lease_until.is_none() {
//!         println!("{:?} is quarantined: {:?}", entry.key, entry.value);
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! With JSON, the default, keys and values can also be read in the store's own shell.
//!
//! # Starting and stopping
//!
//! Run one instance for a namespace in each process that handles its timers. A process that only sets timers drops its
//! [`Claims`](crate::Claims) and keeps the handle. One that handles them keeps both.
//!
//! [`shutdown`](crate::DurableTimers::shutdown) ends the stream of claims and gives everything back, so that others go on
//! without delay. Claims that handlers still hold can be settled after it; wait for the handlers, then let the process end. A
//! process that just ends loses nothing either, but others learn of it only from its silence.
//!
//! # Writing handlers
//!
//! * Work first, then acknowledge. The other way round is [`at_most_once`](crate::Builder::at_most_once).
//! * Expect to run twice. Either the work is idempotent, or what it changes checks the [token](crate::Token): it remembers the
//!   greatest it has seen for the key, and refuses smaller ones.
//! * A handler of a key that was set again meanwhile has the old value, and its acknowledgement leaves the new timer alone.
//! * Work that turns out long needs nothing in `dispatch`. When [`lease_remaining`](crate::Claim::lease_remaining) is zero, or
//!   a call says [`Error::Lost`](crate::Error::Lost), another instance may have the timer: stop.
//! * Do not block the thread in `dispatch`, whose handlers share a task; use
//!   [`dispatch_spawned`](crate::Claims::dispatch_spawned), or `spawn_blocking`.
//! * Give up in the end: look at [`attempt`](crate::Claim::attempt), and acknowledge what has failed too often.
//!
//! # When to take a job queue
//!
//! Timers with keys that are moved and removed, and must be on time, are what this is for. Take a job queue when
//!
//! * most jobs are due at once: it has priorities, per-queue limits and a dashboard, and lateness of a second is no matter;
//! * jobs form a workflow, with steps and results: take a workflow engine;
//! * you need the job to be written in the same transaction as your own tables, and your queue does that;
//! * a minute more or less is all the same: a cron job that selects what is due is less to run.
//!
//! And when timers need not survive the process, take the wheel alone: it needs no store and no lease.
