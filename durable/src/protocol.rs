//! How instances share timers through a store, and why that keeps the promises. Documentation only.
//!
//! 1. [Loading is not firing](#loading-is-not-firing)
//! 2. [The states of a timer](#the-states-of-a-timer)
//! 3. [The promises](#the-promises)
//! 4. [The argument](#the-argument)
//! 5. [Demand](#demand)
//! 6. [Incarnations](#incarnations)
//! 7. [What each crash leaves](#what-each-crash-leaves)
//! 8. [Time](#time)
//! 9. [Limits](#limits)
//!
//! # Loading is not firing
//!
//! A copy of a stored timer in memory is accurate, but old as soon as another instance moves or
//! removes the timer. Job queues avoid that by *taking* a job: early, so that its lease ends before
//! it begins, or late, by polling. Here, loading a timer decides nothing. Firing it does.
//!
//! 1. **Load.** An instance marks the timers that fall due within a window, 30 s by default, and
//!    puts a version and a deadline of each on its wheel. The mark only shares the work out: any
//!    instance may still set, move or remove the key, which gives the timer another version.
//! 2. **Fire.** When timers are due on the wheel and the program can take them, the instance fires
//!    those versions with one call of the store. The store compares each: a version that still
//!    exists, and is due by the store's own clock, goes in flight, with a lease that begins now.
//!    The same call can fire due timers that no instance has loaded. The instance delivers what the
//!    store returns, and nothing else.
//! 3. **Settle.** An acknowledgement deletes what is in flight. `retry_after` makes it wait again,
//!    `extend` lengthens the lease, and dropping the claim releases it. A claim that no program has
//!    received is *unfired*: released, and not counted as an attempt. Each call names the claim by
//!    its token; a token that is out of date changes nothing.
//! 4. **Hints.** An instance that sets a timer due within the window loads it in the same step, if
//!    it claims itself. If it does not, the store sends a hint to those that do. If the hint is
//!    lost, the next poll finds the timer.
//!
//! A fire is one round trip for a whole batch, so a timer is late by a round trip and a tick.
//!
//! # The states of a timer
//!
//! ```text
//!              set, set_if_absent, set_interval
//!                          |
//!                          v            load: marked by an instance, which changes nothing else
//!                     +---------+       unload, or three polls without a load: the mark goes
//!      move, set  +-->| waiting |--+
//!   (new version) |   +---------+  |
//!                 |     |  |  ^    |
//!                 +-----+  |  |    +--> remove: gone, the value comes back
//!                          |  |
//!           fire (token)   |  |  retry_after, release (new version)
//!   a repeating timer also |  |
//!   leaves the next one    v  |
//!   waiting             +-----------+   extend: a later end of the lease, the same token
//!                  +--->| in flight |--+
//!                  |    +-----------+  |
//!                  |      |      |     |
//!                  +------+      |     +--> dead: it has failed for good; an operator retries or discards it
//!       fire, once the lease     |
//!       has ended (new token)    +--> ack: gone
//! ```
//!
//! A dead timer lies apart from the others: no load and no fire meets it. Of one key the store
//! keeps the latest hundred, so that what discards them is one bounded step (D13). A retry makes it
//! wait again, with a new version and no attempts. A set discards the dead timers of its key, and a
//! remove returns the latest, so that what was replaced or removed cannot be retried (D4).
//!
//! Every arrow into `waiting` or `in flight` but `extend` and `load` gives a new version from one
//! sequence for the whole store. So a version names a timer *in one state*.
//!
//! A key has at most one waiting timer, and any number in flight: unacknowledged occurrences of a
//! repeating timer, or an old value whose claim is held while a new value is set. When
//! `retry_after` puts a claim back and its key has a waiting timer, the waiting one is newer and
//! keeps the key. The timer stays in flight, with a lease that ends when it is due again and a new
//! version, so that the claim is over. So a put-back that is made again, because its response was
//! lost, changes nothing, whatever other timers the key has.
//!
//! # The promises
//!
//! | | promise | held by |
//! |---|---|---|
//! | D1 | A call returns once its write is durable in the store. A crash at any moment after loses nothing. | `d1_keeps_what_it_said_it_set`, `survives_a_crash_in_every_call`, `takes_over_what_a_dead_instance_had_loaded` |
//! | D2 | Delivered at least once: fired and not acknowledged within the lease, it is delivered again within a poll, by any instance with capacity, and `attempt` counts it. A fire whose answer was lost is found and undone. `at_most_once` is a mode. | `d2_delivers_again_after_the_lease`, `d2_lost_answer_to_a_fire_costs_nothing`, `d2_at_most_once_is_a_mode` |
//! | D3 | Never early by the store's clock. | `d3_is_never_early`, `long_traces_agree_with_memory` |
//! | D4 | The last write wins, whichever instance makes it. A timer is removed or fired, never both, and the caller is told which, also while claims of its key are put back: a key that has a timer at every instant is never said to have none. A write whose caller has given up changes nothing later. | `d4_last_write_wins_across_instances`, `d4_removed_or_fired_never_both`, `put_backs_never_hide_a_timer`, `replays_each_transition`; PostgreSQL: `timer_of_racing_writers_never_seems_absent`, `timer_is_removed_or_fired_never_both`, `removal_while_the_timer_fires_keeps_the_dead_one` |
//! | D5 | Without crashes, and steps of the store's clock by half a lease, each timer is handled once, however many instances there are, however long a handler of `dispatch` takes, and also when the store is away for less than what is left of the lease. | `d5_handles_once_however_long_it_takes`, `d5_handles_once_through_an_outage`, `d5_put_back_survives_an_outage`, `d5_failed_acknowledgement_is_not_released`, `d5_delivers_once_among_many`, `gives_each_row_to_one_of_many`; PostgreSQL: `put_back_that_waits_for_a_transaction_keeps_its_lease` |
//! | D6 | The lease counts from firing, never from loading. | `d6_counts_the_lease_from_firing` |
//! | D7 | Tokens grow under a key. Settling a lost claim returns an error and changes nothing. | `d7_fences_lost_claims`, `long_traces_agree_with_memory` |
//! | D8 | What came due while no instance ran is delivered at start, earliest first; repeating timers by a rule. | `d8_delivers_what_was_missed_in_order`, `d8_repeats_by_each_rule` |
//! | D9 | A repeating timer's next deadline is written in the step that fires it, and its cadence depends on no acknowledgement. An instance that cannot decode a timer leaves it to others; what none can decode dies, an occurrence at a time. | `d9_leaves_to_others_what_does_not_decode`, `d9_occurrences_that_none_decodes_die_alone`, `set_outlives_what_does_not_decode`, `d9_keeps_the_cadence_unacknowledged`, `d9_repeats_when_an_occurrence_dies`, `long_traces_agree_with_memory` |
//! | D10 | An instance claims what its program can take, and leaves the rest to others, which get their share. A backlog costs the store at most six row writes for each timer handled, renewals not counted, at any time and however slow the handlers are. | `d10_leaves_to_others_when_full`, `d10_shares_what_waits`, `d10_bounds_the_writes_of_a_backlog`; in parts: `parts_share_the_capacity` |
//! | D11 | While the store is unreachable or hangs, calls fail with a clear error, and nothing is delivered unconfirmed. The instance then recovers by itself. If the store was emptied or has returned to an earlier state, it opens the namespace again and goes on, says so once, and no row stays marked for longer than a poll by an instance that does not know it. No call fails for a hint. | `d11_recovers_when_the_store_is_back`, `d11_tells_a_load_that_the_store_does_not_know`, `survives_an_error_in_every_call`; SQLite: `file_restored_in_place_strands_no_timer`, `dropped_tables_are_made_again`; PostgreSQL: `calls_go_on_without_hints_while_the_queue_is_full`, `load_after_a_return_begins_at_the_beginning`, `database_that_returns_within_a_poll_strands_no_timer`, `truncated_tables_are_used_again`; Redis: `instance_recovers_from_a_primary_that_hangs`, `server_that_returns_within_a_poll_strands_no_timer`, `flushed_server_is_used_again` |
//! | D12 | An idle instance makes at most one call for each poll and part, whatever the number of far timers and of index entries of timers that are gone, and one at most each hour or eighth of [`keep_dead`](crate::Builder::keep_dead) that discards dead ones. | `d12_is_quiet_when_idle`; PostgreSQL: `idle_load_walks_through_no_rows_that_are_gone`, `load_finds_what_comes_before_its_place`; in memory: `d12_day_without_work_is_a_call_a_poll_and_one_an_hour` |
//! | D13 | No call, look or sweep does more than a bounded step of work in the store, some hundred rows and milliseconds: however many timers there are, dead ones of a key, or ids that have ended. A batch takes up to 131 places in the lock table of PostgreSQL, and one of more than 32 keys beside no transaction of a user four. | `d13_looks_delay_nothing`, `bounds_answers_in_bytes`, `keeps_the_latest_dead_rows_of_a_key`, `purges_many_rows`; Redis: `ended_ids_are_read_as_far_as_needed`, `writes_that_discard_many_dead_rows_are_divided`; SQLite and PostgreSQL: `marks_of_an_ended_id_are_taken_away_in_steps`; SQLite: `call_completes_while_a_look_is_running`, `looks_do_not_wait_for_a_locked_file`, `looks_at_few_rows_among_very_many`; PostgreSQL: `looks_that_wait_hold_up_no_other_call`, `counts_very_many_rows_by_a_sample`, `batches_take_few_locks` |
//! | D14 | An instance with loads, fires, writes or settles that fail logs that, once for each kind, with the store's message, and once when they work again. | `d14_says_which_calls_fail`, `warns_once_for_each_kind_of_call_that_fails` |
//! | D15 | A timer that fails is delivered at most [`max_attempts`](crate::Builder::max_attempts) times, attempts counted that crashed. Then it is dead: kept with its last error, retried or discarded by one caller each, and no cost to the others. | `d15_poison_message_dies_and_comes_back`, `attempts_that_crash_count`, `dead_timers_cost_living_ones_nothing`, `calls_that_meet_take_turns`, `long_traces_agree_with_memory` |
//! | D16 | All instances of a namespace agree on its [charter](crate::Charter): codec, `no_overlap`, `at_most_once` and parts, of which codec and parts never change. It is compared when an instance opens the namespace and with each load, write and fire. One that differs stops within a poll, says which field differs, and goes on when it agrees again. | `d16_stops_an_instance_that_differs`, `replays_each_transition`, `refuses_another_charter`, `codec_and_parts_never_change`; in parts: `instance_that_agrees_with_the_first_part_ends_an_amendment` |
//! | D17 | Programs of two versions use one store side by side, in both directions of a roll-out. A step to a new version of the [schema](crate::SchemaVersion) only adds, and has a way back. A program is refused only if it is older than the oldest version that can read the store, or newer than the schema, and then only new work: it says so once, settles what its handlers have, and goes on by itself when the schema is for it again. | `steps_lead_up_and_back`, `only_what_is_readable_is_used`; each store but memory: `d17_schema_that_is_raised_stops_new_work_alone`, `d17_versions_take_every_step_in_every_order`, `d17_older_version_starts_on_what_the_next_has_made`; SQLite: `older_instance_stops_when_the_schema_is_raised`; PostgreSQL: `older_instance_stops_when_tables_are_raised`, `loads_and_fires_need_the_schema_and_settles_do_not`; Redis: `refuses_another_schema` |
//!
//! `long_traces_agree_with_memory` and `answers_add_up_among_instances` try all promises at random.
//! All tests belong to the suite `tickwheel-durable-conformance`, which runs on every store, but
//! for those listed after the name of a store.
//!
//! # The argument
//!
//! **One delivery (D4, D5).** A timer is delivered only if a `fire` has returned it, and the fire
//! takes its version away in the same atomic step. So of all calls that name a version, at most one
//! has an effect: a fire, a move, a remove, or a set that replaces it. The others find that the
//! version does not exist. If two instances have loaded the same timer, one of them makes a wasted
//! query.
//!
//! **Transactions of users.** Timers that a user sets, moves or removes in its own transaction
//! take effect at its commit. Until then no call touches their keys: PostgreSQL has locks for that,
//! and SQLite one writer at a time. So the transaction is one write among the others, and what it
//! answers holds at its end.
//!
//! **The last write (D4).** Once a move has returned, the old version does not exist. A wheel that
//! still holds it makes a wasted query at the old deadline.
//!
//! A write carries the store's time at which its caller gives up, and the store compares that with
//! its clock when it has whatever the write has waited for. So a server that hangs, or bytes that
//! are held up, cannot bring an old write after a new one.
//!
//! **The charter (D16).** The row of a namespace has an *edition*, another one after each
//! amendment. A load, a write and a fire bring the edition with which the instance agreed, and the
//! statement or script compares it in the same step. When it is another one the instance opens the
//! namespace again, which compares the fields, so an idle instance makes one call a poll whether it
//! agrees or not. Settles bring no edition: they end what was fired, and only by its token.
//!
//! **Versions (D17).** A store has the version of its schema, and the oldest version whose programs
//! can read it. Loads, fires and writes compare these in the same step as the edition. A settle
//! does not: it looks at the version and the token of a row alone, which no step changes. So what a
//! handler has begun ends once, whatever is made of the store meanwhile. What an older program
//! writes lacks what a newer one would add, and the newer one takes that for "not known".
//!
//! **Nothing lost (D1, D2).** A row leaves the store only by a remove, a replacement or an
//! acknowledgement. A waiting row is on the wheel of a live instance, or some poll will load it: a
//! mark counts only while its id is [live](#incarnations). The lease of a row in flight ends some
//! time, and then any poll loads it as if it were waiting.
//!
//! **Fencing (D7).** The token is the version that the fire gave, so a later fire under the same
//! key has a greater one. A settle compares tokens, not clocks: a claim whose lease has ended is
//! good until another fire takes the timer.
//!
//! **Leases (D6).** The lease begins in the step that fires. The instance counts it from when it
//! sent the fire, and delivers no claim with less than half of it left. A response that takes
//! longer than a quarter of a lease counts as a quarter; otherwise a slow store would have nothing
//! delivered at all. While a handler runs in `dispatch`, or a guard is held, the instance renews
//! the lease before half of it is over, and again with each eighth while that fails. So the timer
//! is fired again only if its process stands still, or cannot reach the store, for half a lease. A
//! try that hangs takes the call timeout: with one of an eighth of the lease or more there are
//! fewer tries.
//!
//! **Cadence (D9).** The step that fires an occurrence makes the next one waiting. So no crash can
//! leave a repeating timer without its next occurrence. The times of a [cron
//! expression](crate::calendars) only an instance can compute. It brings the next one to the fire,
//! with the times for which that is the next one, and the store compares these with its clock.
//!
//! # Demand
//!
//! A claim that waits for its program uses up its lease while another instance could work on it. A
//! loaded row that its instance cannot fire is no better. So an instance fires what its program
//! asks for, and loads what it fires.
//!
//! A program that waits for claims says how many it can take. While it quickly comes back for more,
//! some claims may wait ahead of it. The instance fires as many due rows, whether it has loaded
//! them or not. The others wait, in the store or with the instance that has loaded them, earliest
//! first.
//!
//! With each load an instance says how many due rows it *lacks*. Another instance that has had more
//! due rows than its program takes, for half a poll, takes its mark off as many. So rows change
//! hands only on request, and an instance that lacks rows gets them a quarter of a poll later, even
//! if the handlers of the other one hang. A claim that waits for the program until half of its
//! lease is over is unfired.
//!
//! Costs (D10): a timer is marked when it is set or loaded, fired, and acknowledged: three row
//! writes, and a single instance makes no others. Most of a backlog is never marked: two. A timer
//! that another instance asks for is unmarked and marked again: five. Rows that are ahead of a
//! program can change hands once more, when it turns slow; these are no more than it has just
//! received, or than it receives while the store fires twice.
//!
//! # Incarnations
//!
//! A mark keeps other instances from loading a timer. If a call marks timers and its response is
//! lost, the instance does not know of its own marks, and those timers would wait for as long as it
//! runs. So it then unloads everything, and goes on under a fresh id.
//!
//! The same happens when a store returns to an earlier state, as after a failover that loses the
//! last writes. Timers come back that are marked by an instance which has fired or moved them
//! since. So each load leaves a receipt, which the next one brings back: the time until which the
//! id lives, and the number of the connection. A store with an earlier time has returned to a state
//! before that load. After a break in the connection it may have returned to a later one. Either
//! way the instance unloads everything, its last ids included, and loads what the store has now.
//!
//! An id is used for one incarnation: it is live from the first load under it until the instance
//! unloads, or until three polls have passed without a load. The marks of an ended id hold nothing:
//! the next instance to load takes the timers, the same one included.
//!
//! # What each crash leaves
//!
//! | an instance dies | what is left | what happens then |
//! |---|---|---|
//! | while a write is under way | the write, or not; the caller received no result | |
//! | after a load | timers marked by a dead instance | other instances load them at the first poll after its last load is three polls old; they are late by four polls at most |
//! | while a fire is under way, before its claims are delivered, or while the program handles one | timers in flight without a live claimant | they are delivered again at the first poll after the lease has ended, with `attempt` 2 |
//! | while an acknowledgement is under way | the timer, or not | if it is there, it is delivered again |
//! | after a shutdown | claims that were not received are unfired, and nothing is marked but what a call under way has marked since | other instances take these at the next load |
//!
//! A lost response is the same as a crash at that point, except that the instance goes on. A write
//! may be made again, because making it twice changes nothing more.
//!
//! # Time
//!
//! Only the store's clock counts. It adds relative delays, and a fire compares with it. Each
//! response that has the store's time also tells how far the local clock is from it, give or take
//! half a round trip. The local clock only decides when the instance sends a fire: too early, and
//! the store returns how long to wait; too late, and the timer is late by as much. If the store's
//! own clock steps, the next response shows it, and the instance reschedules its wheel.
//!
//! # Limits
//!
//! * Another instance may handle the timers of a process that stands still for longer than half a
//!   lease. The process learns of it from its next renewal or acknowledgement.
//! * Claims that a crashed process had fired, and no program had seen, count as attempts.
//! * At least once is not exactly once. A handler runs again if its process crashes before the
//!   acknowledgement. Make it idempotent, or fence with the token.
//! * Each instance delivers by deadline, and two instances deliver side by side.
//! * Occurrences of one repeating timer can be in flight together when a handler takes longer than
//!   the period. Tokens tell them apart; [`no_overlap`](crate::Builder::no_overlap) prevents it.
//! * A store that loses what it has confirmed loses timers, and brings acknowledged ones back. Each
//!   store says what it survives.
