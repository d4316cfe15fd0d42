//! D2, D3, D6 and D7: claims, from when they fire until they are settled, lost or dropped.

use std::collections::BTreeMap;
use std::time::Duration;

use tickwheel_durable::Error;

use super::{FAR, Settings};
use crate::world::{Stores, World, by_state, key, next_of};

/// D2: claims that are not settled within the lease are delivered again, by another instance too,
/// and counted. Each fires between the end of its lease and the next poll.
pub async fn d2_delivers_again_after_the_lease<T: Stores>(world: &World<T>) {
    let mut first = world.instance_with(|b| b.lease(world.units(8))).await;
    // Their leases end at different times between two polls.
    first.set_apart(8, Duration::ZERO, world.units(1) / 4).await;
    let mut deadlines = BTreeMap::new();
    let mut held = Vec::new();
    for _ in 0..8 {
        let claim = first.next().await;
        assert_eq!(claim.attempt, 1);
        deadlines.insert(claim.key.clone(), claim.deadline);
        held.push(claim);
    }
    let ended = first.leases().await;
    assert_eq!(ended.len(), 8);
    first.kill();
    let mut second = world.instance().await;
    let mut again = Vec::new();
    for _ in 0..8 {
        let claim = second.next().await;
        assert_eq!((key(claim.value), claim.attempt), (claim.key.clone(), 2));
        assert_eq!(deadlines.remove(&claim.key), Some(claim.deadline));
        again.push(claim);
    }
    let leases = second.leases().await;
    assert_eq!(leases.len(), 8);
    for (key, lease_until) in leases {
        // A lease begins in the step that fires.
        let fired = lease_until - world.units(20);
        let after = fired.duration_since(ended[&key]);
        let after = after.expect("not before the lease has ended");
        assert!(after <= world.longest_poll(), "{key}: {after:?} after it");
    }
    for claim in again {
        claim.ack().await.expect("it is held");
    }
    second.sees_nothing(6).await;
}

/// D2: in the mode, what was delivered is never delivered again, acknowledged or not.
pub async fn d2_at_most_once_is_a_mode<T: Stores>(world: &World<T>) {
    let mode = |b: Settings| b.at_most_once().lease(world.units(2));
    let mut first = world.instance_with(mode).await;
    for acks in [true, false] {
        first.set("a", 1, 0).await;
        let claim = first.next().await;
        assert_eq!(by_state(&first.counts().await), [0, 0, 0]);
        let token = claim.token();
        assert_eq!(claim.retry_after(FAR).await, Err(Error::Settled { token }));
        assert_eq!(claim.extend(FAR).await, Err(Error::Settled { token }));
        if acks {
            claim.ack().await.expect("acknowledging does nothing");
        }
    }
    let mut second = world.instance_with(mode).await;
    second.sees_nothing(5).await;
    first.sees_nothing(1).await;
}

/// D3: no timer is delivered before its deadline by the store's clock.
pub async fn d3_is_never_early<T: Stores>(world: &World<T>) {
    let mut instance = world.instance().await;
    instance
        .set_apart(60, Duration::ZERO, world.units(5) / 60)
        .await;
    for _ in 0..60 {
        let claim = instance.next().await;
        let now = instance.now().await;
        assert!(now >= claim.deadline, "{claim:?} at {now:?}");
        claim.ack().await.expect("it is held");
    }
}

/// D6: a timer that was loaded long before it is due has its whole lease when it fires.
pub async fn d6_counts_the_lease_from_firing<T: Stores>(world: &World<T>) {
    world.undisturbed(counts_the_lease_from_firing).await;
}

async fn counts_the_lease_from_firing<T: Stores>(world: &World<T>) -> Result<(), String> {
    let brief = world.units(5);
    let set = |b: Settings| b.lease(brief).window(world.units(40));
    let mut both = [
        world.instance_with(set).await,
        world.instance_with(set).await,
    ];
    both[0].set("a", 1, 12).await;
    let (_, claim) = next_of(&mut both).await;
    if claim.attempt > 1 {
        return Err(format!("its lease has ended before: {claim:?}"));
    }
    let lease_until = both[0].leases().await.remove("a");
    assert!(lease_until.ok_or("its lease has ended")? >= claim.deadline + brief);
    claim.ack().await.map_err(|error| error.to_string())?;
    for instance in &mut both {
        instance.sees_nothing(4).await;
    }
    Ok(())
}

/// D7: tokens grow, and a claim that was lost changes nothing.
pub async fn d7_fences_lost_claims<T: Stores>(world: &World<T>) {
    let mut instance = world.instance_with(|b| b.lease(world.units(6))).await;
    instance.set("a", 1, 0).await;
    let first = instance.next().await;
    let second = instance.next().await;
    assert_eq!((first.attempt, second.attempt), (1, 2));
    assert!(first.token() < second.token());
    let token = first.token();
    for outcome in [
        first.ack().await,
        first.extend(FAR).await,
        first.retry_after(Duration::ZERO).await,
    ] {
        assert_eq!(outcome, Err(Error::Lost { token }));
    }
    second.extend(world.units(40)).await.expect("it is held");
    instance.sees_nothing(9).await;
    second.ack().await.expect("it was extended");
    instance.set("a", 2, 0).await;
    let third = instance.next_acked().await;
    assert!(second.token() < third.token());
    assert_eq!((third.value, third.attempt), (2, 1));
    instance.sees_nothing(8).await;
}

/// A claim that is dropped is delivered again long before its lease ends.
pub async fn releases_dropped_claims_at_once<T: Stores>(world: &World<T>) {
    let mut instance = world.instance_with(|b| b.lease(FAR)).await;
    instance.set("a", 1, 0).await;
    let first = instance.next().await;
    let deadline = first.deadline;
    drop(first);
    let second = instance.next().await;
    assert_eq!((second.attempt, second.deadline), (2, deadline));
    second
        .retry_after(world.units(2))
        .await
        .expect("it is held");
    let third = instance.next_acked().await;
    assert_eq!(third.attempt, 3);
    assert!(third.deadline > deadline);
    instance.sees_nothing(4).await;
}
