//! Looks and purges: they have another connection, and come to an end.

use std::time::Duration;

use tickwheel_durable::Postgres;
use tickwheel_durable::store::{
    Action, Due, Fire, InstanceId, List, Load, Namespace, Settle, Settled, Settlement, State,
    Store, StoreTime, Terms, Version, Write,
};
use tokio::time::timeout;

use super::server::{client, count_loaded, database, missing, until_waits_for_lock};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

fn set(key: &str) -> Write {
    let action = Action::set(b"1".to_vec(), Due::In(HOUR), None, false);
    let key = key.into();
    Write::new(key, action)
}

async fn open(name: &str) -> Option<(String, Postgres, Namespace, InstanceId)> {
    let url = database(name).await?;
    let store = Postgres::connect(&url).await.expect("it connects");
    let space = Namespace::new(name).expect("it is a name");
    let instance = store
        .open(&space, &"json".into())
        .await
        .expect("it opens")
        .instance;
    Some((url, store, space, instance))
}

async fn write(store: &Postgres, space: &Namespace, keys: impl Iterator<Item = u32>) {
    let writes = keys.map(|key| set(&format!("{key:05}")));
    let written = store.write(space, writes.collect(), Terms::NONE).await;
    written.expect("it writes");
}

/// The last row of a page came again as the first of the next, where rows were loaded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_loaded_rows_repeat_nothing() {
    let Some((_, store, space, instance)) = open("pages").await else {
        return missing();
    };
    // Those of one call are due at the same time. Some are loaded, and lie among others.
    write(&store, &space, 0..5).await;
    let mut load = Load::new(instance, 2 * HOUR, 3, HOUR);
    assert_eq!(count_loaded(&store, &space, &load).await, 3);
    write(&store, &space, 5..9).await;
    load.limit = 4;
    assert_eq!(count_loaded(&store, &space, &load).await, 4);
    let page = async |after: Option<(StoreTime, Version)>, limit| {
        let list = List::new(State::Waiting, after, limit);
        store.list(&space, list).await.expect("it lists")
    };
    let all = page(None, 100).await;
    assert_eq!(all.len(), 9);
    assert_eq!(all.iter().filter(|row| row.loaded_by.is_some()).count(), 7);
    for limit in 1..=4 {
        let mut read = Vec::new();
        loop {
            let after = read
                .last()
                .map(|last: &tickwheel_durable::store::Stored| (last.due, last.version));
            let next = page(after, limit).await;
            if next.is_empty() {
                break;
            }
            read.extend(next);
            assert!(read.len() <= all.len(), "pages of {limit} repeat rows");
        }
        assert_eq!(read, all, "pages of {limit}");
    }
}

/// Counts, lists and purges held up the reads behind them, and a purge the writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn looks_that_wait_hold_up_no_other_call() {
    let Some((url, store, space, instance)) = open("beside").await else {
        return missing();
    };
    write(&store, &space, 0..1).await;
    let mut other = client(&url).await;
    let lock = other.transaction().await.expect("it begins");
    let rows = "SELECT 1 FROM tickwheel_timers FOR UPDATE";
    assert_eq!(lock.query(rows, &[]).await.expect("it locks").len(), 1);
    let purge = {
        let (store, space) = (store.clone(), space.clone());
        tokio::spawn(async move { store.purge(&space).await })
    };
    // The purge, for the row.
    until_waits_for_lock(&client(&url).await).await;
    let count = {
        let (store, space) = (store.clone(), space.clone());
        tokio::spawn(async move { store.count(&space).await })
    };
    let list = {
        let (store, space) = (store.clone(), space.clone());
        let list = List::new(State::Waiting, None, 10);
        tokio::spawn(async move { store.list(&space, list).await })
    };
    tokio::time::sleep(SECOND / 2).await;
    assert!(
        !count.is_finished() && !list.is_finished(),
        "looks have one connection"
    );
    let others = async {
        write(&store, &space, 1..2).await;
        let nothing = Fire::new(vec![Version(1)], None, Terms::NONE);
        let fired = store.fire(&space, nothing).await.expect("it fires");
        assert!(fired.fired.is_empty());
        let (token, how) = (Version(1), Settlement::Ack);
        let settles = vec![Settle::new(token, how)];
        let settled = store.settle(&space, settles, Terms::NONE).await;
        assert_eq!(settled, Ok(vec![Settled::Lost]));
        let rows = store.rows_of(&space, b"00001".to_vec(), 1).await;
        assert_eq!(rows.expect("it reads").len(), 1);
        let load = Load::new(instance, SECOND, 10, HOUR);
        store.load(&space, load.clone()).await.expect("it loads");
    };
    timeout(60 * SECOND, others)
        .await
        .expect("they do not wait");
    assert!(!purge.is_finished(), "it still waits");
    lock.rollback().await.expect("it ends");
    let purged = purge.await.expect("it ends").expect("it purges");
    assert!(purged.more && purged.rows == 1, "{purged:?}");
    assert_eq!(count.await.expect("it ends").expect("counts").waiting, 1);
    assert_eq!(list.await.expect("it ends").expect("lists").len(), 1);
}

/// It was one statement, however many rows there were.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn purge_ends_in_steps() {
    let Some((_, store, space, _)) = open("steps").await else {
        return missing();
    };
    write(&store, &space, 0..7_000).await;
    let mut steps = Vec::new();
    loop {
        let purged = store.purge(&space).await.expect("it purges");
        if !purged.more {
            break;
        }
        steps.push(purged.rows);
    }
    assert_eq!(steps.iter().sum::<u64>(), 7_000);
    assert!(steps.len() > 2, "{steps:?}");
    assert_eq!(store.count(&space).await.expect("it counts").waiting, 0);
}

/// To count three million rows took seconds. Now many are estimated, in each namespace by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_very_many_rows_by_a_sample() {
    let Some((url, store, space, _)) = open("sampled").await else {
        return missing();
    };
    write(&store, &space, 0..3).await;
    let counts = store.count(&space).await.expect("it counts");
    assert_eq!((counts.waiting, counts.is_estimate), (3, false));
    let other = Namespace::new("other").expect("it is a name");
    store.open(&other, &"json".into()).await.expect("it opens");
    let writer = client(&url).await;
    let fill = async |space: &Namespace, table: &str, rows: u32| {
        let (columns, values) = match table {
            "dead" => ("died", "9e15::bigint"),
            _ => ("due, in_flight", "9e15::bigint, n % 20 = 0"),
        };
        let fill = format!(
            "INSERT INTO tickwheel_{table} (version, namespace, key, value, deadline, attempt, {columns})
            SELECT nextval('tickwheel_versions'), s.id, n::text::bytea, repeat('v', 50)::bytea, 0, 0, {values}
            FROM tickwheel_namespaces s, generate_series(1, {rows}) n WHERE s.name = '{space}'"
        );
        writer.batch_execute(&fill).await.expect("it is filled");
    };
    // Where only the dead are many, only they are estimated.
    fill(&space, "dead", 60_000).await;
    fill(&other, "dead", 20_000).await;
    let counts = store.count(&space).await.expect("it counts");
    assert_eq!((counts.waiting, counts.is_estimate), (3, true));
    assert!((45_000..=75_000).contains(&counts.dead), "{counts:?}");
    fill(&space, "timers", 100_000).await;
    fill(&other, "timers", 30_000).await;
    let counts = store.count(&space).await.expect("it counts");
    assert!(counts.is_estimate);
    assert!((70_000..=120_000).contains(&counts.waiting), "{counts:?}");
    assert_eq!(counts.in_flight, 5_000, "few are counted");
    let counts = store.count(&other).await.expect("it counts");
    assert!((20_000..=40_000).contains(&counts.waiting), "{counts:?}");
    assert!((14_000..=27_000).contains(&counts.dead), "{counts:?}");
    assert_eq!((counts.in_flight, counts.is_estimate), (1_500, true));
    let empty = Namespace::new("empty").expect("it is a name");
    store.open(&empty, &"json".into()).await.expect("it opens");
    let counts = store.count(&empty).await.expect("it counts");
    assert_eq!(
        (counts.waiting, counts.dead, counts.is_estimate),
        (0, 0, false)
    );
}
