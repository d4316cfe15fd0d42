//! Waiting for the first of two futures, without a macro that users of the crate would have to
//! build.

use std::future::Future;
use std::pin::pin;

use futures_util::future::select;

/// The output of the future that completes first. The other one is dropped. If both are ready it is
/// the first.
pub(crate) async fn race<T>(first: impl Future<Output = T>, second: impl Future<Output = T>) -> T {
    select(pin!(first), pin!(second)).await.factor_first().0
}
