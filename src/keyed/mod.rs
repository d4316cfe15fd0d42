//! Timers with keys: set, move and remove them from anywhere; those that fire come out of a stream.

mod book;
mod error;
mod expirations;
mod receive;
mod set;
mod stored;
#[cfg(all(test, not(tickwheel_loom)))]
mod tests;
mod timers;
mod visits;
mod writes;

pub use error::{Closed, SetTimerError};
pub use expirations::{Expirations, Expired};
pub use timers::KeyedTimers;

pub(crate) use set::Set;
pub(crate) use stored::{Claim, Stored};
pub(crate) use timers::pair;
pub(crate) use visits::{AnySet, Delivered};
