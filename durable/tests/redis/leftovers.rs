//! What stays on the server when rows and instances have gone: nothing that grows.

use std::time::Duration;

use redis::Value;
use tickwheel_durable::Redis;
use tickwheel_durable::store::{
    Action, Due, Fire, InstanceId, Load, Namespace, NextOccurrence, Plan, Settle, Settled,
    Settlement, Store, StoreTime, Terms, Write, WriteOutcome,
};
use tokio::time::sleep;

use crate::server::{Server, until};

const HOUR: Duration = Duration::from_secs(3_600);

/// The last parts of the names of all keys, but for those that only instances have.
async fn kept(server: &Server) -> Vec<String> {
    let keys: Value = server.command(&["KEYS", "*leftovers*"]).await;
    let mut keys: Vec<String> = redis::from_redis_value(keys).expect("they are texts");
    keys.sort();
    keys
}

/// Opens it again as an instance that lives for an hour, and has loaded nothing.
async fn live(store: &Redis, space: &Namespace) -> InstanceId {
    let opened = store.open(space, &"json".into()).await.expect("it opens");
    let load = Load::new(opened.instance, HOUR, 0, HOUR);
    store.load(space, load).await.expect("it loads");
    opened.instance
}

/// Whether a timer is delivered, moved or removed, its mark goes with it, and its schedule.
#[tokio::test]
async fn timers_that_come_and_go_leave_nothing() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let (store, space) = server.open("leftovers").await;
    let near = Terms::new(HOUR, Some(live(&store, &space).await));
    let before = kept(&server).await;
    let (now, soon) = (Due::In(Duration::ZERO), Due::In(HOUR / 2));
    let write = async |action| {
        let writes = vec![Write::new(b"timer".to_vec(), action)];
        let written = store.write(&space, writes, near).await;
        written.expect("it writes").remove(0)
    };
    let arm = async |action| match write(action).await {
        WriteOutcome::Armed { row, .. } if row.loaded => row.version,
        other => panic!("{other:?}"),
    };
    let remove = async || {
        let removed = write(Action::Remove).await;
        assert!(matches!(removed, WriteOutcome::Removed { .. }));
    };
    let deliver = async |version| {
        let mut fire = Fire::new(vec![version], Some(HOUR), near);
        let next = NextOccurrence::new(true, 0, StoreTime::NEVER);
        let always = (StoreTime::default(), StoreTime::NEVER);
        fire.plans = vec![Plan::new(version, always.0, always.1, next)];
        let fired = store.fire(&space, fire).await.expect("it fires").fired;
        let ack = vec![Settle::new(fired[0].token, Settlement::Ack)];
        let settled = store.settle(&space, ack, near).await;
        assert_eq!(settled, Ok(vec![Settled::Done]));
    };
    let set = |due, period| Action::set(b"value".to_vec(), due, period, false);
    let scheduled = |schedule: &str| {
        let schedule = schedule.to_owned();
        Action::set_scheduled(b"value".to_vec(), now, schedule)
    };
    deliver(arm(set(now, None)).await).await;
    assert_eq!(kept(&server).await, before, "delivered");
    for first in [set(soon, None), scheduled("a schedule")] {
        arm(first).await;
        arm(scheduled("another one")).await;
        arm(Action::move_to(soon)).await;
        remove().await;
        assert_eq!(kept(&server).await, before, "set again, moved, removed");
        arm(set(soon, None)).await;
        arm(Action::move_to(now)).await;
        remove().await;
        assert_eq!(kept(&server).await, before, "moved, removed");
    }
    for repeats in [set(now, Some(HOUR / 2)), scheduled("a schedule")] {
        deliver(arm(repeats).await).await;
        remove().await;
        assert_eq!(kept(&server).await, before, "repeated, removed");
    }
}

/// A store that connects again sends an epoch, which the server keeps for long enough, and no
/// longer: each restart of a connection would leave another one.
#[tokio::test]
async fn old_epochs_are_forgotten() {
    const DAY: Duration = Duration::from_secs(24 * 3_600);
    const EPOCHS: &str = "tickwheel:{leftovers}:epochs";
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let (store, space) = server.open("leftovers").await;
    let now = store.count(&space).await.expect("it counts").now;
    for (name, days) in [("old", 31), ("recent", 29)] {
        let epoch = now.before(DAY * days).as_micros().to_string();
        server.command(&["ZADD", EPOCHS, &epoch, name]).await;
    }
    let cut = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
    server.command(&cut).await;
    until("it connects again", async || {
        store.count(&space).await.is_ok()
    })
    .await;
    let epochs = server.command(&["ZRANGE", EPOCHS, "0", "-1"]).await;
    let epochs: Vec<String> = redis::from_redis_value(epochs).expect("they are texts");
    assert_eq!(epochs.len(), 2, "that of the store is new: {epochs:?}");
    assert_eq!(epochs[0], "recent");
}

/// A purge left the values of dead timers on the server.
#[tokio::test]
async fn purge_leaves_no_row_in_any_state() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let (store, space) = server.open("leftovers").await;
    let instance = live(&store, &space).await;
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
    let written = store.write(&space, writes, Terms::NONE).await;
    assert_eq!(written.expect("it writes").len(), 3);
    let mut fire = Fire::new(Vec::new(), Some(HOUR), Terms::NONE);
    fire.unloaded = 2;
    let fired = store.fire(&space, fire).await.expect("it fires").fired;
    let dies = Settle::new(fired[0].token, Settlement::Dead).with_error("why");
    let settled = store.settle(&space, vec![dies], Terms::NONE).await;
    settled.expect("it settles");
    let load = Load::new(instance, HOUR, 5, HOUR);
    let loaded = store.load(&space, load).await.expect("it loads");
    assert_eq!(loaded.rows.len(), 1, "the one that waits");
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
    let (store, space) = server.open("leftovers").await;
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
    let (store, space) = server.open("leftovers").await;
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
        .write(&space, write, Terms::NONE)
        .await
        .expect("it writes");
    let versions = load(5).await;
    assert_eq!(versions.len(), 1);
    let all = kept(&server).await;
    for part in [":rows:", ":keys:"] {
        let key = all.iter().find(|key| key.contains(part));
        server.command(&["DEL", key.expect("it is there")]).await;
    }
    let fire = Fire::new(versions, Some(HOUR), Terms::NONE);
    let report = store.fire(&space, fire).await.expect("it answers");
    assert!(report.fired.is_empty(), "{report:?}");
    assert_eq!(kept(&server).await, before);
}
