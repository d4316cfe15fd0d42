//! The costs of each operation: allocations, locks and commands. Documentation only.
//!
//! Every timer also reads the clock (some 30 ns) and clones a waker. The lock of an entry is
//! contended only while the actor processes this entry. A *command* is a push into one of the
//! mailbox's queues, under that queue's lock, which notifies the actor only by the [wake
//! rule](super::design#the-wake-rule). The memory of commands is reused and not counted here.
//!
//! | operation | allocates | locks | commands |
//! |---|---|---|---|
//! | make, poll and drop a sleep or timeout, with a pooled entry that fits | nothing | its own entry's, twice | none |
//! | the same without one | the entry, unless the thread's pool has four entries or more | its own entry's, three times | one |
//! | a timeout with a future that is ready at the first poll, with a pooled entry that fits | nothing | none | none |
//! | dropping a sleep when the thread's pool is full | nothing | its own entry's; twice if it was moved earlier | none, but one once many were dropped |
//! | [`Sleep::reset`] to later | nothing | its own entry's | none |
//! | [`Sleep::reset`] to before the scheduled tick of its entry | nothing | its own entry's | one |
//! | [`set_timer`](KeyedTimers::set_timer) of a new key | amortised | the set's | none if the index of a removed timer fits, else one |
//! | [`set_timer`](KeyedTimers::set_timer) of a key that has a timer, [`move_timer`](KeyedTimers::move_timer) | nothing | the set's | one if the timer is due already or moves to before its scheduled tick, else none |
//! | [`remove_timer`](KeyedTimers::remove_timer) | nothing | the set's | none while the set keeps fewer than sixteen indices of removed timers and no more than it has timers, else one or two |
//! | [`set_if_absent`](KeyedTimers::set_if_absent) | as `set_timer` of a new key; nothing if there is a timer | the set's | the same |
//! | [`retain`](KeyedTimers::retain) | a list of up to 256 removed timers | the set's, once for every 256 | as `remove_timer` |
//! | [`deadline`](KeyedTimers::deadline), [`contains`](KeyedTimers::contains), [`get`](KeyedTimers::get), [`len`](KeyedTimers::len) | nothing | the set's | none |
//! | [`recv`](Expirations::recv) | nothing | the set's | none |
//! | [`touch`](crate::WatchGuard::touch) of a watch, timer or stream | nothing | none | none; one compare-and-exchange in each tick, else one load; for a stream, for activity of any kind and each of its limits |
//! | a [`BusyGuard`], taken and dropped | nothing | a lock of the watch or timer, twice; for a stream, of activity of any kind and each of its limits; the set's if a [maximum age waits](crate::WatchOptions::wait_for_guards) for it | none; one if that age ends |
//! | [`Reaper::watch`] | the activity, 32 bytes; the rest is amortised | the set's | one |
//! | dropping a [`WatchGuard`](crate::WatchGuard), [`expire_now`](crate::WatchGuard::expire_now) | nothing | the set's | one |
//! | [`metrics`](TimerWheel::metrics) | 4 kB for the histogram | one, for all counts | none |
//! | [`settle`](TimerWheel::settle) | a channel | a queue's | one |
//!
//! Setting a new key, removing one and every expiration also change one count that all sets of the
//! wheel share.
//!
//! A thread keeps pools for the last sixteen wheels it used. A pooled entry that the actor reaches
//! leaves the wheel, and its next use sends a command: about one for each pooled entry and length
//! of timeout.
//!
//! A dropped sleep leaves its entry on the wheel if the pool has no room for it. The actor
//! takes such entries off in a sweep, 4096 in a turn, once there are more than 512 of them, and
//! more than half of what is on the wheel, and more than a sixteenth of what it has memory for.
//! Each thread may have left 64 more. Under a virtual clock, and once no handle is left, they leave
//! the wheel at once.
//!
//! Callers and the reader hold the lock of a set for at most 256 timers, and while a closure that
//! a call such as [`update`](KeyedTimers::update) was given runs. A thread that finds it taken
//! spins for some microseconds before it blocks. The actor never takes it. The set's memory grows
//! under the lock in small steps.
//!
//! The actor takes some 0.1 us to register a timer, 0.35 us to reschedule it, and 0.4 us to fire
//! it, or 0.8 us if it is keyed, without the time to wake its task (measured with 10^6 timers due
//! within a second). A set serves two to ten million calls a second: the distance between the
//! calling cores decides, not the number of callers. Where that is too few, spread keys over
//! several sets by their hash. Timeouts share nothing.
//!
//! A wheel takes some 90 us to make and 12 kB, and has an actor that the runtime wakes for its
//! ticks alone. A hundred sleepers on each of 1,000 wheels take 3.6 times as much CPU time for a
//! fire as all of them on one wheel: share one. Each precise wheel has a thread besides.
//!
//! A pending sleep takes about 80 bytes beside the 40 of its future, a keyed timer with a `u64`
//! key and value about 80, a watched connection about 150.

// For the links above.
#[allow(unused_imports)]
use crate::{BusyGuard, Expirations, KeyedTimers, Reaper, Sleep, TimerWheel};
