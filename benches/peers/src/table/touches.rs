//! The rows of timers that are moved before they fire: sleeps, idle timers, watched connections.

use super::Series;
use super::checks::{Checks, OURS, TOKIO};

pub(super) fn rows(c: &mut Checks) {
    for (group, what) in [
        ("S4", "a pending sleep moved, current_thread"),
        ("S4 2 workers", "a pending sleep moved, 2 workers"),
    ] {
        let (ours, theirs) = (Series(group, OURS), Series(group, TOKIO));
        c.times("S4", what, ours, theirs, Some(0.7));
    }
    let wall = ("wall", "ns");
    let (touch_at, touch) = (Series("S5", "touch_at(now)"), Series("S5", "touch()"));
    let apart = Series("S5", "touch_at, ticks apart");
    c.absolute(
        "S5",
        "idle: touch_at(now), above the loop",
        wall,
        touch_at,
        Some(2.0),
    );
    c.absolute(
        "S5",
        "idle: touch_at, each in another tick, above the loop",
        wall,
        apart,
        None,
    );
    for (peer, bar) in [
        ("Instant::now()", Some(1.1)),
        ("tokio Sleep::reset", None),
        ("DelayQueue::reset", None),
    ] {
        c.times("S5", "idle: touch()", touch, Series("S5", peer), bar);
    }
    let (watched, plain) = (Series("echo", "IdleStream"), Series("echo", "plain"));
    let what = "echo round trip on the loopback";
    c.times("idle", what, watched, plain, Some(1.05));
    let what = "connections watched, each touched 10 times in its idle period";
    let ours = Series("watches", OURS);
    for (metric, unit, bar) in [
        ("commands", "", Some(0.0)),
        ("reschedules", "in each period", None),
        ("cpu of a reschedule", "ns", None),
        ("share of a core", "%", None),
    ] {
        c.absolute("idle", what, (metric, unit), ours, bar);
    }
}
