//! The mix of steps that a schedule takes, and its random numbers.

/// How often each kind of step is taken, in relation to the others, and how many threads take
/// steps.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mix {
    /// How many threads take steps, at least and at most, and how many steps each takes at most.
    pub(super) threads: (u64, u64),
    pub(super) steps: u64,
    pub(super) set: u64,
    pub(super) interval: u64,
    pub(super) move_to: u64,
    pub(super) remove: u64,
    pub(super) drain: u64,
    pub(super) watch: u64,
    pub(super) touch: u64,
    pub(super) busy: u64,
    pub(super) unwatch: u64,
    pub(super) sleep: u64,
    pub(super) sleep_and_drop: u64,
    pub(super) advance: u64,
    pub(super) rest: u64,
    pub(super) settle: u64,
    pub(super) metrics: u64,
    pub(super) shutdown: u64,
    /// How many of a hundred wakers panic.
    pub(super) panicking: u64,
    /// How many of a hundred receives follow a pause.
    pub(super) lagging: u64,
}

impl Mix {
    pub(super) fn has_timers(&self) -> bool {
        self.set + self.interval > 0
    }

    /// A mix of some of this one's steps. A step that is left out cannot repair what another one
    /// has broken.
    pub(super) fn some(mut self, random: &mut Random) -> Self {
        self.steps = 1 + random.below(self.steps);
        let all = self;
        let weights = [
            &mut self.interval,
            &mut self.move_to,
            &mut self.remove,
            &mut self.drain,
            &mut self.touch,
            &mut self.busy,
            &mut self.unwatch,
            &mut self.sleep,
            &mut self.sleep_and_drop,
            &mut self.advance,
            &mut self.rest,
            &mut self.settle,
            &mut self.metrics,
            &mut self.shutdown,
        ];
        for weight in weights {
            *weight *= random.pick(&[0, 1, 1, 1, 2]);
        }
        // There must be something to do.
        if !self.has_timers() && !self.has_watches() && self.sleep + self.sleep_and_drop == 0 {
            return all;
        }
        self
    }

    pub(super) fn has_watches(&self) -> bool {
        self.watch > 0
    }
}

/// Pseudo-random numbers, by `SplitMix64`.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub(super) fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        let at = usize::try_from(self.below(of.len() as u64)).expect("few");
        of[at]
    }
}
