//! Timers with keys: set, move and remove them from anywhere; those that fire come out of a stream.

mod book;
mod error;
mod expirations;
mod set;
mod timers;

pub use error::{Closed, SetTimerError};
pub use expirations::{Expirations, Expired};
pub use timers::KeyedTimers;

pub(crate) use set::{AnySet, Delivered};
pub(crate) use timers::pair;
