//! The workloads, and the timers they are run with. See the README of the crate for what came of
//! it.

pub mod actor;
pub mod adapters;
pub mod chart;
pub mod churn;
pub mod clients;
pub mod coordinate;
pub mod crowd;
pub mod expiring;
pub mod fleet;
pub mod floods;
pub mod fresh;
pub mod idle;
pub mod intervals;
pub mod keepalive;
pub mod keyed;
pub mod measure;
pub mod pings;
pub mod plan;
pub mod proxy;
pub mod rates;
pub mod reconnects;
pub mod report;
pub mod service;
pub mod sides;
pub mod sleepers;
pub mod table;
pub mod touch;
pub mod wheels;
pub mod workload;
