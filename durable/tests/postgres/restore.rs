//! Databases that went back in time or were made again, under stores that are connected and before.

use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_durable::store::{
    Action, Due, Fire, List, Load, Namespace, Settle, Settlement, State, Store, StoreError, Terms,
    Write,
};
use tickwheel_durable::{Postgres, builder};
use tokio::time::timeout;

use super::server::{client, database, missing, shared_url, until};

async fn set(store: &Postgres, space: &Namespace, key: &str) -> Result<(), StoreError> {
    let action = Action::set(
        b"1".to_vec(),
        Due::In(Duration::from_secs(3_600)),
        None,
        false,
    );
    let key = key.into();
    let near = Terms::NONE;
    let written = store
        .write(space, vec![Write::new(key, action)], near)
        .await;
    written.map(drop)
}

fn space(name: &str) -> Namespace {
    Namespace::new(name).expect("it is a name")
}

/// Ends all other connections of a database.
async fn cut(url: &str) {
    let cut = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let cut = client(url).await.query_one(cut, &[]).await;
    cut.expect("it cuts");
}

/// What a standby lacks, or a dump has left out: versions were given twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_grow_though_the_sequence_went_back() {
    let Some(url) = database("sequence").await else {
        return missing();
    };
    let store = Postgres::connect(&url).await.expect("it connects");
    let space = space("sequence");
    store.open(&space, &"json".into()).await.expect("it opens");
    let version = async |store: &Postgres, key: &str| {
        // The connections may still have to find out that they are lost.
        until("a set", async || set(store, &space, key).await.is_ok()).await;
        let rows = store.rows_of(&space, key.into(), 1).await;
        rows.expect("it reads")[0].version
    };
    let mut last = version(&store, "a").await;
    for (lost, key) in [("", "b"), ("DELETE FROM tickwheel_timers;", "c")] {
        let admin = client(&url).await;
        let back = format!("{lost} SELECT setval('tickwheel_versions', 2)");
        admin.batch_execute(&back).await.expect("it is set");
        let new = Postgres::connect(&url).await.expect("it connects");
        let given = version(&new, key).await;
        assert!(given > last, "{given:?} after {last:?}");
        cut(&url).await;
        last = version(&store, key).await;
        assert!(last > given, "{last:?} after {given:?}");
    }
}

/// What the clock had shown before it stepped back is in versions and ids.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_grow_beyond_all_that_is_stored() {
    let Some(url) = database("stepped").await else {
        return missing();
    };
    let store = Postgres::connect(&url).await.expect("it connects");
    let space = space("stepped");
    let opened = store.open(&space, &"json".into()).await.expect("it opens");
    let hour = Duration::from_secs(3_600);
    let load = Load::new(opened.instance, hour, 1, hour);
    store.load(&space, load).await.expect("it loads");
    let near = Terms::NONE;
    let dies = Action::set(b"1".to_vec(), Due::In(Duration::ZERO), None, false);
    let write = vec![Write::new(b"dies".to_vec(), dies)];
    store.write(&space, write, near).await.expect("it is set");
    let mut fire = Fire::new(Vec::new(), Some(hour), near);
    fire.unloaded = 1;
    let fired = store.fire(&space, fire).await.expect("it fires").fired;
    let dies = Settle::new(fired[0].token, Settlement::Dead);
    let settled = store.settle(&space, vec![dies], near).await;
    settled.expect("it settles");
    set(&store, &space, "waits").await.expect("it is set");
    let admin = client(&url).await;
    // Later than the clock shows, and all three below the sequence's end.
    let step = 2_500_000_000_000_000;
    for (round, column) in [
        (1, "tickwheel_timers SET version"),
        (2, "tickwheel_dead SET version"),
        (3, "tickwheel_instances SET id"),
    ] {
        let ahead: i64 = round * step;
        let changed = format!("UPDATE {column} = {ahead}");
        assert_eq!(admin.execute(&changed, &[]).await.expect("it is set"), 1);
        let back = "SELECT setval('tickwheel_versions', 2)";
        admin.batch_execute(back).await.expect("it is set");
        let new = Postgres::connect(&url).await.expect("it connects");
        let key = round.to_string();
        set(&new, &space, &key).await.expect("it is set");
        let rows = new.rows_of(&space, key.into(), 1).await;
        let given = rows.expect("it reads")[0].version.0;
        assert!(given > ahead, "{given} beside {column} = {ahead}");
        let empty = "TRUNCATE tickwheel_timers";
        admin.batch_execute(empty).await.expect("it is empty");
    }
}

/// Many that connect while others draw numbers never set the sequence back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_do_not_set_the_sequence_back() {
    let Some(url) = database("ahead").await else {
        return missing();
    };
    let admin = client(&url).await;
    Postgres::connect(&url).await.expect("it connects");
    let draw = "SELECT nextval('tickwheel_versions')";
    let drawing = async {
        let mut last = 0;
        for _ in 0..2_000 {
            let row = admin.query_one(draw, &[]).await.expect("it draws");
            let number: i64 = row.get(0);
            assert!(number > last, "{number} after {last}");
            last = number;
        }
    };
    let connecting = async {
        for _ in 0..5 {
            let (one, other) = tokio::join!(Postgres::connect(&url), Postgres::connect(&url));
            one.and(other).expect("it connects");
        }
    };
    tokio::join!(drawing, connecting);
}

/// As after a failover that lost it: others opened it under another number, and the instances that
/// ran before never saw their timers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespace_that_the_server_has_lost_is_opened_again() {
    let Some(url) = database("lost").await else {
        return missing();
    };
    let store = Postgres::connect(&url).await.expect("it connects");
    let wheel = TimerWheel::new();
    let started = builder::<u64, u64>("mine").start(&wheel, store).await;
    let (timers, mut claims) = started.expect("it starts");
    let lost = "UPDATE tickwheel_namespaces SET name = 'other', edition = edition + 1";
    for lost in ["DELETE FROM tickwheel_namespaces", lost] {
        let admin = client(&url).await;
        assert_eq!(admin.execute(lost, &[]).await.expect("it is lost"), 1);
        let other = Postgres::connect(&url).await.expect("it connects");
        let mine = space("mine");
        other.open(&mine, &"json".into()).await.expect("it opens");
        until("a set", async || {
            timers.set_timer(&1, &1, Duration::ZERO).await.is_ok()
        })
        .await;
        let set = other.rows_of(&mine, b"1".to_vec(), 1).await;
        let is_set = !set.expect("it reads").is_empty();
        assert!(is_set, "it is in the namespace that others see");
        let claim = timeout(Duration::from_secs(9), claims.recv()).await;
        let claim = claim.expect("it comes").expect("the stream goes on");
        claim.ack().await.expect("it is held");
    }
}

/// The instance wrote nothing: it unloaded first, which was refused, forever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_namespace_is_opened_by_an_instance_that_writes_nothing() {
    let Some(url) = database("lost_idle").await else {
        return missing();
    };
    let store = Postgres::connect(&url).await.expect("it connects");
    let poll = Duration::from_millis(200);
    let builder = builder::<u64, u64>("mine").poll(poll);
    let started = builder.start(&TimerWheel::new(), store).await;
    let (_timers, mut claims) = started.expect("it starts");
    let admin = client(&url).await;
    let lost = "DELETE FROM tickwheel_namespaces";
    assert_eq!(admin.execute(lost, &[]).await.expect("it is lost"), 1);
    until("a namespace", async || {
        let found = admin.query("SELECT FROM tickwheel_namespaces", &[]).await;
        !found.expect("it reads").is_empty()
    })
    .await;
    let set = "SELECT tickwheel_set('mine', to_jsonb(1), '1', now())";
    admin.batch_execute(set).await.expect("it is set");
    let claim = timeout(Duration::from_secs(9), claims.recv()).await;
    let claim = claim.expect("it comes").expect("the stream goes on");
    claim.ack().await.expect("it is held");
}

/// A store that only looks, as a program of an operator, kept the number that the namespace had.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn looks_find_a_lost_namespace_under_its_new_number() {
    let Some(url) = database("lost_looks").await else {
        return missing();
    };
    let mine = space("mine");
    let store = Postgres::connect(&url).await.expect("it connects");
    store.open(&mine, &"json".into()).await.expect("it opens");
    let looks = Postgres::connect(&url).await.expect("it connects");
    assert_eq!(looks.count(&mine).await.expect("it counts").waiting, 0);
    let lost = "DELETE FROM tickwheel_namespaces";
    let admin = client(&url).await;
    admin.batch_execute(lost).await.expect("it is lost");
    store.open(&mine, &"json".into()).await.expect("it opens");
    set(&store, &mine, "a").await.expect("it is set");
    assert_eq!(looks.count(&mine).await.expect("it counts").waiting, 1);
}

/// Numbers of namespaces are used again, and timers went to the namespace that had the number then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_made_again_mixes_no_namespaces() {
    let Some(url) = database("again").await else {
        return missing();
    };
    let old = Postgres::connect(&url).await.expect("it connects");
    let mine = space("mine");
    old.open(&mine, &"json".into()).await.expect("it opens");
    set(&old, &mine, "a").await.expect("it is set");
    let admin = client(shared_url().expect("it is there")).await;
    let name = url.rsplit_once('/').expect("it has a name").1;
    for sql in [
        format!("DROP DATABASE {name} WITH (FORCE)"),
        format!("CREATE DATABASE {name}"),
    ] {
        admin.batch_execute(&sql).await.expect("it is made again");
    }
    // Before an instance has made tables there.
    let mut text = String::new();
    until("a refusal", async || match set(&old, &mine, "late").await {
        Err(StoreError::Refused { message, .. }) => {
            text = message;
            true
        }
        _ => false,
    })
    .await;
    assert!(text.contains("there are no tables any more"), "{text}");
    let new = Postgres::connect(&url).await.expect("it connects");
    let other = space("other");
    new.open(&other, &"json".into()).await.expect("it opens");
    // After that its namespace is gone, until it is opened again.
    until("a namespace that is gone", async || {
        let set = set(&old, &mine, "late").await;
        matches!(set, Err(StoreError::NotOpened { .. }))
    })
    .await;
    old.open(&mine, &"json".into()).await.expect("it opens");
    set(&old, &mine, "a").await.expect("it is set");
    let list = List::new(State::Waiting, None, 10);
    let rows = new.list(&other, list).await.expect("it lists");
    assert_eq!(rows, []);
}
