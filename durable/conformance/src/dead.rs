//! Timers that fail for good, through whole instances.

use std::time::Duration;

use tickwheel_durable::store::Store;
use tickwheel_durable::{Backoff, Entry, Removed, Retry, SetIfAbsent};

use super::contract::Case;
use super::world::{Running, Stores, World, by_state, key, until, while_they_work};

impl<S: Store> Running<S> {
    async fn dead(&self) -> Vec<Entry<String, u64>> {
        let dead = self.timers.admin().dead(None, 100).await;
        dead.expect("it lists")
    }

    /// Runs handlers that fail for all values below 100, until so many timers are dead.
    async fn fail_until(&mut self, dead: u64) {
        let (timers, unit) = (self.timers.clone(), self.unit);
        let are_dead = until(&timers, unit, |metrics| metrics.dead >= dead);
        let handlers = self.claims.dispatch(4, |claim| async move {
            if claim.value < 100 {
                return Err(Retry::backoff(format!("attempt {}", claim.attempt)));
            }
            Ok(())
        });
        while_they_work(handlers, are_dead).await;
    }
}

/// A poison message is tried as often as it may be, and dies with its last error. Others are
/// handled meanwhile. Retried, it begins again.
pub async fn d15_poison_message_dies_and_comes_back<T: Stores>(world: &World<T>) {
    let unit = world.units(1);
    let mut instance = world
        .instance_with(|b| b.max_attempts(3).backoff(Backoff::fixed(unit)))
        .await;
    instance.set("poison", 1, 1).await;
    for value in 100..120 {
        instance.set(&format!("sound {value}"), value, 2).await;
    }
    instance.fail_until(1).await;
    let delivered = instance.timers.metrics().delivered;
    assert!(delivered > 3, "others were handled before it was dead");
    let dead = instance.dead().await;
    assert_eq!((dead[0].key.as_deref(), dead[0].attempt), (Ok("poison"), 3));
    assert_eq!(dead[0].error.as_deref(), Some("attempt 3"));
    assert!(dead[0].dead.as_ref().expect("it is dead").since >= dead[0].deadline);
    assert_eq!(instance.timers.metrics().dead, 1);
    while instance.counts().await.waiting > 0 {
        let _acked = instance.next_acked().await;
    }
    instance.sees_nothing(4).await;

    let admin = instance.timers.admin();
    assert_eq!(admin.retry_dead_key("poison").await, Ok(1));
    let claim = instance.next_acked().await;
    assert_eq!((claim.value, claim.attempt), (1, 1));
    assert_eq!(by_state(&instance.counts().await), [0, 0, 0]);
}

/// An attempt counts if its process crashes: a timer that kills each process dies in the end.
pub async fn attempts_that_crash_count<T: Stores>(world: &World<T>) {
    let lease = world.units(4);
    let start = async || {
        world
            .instance_with(|b| b.max_attempts(2).lease(lease))
            .await
    };
    let mut instance = start().await;
    instance.set("poison", 1, 0).await;
    for attempt in 1..=2 {
        let claim = instance.next().await;
        assert_eq!(claim.attempt, attempt);
        instance.kill();
        instance = start().await;
    }
    instance.set("sound", 2, 12).await;
    assert_eq!(instance.next_acked().await.value, 2);
    let unit = world.units(1);
    until(&instance.timers, unit, |metrics| metrics.dead > 0).await;
    let dead = instance.dead().await;
    assert_eq!(dead[0].key.as_deref(), Ok("poison"));
    let error = dead[0].error.as_deref().expect("it says why");
    assert!(error.contains("crashed"), "{error}");
    assert_eq!(instance.timers.metrics().dead, 1);
    assert_eq!(instance.timers.metrics().delivered, 1, "the sound one");
}

/// A claim that is put back or fails after its last attempt dies, and one that never can succeed at
/// once.
pub async fn claims_die_after_their_last_attempt<T: Stores>(world: &World<T>) {
    let mut instance = world.instance_with(|b| b.max_attempts(2)).await;
    let short = world.units(1);
    instance.set("a", 1, 0).await;
    let claim = instance.next().await;
    let error = std::io::Error::other("no route");
    let retry = Retry::from(error);
    claim.fail(retry).await.expect("it is held");
    // Sooner than its backoff.
    let moved = instance.timers.move_timer("a", Duration::ZERO).await;
    assert_eq!(moved, Ok(tickwheel_durable::Moved::Done));
    let claim = instance.next().await;
    assert_eq!(claim.attempt, 2);
    claim.retry_after(short).await.expect("it is held");
    assert_eq!(claim.lease_remaining(), Duration::ZERO);
    assert_eq!(instance.dead().await[0].error.as_deref(), Some("no route"));

    // A dead key is absent.
    let absent = instance.timers.set_if_absent("a", &2, Duration::ZERO).await;
    assert_eq!(absent, Ok(SetIfAbsent::Done));
    assert_eq!(instance.dead().await, []);
    let claim = instance.next().await;
    assert_eq!((claim.value, claim.attempt), (2, 1));
    let never = Retry::never("no such customer");
    claim.fail(never).await.expect("it is held");
    let dead = instance.dead().await;
    assert_eq!(
        (dead[0].attempt, dead[0].error.as_deref()),
        (1, Some("no such customer"))
    );
    let entry = instance.timers.admin().get("a").await.expect("it reads");
    assert_eq!(entry.as_ref(), dead.first());
    let removed = instance.timers.remove_timer("a").await;
    assert_eq!(removed, Ok(Removed::Done(2)));
    assert_eq!(instance.dead().await, []);
}

/// D9: of a repeating timer that fails the occurrence dies, and the timer goes on.
pub async fn d9_repeats_when_an_occurrence_dies<T: Stores>(world: &World<T>) {
    let mut instance = world
        .instance_with(|b| b.max_attempts(1).backoff(Backoff::fixed(Duration::ZERO)))
        .await;
    let period = world.units(3);
    let set = instance.timers.set_interval("again", &1, period).await;
    set.expect("it is set");
    instance.fail_until(3).await;
    let dead = instance.dead().await;
    let deadlines: Vec<_> = dead.iter().map(|entry| entry.deadline).collect();
    for pair in deadlines.windows(2) {
        let apart = pair[1].duration_since(pair[0]).expect("in their order");
        assert_eq!(apart.as_micros() % period.as_micros(), 0, "{deadlines:?}");
        assert!(!apart.is_zero(), "each dies once");
    }
    let admin = instance.timers.admin();
    let next = admin.get("again").await.expect("it reads");
    assert_eq!(next.expect("it goes on").period, Some(period));
    // One of them is delivered beside the timer, which keeps its key.
    let dead = dead[0].dead.as_ref().expect("it is dead");
    assert_eq!(admin.retry_dead(dead.token).await, Ok(true));
    assert_eq!(admin.retry_dead(dead.token).await, Ok(false));
    loop {
        let claim = instance.next_acked().await;
        if claim.deadline == deadlines[0] {
            break;
        }
    }
    let next = admin.get("again").await.expect("it reads");
    assert_eq!(next.expect("it goes on").period, Some(period));
}

/// Ten thousand dead timers cost living ones nothing: they are not loaded, not fired, and cause no
/// call.
pub async fn dead_timers_cost_living_ones_nothing<T: Stores>(world: &World<T>) {
    const ROWS: u64 = 10_000;
    // It opens the namespace under the charter of an instance.
    world.instance().await.timers.shutdown().await;
    let (store, space) = (world.store().await, world.namespace());
    let case = Case { store, space };
    let keys: Vec<_> = (0..ROWS).map(key).collect();
    for keys in keys.chunks(1_000) {
        case.die(keys).await;
    }
    let mut instance = world.instance().await;
    instance.sees_nothing(2).await;
    let (calls, writes) = (instance.faults.calls(), instance.faults.row_writes());
    for value in 100..120 {
        instance.set("living", value, 0).await;
        assert_eq!(instance.next_acked().await.value, value);
    }
    let writes = instance.faults.row_writes() - writes;
    instance.sees_nothing(4).await;
    let calls = instance.faults.calls() - calls;
    assert_eq!(by_state(&instance.counts().await), [0, 0, ROWS]);
    let metrics = instance.timers.metrics();
    assert_eq!(metrics.delivered, 20);
    assert!(metrics.loaded <= 20, "{} were loaded", metrics.loaded);
    // As without dead timers: a set, a fire and an acknowledgement for each, a few polls, and loads
    // of what hints tell.
    assert!(calls <= 5 * 20 + 20, "{calls} calls");
    assert!(writes <= 4 * 20, "{writes} rows were written");
}
