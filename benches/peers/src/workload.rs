//! What each process does.

use crate::churn::{Against, Nested};
use crate::expiring::Part;
use crate::floods::{self, Flood};
use crate::keyed::{To, Triples};
use crate::measure::Scale;
use crate::sides::Side;
use crate::sleepers::{self, Idle};
use crate::{
    actor, adapters, churn, crowd, expiring, fresh, idle, intervals, keepalive, keyed, pings,
    proxy, rates, reconnects, service, touch, wheels,
};

/// A workload, in its own process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    Churn {
        workers: usize,
        mixed: bool,
        against: Against,
    },
    Nested(Nested),
    Many(Side),
    Few(Side),
    /// So many sleeps a second.
    Rate {
        side: Side,
        per_second: u64,
    },
    Blocked(Side),
    Beside(Flood),
    /// Many sets with timers that are due at once.
    Sets,
    Reset {
        workers: usize,
    },
    Touch,
    Echo,
    Watches,
    Triples(Triples),
    Moves(To),
    /// Keyed timers that all fire, or are set for the first time.
    Keyed {
        side: Side,
        part: Part,
    },
    /// Sleeps that no pool serves.
    Fresh {
        side: Side,
        sleeps: usize,
    },
    Intervals {
        side: Side,
        workers: usize,
    },
    /// Many wheels, or one with as many sleepers.
    Crowd {
        is_many: bool,
    },
    Wheels {
        resident: u64,
    },
    Storm(Side),
    /// How long the actor's turns are in a storm.
    Turns,
    Bytes,
    Allocations,
    Idle(Idle),
    /// The actor's work for a timer.
    Actor,
    /// hyper's and quinn's timers.
    Adapters,
    /// A service that tower limits.
    Calls {
        cloned: bool,
    },
    /// A server of hyper.
    Service,
    /// A proxy with four timers for each request.
    Proxy {
        mixed: bool,
    },
    /// All clients of a server come back at once.
    Reconnects(Side),
    /// A proxy with many connections that are idle most of the time.
    KeepAlive(Side),
    /// A server that pings its clients.
    Pings(Side),
}

impl Workload {
    /// Runs it in this process.
    pub fn run(self, scale: Scale) {
        match self {
            Workload::Churn {
                workers,
                mixed,
                against,
            } => churn::run(scale, workers, mixed, against),
            Workload::Nested(nested) => churn::nested(scale, nested),
            Workload::Many(side) => sleepers::many(scale, side),
            Workload::Few(side) => sleepers::few(scale, side),
            Workload::Rate { side, per_second } => rates::run(scale, side, per_second),
            Workload::Blocked(side) => sleepers::blocked(scale, side),
            Workload::Beside(flood) => floods::beside(scale, flood),
            Workload::Sets => floods::sets(scale),
            Workload::Reset { workers } => touch::reset(scale, workers),
            Workload::Touch => touch::touch(scale),
            Workload::Echo => idle::echo(scale),
            Workload::Watches => idle::watches(scale),
            Workload::Triples(triples) => keyed::triples(scale, triples),
            Workload::Moves(to) => keyed::moves(scale, to),
            Workload::Keyed { side, part } => expiring::run(scale, side, part),
            Workload::Fresh { side, sleeps } => fresh::run(scale, side, sleeps),
            Workload::Intervals { side, workers } => intervals::run(scale, side, workers),
            Workload::Crowd { is_many } => crowd::run(scale, is_many),
            Workload::Wheels { resident } => wheels::run(scale, resident),
            Workload::Storm(side) => sleepers::storm(scale, side),
            #[cfg(tokio_unstable)]
            Workload::Turns => sleepers::turns(scale),
            Workload::Idle(with) => sleepers::idle(scale, with),
            Workload::Actor => actor::run(scale),
            Workload::Adapters => adapters::timers(scale),
            Workload::Calls { cloned } => adapters::calls(scale, cloned),
            Workload::Service => service::run(scale),
            Workload::Proxy { mixed } => proxy::run(scale, mixed),
            Workload::Reconnects(side) => reconnects::run(scale, side),
            Workload::KeepAlive(side) => keepalive::run(scale, side),
            Workload::Pings(side) => pings::run(scale, side),
            Workload::Bytes | Workload::Allocations => unreachable!("`counted` runs these"),
            #[cfg(not(tokio_unstable))]
            Workload::Turns => {
                unreachable!("the program built with `--cfg tokio_unstable` runs it")
            }
        }
    }
}
