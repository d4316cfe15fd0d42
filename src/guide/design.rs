//! How the crate is built, and what it promises. Documentation only.
//!
#![doc = include_str!("design.svg")]
//!
//! # The one idea
//!
//! > The wheel holds a lower bound; the owner holds the truth.
//!
//! One task, the actor, owns the wheel, so the wheel needs no lock. All others hold cheap handles,
//! and send commands through one MPSC channel, the mailbox. go-zero's `TimingWheel` is built like
//! that, with a ticker. But a channel send costs more than a timer: arming and cancelling a timeout
//! through `tokio::sync::mpsc` took 140 ns on one thread and over 300 ns on two, against 62 to 75
//! ns without.
//!
//! So the true deadline of a timer lies where its owner writes it. The wheel knows only the tick at
//! which the timer is *scheduled* to be processed, never after the deadline. At that tick the actor
//! processes the timer: it fires if it is due, is rescheduled if it is due later, and leaves the
//! wheel if it is not armed. A change needs a command only if the actor would otherwise process the
//! timer too late. Moving a timer later needs none.
//!
//! A cancelled entry stays on the wheel, and its thread keeps it in a pool. A new timeout whose
//! deadline is not before the entry's scheduled tick takes it over by writing deadline and waker.
//! If the last entries of the pool are all too late, it takes the very last one, and a command
//! schedules that one earlier: it then fits almost every length. So the number of entries on the
//! wheel follows the number of timers there are *at once*, not the rate at which they are made.
//!
//! A cancelled entry for which the pool has no room stays on the wheel too, and its node is
//! *stale*. So is the later node of an entry that was scheduled earlier. Threads count the stale
//! nodes that they leave, and the actor sweeps the wheel when these outnumber the others. So
//! dropping a sleep sends no command, and the actor registers one without a look at its entry,
//! which lies in the cache of another core. The modules `shared/entry` and `shared/stale` have the
//! invariants.
//!
//! Tokio's timer has the two ticks too, as `registered_when` and `true_when`, for resets to later.
//! New here is their use for cancelling, reuse and keyed sets, without `unsafe`.
//!
//! # The reader decides
//!
//! A keyed timer, or a watch of a reaper, has expired when it is *received*. The wheel knows only
//! at which tick somebody has to look at it:
//!
//! ```text
//! caller   changes the timer under the lock of its set; if the wheel would reach it too late:
//!          a note, "schedule this index for this tick"       -> one queue of the mailbox, in order
//! actor    applies the note: the index has a node on the wheel; later the wheel reaches it:
//!          a hint, "look at this index"                       -> the reader of the set
//! reader   looks, under the lock of the set. Due: received, in order. Moved later: another note
//! ```
//!
//! So whatever happens before the receipt wins: a timer that is due and not received can still be
//! removed, set again, moved or touched. A repeating timer leaves one expiration behind a reader
//! that is away. The actor locks no set and runs no `Hash`, `Eq`, `Clone` or `Drop` of a user's
//! type, so a set that a caller holds, or in which a million timers are due, holds up nobody else's
//! timers.
//!
//! The last note for an index counts, since the notes of a set arrive in the order of its changes.
//! A hint names no timer, so a hint too many does no harm. The slot of a removed timer may stay on
//! the wheel, up to sixteen in a set: the next timer whose deadline is not earlier takes one over,
//! and needs no note. The module `keyed` has the invariants, and names a file for each step.
//!
//! # The parts
//!
//! ```text
//! callers    time                      the functions of `tokio::time`, which find the wheel of the current runtime
//!              |
//!            sleep  idle               futures and handles
//!              |      |
//! all three    |    keyed              the whole way of a keyed timer: call, note, node, hint, receipt
//!              |      |
//! between    shared                    commands, mailbox, the entry of a sleep, activity
//!              |
//! actor      actor                     the task that owns the wheels
//!              |
//!            wheel                     a pure data structure: ticks in, items out
//!              |
//!            collections               a slab and a queue that grow and shrink a piece at a time
//! ```
//!
//! Each part imports only parts that stand before it in an order that a test holds. The builder
//! alone knows both callers and actor. The module of each protocol between threads begins with
//! numbered invariants and has a loom model beside it.
//!
//! These absences are deliberate:
//!
//! * The wheel reads no clock: callers convert every `Instant` to a tick.
//! * The actor awaits its notification, its own sleep and its next turn, never a consumer.
//! * No waker is woken or dropped while a lock or the actor's state is borrowed.
//! * No timer is armed while the wheels are empty.
//!
//! # The wheel
//!
//! The [`wheel`](crate::wheel) module explains it, with a worked example. A bitmap for each level
//! shows the next bucket that holds anything, so time jumps from one to the next. Nodes and
//! commands lie in chunks, so that no turn copies or frees megabytes.
//!
//! # The wake rule
//!
//! Pushing a command must not wake the actor each time. The actor publishes the tick at which it
//! runs next, then checks the queues. A caller pushes its command, then reads that tick, and
//! notifies the actor only if the command is needed earlier or 2048 commands lie in its queue. Push
//! and check take the queue's lock, so no command is missed: `shared/mailbox` has the proof. Each
//! core has its own queue.
//!
//! # The actor's turn
//!
//! ```text
//! loop {
//!     read the clock
//!     take everything from the mailbox, and apply at most 4096 commands
//!     fire at most 256 sleeps that are due, and reschedule those that were moved
//!     take at most 2048 keyed timers off the wheel, and tell the readers of their sets
//!     if commands are left: do all this again, for half a millisecond
//!     free some unused memory, and sweep at most 4096 nodes if many sleeps or a set were dropped
//!     if anything is left: let other tasks run, and go on
//!     publish the next tick; if the queues hold anything after all: go on
//!     wait for a timer at that tick (for none when both wheels are empty), or for a notification
//! }
//! ```
//!
//! While commands are left over, a turn fires only the timers that are due before the earliest tick
//! by which one of them is needed. So timers fire in order even if their commands wait in a
//! backlog, and no due timer waits for commands that are needed later. After a burst of a million
//! commands the turns stay short, and other tasks run between them. Only while the backlog grows
//! from turn to turn do turns become longer, up to the time that the other tasks have kept the
//! actor waiting: then it does not grow, and the others have at least half of the time.
//!
//! # Where the actor runs
//!
//! A delay of the actor's task delays every timer. So the task stays out of the places from which
//! no other worker steals: a worker's LIFO slot, and the private list of `yield_now`. The module
//! `shared/notifier` says how. Without this, 20 sleepers of 20 ms were 300 ms late while three
//! workers were idle.
//!
//! # What it waits on
//!
//! The driver that finds the actor's timer elapsed runs the actor's turn itself, instead of waking
//! its task: `actor/hosted` says how. So a fired timer waits in one queue only, that of its own
//! task, as one of Tokio's does.
//!
//! Tokio's timer rounds up to a millisecond. A precise wheel has a thread that waits on a
//! `timerfd`, and runs the turn when that has elapsed. It is not registered with Tokio's I/O
//! driver: Tokio cannot be asked whether a runtime has one, and panics if it has not, which ends a
//! process that is built with `panic = "abort"`. That the `timerfd` has elapsed is only a hint; the
//! clock decides what is due. The modules `actor/timer` and `actor/precise_timer` say what holds
//! where the clock can be paused, and how dense timers share wake-ups.
//!
//! # Why keyed timers live in a set
//!
//! The timers of one [`keyed`](crate::TimerWheel::keyed) set, and the watches of one reaper, lie in
//! one table under one lock that callers and the stream share. The alternative was an entry for
//! each timer, as a sleep has, and a map from keys to entries:
//!
//! * **Results.** A call returns the value it replaced, whether there was a timer, how many there
//!   are. With a map and entries, *removed or fired, never both* has to hold across two locks.
//! * **Commands.** A removed timer leaves its index on the wheel for the next one, whichever thread
//!   sets it. An entry is used again by its own thread only.
//! * **Bytes.** A timer with a `u64` key and value takes half the memory of an entry.
//!
//! The price is that producers of one set contend for its lock. So every hold of it is bounded, but
//! for what a caller's closure does; the hash table grows in steps; and `Hash` runs before the lock
//! is taken.
//!
//! The guard of the lock notifies the actor, so no caller can forget a notification.
//!
//! # Locks
//!
//! A thread may be preempted while it has a lock, for as long as other threads are busy. So the
//! actor only tries the locks that callers take: of an entry, a queue of the mailbox, the hints of
//! a set, the keys of sets. It takes no lock of a set. What it does not get, it leaves for its next
//! turn. It waits for its notification without a lock (`shared/signal`), and its task and its
//! driver do not wait for each other (`actor/hosted`).
//!
//! What is left are locks of Tokio: that of its timer, which the actor takes to arm its own, once
//! for each wait, and those of the runtime's queues, when it wakes tasks. Whoever uses Tokio's
//! timer takes the former, twice for each timeout. A timer of this crate takes it only when its
//! wheel has ended and while the clock is virtual.
//!
//! # Promises
//!
//! Each row names the tests that hold it.
//!
//! | | promise | tests |
//! |---|---|---|
//! | P1 | never early, under the real and the paused clock | `p1_sleeps_are_never_early_by_the_real_clock`, `p1_p2_timers_are_never_early_and_less_than_a_tick_late`, `p1_p4_p5_p6_p16_matches_a_sorted_map` |
//! | P2 | at most one tick late, plus Tokio's own rounding and scheduling | `p2_sleep_fires_at_the_first_tick_from_its_deadline_on`, `p2_delay_of_zero_expires_by_the_next_tick`, `p2_coarse_ticks_make_no_tick_missed` |
//! | P3 | fires exactly once; the last poller's waker, and only it, is woken | `p3_only_the_last_of_several_pollers_is_woken`, `p3_resets_that_race_with_firing_lose_no_wake_up`, `p3_timers_that_come_due_in_a_backlog_fire` |
//! | P4 | sleeps are woken tick by tick; keyed expirations are received by tick and, within one, in the order in which they were armed | `p4_sleeps_wake_tick_by_tick_however_armed`, `p4_p11_storm_keeps_order_and_lets_others_run`, `p4_due_timer_moved_into_the_past_expires_first`, `p4_timers_armed_behind_a_backlog_fire_by_tick`, `p4_near_timers_expire_in_order_among_floods` |
//! | P5 | last write wins: once a set, move, remove or touch has returned, the old deadline is never received | `p5_moved_timer_fires_only_at_its_new_deadline`, `p5_only_the_last_reset_counts` |
//! | P6 | removed or received: exactly one of them happens, and `remove_timer` says which; what is due and not received can still be removed, set and moved | `p6_remove_timer_takes_a_timer_until_it_is_received`, `p6_every_call_wins_until_a_timer_is_received`, `p6_p16_every_timer_ends_once_whatever_threads_do`, `p6_removed_timers_are_not_tried_again_whatever_threads_do` |
//! | P7 | dropping a future cancels it: no wake afterwards, and its memory does not wait for the deadline | `p7_sleep_dropped_by_another_waker_wakes_no_task`, `p7_million_dropped_sleeps_are_freed_early`, `p7_released_sleeps_leave_once_there_are_many`, `p7_released_sleeps_leave_when_the_others_have_fired`, `p7_one_sleep_that_stays_keeps_little_memory`, `p7_stale_nodes_follow_the_memory_that_a_burst_has_left` |
//! | P8 | no `Instant`, and no `Duration` above zero, panics or fires early; unrepresentable deadlines never fire | `p8_far_deadlines_do_not_hide_near_timers`, `p8_last_instant_is_accepted_everywhere`, `p8_far_sleep_does_not_hide_a_near_one` |
//! | P9 | a clock that stands still or steps back is harmless | `p9_nothing_fires_while_the_clock_stands_still`, `p9_time_does_not_go_backwards` |
//! | P10 | the actor waits for no consumer, and for no set; a repeating timer leaves one expiration behind a reader that is away | `p10_consumer_that_never_reads_blocks_no_task`, `p10_unread_interval_leaves_one_expiration_behind`, `p10_unread_streams_and_sleeps_delay_no_timer` |
//! | P11 | timers fire under any load of commands, from any number of producers, on one thread and with more busy threads than cores: the actor waits for no lock that a caller may hold, but for [Tokio's own](#locks); commands progress under any storm of expirations; other tasks progress under both | `p11_heartbeat_is_punctual_in_a_flood_of_commands`, `p11_commands_progress_in_a_storm_of_expirations`, `p11_turns_are_bounded_in_a_storm_of_expirations`, `p11_due_timers_do_not_wait_for_a_whole_backlog`, `p11_near_sleeps_fire_within_rounds_of_a_lasting_flood`, `p11_far_timers_of_a_set_delay_no_due_timer`, `p11_overdue_timers_of_a_flood_delay_no_due_timer`, `p11_due_timers_fire_while_a_set_is_locked`, `p11_actor_never_waits_for_a_set_that_stays_locked`, `p11_held_set_costs_few_turns_and_delays_no_other_timer`, `p11_heartbeats_keep_up_with_tokios_beside_callers_in_a_loop` |
//! | P12 | a panicking waker or user type harms only itself | `p12_panicking_waker_harms_only_its_own_sleep`, `p12_panic_of_hash_unwinds_into_the_caller`, `p12_wakers_that_panic_when_settled_harm_no_timer`, `p12_values_whose_drop_panics_are_dropped_once_each`, `p12_copied_key_is_dropped_when_the_set_is_not_locked` |
//! | P13 | idle costs nothing: an empty wheel arms no timer and is not polled; one far timer costs at most one wake-up per level | `p13_empty_wheel_arms_no_timer_and_is_not_polled`, `p13_far_timer_costs_one_wake_up_per_level_at_most` |
//! | P14 | deterministic under `start_paused = true`, and exact where deadlines are whole milliseconds | `p14_clock_advances_to_exactly_the_next_deadline`, `p14_same_program_runs_the_same_way_each_time`, `sees_what_tokio_shows_at_the_same_instants`, `sees_what_tokio_shows_when_paused_midway`, `timers_that_never_fire_do_not_move_the_clock`, `keyed_timer_removed_before_the_pause_does_not_move_the_clock`, `p14_eviction_takes_near_sleeps_whose_commands_wait` |
//! | P15 | nothing is lost at shutdown: keyed leftovers are returned, a pending `Sleep` keeps its promise on Tokio's own timer | `p15_pending_sleeps_fire_on_time_after_shutdown`, `p15_unexpired_timers_are_returned_once_earliest_first`, `p15_due_timers_are_received_after_shutdown_and_then_none`, `p15_sleeps_outlive_the_runtime_of_their_wheel` |
//! | P16 | the counters add up: set = pending + fired + removed + replaced + drained | `p16_counters_add_up_after_any_mix_of_operations`, `p16_each_end_of_a_sleep_is_counted_once`, `p16_set_is_counted_once_while_it_is_dropped`, `p16_counters_add_up_in_every_snapshot` |
//! | P17 | a task that blocks its worker, be it the one that armed last, delays timers no more than it delays Tokio's: they fire while another worker polls the runtime's driver | `p17_timer_fires_on_time_when_the_arming_task_blocks`, `p17_timer_fires_on_time_when_a_woken_task_blocks`, `p17_timers_fire_on_time_when_a_task_blocks_between_turns` |
//! | P18 | time in which the runtime stood still is not silence: after a stall, every connection that was not yet silent before it has as long again as the stall took, at most its idle limit, to be heard | `p18_verdict_due_in_a_stall_or_its_respite_falls_at_its_end`, `p18_respite_is_no_longer_than_the_idle_duration`, `p18_verdict_is_put_off_once`, `p18_blocked_thread_closes_no_healthy_connection`, `p18_blocked_workers_close_no_healthy_connection`, `p18_healthy_connections_stay_if_the_actor_runs_elsewhere`, `p18_stopped_process_closes_no_healthy_connection`, `p18_bytes_count_that_are_there_when_the_timer_is_due`, `p18_touch_saves_a_watch_that_a_poll_has_found_due` |
