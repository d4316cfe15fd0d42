//! By what a load tells that the store has returned to an earlier state.

use super::time::StoreTime;

/// The trace that a load leaves in the store. The next load under the same id
/// [brings it back](super::Load::last).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Until when the id counts as living: each load writes another time. So a store that has an
    /// earlier one has returned to a state before the load.
    pub alive_until: StoreTime,
    /// The number of the connection: another one after a break, in which the store may have
    /// returned to a state after the load. A store that has no connections, or that knows by other
    /// means when it has returned, counts its returns.
    pub connection: i64,
}

/// Whether a store still has all that it has answered since the last load under an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Continuity {
    /// It has.
    Kept,
    /// It has the last load, and may have lost what came after it: there was a break in the
    /// connection. Or the id has ended, or a load has had no answer.
    Unknown,
    /// It does not have the last load: it has returned to an earlier state, or has lost its data.
    Broken,
}

impl Receipt {
    /// Compares the receipt of the last load under an id with what the store has: until when the id
    /// counts as living, if it is there. `now` and the `connection` are those of this load.
    pub fn compare(
        last: Option<Receipt>,
        stored: Option<StoreTime>,
        now: StoreTime,
        connection: i64,
    ) -> Continuity {
        let Some(last) = last else {
            return Continuity::Kept;
        };
        match stored {
            Some(until) if until < last.alive_until => Continuity::Broken,
            // Another instance may have deleted it when it had ended.
            None if last.alive_until >= now => Continuity::Broken,
            Some(until) if until == last.alive_until && connection == last.connection => {
                Continuity::Kept
            }
            _ => Continuity::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Continuity::{Broken, Kept, Unknown};

    #[test]
    fn load_that_the_store_does_not_know_breaks_the_continuity() {
        let at = StoreTime::from_micros;
        let last = Some(Receipt {
            alive_until: at(300),
            connection: 7,
        });
        for (stored, now, connection, expected) in [
            (Some(300), 200, 7, Kept),
            (Some(300), 200, 8, Unknown),
            // It has ended, and no other instance has loaded since.
            (Some(300), 400, 7, Kept),
            // A load that had no answer.
            (Some(310), 200, 7, Unknown),
            (Some(290), 200, 7, Broken),
            (Some(290), 200, 8, Broken),
            (Some(290), 400, 7, Broken),
            (None, 200, 7, Broken),
            (None, 300, 7, Broken),
            // Deleted after it had ended.
            (None, 301, 7, Unknown),
        ] {
            let continuity = Receipt::compare(last, stored.map(at), at(now), connection);
            assert_eq!(continuity, expected, "{stored:?} at {now} on {connection}");
        }
        assert_eq!(Receipt::compare(None, Some(at(1)), at(5), 1), Kept);
    }
}
