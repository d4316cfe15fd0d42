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
    fleets(c);
}

/// Servers with many connections.
fn fleets(c: &mut Checks) {
    let asked = [("cpu", "us"), ("answer p50", "ms"), ("answer p99", "ms")];
    for (id, what, others) in [
        (
            "reconnects",
            "10^5 connections lost, which come back within a second, each",
            [("wall", "s"), ("rss", "B")].as_slice(),
        ),
        (
            "keepalive",
            "a request to a proxy with 10^5 keep-alive connections",
            &[("wall", "us"), ("rss", "B")],
        ),
        (
            "pings",
            "10,000 connections, a ping each second, each",
            &[("p50", "ms"), ("p99", "ms"), ("rss", "B")],
        ),
    ] {
        let ours = Series(id, OURS);
        for (peer, bar) in [(TOKIO, Some(1.0)), ("floor", None)] {
            for metric in asked.iter().chain(others) {
                let bar = bar.filter(|_| metric.0 == "cpu");
                c.ratio(id, what, *metric, ours, Series(id, peer), bar);
            }
        }
        c.absolute(id, "of these with sockets", ("sockets", ""), ours, None);
    }
    for series in [OURS, TOKIO] {
        let closed = ("closed", "");
        c.absolute(
            "keepalive",
            "connections closed though in use",
            closed,
            Series("keepalive", series),
            Some(0.0),
        );
    }
}
