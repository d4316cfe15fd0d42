//! The shares of keyed timers, repeating ones and watches in the soak test.

use std::ops::Range;
use std::sync::Arc;

use tickwheel::{BusyGuard, KeyedTimers, Reaper, SetTimerError, WatchGuard};

use super::drivers::{Share, delay};
use super::{Value, World};
use crate::support::{Numbers, ms};

pub(crate) struct Keyed {
    world: Arc<World>,
    timers: KeyedTimers<u64, Value>,
    keys: Range<u64>,
    filled: u64,
}

impl Keyed {
    pub(crate) fn new(
        world: &Arc<World>,
        timers: KeyedTimers<u64, Value>,
        keys: Range<u64>,
    ) -> Self {
        Keyed {
            world: Arc::clone(world),
            timers,
            filled: keys.start,
            keys,
        }
    }

    fn set(&self, key: u64, numbers: &mut Numbers) {
        let set = (self.timers).set_timer(key, self.world.value(), delay(numbers));
        assert!(set.is_ok(), "there is no limit, and it is open");
    }
}

impl Share for Keyed {
    fn world(&self) -> &Arc<World> {
        &self.world
    }

    fn size(&self) -> usize {
        usize::try_from(self.keys.end - self.keys.start).expect("few")
    }

    fn fill(&mut self, numbers: &mut Numbers) {
        self.set(self.filled, numbers);
        self.filled += 1;
    }

    fn act(&mut self, at: usize, numbers: &mut Numbers) {
        let key = self.keys.start + at as u64;
        let result = match numbers.below(16) {
            0..=5 => {
                self.set(key, numbers);
                Ok(())
            }
            6..=13 => self.timers.move_timer(&key, delay(numbers)).map(drop),
            _ => self.timers.remove_timer(&key).map(drop),
        };
        assert!(result.is_ok(), "it is open");
    }
}

impl Drop for Keyed {
    /// Removes timers that never fire, which would keep the stream from ending.
    fn drop(&mut self) {
        for key in self.keys.clone() {
            let _ = self.timers.remove_timer(&key);
        }
    }
}

pub(crate) struct Repeating {
    world: Arc<World>,
    timers: KeyedTimers<u64, Value>,
    size: usize,
    filled: u64,
}

impl Repeating {
    pub(crate) fn new(world: &Arc<World>, timers: KeyedTimers<u64, Value>, size: usize) -> Self {
        Repeating {
            world: Arc::clone(world),
            timers,
            size,
            filled: 0,
        }
    }

    fn set(&self, key: u64, numbers: &mut Numbers) {
        let period = ms(1_000 + numbers.below(60_000));
        let set = (self.timers).set_interval(key, self.world.value(), period);
        assert!(set.is_ok(), "there is no limit, and it is open");
    }
}

impl Share for Repeating {
    fn world(&self) -> &Arc<World> {
        &self.world
    }

    fn size(&self) -> usize {
        self.size
    }

    fn fill(&mut self, numbers: &mut Numbers) {
        self.set(self.filled, numbers);
        self.filled += 1;
    }

    fn act(&mut self, at: usize, numbers: &mut Numbers) {
        if numbers.below(16) == 0 {
            self.set(at as u64, numbers);
        }
    }
}

impl Drop for Repeating {
    fn drop(&mut self) {
        for key in 0..self.filled {
            let _ = self.timers.remove_timer(&key);
        }
    }
}

/// Watches of one reaper, touched now and then; some are not touched for too long.
pub(crate) struct Watches {
    world: Arc<World>,
    reaper: Reaper<u64, Value>,
    size: usize,
    all: Vec<WatchGuard>,
    busy: Vec<BusyGuard>,
}

impl Watches {
    pub(crate) fn new(world: &Arc<World>, reaper: Reaper<u64, Value>, size: usize) -> Self {
        Watches {
            world: Arc::clone(world),
            reaper,
            size,
            all: Vec::new(),
            busy: Vec::new(),
        }
    }

    fn watch(&self, key: u64) -> WatchGuard {
        let watch = self.reaper.watch(key, self.world.value());
        watch
            .map_err(|_: SetTimerError<_, _>| "there is no limit, and it is open")
            .unwrap()
    }
}

impl Share for Watches {
    fn world(&self) -> &Arc<World> {
        &self.world
    }

    fn size(&self) -> usize {
        self.size
    }

    fn fill(&mut self, _: &mut Numbers) {
        let watch = self.watch(self.all.len() as u64);
        self.all.push(watch);
    }

    fn act(&mut self, at: usize, numbers: &mut Numbers) {
        let is_watched = match numbers.below(16) {
            0 => false,
            1 => {
                self.busy.push(self.all[at].busy());
                if self.busy.len() > 100 {
                    drop(self.busy.swap_remove(0));
                }
                true
            }
            _ => self.all[at].touch(),
        };
        if !is_watched {
            self.all[at] = self.watch(at as u64);
        }
    }
}
