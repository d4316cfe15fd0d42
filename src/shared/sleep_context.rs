//! The wheel of a sleep's entry, and the clock of an idle timer.

use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::idle_clock::IdleClock;
use super::stalls::Gap;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::tick::{NEVER, Timestamp};

/// Idle timers that are due after this time or later are not visited at one tick.
const SPREAD_FROM: Duration = Duration::from_secs(1);

/// See the module. All plain entries of a wheel share one; an idle timer has one of its own. An
/// entry keeps it for as long as it exists, so that a sleep made from a pool changes no reference
/// count that another core writes.
#[derive(Debug)]
pub(crate) struct SleepContext {
    pub(crate) shared: Arc<Shared>,
    /// The clock of an idle timer. It puts the deadline off without changing the entry.
    pub(crate) clock: Option<Arc<IdleClock>>,
}

impl SleepContext {
    /// The tick up to which the entry has been put off.
    pub(crate) fn put_off_to(&self, now: Timestamp) -> u64 {
        let Some(clock) = &self.clock else {
            return 0;
        };
        let due = clock.due(now.after_origin(), Gap::default());
        due.map_or(NEVER, |due| {
            self.shared.ticks.round_up_timestamp(Timestamp::at(due))
        })
    }

    /// When the actor comes for the first time to a timer that is due at `tick`: for an idle one,
    /// in the last quarter of the time until then. Its clock puts it off.
    ///
    /// A server arms very many together when it starts, or when all clients come back. At one tick
    /// all of them would be put off together, while requests wait.
    pub(super) fn first_visit(&self, tick: u64) -> u64 {
        if self.clock.is_none() || tick == NEVER {
            return tick;
        }
        let quarter = tick.saturating_sub(self.shared.tick_now()) / 4;
        if quarter < self.shared.ticks.whole_ticks(SPREAD_FROM / 4) {
            return tick;
        }
        tick - self.shared.idle_spread.0.below(quarter)
    }
}

/// How many idle timers of a wheel were armed.
#[derive(Debug, Default)]
pub(super) struct Spread(AtomicU64);

impl Spread {
    /// A number below `end`. Those of successive calls lie evenly, however many there are, as
    /// multiples of the golden ratio do between two integers.
    fn below(&self, end: u64) -> u64 {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        let fraction = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let below = (u128::from(end) * u128::from(fraction)) >> 64;
        #[allow(clippy::cast_possible_truncation)] // less than `end`
        let below = below as u64;
        below
    }
}
