//! A second set on the wheel of a script, which is flooded: more timers at one tick than a turn
//! reaches, and a reader that takes some of them, late.

use std::collections::BTreeMap;
use std::time::Duration;

use tickwheel::{Expirations, KeyedTimers, TimerWheel};

use crate::support::script_time::Nanos;

#[derive(Debug)]
pub(super) struct Flood {
    /// `None` if the script has no floods.
    set: Option<(KeyedTimers<u64, ()>, Expirations<u64, ()>)>,
    /// The keys by the instant at which they fire. Keys count up, so one instant's are in order.
    waiting: BTreeMap<(Nanos, u64), bool>,
    pub(super) armed: u64,
    pub(super) received: u64,
}

impl Flood {
    pub(super) fn new(wheel: &TimerWheel, is_on: bool) -> Self {
        Flood {
            set: is_on.then(|| wheel.keyed()),
            waiting: BTreeMap::new(),
            armed: 0,
            received: 0,
        }
    }

    /// Sets this many timers.
    pub(super) fn rise(&mut self, n: u16, delay: Duration, fires_at: Nanos) {
        let Some((timers, _)) = &self.set else { return };
        for key in self.armed..self.armed + u64::from(n) {
            assert_eq!(timers.set_timer(key, (), delay), Ok(None));
            self.waiting.insert((fires_at, key), false);
        }
        self.armed += u64::from(n);
    }

    /// Everything has settled: the reader knows what is due.
    pub(super) fn settled(&mut self, now: Nanos) {
        for (_, is_known) in self.waiting.range_mut(..=(now, u64::MAX)) {
            *is_known = true;
        }
    }

    /// Receives up to `limit`: the first ones, which are due, and all of which it knows.
    pub(super) fn read(&mut self, limit: usize, now: Nanos) {
        let Some((_, stream)) = &mut self.set else {
            return;
        };
        for _ in 0..limit {
            let Ok(expired) = stream.try_recv() else {
                let is_known = self.waiting.values().any(|is_known| *is_known);
                assert!(!is_known, "due, and not received");
                return;
            };
            let mut waiting = self.waiting.iter();
            let own = waiting.find(|((_, key), _)| *key == expired.key);
            let (&place, _) = own.expect("it was not received before");
            assert!(place.0 <= now, "early");
            let before = self.waiting.range(..place);
            assert!(before.into_iter().all(|(_, is_known)| !is_known), "order");
            self.waiting.remove(&place);
            self.received += 1;
        }
    }

    /// Whether any is due. A turn may be too short for all of them.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.waiting.range(..=(now, u64::MAX)).next().is_some()
    }

    pub(super) fn pending(&self) -> u64 {
        self.waiting.len() as u64
    }
}
