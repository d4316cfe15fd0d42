//! How instances share timers through a store, and why that keeps the promises. Documentation only.
//!
//! 1. [The problem](#the-problem)
//! 2. [Loading is not firing](#loading-is-not-firing)
//! 3. [The states of a timer](#the-states-of-a-timer)
//! 4. [The promises](#the-promises)
//! 5. [The argument](#the-argument)
//! 6. [Demand](#demand)
//! 7. [Lives](#lives)
//! 8. [What each crash leaves](#what-each-crash-leaves)
//! 9. [Time](#time)
//! 10. [Where it ends](#where-it-ends)
//!
//! # The problem
//!
//! A timer that survives its process lies in a store that several processes see. Two things pull against each other. A timer is
//! accurate if somebody waits for it in memory; but whoever holds it in memory holds an old copy, which others may have moved
//! or removed meanwhile. Asking the store again and again gives the truth, and is either late or a load.
//!
//! Job queues decide when they *take* a job: from then on it is theirs, and a lease counts. If they take it early, so as to
//! wait for it in memory, the lease ends before the job begins, and it is delivered twice. If they take it when it is due, they
//! have to ask the store all the time.
//!
//! # Loading is not firing
//!
//! So there are two steps here, and only the second decides anything.
//!
//! 1. **Load.** An instance marks the timers that fall due within a window, 30 s by default, and puts them on its wheel: each
//!    is no more than a version and a deadline. The mark only shares the work out. Anybody may still set, move or remove the
//!    key, and that gives the timer another version.
//! 2. **Fire.** When the wheel says that some are due, and the program can take them, one call asks the store to fire those versions. The store compares: a
//!    version that still exists, and is due by the store's own clock, goes in flight, with a lease that begins now. The rest is
//!    left out. What the store returns is delivered, and nothing else.
//! 3. **Settle.** An acknowledgement deletes what is in flight. `again` arms it anew, `extend` lengthens the lease, dropping
//!    the claim releases it, and what no program has seen is *unfired*: released, and not counted as an attempt. Each names the claim by its token; one that is out of date changes nothing.
//! 4. **Hints.** Whoever sets a timer that is due within the window loads it in the same step, if it claims itself. If it does
//!    not, the store tells those that do. A hint may be lost: the next poll, a second later at most, finds the timer.
//!
//! The cost of the second step is one round trip, for a whole batch: the lateness is that and a tick. An instance asks for what
//! to load once a second, however many far timers there are.
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
//!                  +------+      |     +--> lease extended to never: parked, until somebody releases it
//!       fire, once the lease     |
//!       has ended (new token)    +--> ack: gone
//! ```
//!
//! Every arrow into `waiting` or `in flight` but `extend` and `load` gives a new version from one sequence for the whole store.
//! So a version names a timer *in one state*. Moved and moved back, it has another one.
//!
//! A key has at most one waiting timer, and any number in flight: an occurrence of a repeating timer that nobody has
//! acknowledged, or an old value whose claim is still held while a new one is set. They are settled by token, each alone.
//!
//! When a claim is put back with `again` and its key has a waiting timer, that one is newer and keeps the key. The one put back
//! stays in flight, and its lease is made to end when it is due again.
//!
//! # The promises
//!
//! | | promise | held by |
//! |---|---|---|
//! | D1 | A call returns once its write is durable in the store. A crash at any moment after loses nothing. | `d1_keeps_what_it_said_it_set`, `survives_a_crash_in_every_call`, `takes_over_what_a_dead_instance_had_loaded` |
//! | D2 | Delivered at least once: fired and not acknowledged within the lease, it is delivered again within a poll, by any instance with capacity, and `attempt` counts. `at_most_once` is a mode. | `d2_delivers_again_after_the_lease`, `d2_at_most_once_is_a_mode` |
//! | D3 | Never early by the store's clock. | `d3_is_never_early`, `fires_what_is_due_and_exists` |
//! | D4 | The last write wins, whichever instance makes it. A timer is removed or fired, never both, and the caller is told which, also while claims of its key are put back: a key that has a timer at every instant is never said to have none. | `d4_last_write_wins_across_instances`, `d4_removed_or_fired_never_both`, `put_backs_never_hide_a_timer` |
//! | D5 | Without crashes each timer is handled once, however many instances there are and however long a handler of `dispatch` takes. | `d5_handles_once_however_long_it_takes`, `d5_delivers_once_among_many`, `gives_each_row_to_one_of_many` |
//! | D6 | The lease counts from firing, never from loading. | `d6_counts_the_lease_from_firing` |
//! | D7 | Tokens grow under a key. A settle after the claim was lost says so and changes nothing. | `d7_fences_lost_claims`, `settles_by_token` |
//! | D8 | What came due while nobody ran is delivered at start, earliest first; repeating timers by a rule. | `d8_delivers_what_was_missed_in_order`, `d8_repeats_by_each_rule` |
//! | D9 | A repeating timer's next deadline is written in the step that fires it, and its cadence depends on no acknowledgement. | `d9_keeps_the_cadence_unacknowledged`, `repeats_in_the_step_that_fires` |
//! | D10 | An instance claims what its program can take, and leaves the rest to others, which get their share. A backlog costs the store at most six row writes for each timer handled, renewals left out, however slow the handlers are. | `d10_leaves_to_others_when_full`, `d10_shares_what_waits`, `d10_bounds_the_writes_of_a_backlog` |
//! | D11 | While the store is away, or hangs, calls fail with a clear error, and nothing is delivered unconfirmed. The instance recovers by itself. | `d11_recovers_when_the_store_is_back`, `survives_an_error_in_every_call`; Redis: `instance_recovers_from_a_primary_that_hangs` |
//! | D12 | An idle instance makes at most one call for each poll, whatever the number of far timers. | `d12_is_quiet_when_idle` |
//! | D13 | A look at the store delays no call and no delivery. | SQLite: `call_completes_while_a_look_is_running`, `looks_do_not_wait_for_a_locked_file`; PostgreSQL: `looks_that_wait_hold_up_no_other_call` |
//! | D14 | An instance whose loads, fires, writes or settles fail says so, once for each, with the words of the store, and once when they work again. | `d14_says_which_calls_fail` |
//!
//! `agrees_with_the_oracle` and `keeps_its_books_among_instances` try all of it at random. Each is a check of the suite
//! `conformance`, which runs on every store, but for those of a store that is named: they are tests of that store.
//!
//! # The argument
//!
//! **One delivery (D4, D5).** A timer is delivered only if a `fire` has returned it. A `fire` takes the version away in the
//! same atomic step. So of all calls that name a version, whoever makes them, at most one has an effect: a fire, a move, a
//! remove, or a set that replaces it. The others find that it does not exist, and say so. Loading appears nowhere in this: two
//! instances that have loaded the same timer are no harm, only an idle question.
//!
//! **The last write (D4).** Once a move has returned, the old version does not exist. A wheel may still hold it, and will ask
//! for it at the old deadline, in vain.
//!
//! **Nothing lost (D1, D2).** A row leaves the store in three ways only: remove, replace, acknowledge. Each of them is
//! somebody's wish. A row that stays is in one of two states. If it is waiting, it is on the wheel of an instance that lives,
//! or some poll will load it: a mark counts only while its id lives, as [below](#lives). If it is in flight, its lease ends
//! some time, and then any poll loads it as if it were waiting.
//!
//! **Fencing (D7).** The token is the version that the fire gave. A later fire under the same key has a greater one. A settle
//! compares tokens, not clocks: a claim whose lease has ended is still good while nobody else has got the timer.
//!
//! **Leases (D6).** The lease begins in the step that fires. A timer that has been on a wheel for half a minute has all of it
//! left.
//!
//! While a handler runs in `dispatch`, or a guard is held, the instance renews the lease: an eighth of it before half of it is
//! over at the latest, and again with each eighth while that fails. Renewals share batches with other settles. One that meets
//! the acknowledgement of its claim on the way may find the claim gone; that is no loss, and the acknowledgement's own answer
//! counts. So a timer whose handler runs is fired again only if its process stands still, or cannot reach the store, for half a
//! lease.
//!
//! The instance counts a lease from when it asked the store to fire, and hands out nothing with less than half of it left. A
//! store that takes longer than a quarter of a lease to answer is counted as if it had taken a quarter; otherwise nothing could
//! ever be handed out.
//!
//! **Cadence (D9).** The step that fires an occurrence makes the next one waiting. There is no moment at which a crash could
//! leave a repeating timer without its next occurrence.
//!
//! # Demand
//!
//! A claim that waits for its program is worth nothing: its lease runs, and another instance could work on it. A row that waits
//! in an instance which cannot fire it is no better. So what is fired follows what the program asks for, and what is loaded
//! follows what is fired.
//!
//! 1. **Wanted.** A program that waits for claims says how many it can take: `recv` one, `recv_many` its limit, `dispatch` as
//!    many as it has places free. While it does not wait, that is none.
//! 2. **Ahead.** So many claims may wait for the program besides: none at first, and twice as many and one more each time it
//!    comes back for more within a poll; at most as many as `dispatch` has places, or `recv_many` asks for, or 64. A program
//!    that receives nothing for a poll has none ahead of it. So a quick one does not wait for round trips, and a slow one holds
//!    nothing that it does not work on.
//! 3. **Fired** is what is due, up to wanted and ahead together, less what waits for the program already, and within the
//!    capacity. The rest stays here and *due*, earliest first. Nothing else decides when to fire: a place that comes free
//!    fires a row that is here, without a load.
//! 4. **Loaded**, of what is due already, are as many rows as that, and as many again as may be ahead, less those that are due
//!    here. Only when a load finds nothing more that is due does the instance load what is due later, as far as it has room.
//!    When a load has left something out, the next one is made as soon as there is demand for it.
//! 5. **Left to others** is what has been due here for half a poll, but for as many rows as may be ahead. Only these rows lose
//!    their marks; other instances get a hint. The instance itself does not load them again before its program asks for them.
//!    While it has more due than its program takes, it marks no near rows either that calls of its own set.
//! 6. **Stale** is a claim that has waited for the program until half of its lease was over. It is unfired, and nothing is fired
//!    until the program asks again.
//!
//! What it costs (D10): a timer is marked when it is set or loaded, fired and acknowledged. That is three row writes. If it was
//! marked long before, and there are too many, it is unmarked and loaded once more: five. By rule 2 no more rows are ahead of
//! a program than it has just received; these can be loaded in vain once, when it turns slow.
//!
//! Sharing: an instance holds back at most what its program takes within about half a poll. The rest is loaded by whichever
//! instance has demand first, each as much as it asks for, so each gets what it can handle.
//!
//! # Lives
//!
//! A mark keeps others from loading a timer. So a timer that is marked by an instance which does not know of it would wait for
//! as long as the instance lives. That can happen: a call fails after it has marked timers, and the answer that names them is
//! lost. Then the instance gives everything back and begins anew. But it cannot wait until the last of its marks is gone, as
//! one may be on a row that somebody else has locked.
//!
//! Therefore an instance marks with an id that has one *life*. It begins with the first load under the id, and ends when the
//! instance unloads, or when three polls have passed without a load. An unload returns a fresh id, under which the instance
//! goes on. The marks of an id whose life has ended hold nothing: whoever loads next takes the timers, the same instance too.
//! So it is enough that no id lives on after its unload. What can still happen meanwhile:
//!
//! 1. *A write, fire or settle names the old id and takes effect after the unload.* The id does not live, so nothing is marked,
//!    and a hint is sent. The instance itself hears it and loads.
//! 2. *It began before the unload, and ends after it*, on a store that executes calls side by side. It may mark a timer with
//!    the ended id. If its answer arrives, the timer is on the wheel of this instance, and is fired on time. If that answer is
//!    lost too, the next sign of life of any instance unloads the timer: within a poll after the call has ended.
//! 3. *Somebody else has locked a row.* The unload leaves it out, and it keeps its mark. Nobody could fire it anyway. The first
//!    sign of life after the lock unloads it, within a poll.
//! 4. *A load is under way, or was given up.* Loads and unloads of an instance take turns, and calls keep their order also when
//!    the future of one was dropped (rule 3 of the [contract](crate::store)). So no load takes effect after the unload. On a
//!    store that broke the rule it would begin the ended life anew, for three polls and no longer, since nothing else is loaded
//!    under the id.
//! 5. *The answer of the unload is lost.* The instance does not know its fresh id. It keeps the old one, loads nothing under it
//!    and unloads it again before its next load. The second time there is less to do, and the answer is another fresh id; one
//!    that nobody has got to know marks nothing. Meanwhile its writes are as in 1.
//! 6. *The timer is on two wheels*, because this instance has armed what an answer said after it had given back. One of the two
//!    fires it, as always.
//! 7. *The instance is shut down.* A load under way is dropped, and then the id is unloaded; as in 4 nothing is loaded after
//!    that. Writes that are under way are as in 1 and 2. If no other instance lives, the first sign of life of the next one
//!    unloads what was left.
//!
//! # What each crash leaves
//!
//! | an instance dies | what is left | who notices |
//! |---|---|---|
//! | while a write is under way | the write, or not; the caller was told nothing | |
//! | after a load | timers marked by a dead instance | others load them at the first poll after its sign of life is three polls old; they are late by four polls at most |
//! | while a fire is under way, or before its claims are handed out | timers in flight that nobody works on | they are delivered again at the first poll after the lease has ended |
//! | while the program handles a claim | the same | the same; `attempt` is 2 then |
//! | while an acknowledgement is under way | the timer, or not | if it is there, it is delivered again |
//! | after a shutdown | nothing is marked, and what was fired and not received is unfired | |
//!
//! An answer that is lost on the way is the same as a crash at that point, except that the instance goes on: a fire whose
//! answer is lost leaves timers in flight, and a write may be made again, as it does the same twice.
//!
//! # Time
//!
//! The store's clock is the only one that counts. Relative delays are added there, and a fire compares there. Each answer that
//! tells the store's time tells how far the local clock is from it, give or take half a round trip. That only decides when the
//! wheel asks: too early, and the store says "not yet" and when; too late, and the timer is late by as much. Clocks of hosts
//! may differ by hours. If the store's own clock steps, the next answer shows it, and what is on the wheel is armed anew.
//!
//! # Where it ends
//!
//! * A process that stands still for longer than half a lease may have its timers handled
//!   elsewhere, and learns of it from its next renewal or acknowledgement.
//! * Claims that a crashed process had fired, and no program had seen, count as attempts.
//! * At least once is not exactly once. A handler that has worked and crashed before its acknowledgement works again. Make it
//!   idempotent, or fence with the token.
//! * The order of delivery is that of deadlines as one instance sees it. Two instances deliver side by side.
//! * Occurrences of one repeating timer can be in flight together when a handler takes longer than the period. Tokens tell them
//!   apart.
//! * A store that loses what it has confirmed takes timers with it. Each store says what it survives.
