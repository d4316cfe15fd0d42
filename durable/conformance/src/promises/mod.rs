//! D1 to D12 and D16, through whole instances.

mod cadence;
mod calls;
mod charter;
mod claims;
mod sharing;
mod undecodable;
mod writes;

use std::time::Duration;

use tickwheel_durable::Builder;

pub use cadence::*;
pub use calls::*;
pub use charter::*;
pub use claims::*;
pub use sharing::*;
pub use undecodable::*;
pub use writes::*;

/// A time within which nothing comes due.
const FAR: Duration = Duration::from_secs(360_000);

type Settings = Builder<String, u64>;
