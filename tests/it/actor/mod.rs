//! The actor through the public interface: fairness, faults, the end, and time.

mod blocked_workers;
mod contention;
mod fairness;
mod faults;
mod own_thread;
mod paused;
#[cfg(all(feature = "precise", target_os = "linux"))]
mod precise;
mod shutdown;
mod weak;
mod year;
