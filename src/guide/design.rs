//! How the crate is built, and what it promises. Documentation only.
//!
//! # The model
//!
//! go-zero's `TimingWheel` is one goroutine, `run()`, that owns a wheel and receives from channels: set, move, remove, drain,
//! stop, and a ticker. No other goroutine touches the wheel, so it needs no lock. tickwheel is that actor for Tokio. One task
//! owns the wheel. Commands reach it through one MPSC channel, the mailbox. All others hold cheap handles.
//!
//! Two things differ. The loop has no ticker: it sleeps until the next bucket that is not empty. And most calls need no
//! command. A channel send for each timer costs more than the timer: arming and cancelling a timeout through
//! `tokio::sync::mpsc` took 140 ns on one thread and over 300 ns on two, against 62 to 75 ns without. So the true deadline of
//! a timer lies where its owner can write it, and the wheel holds only a lower bound of it. Moving a timer later and
//! cancelling a sleep are then writes to that place: the actor finds them when the wheel reaches the timer. Arming a sleep
//! needs a command unless a cancelled entry is on the wheel already and can be used again. A change needs a command only if
//! the actor would process it too late otherwise.
//!
//! # The one idea
//!
//! > The wheel holds a lower bound; the owner holds the truth.
//!
//! Every timer knows its deadline. The wheel knows only the tick at which the timer is *scheduled* to be processed, which is
//! never after the deadline. When the wheel reaches that tick, the actor processes the timer: if it is due, it fires; if it is
//! due later, it is rescheduled; if it is not armed any more, it leaves the wheel.
//!
//! A cancelled entry stays on the wheel, and its thread keeps it in a pool. A new timeout whose deadline is not before the
//! entry's scheduled tick takes it over by writing deadline and waker. With timeouts of a constant length that is nearly every
//! time. A timeout takes the entry of its pool that is scheduled latest among those that are scheduled early enough, so that
//! mixed lengths find entries too. So the number of entries on the wheel follows the
//! number of timers there are *at once*, not the rate at which they are made.
//!
//! # The parts
//!
//! ```text
//! callers    time                      the functions of `tokio::time`, which find the wheel of the current runtime
//!              |
//!            sleep  keyed  idle        futures and handles
//!              |      |      |
//!              |     timer_set         the timers of one set, under one lock
//!              |      |
//! between    shared                    commands, mailbox, the bound of a timer, the entry of a sleep, activity
//!              |
//! actor      actor                     the task that owns the wheels
//!              |
//!            wheel                     a pure data structure: ticks in, items out
//! ```
//!
//! Dependencies point one way: the parts have an order, and each imports only parts that stand before it. `wheel` imports
//! nothing of the crate and knows no clock. Callers never import the actor, and the actor never imports a caller: both know
//! only what lies between them. The builder alone knows both sides and starts the actor. The [`adapters`](crate::adapters)
//! lie above the callers and import nothing from below them; nothing else in the crate knows them. Each protocol between
//! threads is prose with numbered invariants at the top of its module, and a loom model beside it: the entry of a sleep, the
//! mailbox, the lock of a timer set, the activity of an idle timer. What the wheel knows of one timer is a type of its own,
//! without a lock, which sleeps and keyed timers share. An explorer, which runs all of the code under a scheduler of its
//! own, searches for bugs between those parts.
//!
//! These absences are as deliberate:
//!
//! * The wheel reads no clock: every `Instant` is converted to a tick before it gets there.
//! * The actor awaits its notification, its own sleep and its next turn. It never awaits a consumer.
//! * No waker is woken or dropped while a lock or the actor's state is borrowed.
//! * No Tokio timer is armed while the wheels are empty.
//!
//! # The wheel
//!
//! A level has 256 buckets ([`Builder::slots`](crate::Builder::slots) changes that), and each bucket of a level is as wide as
//! the whole level below. An item lies in the lowest level that reaches its tick and cascades to a lower one when time reaches
//! its bucket. A bitmap for each level shows the next bucket that holds anything, so time jumps from one to the next: an hour
//! of silence costs nothing, and a timer a year away wakes the actor at most once per level. The [`wheel`](crate::wheel) module
//! has a worked example.
//!
//! The actor has two wheels: one holds the entries of sleeps, the other the indices of keyed timers. Their nodes lie in chunks
//! of 4096, and commands travel in blocks of 512, so that neither growing nor shrinking them copies or frees megabytes within
//! a turn. Each turn frees some of the unused memory.
//!
//! # The wake rule
//!
//! Pushing a command must not wake the actor each time. The actor publishes the tick at which it runs next. A caller pushes its
//! command, then reads that tick, and notifies the actor only if the command is needed earlier, or if 512 commands lie in that
//! queue. The actor publishes the tick first and checks the queues after, both with sequentially consistent accesses. So one of
//! the two sees the other, and no command is missed. There is a queue for each core, on a cache line of its own.
//!
//! # The actor's turn
//!
//! ```text
//! loop {
//!     read the clock
//!     take everything from the mailbox if the backlog is empty, and apply at most 4096 commands
//!     fire at most 256 sleeps that are due, and reschedule those that were moved
//!     process at most 256 keyed timers, and deliver at most 256 expirations in order
//!     if commands are left: do all this again, for as long as other tasks have kept the actor waiting
//!     free some unused memory
//!     if anything is left: let other tasks run, and go on
//!     publish the next tick; if the queues hold anything after all: go on
//!     wait for Tokio's timer at that tick (for none when both wheels are empty), or for a notification
//! }
//! ```
//!
//! While commands are left over, the turn stops before the earliest tick by which one of them is needed. So a timer fires
//! before those that are due after it even if its command waits in a backlog, and a due timer does not wait for commands that
//! are all later.
//!
//! On a runtime with one thread the actor has one turn for each round of the tasks, which may send more than 4096 commands in
//! a round. So a turn catches up for as long as the other tasks have kept the actor waiting before it: the backlog does not grow
//! from turn to turn, and the others have at least half of the time.
//!
//! Wakers are woken and values dropped when no lock is held, and panics are caught.
//!
//! # Where the actor runs
//!
//! A delay of the actor's task delays every timer. On a multi-thread runtime two things could delay it. A task that
//! notifies the actor and then blocks its worker leaves the actor in that worker's LIFO slot, from which no other worker steals.
//! So a caller on such a worker also spawns an empty task, which pushes the actor out of the slot. And `yield_now` keeps a
//! task on a private list of its worker, behind the tasks that the actor has just woken. So between turns the actor wakes itself
//! and returns pending, which puts it where others steal. Both are needed: 20 sleepers of 20 ms were 300 ms late without, while
//! three workers were idle.
//!
//! # Why keyed timers live in a set
//!
//! The timers of one [`keyed`](crate::TimerWheel::keyed) set, and the watches of one reaper, lie in one table under one lock
//! that callers, the stream and the actor share. The alternative was an entry for each timer, as a sleep has: a map from keys
//! to entries on the callers' side, and an expiration to deliver where a sleep has a waker to wake. It has one protocol for all
//! timers, and maps can be sharded. The set was chosen for four reasons:
//!
//! * **Answers.** A call answers when it returns: the value that was replaced, whether there was a timer, how many there are.
//!   With a map and entries, each call needs the map's lock and the entry's, and *removed or fired, never both* has to hold
//!   across the two. Under one lock it holds by itself.
//! * **Commands.** Each new entry costs a command. A set sends one command for all indices that changed since the actor last
//!   took them.
//! * **Order.** Expirations leave in the order in which their timers were armed, by tick and over several turns. That takes an
//!   order and a heap for the set in either shape.
//! * **Bytes.** A slot with a `u64` key and value takes 48 bytes, and some 7 more in the index of keys. An entry with its
//!   reference counts, its node, a lock of its own and room for its expiration takes about twice that.
//!
//! The price is that producers of one set contend for its lock. So every hold of it is bounded, by 256 timers; the hash table
//! that finds a key grows in steps of a few hundred keys; and `Hash` runs before the lock is taken. A service that needs more
//! makes several sets: they share the wheel and the limit on keyed timers.
//!
//! The first version of the set lost timers. Its callers had to notify the actor, and carried that duty as a value from one
//! function to the next. The value could be dropped, overwritten by another, or acted on after the lock was released. Now the
//! guard of the lock has that duty. It collects the changed indices, pushes the command before it unlocks, and follows the
//! wake rule after. The module `timer_set` has the invariants, and its `lock` the argument.
//!
//! # Promises
//!
//! Each row names the tests that hold it.
//!
//! | | promise | tests |
//! |---|---|---|
//! | P1 | never early, under the real and the paused clock | `p1_fires_no_sleep_early_by_the_real_clock`, `p1_p2_fires_never_early_and_late_by_less_than_a_tick`, `p1_p4_p5_p6_p16_matches_a_sorted_map` |
//! | P2 | at most one tick late, plus Tokio's own rounding and scheduling | `p2_fires_at_the_first_tick_at_or_after_the_deadline`, `p2_fires_a_delay_of_zero_by_the_next_tick` |
//! | P3 | fires exactly once; the last poller's waker, and only it, is woken | `p3_wakes_only_the_last_of_several_pollers`, `p3_loses_no_wake_up_by_resets_that_race_with_firing`, `p3_loses_no_timer_that_comes_due_in_a_backlog` |
//! | P4 | sleeps are woken tick by tick; keyed expirations come out by tick and, within one, in the order in which they were armed | `p4_wakes_sleeps_tick_by_tick_however_armed`, `p4_p11_keeps_order_and_lets_others_run_in_a_storm`, `p4_delivers_first_a_due_timer_moved_into_the_past`, `p4_fires_by_tick_what_is_armed_behind_a_backlog`, `p4_near_timers_expire_in_order_among_floods` |
//! | P5 | last write wins: once a move has been applied, the old deadline never fires | `p5_fires_a_moved_timer_at_its_new_deadline_only`, `p5_obeys_the_last_reset_only` |
//! | P6 | removed or fired: exactly one of them happens, and `remove_timer` says which | `p6_says_by_remove_timer_whether_it_fired`, `p6_p16_ends_every_timer_once_whatever_threads_do` |
//! | P7 | dropping a future cancels it: no wake afterwards, and its memory does not wait for the deadline | `p7_wakes_nobody_for_a_sleep_dropped_by_another_waker`, `p7_frees_a_million_dropped_sleeps_before_their_deadline`, `p7_one_sleep_that_stays_keeps_little_memory` |
//! | P8 | no `Duration` or `Instant` panics or fires early; too far means never | `p8_hides_no_nearer_timer_behind_far_deadlines`, `p8_accepts_the_last_instant_everywhere`, `p8_hides_no_near_sleep_behind_a_far_one` |
//! | P9 | a clock that stands still or steps back does no harm | `p9_fires_nothing_while_the_clock_stands_still`, `p9_time_does_not_go_backwards` |
//! | P10 | the actor never waits for a consumer | `p10_blocks_nobody_when_the_consumer_never_reads`, `p10_holds_nothing_up_by_what_nobody_receives` |
//! | P11 | timers fire under any load of commands, from any number of producers and on one thread; commands progress under any storm of expirations; other tasks progress under both | `p11_keeps_a_heartbeat_punctual_in_a_flood_of_commands`, `p11_applies_commands_in_a_storm_of_expirations`, `p11_bounds_turns_in_a_storm_of_expirations`, `p11_fires_what_is_due_before_all_of_a_backlog`, `p11_near_sleeps_fire_within_rounds_of_a_lasting_flood`, `p11_far_timers_of_a_set_hold_no_due_timer`, `p11_fires_what_is_due_while_a_set_is_locked` |
//! | P12 | a panicking waker or user type harms only itself | `p12_confines_a_panicking_waker_to_its_own_sleep`, `p12_unwinds_into_the_caller_when_hash_panics`, `p12_wakers_that_panic_when_settled_harm_no_timer`, `p12_drops_values_whose_drop_panics_once_each` |
//! | P13 | idle costs nothing: an empty wheel arms no timer and is not polled; one far timer costs at most one wake-up per level | `p13_arms_no_timer_and_is_not_polled_when_empty`, `p13_wakes_at_most_once_per_level_for_one_far_timer` |
//! | P14 | exact and deterministic under `start_paused = true` | `p14_advances_the_clock_to_exactly_the_next_deadline`, `p14_runs_the_same_program_the_same_way_each_time`, `sees_what_tokio_shows_at_the_same_instants`, `sees_what_tokio_shows_when_paused_midway` |
//! | P15 | nothing is lost at shutdown: keyed leftovers are returned, a pending `Sleep` keeps its promise on Tokio's own timer | `p15_fires_pending_sleeps_on_time_after_shutdown`, `p15_returns_what_had_not_fired_once_earliest_first`, `p15_leaves_sleeps_usable_after_their_runtime_is_dropped` |
//! | P16 | the books balance: set = pending + fired + removed + replaced + drained | `p16_balances_the_books_after_any_mix_of_operations`, `p16_counts_each_end_of_a_sleep_once`, `p16_counts_a_set_once_while_it_is_dropped`, `p16_balances_the_books_in_every_snapshot` |
//! | P17 | while any worker thread is free timers fire, whatever blocks the others - the one that armed last included | `p17_fires_on_time_when_the_arming_task_blocks`, `p17_fires_on_time_when_a_woken_task_blocks` |
//!
//! [Another chapter](super::costs) lists the cost of each operation.
