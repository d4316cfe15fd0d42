//! An operator's calls on a running instance.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use tickwheel_durable::store::{State, Store};
use tickwheel_durable::{Entry, Error, Position, Retry};
use tokio::time::{sleep, timeout};

use super::world::{Running, Stores, World};

/// More dead timers than a store retries in one step.
const MANY: u64 = 1_100;

impl<S: Store> Running<S> {
    /// The keys of all timers in a state whose keys begin with a text, read in pages of that many.
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

    fn is_inspected(&self) -> bool {
        self.faults.inspect().is_some()
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

/// An operator's calls look at one namespace and change one, although another one has the same keys.
pub async fn operator_sees_and_changes_one_namespace<T: Stores>(world: &World<T>) {
    let mut mine = world.instance().await;
    let mut other = world.part("other").instance().await;
    if !mine.is_inspected() {
        return;
    }
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

    if world.keeps_dead().await {
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
    }
    let mut purged = 0;
    loop {
        let step = ours.purge_batch().await.expect("it purges");
        purged += step.rows;
        if !step.more {
            break;
        }
        assert!(step.rows > 0, "a step that deletes nothing is the last");
    }
    assert_eq!(purged, 3);
    assert_eq!(mine.counted().await, [0, 0, 0]);
    assert_eq!(other.counted().await, [4, 0, 0]);
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

/// A retry of all dead timers ends, although each of them dies again at once, and retries each once.
pub async fn retry_of_all_ends_although_they_die_again<T: Stores>(world: &World<T>) {
    if !world.keeps_dead().await {
        return;
    }
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

/// A claim that an admin releases is delivered again, and the instance of its handle can be the one that does. It was marked as
/// loaded by that instance, which had it on no wheel: no instance delivered it any more.
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
    assert_eq!((again.key.as_str(), again.attempt), ("a", 2));
    assert!(again.token() > claim.token());
    let token = claim.token();
    assert_eq!(claim.ack().await, Err(Error::Lost { token }));
    again.ack().await.expect("the claim is held");
}
