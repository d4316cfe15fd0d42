//! Keyed timers that survive the process, shared by any number of instances: a store plus a [timing wheel](tickwheel).
//!
//! "Remind me in three days, unless I cancel it; I don't care which of your processes is alive then." A timer has a key. Any
//! instance can set, move and remove it, and any instance delivers it, once, within milliseconds of its deadline, though the
//! store is asked once a second.
//!
//! # Quick start
//!
//! ```
//! use std::time::Duration;
//!
//! use serde::{Deserialize, Serialize};
//! use tickwheel::TimerWheel;
//! use tickwheel_durable::{Memory, Moved, Removed, builder};
//!
//! #[derive(Debug, PartialEq, Serialize, Deserialize)]
//! struct Order {
//!     customer: String,
//!     items: u32,
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let wheel = TimerWheel::new();
//! // `Sqlite::open("orders.db")?` keeps them in a file.
//! let (timers, mut claims) = builder("orders").start(&wheel, Memory::new()).await?;
//!
//! let key = "order 17".to_owned();
//! let order = Order { customer: "alice".into(), items: 3 };
//! let hour = Duration::from_secs(3_600);
//! timers.set_timer(&key, &order, 72 * hour).await?;
//! // Alice is back: she has more time.
//! assert_eq!(timers.move_timer(&key, 96 * hour).await?, Moved::Yes);
//!
//! // This instance, or any other.
//! let claim = claims.recv().await.ok_or("the stream has ended")?;
//! println!("{} forgot {} items", claim.value.customer, claim.value.items);
//! // Until here a crash would have it delivered again.
//! claim.ack().await?;
//! assert_eq!(timers.remove_timer(&key).await?, Removed::Absent);
//! # Ok(())
//! # }
//! ```
//!
//! # Where to go on
//!
//! * [`builder`](builder()), [`DurableTimers`], [`Claims`] and [`Claim`] are all there is to call.
//! * [`protocol`]: how instances share timers, what is promised, and what each crash leaves.
//! * [`operating`]: sizes, failures, what to watch, and when to take a job queue instead.
//! * [`store`]: what a store has to do, for those who write one.
//!
//! # Guarantees
//!
//! A call returns once its write is durable. A timer is delivered at least once, and without crashes exactly once; never early
//! by the store's clock; and never at a deadline that a move or remove has taken back. A timer is removed or fired, never both,
//! and the calls say which. A claim has a lease that counts from firing, and a fencing token. Repeating timers keep their
//! cadence whatever becomes of a delivery. An instance whose capacity is used up leaves timers to others. While the store is
//! away nothing is delivered unconfirmed, and nothing is lost.
//!
//! # Stores
//!
//! | store | feature | a call that returned survives | hints between processes |
//! |---|---|---|---|
//! | [`Sqlite`], a file | `sqlite`, on by default; takes a C compiler | a crash of the process and of the operating system | no: the poll finds what a process sets that does not claim |
//! | [`Postgres`] | `postgres`; takes a C compiler | what the server's commits do, [by its settings](Postgres#durability) | yes |
//! | [`Redis`], or Valkey | `redis`; takes a C compiler | what the server does, [by its settings](Redis#what-survives-what) | yes |
//! | [`Memory`], for tests | | nothing | - |
//! | [your own](store::Store) | `conformance` has the suite that it must pass | what it says | as it likes |
//!
//! The oldest supported Rust is 1.85. The crate needs Tokio's `rt`, `sync` and `time`, from version 1.49 on.

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
pub use instance::RenewGuard;
pub use memory::Memory;
pub use metrics::{DurableMetrics, Failing, Summary};
#[cfg(feature = "postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "postgres")))]
pub use postgres::Postgres;
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
pub use redis::Redis;
#[cfg(feature = "sqlite")]
#[cfg_attr(docsrs, doc(cfg(feature = "sqlite")))]
pub use sqlite::Sqlite;
pub use store::{Counts, Missed, Purged};
pub use timers::{DurableTimers, Moved, Removed, SetIfAbsent};

/// The code in the README runs as a test of the documentation.
#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../README.md")]
struct Readme;
