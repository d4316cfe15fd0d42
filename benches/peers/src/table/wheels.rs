//! The rows of bare wheels, and of the actor's work for each timer on its wheel.

use super::Series;
use super::checks::Checks;

pub(super) fn bare(c: &mut Checks) {
    for (group, sizes) in [
        ("S8 10^3", "10^3 resident"),
        ("S8 10^5", "10^5 resident"),
        ("S8 10^7", "10^7 resident"),
    ] {
        for (ours, theirs) in [
            ("tickwheel, the same", "hhwt, the same"),
            ("tickwheel, another", "hhwt, another"),
        ] {
            let (ours, theirs) = (Series(group, ours), Series(group, theirs));
            c.times("S8", sizes, ours, theirs, Some(0.5));
        }
    }
    for series in ["tickwheel, the same", "tickwheel, another"] {
        let (large, small) = (Series("S8 10^7", series), Series("S8 10^3", series));
        c.times("S8", "10^7 against 10^3 resident", large, small, None);
    }
}

/// From this follows how many timers one wheel can serve.
pub(super) fn actor(c: &mut Checks) {
    let what = "the actor's work for one of 10^6 timers";
    for timer in [
        "a sleep registered",
        "a sleep rescheduled",
        "a sleep fired",
        "a keyed timer registered",
        "a keyed timer rescheduled",
        "a keyed timer fired",
    ] {
        c.absolute("actor", what, ("cpu", "ns"), Series("actor", timer), None);
    }
}
