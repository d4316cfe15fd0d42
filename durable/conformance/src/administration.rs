//! An operator's calls on a running instance.

use tickwheel_durable::Error;
use tokio::time::timeout;

use super::world::{Stores, World};

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
