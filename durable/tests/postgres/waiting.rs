//! Batches of several instances on the same keys at the same moment: none waits until the server
//! finds a deadlock.
//!
//! The server counts the deadlocks that it has found. Time says nothing on a busy machine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::{join, join_all};
use tickwheel_durable::Postgres;
use tickwheel_durable::store::{
    Action, Due, Fire, InstanceId, Load, Namespace, Settle, Settlement, Store, Terms, Version,
    Write,
};

use super::server::{client, count_loaded, database, missing, until, until_waits_for_lock};

fn set(key: &str, if_absent: bool) -> Write {
    let action = Action::set(b"1".to_vec(), Due::In(Duration::ZERO), None, if_absent);
    write(key, action)
}

fn write(key: &str, action: Action) -> Write {
    let key = key.into();
    Write::new(key, action)
}

/// Stores as several processes have them, on one namespace of a database.
async fn stores(url: &str, count: usize) -> (Namespace, Vec<(Postgres, InstanceId)>) {
    let space = Namespace::new("races").expect("it is a name");
    let mut stores = Vec::new();
    for _ in 0..count {
        let store = Postgres::connect(url).await.expect("it connects");
        let opened = store.open(&space, &"json".into()).await.expect("it opens");
        stores.push((store, opened.instance));
    }
    (space, stores)
}

/// How many deadlocks the server has found in the database, once all others are gone from it: they
/// report as they go.
async fn deadlocks(url: &str) -> i64 {
    let admin = client(url).await;
    let others = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
    until("the end of the stores", async || {
        let left = admin.query_one(others, &[]).await.expect("it reads");
        left.get::<_, i64>(0) == 0
    })
    .await;
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    let row = admin.query_one(deadlocks, &[]).await.expect("it reads");
    row.get(0)
}

/// It was said that batches cannot wait for each other, and they did: what sets and what sets if
/// absent were two passes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sets_of_the_same_new_keys_never_deadlock() {
    let Some(url) = database("new_keys").await else {
        return missing();
    };
    let (space, stores) = stores(&url, 2).await;
    for round in 0..25 {
        let write = stores.iter().zip(0..).map(|((store, _), parity)| {
            let writes = (0..40).map(|n| set(&format!("{round}-{n}"), n % 2 == parity));
            store.write(&space, writes.collect(), Terms::NONE)
        });
        for written in join_all(write).await {
            written.expect("it writes");
        }
    }
    drop(stores);
    assert_eq!(deadlocks(&url).await, 0);
}

/// A write failed that had waited for another one as long as the `lock_timeout` of the role allows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_timeout_of_the_role_fails_no_call() {
    let Some(url) = database("lock_timeout").await else {
        return missing();
    };
    let limited = format!("{url}?options=-clock_timeout%3D20ms");
    let (space, stores) = stores(&limited, 1).await;
    let store = &stores[0].0;
    let written = store
        .write(&space, vec![set("a", false)], Terms::NONE)
        .await;
    written.expect("it writes");
    let admin = client(&url).await;
    let lock = "BEGIN; SELECT 1 FROM tickwheel_timers FOR UPDATE";
    admin.batch_execute(lock).await.expect("it locks");
    let writing = store.write(&space, vec![set("a", false)], Terms::NONE);
    let unlocking = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        admin.batch_execute("ROLLBACK").await.expect("it unlocks");
    };
    let (written, ()) = tokio::join!(writing, unlocking);
    written.expect("it writes");
}

/// A batch of a thousand keys took 576 locks of the server's table, and those of 30 namespaces all
/// that it has: other programs failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_take_few_locks() {
    let Some(url) = database("few_locks").await else {
        return missing();
    };
    let (space, stores) = stores(&url, 1).await;
    let store = &stores[0].0;
    let admin = client(&url).await;
    let locks = "SELECT count(*) FROM pg_locks l, pg_stat_activity a
        WHERE l.locktype = 'advisory' AND a.pid = l.pid AND a.datname = current_database() AND a.wait_event_type = 'Lock'";
    for (keys, is_shared, most) in [
        (32, false, 65),
        (1_000, false, 2),
        (32, true, 129),
        (1_000, true, 129),
    ] {
        let batch = || {
            (0..keys)
                .map(|n| set(&format!("key {n:04}"), false))
                .collect()
        };
        let written = store.write(&space, batch(), Terms::NONE).await;
        written.expect("it writes");
        // It stops the batch once that has its locks.
        let user = client(&url).await;
        let lock = "BEGIN; SELECT 1 FROM tickwheel_timers WHERE key = 'key 0031' FOR UPDATE";
        user.batch_execute(lock).await.expect("it locks");
        let other = client(&url).await;
        if is_shared {
            let set = "BEGIN; SELECT tickwheel_set('races', n::text, '1', now()) FROM generate_series(1, 200) n";
            other.batch_execute(set).await.expect("it sets");
        }
        let writing = store.write(&space, batch(), Terms::NONE);
        let counting = async {
            until_waits_for_lock(&admin).await;
            let row = admin.query_one(locks, &[]).await.expect("it reads");
            user.batch_execute("ROLLBACK").await.expect("it ends");
            row.get::<_, i64>(0)
        };
        let (written, count) = tokio::join!(writing, counting);
        written.expect("it writes");
        // One tells the connections of a store apart.
        assert!(count <= most + 1, "{count} locks of {keys} keys");
    }
}

/// An instance that leaves a row to others learns that another transaction has locked it: the mark
/// stays, so it keeps the row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marks_of_locked_rows_stay_and_are_named() {
    let Some(url) = database("locked_marks").await else {
        return missing();
    };
    let (space, stores) = stores(&url, 1).await;
    let (store, instance) = &stores[0];
    let writes = vec![set("free", false), set("locked", false)];
    store
        .write(&space, writes, Terms::NONE)
        .await
        .expect("it writes");
    let hour = Duration::from_secs(3_600);
    let mut load = Load::new(*instance, Duration::ZERO, 2, hour);
    load.wanted = 2;
    let loaded = store
        .load(&space, load.clone())
        .await
        .expect("it loads")
        .rows;
    let versions: Vec<_> = loaded.iter().map(|&(version, _)| version).collect();
    let mut other = client(&url).await;
    let lock = other.transaction().await.expect("it begins");
    let row = "SELECT version FROM tickwheel_timers WHERE key = 'locked' FOR UPDATE";
    let locked: i64 = lock.query_one(row, &[]).await.expect("it locks").get(0);
    let left = store.unmark(&space, *instance, versions.clone()).await;
    assert_eq!(left, Ok(vec![Version(locked)]));
    assert_eq!(count_loaded(store, &space, &load).await, 1);
    lock.rollback().await.expect("it ends");
    let left = store.unmark(&space, *instance, versions).await;
    assert_eq!(left, Ok(vec![]));
    assert_eq!(count_loaded(store, &space, &load).await, 2);
}

/// One round of everything that an instance does, on a few keys.
async fn use_all(store: &Postgres, space: &Namespace, instance: InstanceId, round: usize) {
    let keys: Vec<_> = (0..8).map(|key| format!("hot-{key}")).collect();
    let moved = Due::In(Duration::ZERO);
    let writes = (0..8).map(|number| {
        // Each in another order, some twice.
        let key = &keys[(number * 3 + round * 5) % 8];
        match (number + round) % 5 {
            0 => set(key, true),
            1 => write(key, Action::Remove),
            2 => write(key, Action::move_to(moved)),
            _ => set(key, false),
        }
    });
    let mut writes: Vec<_> = writes.collect();
    writes.rotate_left(round % 8);
    writes.push(set(&keys[round % 8], false));
    let write = async {
        let written = store.write(space, writes, Terms::NONE).await;
        written.expect("it writes");
    };
    let settle = async {
        let load = Load::new(instance, Duration::ZERO, 20, Duration::from_secs(60));
        let loaded = store.load(space, load).await.expect("it loads").rows;
        let fire = Fire::new(
            loaded.iter().map(|&(version, _)| version).collect(),
            // No instance settles what another one has fired again.
            Some(Duration::from_secs(3_600)),
            Terms::NONE,
        );
        let fired = store.fire(space, fire).await.expect("it fires").fired;
        let hows = [
            Settlement::RetryAfter(Duration::ZERO),
            Settlement::Extend(Duration::ZERO),
            Settlement::Release,
            Settlement::Ack,
        ];
        let settles = fired
            .iter()
            .zip(round..)
            .map(|(fired, number)| Settle::new(fired.token, hows[number % 4]));
        let mut settles: Vec<_> = settles.collect();
        settles.reverse();
        let settled = store.settle(space, settles, Terms::NONE).await;
        settled.expect("it settles");
    };
    join(write, settle).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hot_keys_of_three_instances_never_deadlock() {
    let Some(url) = database("hot_keys").await else {
        return missing();
    };
    let (space, stores) = stores(&url, 3).await;
    let began = Instant::now();
    let all = stores
        .iter()
        .zip([1, 2, 3])
        .map(|((store, instance), step)| {
            let space = &space;
            async move {
                let mut round = 0;
                while round < 300 || began.elapsed() < Duration::from_secs(4) {
                    use_all(store, space, *instance, round).await;
                    round += step;
                }
            }
        });
    join_all(all).await;
    drop(stores);
    assert_eq!(deadlocks(&url).await, 0);
}

/// A sign of life wrote the row of its own instance last, after it had deleted those of others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_that_come_back_at_once_never_deadlock() {
    let Some(url) = database("signs_of_life").await else {
        return missing();
    };
    let (space, stores) = stores(&url, 3).await;
    // Between the two there is time.
    let slow = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN PERFORM pg_sleep(0.02); RETURN new; END $$;
        CREATE TRIGGER slow BEFORE INSERT ON tickwheel_instances FOR EACH ROW EXECUTE FUNCTION slow()";
    let made = client(&url).await.batch_execute(slow).await;
    made.expect("it is made");
    for _ in 0..10 {
        // Each has ended by the time of the next round.
        let load = stores.iter().map(|(store, instance)| {
            let load = Load::new(*instance, Duration::ZERO, 0, Duration::ZERO);
            store.load(&space, load)
        });
        for loaded in join_all(load).await {
            loaded.expect("it loads");
        }
    }
    drop(stores);
    assert_eq!(deadlocks(&url).await, 0);
}

/// A load locked one row more than it was to load, to see whether there is more. A fire at that
/// moment left the earliest row out, and fired a later one first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fires_by_deadline_while_other_instances_load_nothing() {
    const ROWS: u64 = 400;
    let Some(url) = database("loads_of_nothing").await else {
        return missing();
    };
    let (space, stores) = stores(&url, 3).await;
    let start = stores[0]
        .0
        .open(&space, &"json".into())
        .await
        .expect("it opens");
    let writes = (0..ROWS).map(|n| {
        let due = Due::At(start.now.after(Duration::from_millis(n)));
        let action = Action::set(n.to_be_bytes().to_vec(), due, None, false);
        write(&n.to_string(), action)
    });
    let written = stores[0]
        .0
        .write(&space, writes.collect(), Terms::NONE)
        .await;
    written.expect("it writes");
    tokio::time::sleep(Duration::from_millis(ROWS)).await;
    let is_done = AtomicBool::new(false);
    let load = |(store, instance): &(Postgres, InstanceId)| {
        let (store, instance, space, is_done) = (store.clone(), *instance, &space, &is_done);
        async move {
            while !is_done.load(Ordering::Relaxed) {
                let request = Load::new(instance, Duration::ZERO, 0, Duration::from_secs(60));
                store.load(space, request).await.expect("it loads");
            }
        }
    };
    let fire = async {
        let mut deadlines = Vec::new();
        for _ in 0..ROWS {
            let mut request = Fire::new(Vec::new(), Some(Duration::from_secs(60)), Terms::NONE);
            request.unloaded = 1;
            let report = stores[0].0.fire(&space, request).await.expect("it fires");
            deadlines.extend(report.fired.iter().map(|fired| fired.deadline));
        }
        is_done.store(true, Ordering::Relaxed);
        deadlines
    };
    let loads = join_all(stores[1..].iter().map(load));
    let (deadlines, _) = join(fire, loads).await;
    assert_eq!(deadlines.len() as u64, ROWS);
    assert!(deadlines.is_sorted(), "{deadlines:?}");
}
