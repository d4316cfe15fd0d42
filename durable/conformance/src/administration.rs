//! An operator's calls on a running instance.

use std::collections::BTreeSet;
use std::time::Duration;

use tickwheel_durable::store::Store;
use tickwheel_durable::{Change, Changed, Error, Retry};
use tokio::time::{sleep, timeout};

use super::world::{Running, Stores, World, while_they_work};

/// More timers than two steps of a change take.
const ORDERS: u16 = 300;

/// An operator removes, moves and runs timers by key and by prefix, each once, and the answers are
/// true.
pub async fn operator_changes_waiting_timers<T: Stores>(world: &World<T>) {
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
    leaves_claims(&mut instance, far).await;
    changes_a_key(&mut instance, far).await;
    instance.set("b", 4, 10_000).await;
    changes_a_prefix(world, &mut instance, far).await;
    assert_eq!(instance.counts().await.waiting, 1);
    assert_eq!(other.counts().await.waiting, u64::from(ORDERS) + 1);
    let theirs = other.timers.admin().change_prefix("", Change::Remove).await;
    assert_eq!(
        theirs.map(|changed| changed.rows),
        Ok(u64::from(ORDERS) + 1)
    );
    assert_eq!(instance.counts().await.waiting, 1);
    removes_more_than_a_page(&instance, far).await;
}

/// Claims of a key stay as they are, and all are listed.
async fn leaves_claims<S: Store>(instance: &mut Running<S>, far: Duration) {
    let admin = instance.timers.admin();
    instance.set("order", 3, 0).await;
    let claim = instance.next().await;
    for change in [Change::Remove, Change::Run, Change::MoveIn(far)] {
        let changed = admin.change_key("order", change.clone()).await;
        assert_eq!(changed, Ok(Changed::InFlight(claim.token())), "{change:?}");
    }
    instance.set("order", 3, 0).await;
    let again = instance.next().await;
    let all = admin.all_of("order").await.expect("it reads");
    let held = all.iter().filter_map(|entry| entry.in_flight.as_ref());
    let held: Vec<_> = held.map(|claim| claim.token).collect();
    assert_eq!(held, [again.token(), claim.token()], "the latest one first");
    for claim in [claim, again] {
        claim.ack().await.expect("the claim is held");
    }
}

async fn changes_a_key<S: Store>(instance: &mut Running<S>, far: Duration) {
    let admin = instance.timers.admin();
    let moved = admin.change_key("a", Change::MoveIn(2 * far)).await;
    assert_eq!(moved, Ok(Changed::Done));
    let deadline = instance.timers.deadline("a").await.expect("it reads");
    assert!(deadline.expect("it waits") > instance.now().await + far);
    assert_eq!(admin.change_key("a", Change::Run).await, Ok(Changed::Done));
    assert_eq!(instance.next_acked().await.key, "a");
    instance.set("a", 2, 10_000).await;
    let removed = admin.change_key("a", Change::Remove).await;
    assert_eq!(removed, Ok(Changed::Done));
    let absent = admin.change_key("a", Change::Run).await;
    assert_eq!(absent, Ok(Changed::Absent));
}

/// Changes all timers of a prefix. Returns how many there were.
async fn change_all<S: Store>(instance: &Running<S>, prefix: &str, change: Change) -> u64 {
    let admin = instance.timers.admin();
    let changed = admin.change_prefix(format!("\"{prefix}"), change).await;
    let changed = changed.expect("it changes");
    let others = (changed.in_flight, changed.locked, changed.more);
    assert_eq!(others, (0, 0, false));
    changed.rows
}

/// Moves all timers of a prefix to one instant, runs each once, and removes what is left.
async fn changes_a_prefix<S: Store, T: Stores<Store = S>>(
    world: &World<T>,
    instance: &mut Running<S>,
    far: Duration,
) {
    assert_eq!(change_all(instance, "none", Change::Remove).await, 0);
    let moved = change_all(instance, "order", Change::MoveIn(far / 2)).await;
    assert_eq!(moved, u64::from(ORDERS));
    let admin = instance.timers.admin();
    let listed = admin.pending(None, 1_000).await.expect("it lists");
    let moved = listed.iter().take(usize::from(ORDERS));
    let deadlines: BTreeSet<_> = moved.map(|row| row.deadline).collect();
    assert_eq!(deadlines.len(), 1, "all of them, and not the other");
    // A timer that repeats, and comes again while others are run, runs once more for that.
    let period = Duration::from_millis(1);
    let repeats = instance.timers.set_interval("order 99", &1, period);
    repeats.await.expect("it is set");
    let moved = admin.change_key("order 99", Change::MoveIn(far)).await;
    assert_eq!(moved, Ok(Changed::Done));
    let limit = world.units(600) + Duration::from_secs(60);
    let run = timeout(limit, change_all(instance, "order", Change::Run)).await;
    assert_eq!(run.expect("it ends"), u64::from(ORDERS));
    let mut came = BTreeSet::new();
    while came.len() < usize::from(ORDERS) {
        came.insert(instance.next_acked().await.key);
    }
    assert!(came.iter().all(|name| name.starts_with("order ")));
    let removed = change_all(instance, "order", Change::Remove).await;
    assert_eq!(removed, 1, "the one that repeats");
}

/// Regression: timers that were gone hid others, once a page reached over what had been removed
/// before it.
async fn removes_more_than_a_page<S: Store>(instance: &Running<S>, far: Duration) {
    let many: Vec<_> = (0..3_000).map(|number| format!("many {number}")).collect();
    let set = many.iter().map(|name| (name.as_str(), &1, far));
    instance.timers.set_many(set).await.expect("they are set");
    assert_eq!(change_all(instance, "many", Change::Remove).await, 3_000);
}

/// A retry of all dead timers ends, although each of them dies again at once, and retries each
/// once.
pub async fn retry_of_all_ends_although_they_die_again<T: Stores>(world: &World<T>) {
    /// More timers than a store retries in one step.
    const MANY: u64 = 1_100;
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
/// that does.
///
/// Regression: it was marked as loaded by that instance, which had it on no wheel, so no instance
/// delivered it.
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
