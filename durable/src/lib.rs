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
#[cfg(feature = "postgres")]
mod postgres;
pub mod protocol;
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
#[cfg(feature = "postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "postgres")))]
pub use postgres::Postgres;
#[cfg(feature = "sqlite")]
#[cfg_attr(docsrs, doc(cfg(feature = "sqlite")))]
pub use sqlite::Sqlite;
pub use store::{Counts, Missed};
pub use timers::{DurableTimers, Moved, Removed, SetIfAbsent};
