//! How instances share timers through a store, and why that keeps the promises. Documentation only.
//!
//! 1. [The problem](#the-problem)
//! 2. [Loading is not firing](#loading-is-not-firing)
//! 3. [The states of a timer](#the-states-of-a-timer)
//! 4. [The promises](#the-promises)
//! 5. [The argument](#the-argument)
//! 6. [Demand](#demand)
//! 7. [Incarnations](#incarnations)
//! 8. [What each crash leaves](#what-each-crash-leaves)
//! 9. [Time](#time)
//! 10. [Limits](#limits)
//!
//! # The problem
//!
//! A timer that survives its process lies in a store that several processes see. An instance that holds it in memory is
//! accurate, but its copy is old as soon as another instance moves or removes the timer. An instance that polls the
//! store sees the truth, and is either late or a load.
//!
//! Job queues decide when they *take* a job, and the lease counts from then. A job that is taken early, to wait for it
//! in memory, loses its lease before it begins, and is delivered twice. To take jobs when they are due, a queue has to
//! poll all the time.
//!
//! # Loading is not firing
//!
//! Here, loading a timer decides nothing. Firing it does.
//!
//! 1. **Load.** An instance marks the timers that fall due within a window, 30 s by default, and puts a version and a
//!    deadline of each on its wheel. The mark only shares the work out: any instance may still set, move or remove the
//!    key, which gives the timer another version.
//! 2. **Fire.** When timers are due on the wheel and the program can take them, the instance asks the store in one call
//!    to fire those versions. The store compares each: a version that still exists, and is due by the store's own
//!    clock, goes in flight, with a lease that begins now. The same call can fire due timers that no instance
//!    has loaded. The instance delivers what the store returns, and nothing else.
//! 3. **Settle.** An acknowledgement deletes what is in flight. `retry_after` makes it wait again, `extend` lengthens the
//!    lease, and dropping the claim releases it. What no program has seen is *unfired*: released, and not counted as an
//!    attempt. Each call names the claim by its token; a token that is out of date changes nothing.
//! 4. **Hints.** An instance that sets a timer due within the window loads it in the same step, if it claims itself. If
//!    it does not, the store sends a hint to those that do. If the hint is lost, the next poll finds the timer.
//!
//! A fire is one round trip for a whole batch, so a timer is late by a round trip and a tick. Loads are one call for
//! each poll, however many far timers there are.
//!
//! # The states of a timer
//!
//! ```text
//!              set, set_if_absent, set_interval
//!                          |
//!                          v            load: marked by an instance, which changes nothing else
//!                     +---------+       unload, or no sign of life: the mark goes
//!      move, set  +-->| waiting |--+
//!   (new version) |   +---------+  |
//!                 |     |  |  ^    |
//!                 +-----+  |  |    +--> remove: gone, the value comes back
//!                          |  |
//!           fire (token)   |  |  again, release (new version)
//!   a repeating timer also |  |
//!   leaves the next one    v  |
//!   waiting             +-----------+   extend: a later end of the lease, the same token
//!                  +--->| in flight |--+
//!                  |    +-----------+  |
//!                  |      |      |     |
//!                  +------+      |     +--> lease extended to never: quarantined, until released by hand
//!       fire, once the lease     |
//!       has ended (new token)    +--> ack: gone
//! ```
//!
//! Every arrow into `waiting` or `in flight` but `extend` and `load` gives a new version from one sequence for the
//! whole store. So a version names a timer *in one state*. A timer that is moved and moved back has another version.
//!
//! A key has at most one waiting timer, and any number in flight: unacknowledged occurrences of a repeating timer, or
//! an old value whose claim is held while a new value is set. Each is settled by its own token.
//!
//! When `retry_after` puts a claim back and its key has a waiting timer, the waiting one is newer and keeps the key. The
//! claim stays in flight, and its lease is set to end when it is due again.
//!
//! # The promises
//!
//! | | promise | held by |
//! |---|---|---|
//! | D1 | A call returns once its write is durable in the store. A crash at any moment after loses nothing. | `d1_keeps_what_it_said_it_set`, `survives_a_crash_in_every_call`, `takes_over_what_a_dead_instance_had_loaded` |
//! | D2 | Delivered at least once: fired and not acknowledged within the lease, it is delivered again within a poll, by any instance with capacity, and `attempt` counts it. `at_most_once` is a mode. | `d2_delivers_again_after_the_lease`, `d2_at_most_once_is_a_mode` |
//! | D3 | Never early by the store's clock. | `d3_is_never_early`, `fires_what_is_due_and_exists` |
//! | D4 | The last write wins, whichever instance makes it. A timer is removed or fired, never both, and the caller is told which, also while claims of its key are put back: a key that has a timer at every instant is never said to have none. | `d4_last_write_wins_across_instances`, `d4_removed_or_fired_never_both`, `put_backs_never_hide_a_timer` |
//! | D5 | Without crashes each timer is handled once, however many instances there are and however long a handler of `dispatch` takes. | `d5_handles_once_however_long_it_takes`, `d5_delivers_once_among_many`, `gives_each_row_to_one_of_many` |
//! | D6 | The lease counts from firing, never from loading. | `d6_counts_the_lease_from_firing` |
//! | D7 | Tokens grow under a key. Settling a lost claim says so and changes nothing. | `d7_fences_lost_claims`, `settles_by_token` |
//! | D8 | What came due while no instance ran is delivered at start, earliest first; repeating timers by a rule. | `d8_delivers_what_was_missed_in_order`, `d8_repeats_by_each_rule` |
//! | D9 | A repeating timer's next deadline is written in the step that fires it, and its cadence depends on no acknowledgement. | `d9_keeps_the_cadence_unacknowledged`, `repeats_in_the_step_that_fires` |
//! | D10 | An instance claims what its program can take, and leaves the rest to others, which get their share. A backlog costs the store at most six row writes for each timer handled, renewals not counted, at any time and however slow the handlers are. | `d10_leaves_to_others_when_full`, `d10_shares_what_waits`, `d10_bounds_the_writes_of_a_backlog` |
//! | D11 | While the store is unreachable or hangs, calls fail with a clear error, and nothing is delivered unconfirmed. The instance then recovers by itself. | `d11_recovers_when_the_store_is_back`, `survives_an_error_in_every_call`; Redis: `instance_recovers_from_a_primary_that_hangs` |
//! | D12 | An idle instance makes at most one call for each poll, whatever the number of far timers. | `d12_is_quiet_when_idle` |
//! | D13 | A look at the store delays no call and no delivery by more than a few milliseconds, however many timers there are. | `d13_looks_delay_nothing`, `bounds_answers_in_bytes`; SQLite: `call_completes_while_a_look_is_running`, `looks_do_not_wait_for_a_locked_file`, `looks_at_few_rows_among_very_many`; PostgreSQL: `looks_that_wait_hold_up_no_other_call`, `counts_very_many_rows_by_a_sample` |
//! | D14 | An instance whose loads, fires, writes or settles fail says so, once for each, with the words of the store, and once when they work again. | `d14_says_which_calls_fail` |
//!
//! `agrees_with_the_oracle` and `keeps_its_books_among_instances` try all promises at random. All tests belong to the
//! suite `conformance`, which runs on every store, but for those listed after the name of a store.
//!
//! # The argument
//!
//! **One delivery (D4, D5).** A timer is delivered only if a `fire` has returned it, and the fire takes its version
//! away in the same atomic step. So of all calls that name a version, at most one has an effect: a fire, a move, a
//! remove, or a set that replaces it. The others find that the version does not exist, and say so. Two instances that
//! have loaded the same timer are harmless: one of them makes a wasted query.
//!
//! **The last write (D4).** Once a move has returned, the old version does not exist. A wheel that still holds it asks
//! the store at the old deadline, in vain.
//!
//! **Nothing lost (D1, D2).** A row leaves the store only by a remove, a replacement or an acknowledgement, each of
//! which a program has asked for. A row that stays is in one of two states. If it is waiting, it is on the wheel of a
//! live instance, or some poll will load it: a mark counts only while its id [lives](#incarnations). If it is in
//! flight, its lease ends some time, and then any poll loads it as if it were waiting.
//!
//! **Fencing (D7).** The token is the version that the fire gave, so a later fire under the same key has a greater one.
//! A settle compares tokens, not clocks: a claim whose lease has ended is good until another fire takes the timer.
//!
//! **Leases (D6).** The lease begins in the step that fires, so time on the wheel uses none of it up.
//!
//! While a handler runs in `dispatch`, or a guard is held, the instance renews the lease: an eighth of it before half
//! of it is over at the latest, and again with each eighth while that fails. Renewals share batches with other settles.
//! A renewal may find that its claim is gone because the acknowledgement came first; that is no loss, and the result of
//! the acknowledgement counts. So a timer whose handler runs is fired again only if its process stands still, or cannot
//! reach the store, for half a lease.
//!
//! The instance counts a lease from when it asked the store to fire, and delivers no claim with less than half of it
//! left. A response that takes longer than a quarter of a lease counts as a quarter; otherwise a slow store would have
//! nothing delivered at all.
//!
//! **Cadence (D9).** The step that fires an occurrence makes the next one waiting. So no crash can leave a repeating
//! timer without its next occurrence.
//!
//! # Demand
//!
//! A claim that waits for its program uses up its lease while another instance could work on it. A loaded row that its
//! instance cannot fire is no better. So an instance fires what its program asks for, and loads what it fires.
//!
//! 1. **Wanted.** A program that waits for claims says how many it can take: `recv` one, `recv_many` its limit,
//!    `dispatch` as many as it has places free. While it does not wait, it wants none.
//! 2. **Ahead.** So many claims may wait for the program besides: none at first, and twice as many and one more each
//!    time it comes back for more within an eighth of a poll. The limit is the places of `dispatch`, or what
//!    `recv_many` asks for, or 512. If the program does not come back for an eighth of a poll, no more are ahead of it
//!    than it has received in that time, and none if it receives nothing for a poll. So a quick program does not wait
//!    for round trips, and a slow one holds nothing that it does not work on.
//! 3. **Fired** is what is due, up to wanted and ahead together, less what waits for the program already, and within
//!    the capacity. The rest stays here and *due*, earliest first. Nothing else decides when to fire: a place that
//!    comes free fires a row that is here, without a load. While a program works on what is ahead of it, half of that is
//!    gathered before the next call.
//! 4. **Loaded**, of what is due already, are as many rows as that, and as many again as may be ahead, less those that
//!    are due here. When a load has left due rows out, the instance fires these without loading them, as much as its
//!    program asks for, until a fire finds no more of them. Only then does it load what is due later, as far as it has
//!    room. When a load has left that out, the instance makes the next one as soon as there is demand for it.
//! 5. **Left to others** is what others *lack*: due rows that their last loads asked for, by rule 4, and did not get.
//!    The store records this number with each load, and tells it to the other instances when they load. An instance may
//!    hold rows that have been due here for half a poll, more than may be ahead of its program. It takes its mark off
//!    as many of these as are lacking, earliest first. The number lacking is then reset, and all instances get a hint:
//!    one that still lacks rows says so in its next load. So rows change hands only on request, and each request is met
//!    once. While an instance has more due than its program takes, it also leaves the near rows that its own calls set
//!    unmarked.
//!
//!    A load comes with each poll. Two kinds of instances load four times a poll: one that holds more due rows than may
//!    be ahead of its program, for as long as others have lacked any; and one that lacks rows, for a poll after its
//!    program has asked for overdue ones.
//! 6. **Stale** is a claim that has waited for the program until half of its lease was over. It is unfired, and nothing
//!    is fired until the program asks again.
//!
//! Costs (D10): a timer is marked when it is set or loaded, fired, and acknowledged: three row writes, and a single
//! instance makes no others. Most of a backlog is never marked: two. A timer that another instance asks for is unmarked
//! and marked again: five. By rule 2 no more rows are ahead of a program than it has just received; these can change
//! hands once more, when it turns slow. So the timers handled meanwhile, and the few in progress, bound the writes at
//! any time, however long the backlog is.
//!
//! Sharing: an instance that lacks rows gets as many as its program can take, a quarter of a poll later, from any
//! instance that has more than its own program takes, whether that one had loaded all rows early or its handlers hang.
//!
//! # Incarnations
//!
//! A mark keeps other instances from loading a timer. An instance that does not know of its own mark would leave that
//! timer waiting for as long as it lives. That happens when a call marks timers and then fails, so that the response
//! which names them is lost. The instance then unloads everything and starts again. It cannot wait until the last of
//! its marks is gone, as one may be on a row that another transaction has locked.
//!
//! Therefore an instance marks with an id that lives once. The id's life begins with the first load under it, and ends
//! when the instance unloads, or when three polls have passed without a load. An unload returns a fresh id, under which
//! the instance goes on. Marks of an id that has ended hold nothing: the next instance to load takes the timers, the
//! same one included. So it is enough that no id lives on after its unload. What can still happen meanwhile:
//!
//! 1. *A write, fire or settle names the old id and takes effect after the unload.* The id does not live, so nothing is
//!    marked and the store sends a hint, which the instance itself receives. It loads.
//! 2. *It began before the unload, and ends after it*, on a store that executes calls side by side. It may mark a timer
//!    with the ended id. If its response arrives, the timer is on the wheel of this instance, and is fired on time. If
//!    that response is lost too, the next sign of life of any instance unloads the timer: within a poll after the call
//!    has ended.
//! 3. *Another transaction has locked a row.* The unload leaves the row out, and it keeps its mark. No instance could
//!    fire it anyway. The first sign of life after the lock unloads it, within a poll.
//! 4. *A load is under way, or was given up.* Loads and unloads of an instance take turns, and calls keep their order
//!    also when the future of one was dropped (rule 3 of the [contract](crate::store)). So no load takes effect after
//!    the unload. On a store that broke the rule the ended id would live again, for three polls and no longer, since
//!    nothing else is loaded under it.
//! 5. *The response of the unload is lost.* The instance does not know its fresh id. It keeps the old one, loads
//!    nothing under it, and unloads it again before its next load. That returns another fresh id; the lost one marks
//!    nothing. Meanwhile its writes are as in 1.
//! 6. *The timer is on two wheels*, because a late response armed it here after the unload. One of the two fires it, as
//!    always.
//! 7. *The instance is shut down.* It drops a load under way, then unloads the id; as in 4 nothing is loaded after
//!    that. Writes under way are as in 1 and 2. If no other instance lives, the first sign of life of the next one
//!    unloads what was left.
//!
//! # What each crash leaves
//!
//! | an instance dies | what is left | what happens then |
//! |---|---|---|
//! | while a write is under way | the write, or not; the caller was told nothing | |
//! | after a load | timers marked by a dead instance | others load them at the first poll after its sign of life is three polls old; they are late by four polls at most |
//! | while a fire is under way, before its claims are delivered, or while the program handles one | timers in flight without a live claimant | they are delivered again at the first poll after the lease has ended, with `attempt` 2 |
//! | while an acknowledgement is under way | the timer, or not | if it is there, it is delivered again |
//! | after a shutdown | what was fired and not received is unfired, and nothing is marked but what a call under way has marked since | others take it at the next sign of life |
//!
//! A lost response is the same as a crash at that point, except that the instance goes on: a fire whose response is
//! lost leaves timers in flight, and a write may be made again, because making it twice changes nothing more.
//!
//! # Time
//!
//! Only the store's clock counts. It adds relative delays, and a fire compares with it. Each response that tells the
//! store's time also tells how far the local clock is from it, give or take half a round trip. The local clock only
//! decides when the wheel asks: too early, and the store says "not yet" and when; too late, and the timer is late by as
//! much. Clocks of hosts may differ by hours. If the store's own clock steps, the next response shows it, and the
//! instance reschedules what is on its wheel.
//!
//! # Limits
//!
//! * Another instance may handle the timers of a process that stands still for longer than half a lease. The process
//!   learns of it from its next renewal or acknowledgement.
//! * Claims that a crashed process had fired, and no program had seen, count as attempts.
//! * At least once is not exactly once. A handler that has worked and crashed before its acknowledgement works again.
//!   Make it idempotent, or fence with the token.
//! * Each instance delivers by deadline. Two instances deliver side by side.
//! * Occurrences of one repeating timer can be in flight together when a handler takes longer than the period. Tokens
//!   tell them apart.
//! * A store that loses what it has confirmed loses timers. Each store says what it survives.
