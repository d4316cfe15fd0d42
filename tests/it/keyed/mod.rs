//! Keyed timers through the public interface, one subject to a module.

mod basics;
mod corpus;
mod dispatch;
mod far;
mod faults;
mod floods;
mod growth;
mod hashing;
mod interval;
mod limit;
mod load;
mod model;
mod outcomes;
mod receipts;
mod retain;
mod set_if_absent;
mod sets;
mod shutdown;
mod small_worlds;
mod stream;
mod stress;
mod update;
