//! The futures that sleep.

mod basics;
mod interval;
mod model;
mod pool;
mod timeout;
