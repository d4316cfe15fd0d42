//! D5 and D10: instances that share timers, also with one that has shut down or died.

use std::collections::BTreeSet;

use futures_util::future::join_all;

use super::{FAR, Settings};
use crate::world::{Stores, World, collect, key};

/// D5: many instances on the same timers deliver each once.
pub async fn d5_delivers_once_among_many<T: Stores>(world: &World<T>) {
    let mut instances = Vec::new();
    for _ in 0..4 {
        instances.push(world.instance_with(|b| b.capacity(20)).await);
    }
    let keys: Vec<_> = (0..200).map(key).collect();
    let set = keys.iter().zip(0..).map(|(key, number)| {
        let instance = &instances[number % 4];
        instance.timers.set_timer(key, &1, world.units(2))
    });
    for set in join_all(set).await {
        set.expect("it is set");
    }
    let claims = collect(&mut instances, keys.len(), world.units(5)).await;
    assert!(claims.iter().all(|claim| claim.attempt == 1));
    assert_eq!(claims.len(), keys.len());
    let delivered: BTreeSet<_> = claims.into_iter().map(|claim| claim.key).collect();
    assert_eq!(delivered.len(), keys.len());
}

/// D10: an instance claims no more once its capacity is used up, and others get what is due.
pub async fn d10_leaves_to_others_when_full<T: Stores>(world: &World<T>) {
    // Its claims stay its own, however slow the machine is.
    let settings = |b: Settings| b.capacity(2).lease(world.units(200));
    let mut full = world.instance_with(settings).await;
    full.set_numbers(10, world.units(1)).await;
    let held = [full.next().await, full.next().await];
    full.sees_nothing(3).await;
    assert_eq!(full.timers.metrics().unsettled, 2);
    let other = world.instance().await;
    let mut both = [full, other];
    let claims = collect(&mut both, 8, world.units(3)).await;
    assert_eq!(claims.len(), 8, "none comes twice");
    assert!(claims.iter().all(|claim| claim.attempt == 1));
    let [mut full, other] = both;
    assert_eq!(full.timers.metrics().delivered, 2);
    other.timers.shutdown().await;
    drop(held);
    let again = [full.next_acked().await, full.next_acked().await];
    assert!(again.iter().all(|claim| claim.attempt == 2));
}

/// After a shutdown nothing is loaded, and what was not received is delivered to others.
pub async fn gives_back_what_it_loaded_at_shutdown<T: Stores>(world: &World<T>) {
    let mut first = world.instance_with(|b| b.lease(FAR)).await;
    // It is fired for a program that then does not come for it, which is no attempt.
    first.sees_nothing(1).await;
    first.set("due", 1, 0).await;
    first.set("near", 2, 14).await;
    world.wait(2).await;
    first.has_loaded_all().await;
    first.timers.shutdown().await;
    assert!(first.claims.recv().await.is_none());
    let pending = first.timers.admin().pending(None, 10).await;
    for entry in pending.expect("it lists") {
        assert!(!entry.loaded, "{entry:?}");
    }
    // The handle goes on writing.
    first.set("late", 3, 2).await;
    let mut second = world.instance().await;
    let mut claims = [
        second.next_acked().await,
        second.next_acked().await,
        second.next_acked().await,
    ]
    .map(|claim| (claim.value, claim.attempt));
    claims.sort_unstable();
    assert_eq!(claims, [(1, 1), (2, 1), (3, 1)]);
}

/// Other instances fire the timers that a dead instance had loaded, at their first poll after its
/// last load is three polls old.
pub async fn takes_over_what_a_dead_instance_had_loaded<T: Stores>(world: &World<T>) {
    let first = world.instance().await;
    // Some are due before the takeover, some after it.
    for units in 3..10 {
        first.set(&key(units.into()), 1, units).await;
    }
    first.has_loaded_all().await;
    let killed = first.now().await;
    first.kill();
    let mut second = world.instance().await;
    let taken_over = killed + world.units(3);
    for _ in 3..10 {
        let claim = second.next_acked().await;
        let late = second
            .now()
            .await
            .duration_since(taken_over.max(claim.deadline));
        // Early is another check.
        let late = late.unwrap_or_default();
        assert_eq!(claim.attempt, 1);
        assert!(
            late <= world.longest_poll(),
            "{claim:?} is late by {late:?}"
        );
    }
}

/// A near deadline set by an instance that claims nothing is found by one that does, at its next
/// poll at the latest.
pub async fn finds_near_deadlines_of_other_instances<T: Stores>(world: &World<T>) {
    let rarely = |b: Settings| b.poll(world.units(8));
    let mut claimant = world.instance_with(rarely).await;
    let writer = world.instance().await;
    writer.claims.shutdown().await;
    for number in 0..3 {
        writer.set(&key(number), number, 1).await;
        let claim = claimant.next_acked().await;
        assert_eq!(claim.value, number);
        let late = claimant.now().await.duration_since(claim.deadline);
        let late = late.unwrap_or_default();
        // Its poll is eight units, and up to a tenth longer.
        let longest = world.longest_poll() + world.units(77) / 10;
        assert!(late <= longest, "late by {late:?}");
    }
}
