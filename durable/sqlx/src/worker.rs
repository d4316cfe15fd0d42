//! The worker. It knows no store, so a test runs it in memory, under a paused clock.

use std::future::Future;

use tickwheel_durable::{Claims, Retry};

/// Sends a reminder of each order that is due, up to sixteen at once.
pub async fn remind<F>(claims: &mut Claims<String, i64>, send: impl Fn(i64) -> F)
where
    F: Future<Output = ()>,
{
    claims
        .dispatch(16, |claim| {
            let sending = send(claim.value);
            async move {
                sending.await;
                Ok::<_, Retry>(())
            }
        })
        .await;
}
