//! The rows of adapters, and of services that use them.

use super::Series;
use super::checks::{Checks, OURS, TOKIO};

pub(super) fn adapters(c: &mut Checks) {
    for (ours, theirs, what) in [
        (
            "hyper reset: tickwheel",
            "hyper reset: TokioTimer",
            "hyper: a pending sleep reset",
        ),
        (
            "hyper sleep: tickwheel",
            "hyper sleep: TokioTimer",
            "hyper: a sleep made, polled and dropped, 2 workers",
        ),
        (
            "quinn reset: tickwheel",
            "quinn reset: TokioRuntime",
            "quinn: a pending timer reset",
        ),
        (
            "quinn reset and poll: tickwheel",
            "quinn reset and poll: TokioRuntime",
            "quinn: a pending timer reset and polled",
        ),
    ] {
        let (ours, theirs) = (Series("adapters", ours), Series("adapters", theirs));
        c.times("adapters", what, ours, theirs, None);
    }
    for (group, what) in [
        ("calls", "tower: a limited call, 2 workers"),
        (
            "calls cloned",
            "tower: a limited call, 2 workers, the service cloned for each",
        ),
    ] {
        let (ours, theirs) = (Series(group, OURS), Series(group, "tower::timeout"));
        c.times("adapters", what, ours, theirs, None);
    }
    services(c);
}

fn services(c: &mut Checks) {
    let hyper = "hyper server, request and head limited";
    for (group, what) in [
        ("service", hyper),
        ("proxy", "proxy, four timers a request"),
        ("proxy mixed", "proxy, four timers a request, lengths mixed"),
    ] {
        for (peer, bar) in [(TOKIO, Some(1.0)), ("no limits", None)] {
            let (ours, theirs) = (Series(group, OURS), Series(group, peer));
            c.ratio("service", what, ("cpu", "ns"), ours, theirs, bar);
            for (metric, unit) in [("wall", "ns"), ("p50", "us"), ("p99", "us")] {
                c.ratio("service", what, (metric, unit), ours, theirs, None);
            }
        }
    }
    for metric in ["timers", "commands"] {
        let ours = Series("service", OURS);
        c.absolute("service", hyper, (metric, "a request"), ours, None);
    }
}
