//! What stays on the server when rows and instances have gone: nothing that grows.

use std::time::Duration;

use redis::Value;
use tickwheel_durable::Redis;
use tickwheel_durable::store::{
    Action, Due, Fire, Load, LoadWindow, Namespace, Settle, Settlement, Store, Write,
};
use tokio::time::sleep;

use crate::server::Server;

const HOUR: Duration = Duration::from_secs(3_600);

async fn open(server: &Server) -> (Redis, Namespace) {
    let (store, space) = (server.connect().await, Namespace::new("leftovers"));
    let space = space.expect("it is a name");
    store.open(&space, &"json".into()).await.expect("it opens");
    (store, space)
}

/// The last parts of the names of all keys, but for those that only instances have.
async fn kept(server: &Server) -> Vec<String> {
    let keys: Value = server.command(&["KEYS", "*leftovers*"]).await;
    let mut keys: Vec<String> = redis::from_redis_value(keys).expect("they are texts");
    keys.sort();
    keys
}

/// A purge left the values of dead timers on the server.
#[tokio::test]
async fn purge_leaves_no_row_in_any_state() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let (store, space) = open(&server).await;
    let before = kept(&server).await;
    let now = Due::In(Duration::ZERO);
    let set = |key: &str| {
        let action = Action::set(b"value".to_vec(), now, None, false);
        Write::new(key.into(), action)
    };
    let scheduled = Action::set_scheduled(b"value".to_vec(), now, "a schedule".to_owned());
    let writes = vec![
        set("dead"),
        set("flies"),
        Write::new(b"scheduled".to_vec(), scheduled),
    ];
    let written = store.write(&space, writes, LoadWindow::NONE).await;
    assert_eq!(written.expect("it writes").len(), 3);
    let mut fire = Fire::new(Vec::new(), Some(HOUR), LoadWindow::NONE);
    fire.unloaded = 2;
    let fired = store.fire(&space, fire).await.expect("it fires").fired;
    let dies = Settle::new(fired[0].token, Settlement::Dead).with_error("why");
    let settled = store.settle(&space, vec![dies], LoadWindow::NONE).await;
    settled.expect("it settles");
    let counts = store.count(&space).await.expect("it counts");
    assert_eq!((counts.waiting, counts.in_flight, counts.dead), (1, 1, 1));
    assert!(kept(&server).await.len() > before.len());
    while store.purge(&space).await.expect("it purges").more {}
    assert_eq!(kept(&server).await, before);
}

/// What dead instances lacked stayed forever.
#[tokio::test]
async fn dead_instances_leave_nothing() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let (store, space) = open(&server).await;
    let instance = async || {
        let opened = store.open(&space, &"json".into()).await;
        opened.expect("it opens").instance
    };
    let (living, ended) = (instance().await, instance().await);
    let alive = Duration::from_millis(20);
    for _ in 0..3 {
        let mut load = Load::new(instance().await, HOUR, 5, alive);
        load.wanted = 5;
        load.name = Some("dead".to_owned());
        store.load(&space, load).await.expect("it loads");
    }
    let mut load = Load::new(ended, HOUR, 5, HOUR);
    load.name = Some("ended".to_owned());
    store.load(&space, load).await.expect("it loads");
    store.unload(&space, ended).await.expect("it unloads");
    sleep(alive * 4).await;
    let load = Load::new(living, HOUR, 5, HOUR);
    store.load(&space, load).await.expect("it loads");
    for name in ["lacks", "instances"] {
        let keys = kept(&server).await;
        let key = keys.iter().find(|key| key.ends_with(&format!(":{name}")));
        let left = match key {
            Some(key) => server.command(&["ZRANGE", key, "0", "-1"]).await,
            None => Value::Array(Vec::new()),
        };
        let left: Vec<String> = redis::from_redis_value(left).expect("they are texts");
        let living = living.0.to_string();
        assert!(left.iter().all(|id| *id == living), "{name}: {left:?}");
    }
    let keys = kept(&server).await;
    let names = keys.iter().filter(|key| key.ends_with(":names"));
    assert_eq!(names.count(), 0, "the living one has no name");
}

/// A row that was deleted behind the store's back is loaded, fails to fire, and is forgotten: it
/// took a place of each load.
#[tokio::test]
async fn version_without_a_row_is_forgotten() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let (store, space) = open(&server).await;
    let opened = store.open(&space, &"json".into()).await.expect("it opens");
    let load = async |wanted: usize| {
        let loading = Load::new(opened.instance, HOUR, wanted, HOUR);
        let loaded = store.load(&space, loading).await.expect("it loads");
        let versions = loaded.rows.iter().map(|&(version, _)| version);
        versions.collect::<Vec<_>>()
    };
    load(0).await;
    let before = kept(&server).await;
    let set = Action::set(b"value".to_vec(), Due::In(Duration::ZERO), None, false);
    let write = vec![Write::new(b"gone".to_vec(), set)];
    store
        .write(&space, write, LoadWindow::NONE)
        .await
        .expect("it writes");
    let versions = load(5).await;
    assert_eq!(versions.len(), 1);
    let all = kept(&server).await;
    for part in [":rows", ":keys"] {
        let key = all.iter().find(|key| key.ends_with(part));
        server.command(&["DEL", key.expect("it is there")]).await;
    }
    let fire = Fire::new(versions, Some(HOUR), LoadWindow::NONE);
    let report = store.fire(&space, fire).await.expect("it answers");
    assert!(report.fired.is_empty(), "{report:?}");
    assert_eq!(kept(&server).await, before);
}
