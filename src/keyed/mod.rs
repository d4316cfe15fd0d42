//! Timers with keys: set, move and remove them from anywhere; those that expire come out of a stream.

mod dispatch;
mod expirations;
mod timers;

pub use expirations::Expirations;
pub use timers::{KeyedTimers, WeakKeyedTimers};

pub(crate) use timers::pair;
