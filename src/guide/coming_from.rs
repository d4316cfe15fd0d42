//! Coming from another timer: what maps to what, code before and after, and what you would miss.
//! Documentation only.
//!
//! | from | to |
//! |---|---|
//! | `tokio::time` | the module [`time`](crate::time), by one line: [switching](super::switching) |
//! | [`DelayQueue`](delay_queue) of tokio-util | keyed timers |
//! | [`pingora-timeout`](pingora_timeout) | [`time`](crate::time) |
//! | [moka's time to live](moka) with an eviction listener | keyed timers |
//! | [a `BTreeMap` and a `Notify`](sorted_map), as in mini-redis | keyed timers |
//! | [`tokio-cron-scheduler`](tokio_cron_scheduler) | durable timers |
//! | [Netty's `HashedWheelTimer`, go-zero's `TimingWheel`](hashed_wheels) | keyed timers |
//!
//! From a job queue or a workflow engine: [instead of](super::instead_of).
//!
//! In the repository, tests run both sides of each page on the same script, compare what can be
//! observed, and hold the differences that the page names.

#[doc = include_str!("coming_from/delay_queue.md")]
pub mod delay_queue {}

#[doc = include_str!("coming_from/hashed_wheels.md")]
pub mod hashed_wheels {}

#[doc = include_str!("coming_from/moka.md")]
pub mod moka {}

#[doc = include_str!("coming_from/pingora_timeout.md")]
pub mod pingora_timeout {}

#[doc = include_str!("coming_from/sorted_map.md")]
pub mod sorted_map {}

#[allow(clippy::doc_markdown, reason = "names of products are no code")]
#[doc = include_str!("coming_from/tokio_cron_scheduler.md")]
pub mod tokio_cron_scheduler {}
