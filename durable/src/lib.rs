//! Keyed timers that survive the process, shared by any number of instances.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod admin;
mod builder;
mod claim;
mod claims;
mod codec;
#[cfg(feature = "conformance")]
#[cfg_attr(docsrs, doc(cfg(feature = "conformance")))]
pub mod conformance;
mod error;
mod instance;
mod memory;
mod metrics;
pub mod operating;
pub mod protocol;
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
mod redis;
mod settings;
#[cfg(feature = "sqlite")]
mod sqlite;
pub mod store;
mod timers;

pub use admin::{Admin, Entry, InFlight, Position};
pub use builder::{Builder, builder};
pub use claim::{Claim, Token};
pub use claims::{Claims, Retry};
pub use codec::{BoxError, Codec, Json, MAX_KEY_BYTES, MAX_VALUE_BYTES};
pub use error::{Error, StartError};
pub use memory::Memory;
pub use metrics::{DurableMetrics, Summary};
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
pub use redis::Redis;
#[cfg(feature = "sqlite")]
#[cfg_attr(docsrs, doc(cfg(feature = "sqlite")))]
pub use sqlite::Sqlite;
pub use store::{Counts, Missed};
pub use timers::{DurableTimers, Moved, Removed, SetIfAbsent};
