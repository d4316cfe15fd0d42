//! The adapters with their real peers.

mod examples;
mod hyper;
mod metrics;
mod quinn;
mod tower;
