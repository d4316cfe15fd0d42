//! The integration tests, in one binary: a folder for each part of the crate, and what is about no
//! part alone beside them.

mod actor;
mod architecture;
mod builder;
mod builder_settings;
mod display;
mod examples;
mod foreign_bugs;
mod idle;
mod keyed;
mod metrics;
mod metrics_sets;
mod send_sync;
mod sleep;
mod soak;
mod support;
mod time;
