//! The rows of lateness, of sleeps that are early, and of what precise timers cost.

use super::Series;
use super::checks::{Checks, OURS, PINGORA, TOKIO};
use crate::rates;
use crate::sides::Side;

pub(super) fn light(c: &mut Checks) {
    const QUANTILES: [&str; 4] = ["mean", "p50", "p99", "max"];
    let what = "100 tasks sleeping 20 ms, lateness";
    let (ours, tokio) = (Series("S12", OURS), Series("S12", TOKIO));
    for quantile in QUANTILES {
        let bar = (quantile != "max").then_some(1.05);
        c.ratio("S12", what, (quantile, "ms"), ours, tokio, bar);
    }
    let alternative = Side::TokioAlternative.name();
    for peer in [alternative, PINGORA, "futures-timer", "async-io"] {
        for quantile in QUANTILES {
            let theirs = Series("S12", peer);
            c.ratio("S12", what, (quantile, "ms"), ours, theirs, None);
        }
    }
    for variant in [Side::LongTick, Side::OwnThread] {
        for quantile in QUANTILES {
            let ours = Series("S12", variant.name());
            c.ratio("S12", what, (quantile, "ms"), ours, tokio, None);
        }
    }
    let precise = Series("S12", Side::Precise.name());
    for (quantile, bar) in [("mean", 0.3), ("p50", 0.15), ("p99", 1.0)] {
        c.ratio("S12", what, (quantile, "ms"), precise, tokio, Some(bar));
    }
    for peer in rates::PEERS {
        for quantile in QUANTILES {
            let theirs = Series("S12", peer.name());
            c.ratio("S12", what, (quantile, "ms"), precise, theirs, None);
        }
    }
    early(c, "S12");
    at_rates(c);
    let what = "20 tasks sleeping 20 ms, the arming task blocks its worker";
    let late = ("max", "ms");
    c.absolute("S13", what, late, Series("S13", OURS), Some(10.0));
    for series in [Side::OwnThread.name(), TOKIO, alternative] {
        c.absolute("S13", what, late, Series("S13", series), None);
    }
}

/// The cost of precision.
fn at_rates(c: &mut Checks) {
    let (cost, p50, p99) = (("cpu", "us"), ("p50", "ms"), ("p99", "ms"));
    for (group, per_second) in rates::RATES {
        let what = match per_second {
            1_000 => "1,000 sleeps a second, each",
            10_000 => "10,000 sleeps a second, each",
            _ => "100,000 sleeps a second, each",
        };
        let series = |side: Side| Series(group, side.name());
        let (ours, tokio) = (series(Side::Tickwheel), series(Side::Tokio));
        c.ratio("S12b", what, cost, ours, tokio, Some(1.1));
        let precise = series(Side::Precise);
        let bar = if per_second > 1_000 { 1.5 } else { 1.4 };
        c.ratio("S12b", what, cost, precise, tokio, Some(bar));
        let dense = per_second > 1_000;
        c.absolute("S12b", what, p50, precise, dense.then_some(0.5));
        c.absolute("S12b", what, p99, precise, (!dense).then_some(0.35));
        for side in rates::VARIANTS.into_iter().chain(rates::PEERS) {
            c.ratio("S12b", what, cost, series(side), tokio, None);
            c.absolute("S12b", what, p50, series(side), None);
            c.absolute("S12b", what, p99, series(side), None);
        }
        early(c, group);
    }
}

/// How many woke before their time.
pub(super) fn early(c: &mut Checks, group: &'static str) {
    let metric = ("early", "sleeps");
    for ours in [OURS, Side::Precise.name()] {
        c.absolute(group, "woken early", metric, Series(group, ours), Some(0.0));
    }
    for peer in [TOKIO, PINGORA, "futures-timer", "async-io"] {
        c.absolute(group, "woken early", metric, Series(group, peer), None);
    }
}
