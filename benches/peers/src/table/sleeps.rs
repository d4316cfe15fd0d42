//! The rows of sleeps and timeouts: what it costs to arm, cancel, wait for and fire them.

use super::Series;
use super::checks::{Checks, OURS, PINGORA, TOKIO};
use super::lateness::early;
use crate::churn::{ABOVE_BY_HAND, CORES};
use crate::sides::Side;
use crate::{crowd, fresh, intervals, plan};

pub(super) fn churn(c: &mut Checks) {
    let one = "timeout armed and cancelled, current_thread";
    let two = "timeout armed and cancelled, 2 workers";
    let mixed = "timeout armed and cancelled, 2 workers, 30 s, 5 s and 50 ms in turn";
    for (id, what, against_tokio, against_pingora) in [
        ("S1", one, 0.5, None),
        ("S2", two, 0.08, Some(0.4)),
        ("S2b", mixed, 0.15, None),
    ] {
        let ours = Series(id, OURS);
        c.times(id, what, ours, Series(id, TOKIO), Some(against_tokio));
        c.times(id, what, ours, Series(id, PINGORA), against_pingora);
        let cores = "to the other core and back, before and after";
        c.absolute(id, cores, ("wall", "ns"), Series(id, CORES), None);
    }
    for (group, what, bar) in [("S2c", two, Some(5.0)), ("S2c 1", one, None)] {
        let (ours, by_hand) = (Series(group, "tickwheel::time"), Series(group, OURS));
        c.times("S2c", what, ours, by_hand, None);
        for metric in ["wall", "cpu"] {
            c.absolute(
                "S2c",
                what,
                (metric, "ns"),
                Series(group, ABOVE_BY_HAND),
                bar,
            );
        }
    }
    for (group, what, bar) in plan::nested_bars() {
        let (ours, theirs) = (Series(group, OURS), Series(group, TOKIO));
        c.times("S2d", what, ours, theirs, Some(bar));
    }
    for (group, what) in [
        ("4 threads", "timeout armed and cancelled, 4 workers"),
        ("8 threads", "timeout armed and cancelled, 8 workers"),
        ("16 threads", "timeout armed and cancelled, 16 workers"),
    ] {
        let (ours, theirs) = (Series(group, OURS), Series(group, TOKIO));
        c.times("threads", what, ours, theirs, None);
    }
    for (id, what, others) in [("S1", one, "S1 others"), ("S2", two, "S2 others")] {
        for peer in ["futures-timer", "async-io"] {
            c.times(id, what, Series(id, OURS), Series(others, peer), None);
        }
    }
}

pub(super) fn sleepers(c: &mut Checks) {
    let what = "many sleepers, each three times";
    let ours = Series("S3", OURS);
    for (peer, bars) in [
        (TOKIO, [Some(0.15), Some(1.0), Some(1.0)]),
        (PINGORA, [None; 3]),
    ] {
        let theirs = Series("S3", peer);
        c.ratio("S3", what, ("mean", "ms"), ours, theirs, bars[0]);
        for quantile in ["p50", "p99", "max"] {
            c.ratio("S3", what, (quantile, "ms"), ours, theirs, None);
        }
        c.ratio("S3", what, ("cpu", "s"), ours, theirs, bars[1]);
        c.ratio("S3", what, ("rss", "B"), ours, theirs, bars[2]);
    }
    early(c, "S3");
}

pub(super) fn storm(c: &mut Checks) {
    let ours = Series("S9", OURS);
    let what = "many sleeps due at one tick";
    c.absolute("S9", what, ("longest turn, cpu", "ms"), ours, Some(1.0));
    c.absolute("S9", what, ("longest turn", "ms"), ours, None);
    for (peer, bar) in [(TOKIO, Some(1.0)), (PINGORA, None)] {
        let theirs = Series("S9", peer);
        c.ratio("S9", what, ("cpu", "s"), ours, theirs, bar);
        c.ratio("S9", what, ("max", "ms"), ours, theirs, None);
    }
    early(c, "S9");
}

/// The cost of Tokio's alternative timer.
pub(super) fn alternative(c: &mut Checks) {
    for (id, what, bar) in [
        (
            "S2a",
            "timeout armed and cancelled, 2 workers, Tokio's alternative timer",
            0.25,
        ),
        (
            "S4a",
            "a pending sleep moved, 2 workers, Tokio's alternative timer",
            0.7,
        ),
    ] {
        c.times(id, what, Series(id, OURS), Series(id, TOKIO), Some(bar));
    }
}

/// Sleeps that no pool serves, intervals, and many wheels.
pub(super) fn not_pooled(c: &mut Checks) {
    for (group, _, what) in fresh::FRESH {
        let (ours, theirs) = (Series(group, OURS), Series(group, TOKIO));
        for metric in ["arm cpu", "arm wall", "drop cpu", "drop wall"] {
            let bar = metric.ends_with("cpu").then_some(1.0);
            c.ratio("S16", what, (metric, "ns"), ours, theirs, bar);
        }
    }
    for (group, _, what) in intervals::INTERVALS {
        let tokio = Series(group, TOKIO);
        for (side, bar) in [(Side::Tickwheel, 1.0), (Side::Precise, 1.2)] {
            let ours = Series(group, side.name());
            c.ratio("S17", what, ("cpu", "us"), ours, tokio, Some(bar));
            for quantile in ["p50", "p99"] {
                c.ratio("S17", what, (quantile, "ms"), ours, tokio, None);
            }
        }
    }
    let what = "1,000 wheels with 100 sleepers each, beside one wheel";
    let (many, one) = (Series("S18", crowd::MANY), Series("S18", crowd::ONE));
    c.ratio("S18", what, ("cpu", "us"), many, one, Some(1.5));
    for quantile in ["p50", "p99"] {
        c.ratio("S18", what, (quantile, "ms"), many, one, None);
    }
    c.absolute("S18", "a wheel is made", ("made", "us"), many, None);
    c.absolute("S18", "a wheel is made", ("bytes", "B"), many, None);
}
