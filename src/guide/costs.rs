//! What each operation allocates, locks and sends. Documentation only.
//!
//! Two things are left out of the table because every timer has them: reading the clock (some 30 ns) and cloning a waker.
//! *Own* means memory that no other thread writes meanwhile: the thread's pool and counts, and the timer's entry. Its lock is
//! uncontended unless the actor processes this very entry, or the future moved to another thread. A *command* is a push into
//! the thread's queue, under that queue's lock, and a read of the tick at which the actor next runs; it notifies the actor
//! only if that would be too late, or if 512 commands lie in the queue. The memory of commands is used again, and counts as
//! nothing here.
//!
//! | operation | allocates | locks | commands |
//! |---|---|---|---|
//! | make, poll and drop a sleep or timeout, with a pooled entry that fits | nothing | its own entry's, twice | none |
//! | the same without one | the entry, unless the thread's pool is full (128 entries of this wheel) | its own entry's, twice | one |
//! | a timeout whose future is ready at the first poll, with a pooled entry that fits | nothing | none | none |
//! | dropping a sleep when the thread's pool is full | nothing | its own entry's, twice | one |
//! | [`Sleep::reset`] to later | nothing | its own entry's | none |
//! | [`Sleep::reset`] to earlier than the tick at which its entry is scheduled | nothing | its own entry's | one, unless one is queued |
//! | [`set_timer`](KeyedTimers::set_timer) of a new key | amortised | the set's | one for the set, unless one is queued |
//! | [`set_timer`](KeyedTimers::set_timer) of a key that has a timer, [`move_timer`](KeyedTimers::move_timer) | nothing | the set's | none, unless the timer is due already, or moves to before the tick at which it is scheduled: then one for the set, unless one is queued |
//! | [`remove_timer`](KeyedTimers::remove_timer) | nothing | the set's | one for the set, unless one is queued |
//! | [`deadline`](KeyedTimers::deadline), [`contains`](KeyedTimers::contains), [`len`](KeyedTimers::len) | nothing | the set's | none |
//! | [`recv`](Expirations::recv) | nothing | the set's | none |
//! | [`touch`](crate::Watch::touch) of a watch, timer or stream | nothing | none | none; one compare-and-exchange in each tick, else one load; for a stream, for each of its limits |
//! | a [`Busy`] guard, taken and dropped | nothing | a lock of the watch or timer, twice; for a stream, of each of its limits | none |
//! | [`Reaper::watch`] | the activity, 32 bytes; the rest is amortised | the set's | one for the set, unless one is queued |
//! | dropping a [`Watch`](crate::Watch) | nothing | the set's | one for the set, unless one is queued |
//! | [`metrics`](TimerWheel::metrics) | 4 kB for the histogram | one for all threads' counts, one for the list of sets | none |
//! | [`settle`](TimerWheel::settle) | a channel | a queue's | one |
//!
//! Setting a new key, removing one and every expiration also change one count that all sets of the wheel share.
//!
//! A thread keeps pools for the last sixteen wheels it used. When the actor reaches a pooled entry that nobody has used again,
//! it takes the entry off the wheel; the next timeout with this entry sends a command once more. That is about one command for
//! each pooled entry and length of timeout, however many timeouts are made.
//!
//! Callers, the reader and the actor hold the lock of a set for at most 256 timers at a time. Its memory grows meanwhile, in
//! small steps: at a million timers the largest one moves 2 MB. A thread that finds the lock taken spins for some
//! microseconds before it blocks. Two producers of the same set meet there; sets that should not meet are made separately.
//!
//! One actor keeps one thread busy at most. Of 10^6 timers that are due within a second, each takes some 0.1 us of it to be
//! registered, 0.35 us to be rescheduled, and 0.4 us to fire, 0.8 us if it is keyed; waking its task comes on top. So one
//! wheel fires some million timers a second, and takes several million commands. A set serves two to ten million calls a
//! second, however many cores call it, by how far these are apart: where that is the limit, spread keys over several sets
//! by their hash. Timeouts share nothing. `benches/README.md` says how this was measured.
//!
//! A pending sleep takes about 100 bytes beside the 48 of its future, a keyed timer with a `u64` key and value about 80, a watched
//! connection about 130. Times are in `benches/README.md` of the repository.

// For the links above.
#[allow(unused_imports)]
use crate::{Busy, Expirations, KeyedTimers, Reaper, Sleep, TimerWheel};
