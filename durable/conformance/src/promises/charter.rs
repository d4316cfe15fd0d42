//! D16: instances that do not agree with the charter of their namespace.

use tickwheel_durable::Error;
use tickwheel_durable::store::{Store, StoreError};
use tokio::time::Instant;

use super::{FAR, Settings};
use crate::world::{Running, Stores, World, until};

/// D16: when the charter is amended, an instance that differs stops loading, firing and writing
/// within a poll and says why. It goes on by itself when it agrees again.
pub async fn d16_stops_an_instance_that_differs<T: Stores>(world: &World<T>) {
    world.undisturbed(stops_an_instance_that_differs).await;
}

async fn stops_an_instance_that_differs<T: Stores>(world: &World<T>) -> Result<(), String> {
    let mut instance = world.instance().await;
    let writer = world.instance().await;
    writer.claims.shutdown().await;
    writer.set("far", 4, 100_000).await;
    let admin = instance.timers.admin();
    let charter = admin.charter().await.expect("it is read");
    let mut other = charter.clone();
    other.no_overlap = true;
    let began = Instant::now();
    instance.set("soon", 1, 10).await;
    admin.amend(&other).await.expect("it is amended");
    if began.elapsed() > world.units(8) {
        return Err(format!("two calls took {:?}", began.elapsed()));
    }
    let (since, calls) = (Instant::now(), instance.faults.calls());
    // One that only writes finds out by its next write.
    let moved = writer.timers.move_timer("far", FAR).await;
    let Err(Error::Store(StoreError::Amended { .. } | StoreError::Charter { .. })) = moved else {
        panic!("{moved:?}");
    };
    until_differs(&instance, true).await;
    // A call may be under way when the charter changes. The next load finds out.
    let until_known = u128::from(instance.faults.calls() - calls);
    let most = world.units_since(since) + 4;
    assert!(until_known <= most, "{until_known} calls until it knew");
    let (since, calls) = (Instant::now(), instance.faults.calls());
    // The deadline passes.
    instance.sees_nothing(12).await;
    let calls = u128::from(instance.faults.calls() - calls);
    let most = world.units_since(since) + 4;
    assert!(calls <= most, "{calls} calls, not {most}");
    for _ in 0..2 {
        let written = instance.timers.set_timer("later", &2, FAR).await;
        let Err(Error::Store(error @ StoreError::Charter { .. })) = written else {
            panic!("{written:?}");
        };
        let text = error.to_string();
        assert!(text.contains("no_overlap = true"), "{text}");
    }
    // One that agrees takes what this one has left.
    let mut agrees = world.instance_with(Settings::no_overlap).await;
    assert_eq!(agrees.next_acked().await.value, 1);
    let amended = agrees.timers.admin().amend(&charter).await;
    amended.expect("it is amended");
    until_differs(&agrees, true).await;
    until_differs(&instance, false).await;
    writer.set("again", 3, 1).await;
    assert_eq!(instance.next_acked().await.value, 3);
    Ok(())
}

/// Waits until the instance knows that it differs, or that it agrees again.
async fn until_differs<S: Store>(instance: &Running<S>, differs: bool) {
    until(&instance.timers, instance.unit, |metrics| {
        metrics.differs == differs
    })
    .await;
}
