//! The actor, seen from outside: fairness, faults, the end, and time.

mod dedicated_thread;
mod fairness;
mod faults;
mod paused;
mod shutdown;
mod year;
