//! The adapters with their real peers.

mod hyper;
mod metrics;
mod quinn;
mod tower;
