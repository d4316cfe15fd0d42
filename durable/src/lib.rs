//! Keyed timers that survive the process, shared by any number of instances: a store plus a [timing
//! wheel](tickwheel).
//!
//! Any instance sets, moves and removes a timer by its key. One instance delivers it, once, within
//! milliseconds of its deadline, though the store is polled once a second.
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
//! let (timers, mut claims) = builder::<String, Order>("orders").start(&wheel, Memory::new()).await?;
//!
//! let key = "order 17";
//! let order = Order { customer: "alice".into(), items: 3 };
//! let hour = Duration::from_secs(3_600);
//! timers.set_timer(key, &order, 3 * hour).await?;
//! // Alice was active: give her more time.
//! assert_eq!(timers.move_timer(key, 4 * hour).await?, Moved::Done);
//!
//! let claim = claims.recv().await.ok_or("the stream has ended")?;
//! println!("{} forgot {} items", claim.value.customer, claim.value.items);
//! claim.ack().await?;
//! assert_eq!(timers.remove_timer(key).await?, Removed::Absent);
//! # Ok(())
//! # }
//! ```
//!
//! # Where to go on
//!
//! * [`builder`](builder()) starts an instance. [`DurableTimers`] sets, moves and removes timers,
//!   [`Claims`] delivers them, and a [`Claim`] settles one. [`Admin`] looks at all of them.
//! * [`SqliteTransaction`], and [functions in PostgreSQL](Postgres#in-your-own-transaction): timers
//!   that are set in a transaction of your own.
//! * [`protocol`]: how instances share timers, the [promises](protocol#the-promises) with their
//!   tests, and what each crash leaves.
//! * [`operating`]: sizing, failures, monitoring, and when to use a job queue instead.
//! * [`store`]: the contract of a store, to write your own.
//!
//! # Stores and features
//!
//! | store | feature | what a write that returned survives |
//! |---|---|---|
//! | [`Sqlite`], a file | `sqlite`, on by default; takes a C compiler | crashes, also of the operating system |
//! | [`Postgres`] | `postgres` | [by the server's settings](Postgres#durability) |
//! | [`Redis`], or Valkey | `redis` | [by the server's settings](Redis#what-survives-what) |
//! | [`Memory`], for tests | | |
//! | your own: [`store`] | `unstable-store` | |
//!
//! With PostgreSQL or Redis alone, `default-features = false` leaves SQLite and the C compiler out.
//! Encrypted connections take a feature more: `tls-ring`, or `tls-aws-lc-rs`.
//!
//! The oldest supported Rust is 1.85. The crate needs Tokio's `rt`, `sync` and `time`, from version
//! 1.49 on.

#![forbid(unsafe_code)]
// An example is pasted as it is, and brings no warning.
#![doc(test(attr(deny(unused_imports, unused_must_use))))]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[macro_use]
mod opaque;

mod admin;
mod backoff;
pub mod backups;
mod builder;
pub mod calendars;
mod claim;
mod claims;
mod codec;
mod cron;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod crypto;
mod error;
mod instance;
mod jitter;
mod lock;
mod memory;
mod metrics;
#[cfg_attr(
    not(any(feature = "postgres", feature = "redis", feature = "sqlite")),
    allow(dead_code)
)]
mod migrations;
pub mod operating;
mod outcomes;
#[cfg(feature = "postgres")]
mod postgres;
pub mod protocol;
mod race;
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
mod redis;
#[cfg(feature = "metrics")]
mod reporter;
mod retry;
mod settings;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod silence;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "unstable-store")]
#[cfg_attr(docsrs, doc(cfg(feature = "unstable-store")))]
pub mod store;
// Some of it is for stores of other crates alone.
#[cfg(not(feature = "unstable-store"))]
#[allow(dead_code, unreachable_pub, unused_imports)]
mod store;
mod timers;
mod token;

pub use admin::{Admin, Changed, Dead, Entry, InFlight, Member, Position, PrefixPosition};
pub use backoff::Backoff;
pub use builder::{Builder, builder};
pub use claim::{Acknowledged, Claim};
pub use claims::Claims;
pub use codec::{Codec, Json, MAX_KEY_BYTES, MAX_VALUE_BYTES};
pub use error::{BuildError, CronError, Error};
pub use instance::RenewGuard;
pub use memory::Memory;
pub use metrics::{BatchSizes, DurableMetrics, Failing};
pub use migrations::{Migration, SchemaVersion};
pub use outcomes::{Moved, Removed, SetIfAbsent};
#[cfg(feature = "postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "postgres")))]
pub use postgres::{Postgres, PostgresOptions};
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
pub use redis::Redis;
#[cfg(feature = "metrics")]
#[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
pub use reporter::Reporter;
pub use retry::Retry;
/// The version of `rusqlite` whose transactions [`SqliteTransaction`] takes.
#[cfg(feature = "sqlite")]
#[cfg_attr(docsrs, doc(cfg(feature = "sqlite")))]
pub use rusqlite;
#[cfg(feature = "sqlite")]
#[cfg_attr(docsrs, doc(cfg(feature = "sqlite")))]
pub use sqlite::{Sqlite, SqliteTransaction};
// They are stable, and so are their pages, wherever they lie in this crate.
#[doc(inline)]
pub use store::{
    BoxError, Change, ChangedRows, Charter, Counts, InstanceId, Missed, NamespaceError, State,
    Store, StoreError, StoreTime, StoredInstance,
};
pub use timers::DurableTimers;
pub use token::Token;
/// The version of `tokio-postgres` whose [`Config`](tokio_postgres::Config), TLS connectors and
/// connections [`PostgresOptions`] takes.
#[cfg(feature = "postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "postgres")))]
pub use tokio_postgres;

/// The code in the README runs as a test of the documentation.
#[cfg(all(doctest, feature = "sqlite", feature = "cron"))]
#[doc = include_str!("../README.md")]
struct Readme;
