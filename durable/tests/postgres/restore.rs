//! Databases that went back in time or were made again, under stores that are connected and before.

use std::time::Duration;

use tickwheel_durable::Postgres;
use tickwheel_durable::store::{
    Action, Due, Fire, List, LoadWindow, Namespace, Settle, Settled, Settlement, State, Store,
    StoreError, Write,
};

use super::server::{FIRST_SCHEMA, client, database, missing, shared_url, until};

async fn set(store: &Postgres, space: &Namespace, key: &str) -> Result<(), StoreError> {
    let action = Action::set(
        b"1".to_vec(),
        Due::In(Duration::from_secs(3_600)),
        None,
        false,
    );
    let key = key.into();
    let near = LoadWindow::new(Duration::ZERO, None);
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

/// The first error of a store, whose connections may still have to find out that they are lost.
async fn refusal(store: &Postgres, space: &Namespace) -> String {
    let mut text = String::new();
    until("a refusal", async || {
        match set(store, space, "late").await {
            Err(StoreError::Refused { message, .. }) => {
                text = message;
                true
            }
            _ => false,
        }
    })
    .await;
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_the_first_schema_are_upgraded() {
    let Some(url) = database("upgraded").await else {
        return missing();
    };
    let old = Postgres::connect(&url).await.expect("it connects");
    let space = space("upgraded");
    old.open(&space, "json").await.expect("it opens");
    set(&old, &space, "a").await.expect("it is set");
    let admin = client(&url).await;
    admin.batch_execute(FIRST_SCHEMA).await.expect("it is made");
    // Two that connect at once upgrade them once.
    let (store, other) = tokio::join!(Postgres::connect(&url), Postgres::connect(&url));
    let (store, other) = (store.expect("it connects"), other.expect("it connects"));
    let row = store.get(&space, b"a".to_vec()).await.expect("it reads");
    assert_eq!(row.expect("it is there").error, None);
    let near = LoadWindow::new(Duration::ZERO, None);
    let now = Action::move_to(Due::In(Duration::ZERO));
    let moved = other.write(&space, vec![Write::new(b"a".to_vec(), now)], near);
    moved.await.expect("it moves");
    let mut fire = Fire::new(Vec::new(), Some(Duration::ZERO), near);
    fire.unloaded = 1;
    let fired = store.fire(&space, fire).await.expect("it fires").fired;
    let dead = Settle::new(fired[0].token, Settlement::Dead).with_error("why");
    let settled = store.settle(&space, vec![dead], near).await;
    assert_eq!(settled, Ok(vec![Settled::Done]));
    let counts = other.count(&space).await.expect("it counts");
    assert_eq!((counts.waiting, counts.in_flight, counts.dead), (0, 0, 1));
}

/// It was accepted without a word, and tokens shrank.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequence_behind_the_versions_is_refused() {
    let Some(url) = database("sequence").await else {
        return missing();
    };
    let store = Postgres::connect(&url).await.expect("it connects");
    let space = space("sequence");
    store.open(&space, "json").await.expect("it opens");
    for key in ["a", "b", "c"] {
        set(&store, &space, key).await.expect("it is set");
    }
    let admin = client(&url).await;
    let greatest = "SELECT max(version) FROM tickwheel_timers";
    let row = admin.query_one(greatest, &[]).await.expect("it reads");
    let greatest: i64 = row.get(0);
    let back = "SELECT setval('tickwheel_versions', 2)";
    admin.batch_execute(back).await.expect("it is set");
    let names_both = |text: &str| {
        assert!(text.contains("has given 2 "), "{text}");
        assert!(text.contains(&format!("version {greatest} ")), "{text}");
    };
    let refused = Postgres::connect(&url).await.expect_err("it went back");
    assert!(matches!(refused, StoreError::Refused { .. }), "{refused}");
    names_both(&refused.to_string());
    // A store that was connected finds out when it connects again.
    cut(&url).await;
    names_both(&refusal(&store, &space).await);
    let forward = format!("SELECT setval('tickwheel_versions', {greatest})");
    let admin = client(&url).await;
    admin.batch_execute(&forward).await.expect("it is set");
    Postgres::connect(&url).await.expect("it is mended");
    set(&store, &space, "d").await.expect("it is mended");
}

/// A standby that had not received the last commits takes over. They are gone, so no row shows that versions are given twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_commits_are_refused_by_the_store_that_saw_them() {
    let Some(url) = database("lost").await else {
        return missing();
    };
    let store = Postgres::connect(&url).await.expect("it connects");
    let space = space("lost");
    store.open(&space, "json").await.expect("it opens");
    let admin = client(&url).await;
    let row = admin.query_one("SELECT last_value FROM tickwheel_versions", &[]);
    let before: i64 = row.await.expect("it reads").get(0);
    set(&store, &space, "a").await.expect("it is set");
    let lost =
        format!("DELETE FROM tickwheel_timers; SELECT setval('tickwheel_versions', {before})");
    admin.batch_execute(&lost).await.expect("it is lost");
    cut(&url).await;
    let text = refusal(&store, &space).await;
    assert!(
        text.contains("lost commits") && text.contains(&format!("has given {before},")),
        "{text}"
    );
    let new = Postgres::connect(&url).await.expect("it has seen nothing");
    set(&new, &space, "b").await.expect("it is set");
}

/// Numbers of namespaces are used again, and timers went to the namespace that had the number then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_made_again_mixes_no_namespaces() {
    let Some(url) = database("again").await else {
        return missing();
    };
    let old = Postgres::connect(&url).await.expect("it connects");
    let mine = space("mine");
    old.open(&mine, "json").await.expect("it opens");
    set(&old, &mine, "a").await.expect("it is set");
    let admin = client(shared_url().expect("it is there")).await;
    let name = url.rsplit_once('/').expect("it has a name").1;
    for sql in [
        format!("DROP DATABASE {name} WITH (FORCE)"),
        format!("CREATE DATABASE {name}"),
    ] {
        admin.batch_execute(&sql).await.expect("it is made again");
    }
    // Before an instance has made tables there, and after.
    let text = refusal(&old, &mine).await;
    assert!(text.contains("dropped or made again"), "{text}");
    let new = Postgres::connect(&url).await.expect("it connects");
    let other = space("other");
    new.open(&other, "json").await.expect("it opens");
    let text = refusal(&old, &mine).await;
    assert!(text.contains("dropped or made again"), "{text}");
    let list = List::new(State::Waiting, None, 10);
    let rows = new.list(&other, list).await.expect("it lists");
    assert_eq!(rows, []);
}
