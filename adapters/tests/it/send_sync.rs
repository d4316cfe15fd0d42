//! Which types may be sent to and shared by threads, asserted by the compiler.

use std::future::Pending;

use tickwheel_adapters::{axum, hyper, metrics, quinn, tower};

fn sends_and_shares<T: Send + Sync + 'static>() {}

#[test]
fn adapters_are_as_their_contents() {
    sends_and_shares::<axum::DrainListener<u32>>();
    sends_and_shares::<axum::DrainStream<u32>>();
    sends_and_shares::<axum::IdleListener<u32>>();
    sends_and_shares::<hyper::WheelTimer>();
    sends_and_shares::<metrics::Reporter>();
    sends_and_shares::<quinn::WheelRuntime>();
    sends_and_shares::<tower::TimeoutLayer>();
    sends_and_shares::<tower::StatusTimeoutLayer>();
    sends_and_shares::<tower::RequestBodyTimeoutLayer>();
    sends_and_shares::<tower::ResponseBodyTimeoutLayer>();
    sends_and_shares::<tower::Timeout<u32>>();
    sends_and_shares::<tower::StatusTimeout<u32>>();
    sends_and_shares::<tower::RequestBodyTimeout<u32>>();
    sends_and_shares::<tower::ResponseBodyTimeout<u32>>();
    sends_and_shares::<tower::ResponseFuture<Pending<u32>>>();
    sends_and_shares::<tower::TimeoutBody<u32>>();
}
