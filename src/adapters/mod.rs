//! The wheel's timers behind the interfaces of other crates, each behind a feature.
//!
//! | feature | for | gives |
//! |---|---|---|
//! | `axum` | services on [axum](https://docs.rs/axum) | a listener that closes idle connections, and a stop that cuts no request |
//! | `hyper` | servers and clients on [hyper](https://docs.rs/hyper) or hyper-util, and axum served by them | [`TimerWheel`](crate::TimerWheel) is a `hyper::rt::Timer` |
//! | `tower` | [tower](https://docs.rs/tower) services, axum's and tonic's among them | layers that limit requests, responses and bodies |
//! | `quinn` | QUIC with [quinn](https://docs.rs/quinn) | a `quinn::Runtime` |
//! | `metrics` | every exporter of the [metrics](https://docs.rs/metrics) facade, such as Prometheus | a reporter of [`WheelMetrics`](crate::WheelMetrics) |
//!
//! Every adapter takes the wheel that it uses. A duration of zero elapses at once; an
//! unrepresentable one never does.
//!
//! An adapter exposes types of its peer crate, so an update to a breaking version of a peer is a
//! breaking version of this crate, whatever features you use. The changelog names the versions of
//! the peers.

#[cfg(feature = "axum")]
pub mod axum;
#[cfg(feature = "hyper")]
pub mod hyper;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(feature = "quinn")]
pub mod quinn;
#[cfg(feature = "tower")]
pub mod tower;
