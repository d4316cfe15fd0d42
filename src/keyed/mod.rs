//! Timers with keys. Any task sets, moves and removes them, and a stream returns those that expire.

mod dispatch;
mod expirations;
mod timers;
mod weak_timers;
mod whole_set;

pub use expirations::Expirations;
pub use timers::KeyedTimers;
pub use weak_timers::WeakKeyedTimers;

pub(crate) use timers::pair;
