//! Timers with keys. Any task sets, moves and removes them, and a stream returns those that expire.

mod dispatch;
mod expirations;
mod timers;

pub use expirations::Expirations;
pub use timers::{KeyedTimers, WeakKeyedTimers};

pub(crate) use timers::pair;
