//! The actor through the public interface: fairness, faults, the end, and time.

mod blocked_workers;
mod contention;
mod dedicated_thread;
mod fairness;
mod faults;
mod paused;
#[cfg(all(feature = "precise", target_os = "linux"))]
mod precise;
mod shutdown;
mod weak;
mod year;
