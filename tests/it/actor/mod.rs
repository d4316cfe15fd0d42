//! The actor through the public interface: fairness, faults, the end, and time.

mod blocked_workers;
mod dedicated_thread;
mod fairness;
mod faults;
mod paused;
mod shutdown;
mod year;
