//! The wheel's timers behind the interfaces of other crates. Each adapter has a feature of its own, and none is on by
//! default.
//!
//! | feature | for | gives |
//! |---|---|---|
//! | `hyper` | servers and clients on [hyper](https://docs.rs/hyper) or hyper-util, and axum served by them | [`TimerWheel`](crate::TimerWheel) is a `hyper::rt::Timer` |
//! | `tower` | [tower](https://docs.rs/tower) services, axum's and tonic's among them | layers that limit requests, responses and bodies |
//! | `quinn` | QUIC with [quinn](https://docs.rs/quinn) | a `quinn::Runtime` |
//! | `metrics` | every exporter of the [metrics](https://docs.rs/metrics) facade, such as Prometheus | a reporter of [`WheelMetrics`](crate::WheelMetrics) |
//!
//! Every adapter takes the wheel that it uses. A duration of zero passes at once and one too long to be represented
//! never, as everywhere in the crate.
//!
//! An adapter names the types of its peer. So following a peer to a version that breaks its users breaks users of this crate,
//! and is a breaking version of it, whatever features they use. The changelog says which versions of the peers they are.

#[cfg(feature = "hyper")]
pub mod hyper;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(feature = "quinn")]
pub mod quinn;
#[cfg(feature = "tower")]
pub mod tower;
