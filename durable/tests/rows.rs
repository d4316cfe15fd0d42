//! Rows that an instance has marked: on its wheel, due, in flight, locked, or left to others. None
//! is forgotten, none is asked for too often, and what no program has seen counts for nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tickwheel::TimerWheel;
use tickwheel_durable::store::MAX_KEY_ROWS;
use tickwheel_durable::{Builder, Change, Claim, Claims, Failing, Memory, Retry};
use tickwheel_durable_conformance::Faulty;
use tokio::time::{Instant, sleep, timeout};

use support::{SECOND, Timers, next, set, start, start_on};

mod support;

/// Sees that no claim comes for so long. The program goes on asking for one.
async fn sees_nothing(claims: &mut Claims<String, u32>, time: Duration) {
    let claim = timeout(time, claims.recv()).await;
    assert!(claim.is_err(), "{claim:?}");
}

/// Asks for two claims, and does not come for them.
async fn ask_for_two(claims: &mut Claims<String, u32>) {
    let mut received = Vec::new();
    let asked = timeout(SECOND / 10, claims.recv_many(&mut received, 2)).await;
    assert!(asked.is_err(), "nothing is due yet");
}

/// `SystemTime { tv_sec: 1795442128, .. }` told an operator nothing.
#[tokio::test(start_paused = true)]
async fn debug_output_shows_deadlines_as_times() {
    let store = Memory::new();
    store.set_clock(UNIX_EPOCH + SECOND * 1_795_442_128);
    let (timers, mut claims) = start(store, |b| b).await;
    set(&timers, "a", SECOND).await;
    let time = "2026-11-23T13:55:29.000000Z";
    let waiting = timers.admin().pending(None, 1).await.expect("it lists");
    assert!(format!("{waiting:?}").contains(time), "{waiting:?}");

    let claim = next(&mut claims).await;
    assert!(format!("{claim:?}").contains(time), "{claim:?}");
    let in_flight = timers.admin().in_flight(None, 1).await.expect("it lists");
    let lease = "lease_until: Some(2026-11-23T13:56:";
    assert!(format!("{in_flight:?}").contains(lease), "{in_flight:?}");
    claim.fail(Retry::never("no")).await.expect("it is held");
    let dead = timers.admin().dead(None, 1).await.expect("it lists");
    let since = "since: 2026-11-23T13:55:";
    assert!(format!("{dead:?}").contains(since), "{dead:?}");
}

/// While the store was slow to fire, a claim that had waited for most of its lease was handed out.
#[tokio::test(start_paused = true)]
async fn claim_that_waited_for_half_its_lease_is_not_handed_out() {
    let store = Faulty::new(Memory::new());
    let lease = SECOND * 20;
    let set_up = |b: Builder<_, _>| b.lease(lease).call_timeout(SECOND * 60);
    let (timers, mut claims) = start(store.clone(), set_up).await;
    ask_for_two(&mut claims).await;
    set(&timers, "waits", SECOND).await;
    set(&timers, "fires slowly", SECOND * 2).await;
    sleep(SECOND * 3 / 2).await;
    store.set_delay(SECOND * 24);
    sleep(SECOND * 11).await;
    assert_eq!(timers.metrics().claimed, 1);
    store.set_delay(Duration::ZERO);
    for _ in 0..2 {
        let claim = next(&mut claims).await;
        assert!(claim.lease_remaining() >= lease / 2, "{claim:?}");
        assert_eq!(claim.attempt, 1, "no program has seen it before");
        claim.ack().await.expect("it is held");
    }
    assert_eq!(timers.metrics().lapsed, 1);
}

#[tokio::test(start_paused = true)]
async fn claims_that_no_program_has_seen_are_no_attempts() {
    for is_dropped in [false, true] {
        let store = Memory::new();
        let (timers, mut claims) = start(store.clone(), |b| b).await;
        ask_for_two(&mut claims).await;
        set(&timers, "a", SECOND).await;
        set(&timers, "b", SECOND).await;
        sleep(SECOND * 2).await;
        assert_eq!(timers.metrics().claimed, 2);
        if is_dropped {
            drop(claims);
        } else {
            claims.shutdown().await;
        }
        let (_timers, mut others) = start(store, |b| b).await;
        for _ in 0..2 {
            let claim = timeout(SECOND * 2, others.recv()).await;
            let claim = claim.expect("it is free").expect("the stream goes on");
            assert_eq!(claim.attempt, 1);
            claim.ack().await.expect("it is held");
        }
    }
}

/// A row that does not fit on the wheel is for others at once, not when the instance next has
/// something else to do.
#[tokio::test(start_paused = true)]
async fn rows_beyond_the_wheel_are_left_to_others_at_once() {
    let wheel = TimerWheel::builder().max_keyed(5).start();
    let wheel = wheel.expect("it starts");
    let store = Memory::new();
    let (timers, _claims) = start_on(&wheel, store.clone(), |b| b.poll(SECOND * 10)).await;
    let (other, mut others) = start(store, |b| b.poll(SECOND * 10)).await;
    sees_nothing(&mut others, SECOND).await;
    for number in 0..6 {
        set(&timers, &number.to_string(), SECOND * 20).await;
    }
    sees_nothing(&mut others, SECOND / 2).await;
    assert_eq!(timers.metrics().left_to_others, 1);
    assert_eq!(
        (timers.metrics().on_wheel, other.metrics().on_wheel),
        (5, 1)
    );
}

/// Rows that another instance lacks, and cannot get as they are locked, stay due here.
#[tokio::test(start_paused = true)]
async fn locked_rows_that_others_lack_are_kept() {
    let memory = Memory::new();
    let store = Faulty::new(memory.clone());
    let (timers, mut claims) = start(store.clone(), |b| b).await;
    let (_other, mut others) = start(memory, |b| b).await;
    for number in 0..10 {
        set(&timers, &number.to_string(), SECOND).await;
    }
    store.set_locked(true);
    sees_nothing(&mut others, SECOND * 10).await;
    assert!(timers.metrics().left_to_others > 0, "it tries to");
    assert_eq!(timers.metrics().due, 10);
    others.shutdown().await;
    store.set_locked(false);
    for _ in 0..10 {
        let claim = timeout(SECOND, claims.recv()).await;
        let claim = claim.expect("it is here").expect("the stream goes on");
        claim.ack().await.expect("it is held");
    }
}

/// The rows are off its list then, and still marked: it never asked for them again.
#[tokio::test(start_paused = true)]
async fn rows_are_delivered_though_they_could_not_be_left_to_others() {
    let memory = Memory::new();
    let store = Faulty::new(memory.clone());
    let (timers, _claims) = start(store.clone(), |b| b).await;
    let (_other, mut others) = start(memory, |b| b).await;
    for number in 0..10 {
        set(&timers, &number.to_string(), SECOND).await;
    }
    store.set_failing(Some("unmark"));
    for _ in 0..10 {
        let claim = timeout(SECOND * 30, others.recv()).await;
        let claim = claim.expect("it comes").expect("the stream goes on");
        claim.ack().await.expect("it is held");
    }
    assert!(timers.metrics().store_errors > 0, "it has tried to");
}

#[tokio::test(start_paused = true)]
async fn operator_sees_a_hundred_timers_of_a_key() {
    let (timers, mut claims) = start(Memory::new(), |b| b).await;
    let mut held = Vec::new();
    for _ in 0..MAX_KEY_ROWS + 5 {
        set(&timers, "a", Duration::ZERO).await;
        held.push(next(&mut claims).await);
    }
    let all = timers.admin().all_of("a").await.expect("it reads");
    let all = all.iter().filter_map(|entry| entry.in_flight.as_ref());
    let latest = held.iter().rev().take(MAX_KEY_ROWS).map(Claim::token);
    assert!(all.map(|claim| claim.token).eq(latest));
}

/// They stay as they are, and the answer says how many.
#[tokio::test(start_paused = true)]
async fn change_of_a_prefix_counts_the_timers_that_are_locked() {
    let store = Faulty::new(Memory::new());
    let (timers, _claims) = start(store.clone(), |b| b).await;
    for number in 0..10 {
        set(&timers, &number.to_string(), SECOND * 3_600).await;
    }
    store.set_locked(true);
    let removed = timers.admin().change_prefix("", Change::Remove).await;
    let removed = removed.expect("it goes on");
    assert_eq!((removed.rows, removed.locked), (0, 10));
    assert_eq!(timers.counts().await.expect("it counts").waiting, 10);
}

/// The store finds rows early, before their transaction is over. They were asked for again without
/// a pause.
#[tokio::test(start_paused = true)]
async fn row_that_the_store_finds_early_is_asked_for_after_a_pause() {
    let store = Faulty::new(Memory::new());
    let (timers, mut claims) = start(store.clone(), |b| b).await;
    // Without a pause the paused clock stands still: then this thread ends it.
    let is_over = Arc::new(AtomicBool::new(false));
    let watchdog = std::thread::spawn({
        let (store, is_over) = (store.clone(), Arc::clone(&is_over));
        move || {
            while !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(SECOND / 20);
                if store.calls() > 20_000 {
                    store.set_away(true);
                }
            }
        }
    });
    set(&timers, "a", SECOND).await;
    store.set_locked(true);
    sees_nothing(&mut claims, SECOND * 2).await;
    let fires = timers.metrics().fire_batches.count;
    assert!((1..=2_100).contains(&fires), "{fires} fires in a second");
    store.set_locked(false);
    let began = Instant::now();
    next(&mut claims).await.ack().await.expect("it is held");
    assert!(began.elapsed() < SECOND / 50, "{:?}", began.elapsed());
    is_over.store(true, Ordering::Relaxed);
    watchdog.join().expect("it does not panic");
}

/// Rows that are due and not fired take up the room for others.
#[tokio::test(start_paused = true)]
async fn rows_on_the_wheel_and_due_share_the_room() {
    let (timers, mut claims) = start(Memory::new(), |b| b.capacity(1)).await;
    for number in 0..1_000 {
        set(&timers, &number.to_string(), SECOND).await;
    }
    let _held = next(&mut claims).await;
    sees_nothing(&mut claims, SECOND).await;
    for number in 0..200 {
        set(&timers, &format!("near {number}"), SECOND * 25).await;
    }
    sees_nothing(&mut claims, SECOND * 3).await;
    let metrics = timers.metrics();
    assert_eq!((metrics.due, metrics.on_wheel), (999, 25));
}

/// A wheel that was full of rows due later kept the instance from those that are due now, and from
/// the hints of other instances about them.
#[tokio::test(start_paused = true)]
async fn full_wheel_delays_no_row_that_is_due() {
    let store = Memory::new();
    let (timers, mut claims) = start(store.clone(), |b| b.capacity(1).poll(SECOND * 10)).await;
    let (other, others) = start(store, |b| b).await;
    others.shutdown().await;
    for number in 0..1_030 {
        set(&timers, &number.to_string(), SECOND * 25).await;
    }
    sees_nothing(&mut claims, SECOND * 3).await;
    assert_eq!(timers.metrics().on_wheel, 1_024);
    for writer in [&timers, &other] {
        let began = Instant::now();
        set(writer, "now", Duration::ZERO).await;
        let claim = next(&mut claims).await;
        assert_eq!(claim.key, "now");
        assert!(began.elapsed() < SECOND / 10, "{:?}", began.elapsed());
        claim.ack().await.expect("it is held");
        assert_eq!(timers.metrics().on_wheel, 1_024);
        sees_nothing(&mut claims, SECOND * 3).await;
    }
}

/// The time in the answer of a fire was left unread: a step of the clock showed with the next load.
#[tokio::test(start_paused = true)]
async fn fire_shows_that_the_clock_has_stepped() {
    for (is_forward, delays) in [(true, [2, 3]), (false, [7, 13])] {
        let store = Memory::new();
        let now = SystemTime::now();
        store.set_clock(now);
        let (timers, mut claims) = start(store.clone(), |b| b.poll(SECOND * 10)).await;
        sees_nothing(&mut claims, SECOND).await;
        let began = Instant::now();
        set(&timers, "first", SECOND * 2).await;
        set(&timers, "second", SECOND * 8).await;
        store.set_clock(if is_forward {
            now + SECOND * 6
        } else {
            now - SECOND * 4
        });
        for (key, delay) in ["first", "second"].into_iter().zip(delays) {
            let claim = next(&mut claims).await;
            assert_eq!(claim.key, key);
            let (took, expected) = (began.elapsed(), SECOND * delay);
            let on_time = expected..expected + SECOND / 20;
            assert!(on_time.contains(&took), "{took:?}, not {expected:?}");
            claim.ack().await.expect("it is held");
        }
        let fires = timers.metrics().fire_batches.count;
        assert!(fires <= 4, "{fires} fires for two rows");
    }
}

/// The answer arms a near row that was put back.
#[tokio::test(start_paused = true)]
async fn near_row_that_is_put_back_needs_no_poll() {
    let (timers, mut claims) = start(Memory::new(), |b| b.poll(SECOND * 10)).await;
    set(&timers, "a", SECOND).await;
    let claim = next(&mut claims).await;
    let began = Instant::now();
    claim.retry_after(SECOND * 2).await.expect("it is held");
    let claim = next(&mut claims).await;
    let took = began.elapsed();
    assert!((SECOND * 2..SECOND * 21 / 10).contains(&took), "{took:?}");
    drop(claim);
    next(&mut claims).await.ack().await.expect("it is held");
    assert!(began.elapsed() < took + SECOND / 10);
}

/// Looks are no calls that timers wait for. After each that failed the instance gave back all that
/// it had loaded.
#[tokio::test(start_paused = true)]
async fn looks_that_fail_change_nothing_for_the_instance() {
    let store = Faulty::new(Memory::new());
    let (timers, _claims) = start(store.clone(), |b| b).await;
    set(&timers, "a", SECOND * 20).await;
    for call in ["rows_of", "list", "count", "purge"] {
        store.set_failing(Some(call));
        let failed = match call {
            "rows_of" => timers.deadline("a").await.is_err(),
            "list" => timers.admin().pending(None, 1).await.is_err(),
            "count" => timers.counts().await.is_err(),
            _ => timers.admin().purge().await.is_err(),
        };
        assert!(failed, "{call}");
        assert_eq!(timers.metrics().failing, Failing::default(), "{call}");
        sleep(SECOND * 2).await;
        let (on_wheel, loaded) = (timers.metrics().on_wheel, timers.metrics().loaded);
        assert_eq!((on_wheel, loaded), (1, 0), "{call}");
    }
    assert_eq!(timers.metrics().store_errors, 4);
}

/// The program that has them may come for them in a moment.
#[tokio::test(start_paused = true)]
async fn rows_are_given_to_others_after_half_a_poll_at_the_earliest() {
    let store = Memory::new();
    let (timers, _claims) = start(store.clone(), |b| b.poll(SECOND * 10)).await;
    let (_other, mut others) = start(store, |b| b.poll(SECOND * 10)).await;
    let due = Instant::now() + SECOND * 39 / 2;
    for number in 0..10 {
        set(&timers, &number.to_string(), SECOND * 39 / 2).await;
    }
    // It says that it lacks one in the load at ten seconds.
    let claim = next(&mut others).await;
    assert!(due.elapsed() >= SECOND * 5, "{:?}", due.elapsed());
    assert!(due.elapsed() < SECOND * 20, "{:?}", due.elapsed());
    claim.ack().await.expect("it is held");
}

/// Where one instance holds what another lacks, both look four times a poll.
#[tokio::test(start_paused = true)]
async fn rows_that_others_lack_are_given_in_quarters_of_a_poll() {
    let store = Memory::new();
    let (timers, _claims) = start(store.clone(), |b| b.poll(SECOND * 10)).await;
    let (_other, mut others) = start(store, |b| b.poll(SECOND * 10)).await;
    for number in 0..200 {
        set(&timers, &number.to_string(), SECOND).await;
    }
    sleep(SECOND * 10).await;
    next(&mut others).await.ack().await.expect("it is held");
    let began = Instant::now();
    for _ in 0..60 {
        next(&mut others).await.ack().await.expect("it is held");
    }
    assert!(began.elapsed() < SECOND * 40, "{:?}", began.elapsed());
}

/// An instance that shared a backlog asked for more of it only with its next poll, if its handlers
/// took longer than one.
#[tokio::test(start_paused = true)]
async fn gets_its_share_when_handlers_take_longer_than_a_poll() {
    let store = Memory::new();
    let (timers, mut claims) = start(store.clone(), |b| b).await;
    let (_other, mut others) = start(store, |b| b).await;
    // The first instance loads all of them.
    for number in 0..240 {
        set(&timers, &number.to_string(), SECOND).await;
    }
    let work = || async {
        sleep(SECOND * 5 / 2).await;
        Ok(())
    };
    let ended = Mutex::new(None::<Instant>);
    let idle = Mutex::new(Vec::new());
    let work_and_note = |_| async {
        let ended_before = ended.lock().expect("no test panics with it").take();
        let pause = ended_before.map(|before| before.elapsed());
        idle.lock().expect("no test panics with it").extend(pause);
        let outcome = work().await;
        *ended.lock().expect("no test panics with it") = Some(Instant::now());
        outcome
    };
    let both = async {
        tokio::join!(
            claims.dispatch(16, |_| work()),
            others.dispatch(16, work_and_note)
        )
    };
    assert!(timeout(SECOND * 30, both).await.is_err());
    let idle = idle.lock().expect("no test panics with it");
    assert!(idle.len() >= 5, "{idle:?}");
    // Loads are a quarter of a poll apart, and up to a tenth more.
    let longest = SECOND * 3 / 10;
    assert!(idle.iter().all(|pause| *pause <= longest), "{idle:?}");
}

/// Others get as many rows as their programs ask for, not as many as they have room for.
#[tokio::test(start_paused = true)]
async fn others_are_given_what_their_program_asks_for() {
    let store = Memory::new();
    let (timers, _claims) = start(store.clone(), |b| b).await;
    for number in 0..50 {
        set(&timers, &number.to_string(), SECOND).await;
    }
    sleep(SECOND * 3).await;
    let (writer, writers) = start(store.clone(), |b| b).await;
    writers.shutdown().await;
    for number in 0..100 {
        set(&writer, &format!("far {number}"), SECOND * 40).await;
    }
    let (_other, mut others) = start(store, |b| b.window(SECOND * 60)).await;
    next(&mut others).await.ack().await.expect("it is held");
    sleep(SECOND * 3).await;
    let left_to_others = timers.metrics().left_to_others;
    assert!((1..=3).contains(&left_to_others), "{left_to_others}");
}

/// An instance that has enough rows which are due leaves the others in the store.
#[tokio::test(start_paused = true)]
async fn no_due_rows_are_loaded_beside_those_that_are_here() {
    let store = Memory::new();
    let (timers, mut claims) = start(store.clone(), |b| b).await;
    for number in 0..500 {
        set(&timers, &number.to_string(), SECOND).await;
    }
    sleep(SECOND * 2).await;
    let (writer, writers) = start(store, |b| b).await;
    writers.shutdown().await;
    for number in 0..500 {
        set(&writer, &format!("later {number}"), Duration::ZERO).await;
    }
    for _ in 0..50 {
        next(&mut claims).await.ack().await.expect("it is held");
        sleep(SECOND / 10).await;
    }
    assert_eq!(timers.metrics().loaded, 0);
}

/// After a lost answer an instance gives everything back, and holds nothing that
/// others may load.
#[tokio::test(start_paused = true)]
async fn rows_that_were_given_back_are_not_due_here() {
    let memory = Memory::new();
    let store = Faulty::new(memory.clone());
    let (timers, _claims) = start(store.clone(), |b| b).await;
    for number in 0..10 {
        set(&timers, &number.to_string(), SECOND).await;
    }
    set(&timers, "near", SECOND * 25).await;
    sleep(SECOND * 2).await;
    let held = |timers: &Timers| (timers.metrics().due, timers.metrics().on_wheel);
    assert_eq!(held(&timers), (10, 1));
    store.set_failing(Some("load"));
    sleep(SECOND * 2).await;
    store.set_failing(None);
    sleep(SECOND * 2).await;
    assert_eq!(held(&timers), (0, 0), "its program asks for none");
    let (_other, mut others) = start(memory, |b| b).await;
    for _ in 0..10 {
        let claim = timeout(SECOND, others.recv()).await;
        let claim = claim.expect("it is free").expect("the stream goes on");
        claim.ack().await.expect("it is held");
    }
}

/// While the program works on the claims ahead of it, the next ones are fired.
#[tokio::test(start_paused = true)]
async fn claims_are_fired_while_those_ahead_are_received() {
    let store = Faulty::new(Memory::new());
    let (timers, mut claims) = start(store.clone(), |b| b.poll(SECOND * 10)).await;
    for number in 0..1_000 {
        set(&timers, &number.to_string(), SECOND).await;
    }
    sleep(SECOND).await;
    store.set_delay(SECOND / 5);
    let began = Instant::now();
    let mut held = Vec::new();
    for _ in 0..1_000 {
        held.push(next(&mut claims).await);
        sleep(SECOND / 100).await;
    }
    // The first ones do wait: there are few ahead.
    assert!(began.elapsed() < SECOND * 23 / 2, "{:?}", began.elapsed());
}

/// An instance that has more due than its program takes marks nothing that its own calls set.
#[tokio::test(start_paused = true)]
async fn instance_that_is_behind_marks_no_near_rows() {
    let (timers, _claims) = start(Memory::new(), |b| b).await;
    for number in 0..10 {
        set(&timers, &number.to_string(), SECOND).await;
    }
    sleep(SECOND * 2).await;
    set(&timers, "near", SECOND * 20).await;
    let pending = timers.admin().pending(None, 20).await.expect("it lists");
    let left: Vec<_> = pending.iter().filter(|entry| !entry.loaded).collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(left[0].key, Ok("near".to_owned()));
}

/// An instance that cannot compute schedules shares a store with others that can.
#[cfg(not(feature = "cron"))]
#[tokio::test(start_paused = true)]
async fn scheduled_timer_is_left_to_instances_with_the_feature() {
    use tickwheel_durable::Moved;
    use tickwheel_durable::store::{Action, Due, Load, Namespace, Store, Terms, Write};

    let store = Memory::new();
    let (timers, mut claims) = start(store.clone(), |b| b).await;
    let space = Namespace::new("orders").expect("it is a name");
    let action = Action::set_scheduled(b"7".to_vec(), Due::In(SECOND), "* * * * * UTC".into());
    let write = Write::new(b"\"cron\"".to_vec(), action);
    let unloaded = Terms::NONE;
    let written = store.write(&space, vec![write], unloaded).await;
    written.expect("it writes");
    sees_nothing(&mut claims, SECOND * 5).await;
    // Moved by this instance, it is marked by it until it is due.
    let moved = timers.move_timer("cron", SECOND).await;
    assert_eq!(moved, Ok(Moved::Done));
    set(&timers, "once", SECOND * 2).await;
    let claim = next(&mut claims).await;
    assert_eq!(claim.key, "once");
    claim.ack().await.expect("it is held");
    let metrics = timers.metrics();
    assert_eq!((metrics.left_to_others, metrics.loaded), (1, 0));

    let id = store
        .open(&space, &"json".into())
        .await
        .expect("it opens")
        .instance;
    let load = Load::new(id, SECOND, 9, SECOND);
    let loaded = store.load(&space, load).await.expect("it loads");
    assert_eq!(loaded.scheduled.len(), 1, "another instance can have it");
}
