//! D11 and D12: the calls that an instance makes to its store, when they fail and when it is idle.

use std::collections::BTreeSet;

use tickwheel_durable::{Error, SetIfAbsent};
use tokio::time::Instant;

use super::FAR;
use crate::world::{Stores, World};

/// D11: while the store is unreachable, calls fail and nothing is delivered; then everything is.
pub async fn d11_recovers_when_the_store_is_back<T: Stores>(world: &World<T>) {
    let mut instance = world.patient().await;
    instance.set_numbers(20, world.units(8)).await;
    world.wait(2).await;
    instance.faults.set_away(true);
    let failed = instance.timers.set_timer("late", &0, FAR).await;
    assert!(matches!(failed, Err(Error::Store(_))), "{failed:?}");
    // Much longer than the first retries are apart.
    instance.sees_nothing(40).await;
    instance.faults.set_away(false);
    let mut delivered = BTreeSet::new();
    for _ in 0..20 {
        delivered.insert(instance.next_acked().await.value);
    }
    assert_eq!(delivered.len(), 20);
    instance.sees_nothing(8).await;
    let set = instance.timers.set_if_absent("late", &0, FAR).await;
    assert_eq!(set, Ok(SetIfAbsent::Done));
}

/// D12: an instance that waits for far timers only asks the store once for each poll.
pub async fn d12_is_quiet_when_idle<T: Stores>(world: &World<T>) {
    let mut instance = world.instance().await;
    instance.set_numbers(100, FAR).await;
    instance.sees_nothing(2).await;
    let (began, before) = (Instant::now(), instance.faults.calls());
    instance.sees_nothing(20).await;
    let calls = u128::from(instance.faults.calls() - before);
    let most = world.units_since(began) + 2;
    assert!((1..=most).contains(&calls), "{calls} calls, not {most}");
}
