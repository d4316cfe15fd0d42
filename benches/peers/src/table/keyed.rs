//! The rows of keyed timers that are set, moved and removed.

use super::Series;
use super::checks::{Checks, OURS, QUEUE};

pub(super) fn rows(c: &mut Checks) {
    for (group, what, bar) in [
        ("S6 1", "keyed set + move + remove, 1 producer", 0.2),
        ("S6 2", "keyed set + move + remove, 2 producers", 0.4),
        (
            "S6 1 among",
            "keyed set + move + remove among 1000 others, 1 producer",
            0.5,
        ),
        (
            "S6 2 among",
            "keyed set + move + remove among 1000 others, 2 producers",
            0.9,
        ),
    ] {
        let (ours, theirs) = (Series(group, OURS), Series(group, QUEUE));
        c.times("S6", what, ours, theirs, Some(bar));
    }
    for (group, what) in [
        ("S6 4", "keyed set + move + remove, 4 workers"),
        ("S6 8", "keyed set + move + remove, 8 workers"),
        ("S6 16", "keyed set + move + remove, 16 workers"),
        (
            "S6 2 apart",
            "keyed set + move + remove, 2 workers with a set each",
        ),
        (
            "S6 16 apart",
            "keyed set + move + remove, 16 workers with a set each",
        ),
    ] {
        let (ours, theirs) = (Series(group, OURS), Series(group, QUEUE));
        c.times("threads", what, ours, theirs, None);
    }
    for (id, what, bar) in [
        ("S6b", "10^5 keyed timers fire and are received, each", 0.8),
        ("S6c", "10^5 new keys set, each", 0.7),
    ] {
        let (ours, theirs) = (Series(id, OURS), Series(id, QUEUE));
        c.ratio(id, what, ("cpu", "ns"), ours, theirs, Some(bar));
        c.ratio(id, what, ("wall", "ns"), ours, theirs, None);
    }
    for (group, what) in [
        ("S7", "a random one of many keys moved later"),
        ("S7 anywhere", "a random one of many keys moved anywhere"),
    ] {
        let (ours, theirs) = (Series(group, OURS), Series(group, QUEUE));
        c.times("S7", what, ours, theirs, Some(0.5));
    }
}
