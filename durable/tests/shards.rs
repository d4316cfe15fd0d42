//! One handle and one stream of claims on several stores.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use futures_util::future::join;
use tickwheel::TimerWheel;
use tickwheel_durable::store::{Namespace, Store, StoreError};
use tickwheel_durable::{
    BuildError, Claims, Error, Memory, Moved, Rebalanced, Removed, Retry, Shards, builder,
};
use tickwheel_durable_conformance::{FaultPoint, Faulty};
use tokio::time::{Instant, sleep, timeout};

use support::{HOUR, Instance, SECOND, Timers, next, set};

#[path = "shards/suite.rs"]
mod suite;
mod support;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// The stores of shards, which can be taken away.
type Stores = [Faulty<Memory>; 3];

fn stores() -> Stores {
    NAMES.map(|_| Faulty::new(Memory::new()))
}

/// The first so many of them, as shards.
fn shards(stores: &Stores, count: usize) -> Shards {
    let named = NAMES.into_iter().zip(stores.iter().cloned());
    Shards::stores(named.take(count))
}

async fn start(shards: Shards) -> Instance {
    support::start(shards, |builder| builder).await
}

/// A key that this shard has.
fn key_in(timers: &Timers, shard: &str) -> String {
    let mut keys = (0..).map(|number| format!("key {number}"));
    let is_there = |key: &String| timers.shard_of(key) == Ok(Some(shard));
    keys.find(is_there).expect("each shard has keys")
}

/// The next claims, acknowledged: how often each key was delivered.
async fn deliveries(claims: &mut Claims<String, u32>, time: Duration) -> BTreeMap<String, u32> {
    let mut delivered = BTreeMap::new();
    let all = async {
        while let Some(claim) = claims.recv().await {
            claim.ack().await.expect("it is held");
            *delivered.entry(claim.key).or_default() += 1;
        }
    };
    let _ = timeout(time, all).await;
    delivered
}

fn names_shard(error: &Error, shard: &str) -> bool {
    let is_named = matches!(error, Error::Shard { name, .. } if **name == *shard);
    is_named && error.to_string().starts_with(&format!("shard {shard}: "))
}

#[tokio::test(start_paused = true)]
async fn all_shards_deliver_to_one_stream() {
    let stores = stores();
    let (timers, mut claims) = start(shards(&stores, 3)).await;
    let keys: BTreeSet<String> = (0..300).map(|number| format!("key {number}")).collect();
    for key in &keys {
        set(&timers, key, SECOND * 5).await;
    }
    let waiting = timers.counts().await.expect("they count").waiting;
    assert_eq!(waiting, 300);
    for store in &stores {
        assert!(store.row_writes() > 50, "each has its share");
    }
    let delivered = deliveries(&mut claims, SECOND * 10).await;
    assert!(delivered.keys().eq(&keys));
    assert!(delivered.values().all(|&times| times == 1), "{delivered:?}");
    assert_eq!(timers.metrics().delivered, 300);
}

#[tokio::test(start_paused = true)]
async fn shard_that_is_down_stops_only_its_own_timers() {
    let stores = stores();
    let (timers, mut claims) = start(shards(&stores, 3)).await;
    let keys = NAMES.map(|name| key_in(&timers, name));
    for (number, key) in keys.iter().enumerate() {
        set(
            &timers,
            key,
            SECOND * (10 + u32::try_from(number).expect("few")),
        )
        .await;
    }
    let began = Instant::now();
    stores[1].set_away(true);
    let failed = timers.set_timer(&keys[1], &1, HOUR).await;
    let error = failed.expect_err("it is away");
    assert!(names_shard(&error, "b"), "{error}");
    let error = timers.counts().await.expect_err("one is away");
    assert!(names_shard(&error, "b"), "{error}");
    for (number, seconds) in [(0, 10), (2, 12)] {
        let claim = next(&mut claims).await;
        assert_eq!(claim.key, keys[number]);
        let late = began.elapsed().checked_sub(SECOND * seconds);
        assert!(late.expect("not early") < SECOND / 100, "{late:?}");
        claim.ack().await.expect("its shard is there");
    }
    set(&timers, &keys[0], SECOND).await;
    let claim = next(&mut claims).await;
    assert_eq!(claim.key, keys[0]);
    claim.ack().await.expect("its shard is there");
    assert!(timers.metrics().failing.write);
    stores[1].set_away(false);
    assert_eq!(next(&mut claims).await.key, keys[1]);
}

/// A shard that does not answer holds what it has asked for, and others must not wait for that.
#[tokio::test(start_paused = true)]
async fn shard_that_hangs_leaves_demand_to_the_others() {
    let stores = stores();
    let (timers, mut claims) = start(shards(&stores, 2)).await;
    let keys = ["a", "b"].map(|name| key_in(&timers, name));
    stores[1].set_slow("fire", HOUR);
    set(&timers, &keys[1], SECOND).await;
    // The only place of the program goes to the one that hangs.
    let quiet = timeout(SECOND * 2, claims.recv()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    for _ in 0..20 {
        set(&timers, &keys[0], SECOND).await;
        let began = Instant::now();
        next(&mut claims).await.ack().await.expect("it is held");
        let late = began.elapsed().checked_sub(SECOND);
        assert!(late.expect("not early") < SECOND / 100, "{late:?}");
    }
    let error = {
        stores[1].set_slow("write", HOUR);
        timers.move_timer(&keys[1], HOUR).await
    };
    let error = error.expect_err("it hangs");
    assert!(names_shard(&error, "b"), "{error}");
    let began = Instant::now();
    timers.shutdown().await;
    assert!(began.elapsed() < SECOND * 20, "{:?}", began.elapsed());
    assert!(claims.recv().await.is_none(), "the stream has ended");
}

#[tokio::test(start_paused = true)]
async fn instance_starts_while_a_shard_is_down() {
    let stores = stores();
    stores[0].set_away(true);
    stores[2].set_away(true);
    let (timers, mut claims) = start(shards(&stores, 3)).await;
    let keys = NAMES.map(|name| key_in(&timers, name));
    set(&timers, &keys[1], SECOND * 10).await;
    let began = Instant::now();
    for (name, key) in [("a", &keys[0]), ("c", &keys[2])] {
        let error = timers.set_timer(key, &0, SECOND).await;
        assert!(names_shard(&error.expect_err("it is away"), name));
    }
    assert!(timers.metrics().failing.load);
    let claim = next(&mut claims).await;
    assert_eq!(claim.key, keys[1]);
    let late = began.elapsed().checked_sub(SECOND * 10);
    assert!(late.expect("not early") < SECOND / 100, "{late:?}");
    claim.ack().await.expect("its shard is there");
    // One comes back, and has what another instance has set meanwhile.
    stores[2].set_away(false);
    let early = timers.set_timer(&keys[2], &0, SECOND).await;
    let early = early.expect_err("its namespace is not there yet");
    assert!(names_shard(&early, "c"), "{early}");
    let Error::Shard { error, .. } = early else {
        unreachable!();
    };
    assert!(matches!(*error, Error::Store(error) if error.may_pass()));
    sleep(SECOND * 2).await;
    set(&timers, &keys[2], SECOND * 2).await;
    let began = Instant::now();
    let claim = next(&mut claims).await;
    assert_eq!((&claim.key, claim.attempt), (&keys[2], 1));
    assert!(began.elapsed() < SECOND * 2 + SECOND / 100);
    claim.ack().await.expect("its shard is there");
    let began = Instant::now();
    timers.shutdown().await;
    assert!(
        began.elapsed() < SECOND,
        "the one that is away was not opened"
    );
    assert!(claims.recv().await.is_none(), "the stream has ended");
}

#[tokio::test(start_paused = true)]
async fn instance_does_not_start_without_any_shard() {
    let stores = stores();
    for store in &stores {
        store.set_away(true);
    }
    let wheel = TimerWheel::new();
    let started = builder::<String, u32>("orders").start(&wheel, shards(&stores, 3));
    let refused = started.await.expect_err("all are away");
    let BuildError::Open(error) = &refused else {
        panic!("{refused}");
    };
    assert!(names_shard(error, "a"), "{error}");
    assert!(matches!(
        error,
        Error::Shard { error, .. } if matches!(**error, Error::Store(StoreError::Unavailable { .. }))
    ));
}

/// A shard that another codec has written will never open: the instance says so at once.
#[tokio::test(start_paused = true)]
async fn instance_does_not_start_with_a_shard_that_refuses() {
    let stores = stores();
    let space = Namespace::new("orders").expect("it is a name");
    let opened = stores[2].open(&space, "another").await;
    opened.expect("it opens");
    stores[0].set_away(true);
    let wheel = TimerWheel::new();
    let started = builder::<String, u32>("orders").start(&wheel, shards(&stores, 3));
    let BuildError::Open(error) = started.await.expect_err("it refuses") else {
        panic!("it was opened");
    };
    assert!(names_shard(&error, "c"), "{error}");
    // The other was opened, and runs no tasks: nothing calls it.
    let calls = stores[1].calls();
    sleep(HOUR).await;
    assert_eq!(stores[1].calls(), calls);
}

#[tokio::test(start_paused = true)]
async fn key_is_found_after_a_restart_in_another_order() {
    let stores = stores();
    let (timers, _claims) = start(shards(&stores, 3)).await;
    let keys: Vec<String> = (0..50).map(|number| format!("key {number}")).collect();
    for key in &keys {
        set(&timers, key, HOUR).await;
    }
    timers.shutdown().await;
    let reversed = NAMES.into_iter().zip(stores.clone()).rev();
    let (timers, _claims) = start(Shards::stores(reversed)).await;
    for key in &keys {
        let removed = timers.remove_timer(key).await;
        assert_eq!(removed, Ok(Removed::Value(0)));
    }
}

#[tokio::test(start_paused = true)]
async fn calls_on_one_key_keep_their_order() {
    let (timers, mut claims) = start(Shards::namespaces(Memory::new(), 4)).await;
    let key = "key".to_owned();
    let values: Vec<u32> = (0..2_000).collect();
    let sets = values.iter().map(|value| (&key, value, SECOND));
    let set = timers.set_many(sets);
    let (set, moved) = join(set, timers.move_timer(&key, SECOND * 2)).await;
    set.expect("they are set");
    assert_eq!(moved, Ok(Moved::Yes));
    let began = Instant::now();
    let claim = next(&mut claims).await;
    assert_eq!(claim.value, 1_999);
    assert!(began.elapsed() >= SECOND * 2, "it was moved last");
}

/// Stores count their versions each for itself.
#[tokio::test(start_paused = true)]
async fn equal_tokens_of_two_shards_are_told_apart() {
    let stores = stores();
    let (timers, mut claims) = start(shards(&stores, 2)).await;
    let (other, mut others) = start(shards(&stores, 2)).await;
    let keys = ["a", "b"].map(|name| key_in(&timers, name));
    for key in &keys {
        set(&timers, key, SECOND).await;
    }
    let (one, two) = (next(&mut claims).await, next(&mut claims).await);
    assert_eq!(one.token().get(), two.token().get());
    assert_ne!(one.token(), two.token());
    let admin = other.admin();
    let in_flight = admin.in_flight(None, 10).await.expect("they list");
    let tokens: Vec<_> = in_flight
        .iter()
        .filter_map(|entry| entry.in_flight)
        .collect();
    assert_eq!(tokens.len(), 2);
    admin.release(two.token()).await.expect("it is in flight");
    let again = next(&mut others).await;
    assert_eq!((again.key, again.attempt), (two.key.clone(), 2));
    one.ack().await.expect("this one is held");
    let lost = two.ack().await;
    assert_eq!(lost, Err(Error::Lost { token: two.token() }));
}

#[tokio::test(start_paused = true)]
async fn lists_are_merged_and_read_page_by_page() {
    let stores = stores();
    let (timers, _claims) = start(shards(&stores, 3)).await;
    let now: SystemTime = timers.counts().await.expect("they count").now.into();
    // Versions and deadlines are equal in all shards.
    let mut expected = Vec::new();
    for round in 0..4 {
        for name in NAMES {
            let key = format!("{} {round}", key_in(&timers, name));
            let deadline = now + HOUR * (1 + round / 2);
            let set = timers.set_timer_at(&key, &0, deadline).await;
            set.expect("it is set");
            expected.push((deadline, key));
        }
    }
    expected.sort();
    for limit in [1, 2, 5, 100] {
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let page = timers.admin().pending(after, limit).await;
            let page = page.expect("they list");
            assert!(page.len() <= limit);
            let Some(last) = page.last() else { break };
            after = Some(last.position());
            for entry in page {
                let key = entry.key.expect("it decodes");
                let shard = timers.shard_of(&key).expect("it encodes");
                assert_eq!(entry.shard.as_deref(), shard);
                listed.push((entry.deadline, key));
            }
        }
        assert!(listed.is_sorted_by_key(|(deadline, _)| *deadline));
        listed.sort();
        assert_eq!(listed, expected, "pages of {limit}");
    }
}

#[tokio::test(start_paused = true)]
async fn dead_timers_of_all_shards_are_retried_and_discarded() {
    let stores = stores();
    let (timers, mut claims) = start(shards(&stores, 3)).await;
    let keys = NAMES.map(|name| key_in(&timers, name));
    for key in &keys {
        set(&timers, key, SECOND).await;
    }
    for _ in &keys {
        let failed = next(&mut claims).await.fail(Retry::never("no")).await;
        failed.expect("it is held");
    }
    let admin = timers.admin();
    let dead = admin.dead(None, 10).await.expect("they list");
    assert_eq!(dead.len(), 3);
    let token = dead[0].dead.expect("it is dead").token;
    assert_eq!(admin.retry_dead(token).await, Ok(true));
    assert_eq!(admin.retry_dead(token).await, Ok(false));
    assert_eq!(admin.retry_all_dead().await, Ok(2));
    let delivered = deliveries(&mut claims, SECOND).await;
    assert_eq!(delivered.len(), 3);
    set(&timers, &keys[0], HOUR).await;
    set(&timers, &keys[1], HOUR).await;
    assert_eq!(admin.purge().await, Ok(2));
}

/// Adds a shard as its page says.
#[tokio::test(start_paused = true)]
async fn shard_is_added_and_removed_by_a_rebalance() {
    let stores = stores();
    let (timers, claims) = start(shards(&stores, 2)).await;
    let keys: BTreeSet<String> = (0..600).map(|number| format!("key {number}")).collect();
    for key in &keys {
        set(&timers, key, HOUR).await;
    }
    let repeating = "key 7".to_owned();
    let set = timers.set_interval(&repeating, &7, HOUR).await;
    set.expect("it is set");
    drop(claims);
    timers.shutdown().await;

    for draining in [false, true] {
        let mut after = shards(&stores, 3);
        if draining {
            after = after.draining("c");
        }
        let (timers, claims) = start(after).await;
        claims.shutdown().await;
        let rebalanced = timers.admin().rebalance().await.expect("they are there");
        assert!((150..250).contains(&rebalanced.moved), "{rebalanced:?}");
        assert_eq!(rebalanced.left, 0);
        let again = timers.admin().rebalance().await;
        assert_eq!(again, Ok(Rebalanced::default()));
        for key in &keys {
            let deadline = timers.deadline(key).await.expect("it is there");
            assert!(deadline.is_some(), "{key} is found by its key");
        }
        let counts = timers.counts().await.expect("they count");
        assert_eq!(counts.waiting, 600);
    }
    let (timers, mut claims) = start(shards(&stores, 2)).await;
    assert_eq!(timers.counts().await.expect("they count").waiting, 600);
    sleep(SECOND * 3_540).await;
    let delivered = deliveries(&mut claims, SECOND * 120).await;
    assert!(delivered.keys().eq(&keys));
    assert!(delivered.values().all(|&times| times == 1), "{delivered:?}");
    let removed = timers.remove_timer(&repeating).await;
    assert_eq!(removed, Ok(Removed::Value(7)), "it goes on repeating");
}

#[tokio::test(start_paused = true)]
async fn rebalance_that_fails_anywhere_loses_nothing() {
    let mut fails_at = 0;
    loop {
        let stores = stores();
        let (timers, claims) = start(shards(&stores, 2)).await;
        let keys: BTreeSet<String> = (0..40).map(|number| format!("key {number}")).collect();
        for key in &keys {
            set(&timers, key, HOUR).await;
        }
        drop(claims);
        timers.shutdown().await;
        let (timers, claims) = start(shards(&stores, 3)).await;
        claims.shutdown().await;
        for store in &stores {
            let call = store.calls() + fails_at / 2;
            let point = [FaultPoint::Before, FaultPoint::After];
            store.fail_at(call, point[usize::from(fails_at % 2 == 1)]);
        }
        let first = timers.admin().rebalance().await;
        let has_struck = stores.iter().any(Faulty::has_struck);
        assert_eq!(first.is_err(), has_struck);
        let mut rebalanced = timers.admin().rebalance().await;
        while rebalanced.is_err() {
            rebalanced = timers.admin().rebalance().await;
        }
        timers.shutdown().await;
        let (timers, mut claims) = start(shards(&stores, 3)).await;
        for key in &keys {
            let deadline = timers.deadline(key).await.expect("it is there");
            assert!(deadline.is_some(), "{key} after a failure at {fails_at}");
        }
        sleep(SECOND * 3_540).await;
        let delivered = deliveries(&mut claims, SECOND * 120).await;
        assert!(delivered.keys().eq(&keys));
        assert!(delivered.values().all(|&times| times == 1), "{delivered:?}");
        if !has_struck {
            break;
        }
        fails_at += 1;
    }
    assert!(fails_at > 10, "only {fails_at} failures");
}

#[tokio::test(start_paused = true)]
async fn rebalance_leaves_dead_timers_and_those_in_flight() {
    let stores = stores();
    let (timers, mut claims) = start(shards(&stores, 2)).await;
    let (before, _) = start(shards(&self::stores(), 3)).await;
    // They will belong to the third.
    let keys = (0..).map(|number| format!("key {number}"));
    let moving = keys.filter(|key| before.shard_of(key) == Ok(Some("c")));
    let keys: Vec<String> = moving.take(3).collect();
    // An occurrence of the first dies, and the next one waits.
    let repeating = timers.set_interval(&keys[0], &0, HOUR).await;
    repeating.expect("it is set");
    let moved = timers.move_timer(&keys[0], SECOND).await;
    assert_eq!(moved, Ok(Moved::Yes));
    for key in &keys[1..] {
        set(&timers, key, SECOND).await;
    }
    let mut held = Vec::new();
    for _ in &keys {
        let claim = next(&mut claims).await;
        if claim.key == keys[0] {
            claim.fail(Retry::never("no")).await.expect("it is held");
        } else if claim.key == keys[1] {
            claim.ack().await.expect("it is held");
        } else {
            held.push(claim);
        }
    }
    set(&timers, &keys[1], HOUR).await;
    let (timers, claims) = start(shards(&stores, 3)).await;
    claims.shutdown().await;
    let rebalanced = timers.admin().rebalance().await.expect("they are there");
    assert_eq!((rebalanced.moved, rebalanced.left), (1, 3));
    let dead = timers.admin().dead(None, 10).await.expect("they list");
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].error.as_deref(), Some("no"));
}

#[tokio::test]
async fn refuses_names_and_numbers_out_of_bounds() {
    let long = "x".repeat(64);
    let named = |names: &[&str]| {
        let stores = names.iter().map(|name| (*name, Memory::new()));
        Shards::stores(stores)
    };
    for (namespace, shards, text) in [
        (
            "orders",
            named(&[]),
            "with keys is 0; it must be from 1 to 256",
        ),
        ("orders", named(&["a"]).draining("a"), "with keys is 0;"),
        (
            "orders",
            Shards::namespaces(Memory::new(), 1_000_000),
            "is 1000000;",
        ),
        (
            "orders",
            named(&["a", "a"]),
            "two shards have the name \"a\"",
        ),
        (
            "orders",
            named(&["a", "b c"]),
            "has the name \"b c\"; it must be 1 to 64",
        ),
        (
            &long,
            Shards::namespaces(Memory::new(), 2),
            "x.0\"; it must be 1 to 64",
        ),
    ] {
        let wheel = TimerWheel::new();
        let refused = builder::<String, u32>(namespace)
            .start(&wheel, shards)
            .await;
        let refused = refused.expect_err("it is out of bounds").to_string();
        assert!(refused.contains(text), "{refused}");
    }
}
