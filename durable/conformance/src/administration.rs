//! An operator's calls on a running instance.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use tickwheel_durable::store::{State, Store};
use tickwheel_durable::{Change, Changed, Entry, Error, Position, Retry};
use tokio::time::{sleep, timeout};

use super::steps::in_steps;
use super::world::{Running, Stores, World};

/// More timers than a store deletes or retries in one step.
const MANY: u64 = 1_100;

impl<S: Store> Running<S> {
    /// The keys of all timers in a state that begin with a text, read in pages of that many.
    async fn with_prefix(&self, state: State, text: &str, limit: usize) -> Vec<String> {
        let admin = self.timers.admin();
        // The codec of checks is JSON.
        let prefix = format!("\"{text}");
        let (mut keys, mut after) = (Vec::new(), None);
        loop {
            let page = admin.with_prefix(state, prefix.clone(), after, limit);
            let (entries, next) = page.await.expect("it lists");
            assert!(entries.len() <= limit, "{}", entries.len());
            keys.extend(entries.into_iter().map(key));
            after = next;
            if after.is_none() {
                keys.sort();
                return keys;
            }
        }
    }

    /// Makes a timer of each key dead.
    async fn kill_timers(&mut self, keys: &[&str]) {
        for key in keys {
            self.set(key, 1, 0).await;
            let claim = self.next().await;
            claim
                .fail(Retry::never("poison"))
                .await
                .expect("it is held");
        }
    }

    /// How many timers are waiting, in flight and dead.
    async fn counted(&self) -> [u64; 3] {
        let counts = self.timers.counts().await.expect("it counts");
        [counts.waiting, counts.in_flight, counts.dead]
    }
}

fn key(entry: Entry<String, u64>) -> String {
    entry.key.expect("it decodes")
}

/// An operator's calls look at one namespace and change one, although another one has the same
/// keys.
pub async fn operator_sees_and_changes_one_namespace<T: Stores>(world: &World<T>) {
    let mut mine = world.instance().await;
    let mut other = world.part("other").instance().await;
    for instance in [&mine, &other] {
        for name in ["a 1", "a 2", "b"] {
            instance.set(name, 1, 10_000).await;
        }
    }
    other.set("a 3", 1, 10_000).await;
    let (ours, theirs) = (mine.timers.admin(), other.timers.admin());
    for limit in [1, 2, 10] {
        let found = mine.with_prefix(State::Waiting, "a ", limit).await;
        assert_eq!(found, ["a 1", "a 2"]);
        let found = other.with_prefix(State::Waiting, "a ", limit).await;
        assert_eq!(found, ["a 1", "a 2", "a 3"]);
    }
    let now = mine.now().await;
    let times = [now, now + world.units(20_000)];
    assert_eq!(ours.count_due(&times).await, Ok(vec![3]));
    assert_eq!(theirs.count_due(&times).await, Ok(vec![4]));
    assert_eq!(ours.all_of("a 3").await, Ok(Vec::new()));
    let found = theirs.all_of("a 3").await.expect("it lists");
    assert_eq!(found.into_iter().map(key).collect::<Vec<_>>(), ["a 3"]);

    mine.kill_timers(&["a 1"]).await;
    other.kill_timers(&["a 1", "a 4"]).await;
    assert_eq!(mine.with_prefix(State::Dead, "a", 1).await, ["a 1"]);
    assert_eq!(ours.retry_dead_key("a 4").await, Ok(0));
    assert_eq!(ours.discard_dead_key("a 4").await, Ok(0));
    assert_eq!(ours.discard_all_dead().await, Ok(1));
    assert_eq!(ours.retry_all_dead().await, Ok(0));
    assert_eq!(other.counted().await[2], 2);
    assert_eq!(theirs.discard_all_dead().await, Ok(2));
    mine.set("a 1", 1, 10_000).await;
    other.set("a 1", 1, 10_000).await;
    let names: Vec<_> = (0..MANY).map(|number| format!("z {number}")).collect();
    let many = names
        .iter()
        .map(|name| (name.as_str(), &1, world.units(10_000)));
    mine.timers.set_many(many).await.expect("they are set");
    let purged = in_steps(async || ours.purge_batch().await).await;
    assert_eq!(purged, MANY + 3);
    assert_eq!(mine.counted().await, [0, 0, 0]);
    assert_eq!(other.counted().await, [4, 0, 0]);
}

/// An operator removes, moves and runs timers by key and by prefix, each once, and the answers are
/// true.
pub async fn operator_changes_waiting_timers<T: Stores>(world: &World<T>) {
    /// More than two steps.
    const ORDERS: u64 = 300;
    let mut instance = world.instance().await;
    let other = world.part("other").instance().await;
    let admin = instance.timers.admin();
    let absent = admin.change_key("order 1", Change::Remove).await;
    assert_eq!(absent, Ok(Changed::Absent));
    let far = world.units(10_000);
    let names: Vec<_> = (0..ORDERS)
        .map(|number| format!("order {number}"))
        .collect();
    for running in [&instance, &other] {
        let set = names.iter().map(|name| (name.as_str(), &1, far));
        running.timers.set_many(set).await.expect("they are set");
        running.set("a", 2, 10_000).await;
    }
    instance.set("order", 3, 0).await;
    let claim = instance.next().await;
    for change in [Change::Remove, Change::Run, Change::MoveIn(far)] {
        let changed = admin.change_key("order", change).await;
        assert_eq!(changed, Ok(Changed::InFlight(claim.token())), "{change:?}");
    }
    claim.ack().await.expect("the claim is held");

    // By key.
    let moved = admin.change_key("a", Change::MoveIn(2 * far)).await;
    assert_eq!(moved, Ok(Changed::Done));
    let deadline = instance.timers.deadline("a").await.expect("it reads");
    assert!(deadline.expect("it waits") > instance.now().await + far);
    assert_eq!(admin.change_key("a", Change::Run).await, Ok(Changed::Done));
    assert_eq!(instance.next_acked().await.key, "a");
    instance.set("a", 2, 10_000).await;
    assert_eq!(
        admin.change_key("a", Change::Remove).await,
        Ok(Changed::Done)
    );
    assert_eq!(
        admin.change_key("a", Change::Run).await,
        Ok(Changed::Absent)
    );
    instance.set("b", 4, 10_000).await;

    // By prefix: to one instant.
    let changed = async |prefix: &str, change| {
        let changed = admin.change_prefix(format!("\"{prefix}"), change).await;
        let changed = changed.expect("it changes");
        assert_eq!(
            (changed.in_flight, changed.locked, changed.more),
            (0, 0, false)
        );
        changed.rows
    };
    assert_eq!(changed("none", Change::Remove).await, 0);
    assert_eq!(changed("order", Change::MoveIn(far / 2)).await, ORDERS);
    let listed = admin.pending(None, 1_000).await.expect("it lists");
    let deadlines: BTreeSet<_> = listed[..names.len()]
        .iter()
        .map(|row| row.deadline)
        .collect();
    assert_eq!(deadlines.len(), 1, "all of them, and not the other");
    // A timer that repeats, and comes again while others are run, runs once more for that.
    let period = Duration::from_millis(1);
    let repeats = instance.timers.set_interval("order 99", &1, period);
    repeats.await.expect("it is set");
    let moved = admin.change_key("order 99", Change::MoveIn(far)).await;
    assert_eq!(moved, Ok(Changed::Done));
    let limit = world.units(600) + Duration::from_secs(60);
    let run = timeout(limit, changed("order", Change::Run)).await;
    assert_eq!(run.expect("it ends"), ORDERS);
    let mut came = BTreeSet::new();
    while came.len() < names.len() {
        came.insert(instance.next_acked().await.key);
    }
    assert!(came.iter().all(|name| name.starts_with("order ")));
    assert_eq!(
        changed("order", Change::Remove).await,
        1,
        "the one that repeats"
    );
    assert_eq!(instance.counted().await[0], 1);
    assert_eq!(other.counted().await[0], ORDERS + 1);
    let theirs = other.timers.admin().change_prefix("", Change::Remove).await;
    assert_eq!(theirs.map(|changed| changed.rows), Ok(ORDERS + 1));
    assert_eq!(instance.counted().await[0], 1);

    // Timers that are gone hide no others: a page reached over what had been removed before it.
    let many: Vec<_> = (0..3_000).map(|number| format!("many {number}")).collect();
    let set = many.iter().map(|name| (name.as_str(), &1, far));
    instance.timers.set_many(set).await.expect("they are set");
    assert_eq!(changed("many", Change::Remove).await, 3_000);
}

/// Timers with one deadline are listed in pages, each once.
pub async fn pages_repeat_no_timer<T: Stores>(world: &World<T>) {
    const TIMERS: usize = 11;
    let instance = world.instance().await;
    let deadline = instance.now().await + world.units(10_000);
    for number in 0..TIMERS {
        let name = format!("timer {number}");
        let set = instance.timers.set_timer_at(&name, &1, deadline).await;
        set.expect("it is set");
    }
    let admin = instance.timers.admin();
    for limit in [1, 3, TIMERS] {
        let (mut keys, mut after): (Vec<String>, Option<Position>) = (Vec::new(), None);
        while keys.len() <= TIMERS {
            let page = admin.pending(after, limit).await.expect("it lists");
            let Some(last) = page.last() else { break };
            assert!(page.len() <= limit, "{}", page.len());
            after = Some(last.position());
            keys.extend(page.into_iter().map(key));
        }
        assert_eq!(keys.len(), TIMERS, "in pages of {limit}: {keys:?}");
        let once: BTreeSet<_> = keys.into_iter().collect();
        assert_eq!(once.len(), TIMERS, "in pages of {limit}");
    }
}

/// A retry of all dead timers ends, although each of them dies again at once, and retries each
/// once.
pub async fn retry_of_all_ends_although_they_die_again<T: Stores>(world: &World<T>) {
    let mut instance = world.instance().await;
    let names: Vec<_> = (0..MANY).map(|number| number.to_string()).collect();
    let set = names.iter().map(|name| (name.as_str(), &1, Duration::ZERO));
    instance.timers.set_many(set).await.expect("they are set");
    let timers = instance.timers.clone();
    let limit = world.units(600) + Duration::from_secs(60);
    let retrying = async {
        while timers.counts().await.expect("it counts").dead < MANY {
            sleep(world.units(1)).await;
        }
        let retried = timers.admin().retry_all_dead().await;
        assert_eq!(retried, Ok(MANY));
    };
    let failing = instance
        .claims
        .dispatch(256, |_| async { Err(Retry::never("again")) });
    match select(pin!(timeout(limit, retrying)), pin!(failing)).await {
        Either::Left((ended, _)) => ended.expect("it ends"),
        Either::Right(_) => panic!("the stream goes on"),
    }
}

/// A claim that an admin releases is delivered again, and the instance of its handle can be the one
/// that does. It was marked as loaded by that instance, which had it on no wheel: no instance
/// delivered it any more.
pub async fn released_claim_is_delivered_again<T: Stores>(world: &World<T>) {
    let mut instance = world.instance().await;
    instance.set("a", 1, 0).await;
    let claim = instance.next().await;
    let admin = instance.timers.admin();
    let released = admin.release(claim.token()).await;
    released.expect("the claim is held");
    let again = timeout(world.longest_poll(), instance.claims.recv()).await;
    let again = again.expect("it is free to be loaded");
    let again = again.expect("the stream goes on");
    assert_eq!((again.key.as_str(), again.attempt), ("a", 1));
    assert!(again.token() > claim.token());
    let token = claim.token();
    assert_eq!(claim.ack().await, Err(Error::Lost { token }));
    again.ack().await.expect("the claim is held");
}
