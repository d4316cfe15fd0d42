//! An operator's calls on a running instance.

use std::collections::BTreeSet;
use std::time::Duration;

use tickwheel_durable::{Change, Changed, Error, Retry};
use tokio::time::{sleep, timeout};

use super::world::{Stores, World, while_they_work};

/// More timers than a store deletes or retries in one step.
const MANY: u64 = 1_100;

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
    instance.set("order", 3, 0).await;
    let again = instance.next().await;
    let all = admin.all_of("order").await.expect("it reads");
    let held = all.iter().filter_map(|entry| entry.in_flight);
    let held: Vec<_> = held.map(|claim| claim.token).collect();
    assert_eq!(held, [again.token(), claim.token()], "the latest one first");
    for claim in [claim, again] {
        claim.ack().await.expect("the claim is held");
    }

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
    assert_eq!(instance.counts().await.waiting, 1);
    assert_eq!(other.counts().await.waiting, ORDERS + 1);
    let theirs = other.timers.admin().change_prefix("", Change::Remove).await;
    assert_eq!(theirs.map(|changed| changed.rows), Ok(ORDERS + 1));
    assert_eq!(instance.counts().await.waiting, 1);

    // Timers that are gone hide no others: a page reached over what had been removed before it.
    let many: Vec<_> = (0..3_000).map(|number| format!("many {number}")).collect();
    let set = many.iter().map(|name| (name.as_str(), &1, far));
    instance.timers.set_many(set).await.expect("they are set");
    assert_eq!(changed("many", Change::Remove).await, 3_000);
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
    let ended = while_they_work(failing, timeout(limit, retrying)).await;
    ended.expect("it ends");
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
