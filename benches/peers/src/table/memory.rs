//! The rows of memory and allocations, and of what an idle process costs.

use super::Series;
use super::checks::{Checks, OURS, PINGORA, QUEUE, TOKIO};

pub(super) fn rows(c: &mut Checks) {
    let bytes = ("bytes", "B");
    let ours = Series("S10", OURS);
    let what = "a pending keyed timer";
    c.absolute("S10", what, bytes, ours, Some(84.0));
    c.ratio("S10", what, bytes, ours, Series("S10", QUEUE), None);
    c.ratio(
        "S10",
        "a pending Sleep",
        bytes,
        Series("S10", "tickwheel, a Sleep"),
        Series("S10", "tokio::time, a boxed Sleep"),
        None,
    );
    // 128, and the key and the value.
    for (ours, theirs, bar) in [
        ("tickwheel, 0 words", "tokio::time, 0 words", None),
        ("tickwheel, 2 words", "tokio::time, 2 words", None),
        ("tickwheel, 4 words", "tokio::time, 4 words", Some(1.0)),
        ("tickwheel, 6 words", "tokio::time, 6 words", None),
        ("tickwheel, 8 words", "tokio::time, 8 words", None),
        ("tickwheel, 12 words", "tokio::time, 12 words", None),
        ("tickwheel::time, 4 words", "tokio::time, 4 words", None),
        ("tickwheel::time, 12 words", "tokio::time, 12 words", None),
    ] {
        let (ours, theirs) = (Series("S10", ours), Series("S10", theirs));
        c.ratio(
            "S3",
            "a task that sleeps and holds",
            bytes,
            ours,
            theirs,
            bar,
        );
    }
    let watch = Series("S10", "tickwheel, a Watch");
    c.absolute("idle", "a connection watched", bytes, watch, Some(144.0));
    for metric in [("allocations", ""), ("bytes", "B")] {
        for series in [OURS, TOKIO, PINGORA, "futures-timer", "async-io"] {
            let bar = (series == OURS && metric.0 == "allocations").then_some(0.001);
            let what = "allocated for each timeout";
            c.absolute("-", what, metric, Series("allocations", series), bar);
        }
    }
    for (series, what) in [
        ("no timers", "idle, no timers"),
        ("one timer", "idle, one timer a year away"),
    ] {
        let series = Series("S11", series);
        c.absolute("S11", what, ("wake-ups", ""), series, Some(0.0));
        c.absolute("S11", what, ("waits", ""), series, None);
    }
    let waits = ("waits", "");
    c.absolute(
        "S11",
        "idle, no wheel",
        waits,
        Series("S11", "no wheel"),
        None,
    );
}
