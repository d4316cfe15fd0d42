//! The explorer's worker: a party that takes random steps.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::FutureExt;
use shuttle::thread;

use super::facts::{Facts, HOUR, INTERVALS, KEYS, SharedFacts};
use super::mix::{Mix, Random};
use super::world::{self, Me, Wait, advance, block_on, fail, note};
use crate::{BusyGuard, KeyedTimers, Reaper, Sleep, TimerWheel, WatchGuard, clock};

type Step = fn(&mut Worker);

/// A party that takes steps.
pub(super) struct Worker {
    pub(super) me: Me,
    pub(super) random: Random,
    pub(super) mix: Mix,
    pub(super) facts: SharedFacts,
    pub(super) wheel: TimerWheel,
    pub(super) timers: Option<Arc<KeyedTimers<u64, u64>>>,
    pub(super) intervals: Vec<u64>,
    pub(super) reaper: Option<Reaper<u64, u64>>,
    pub(super) watches: Vec<(u64, WatchGuard, Option<BusyGuard>)>,
}

fn delay(random: &mut Random) -> Duration {
    let micros = random.pick(&[0, 400, 1_000, 1_000, 2_000, 3_500, 5_000, 20_000, 70_000]);
    if random.percent(25) {
        HOUR + Duration::from_micros(micros)
    } else {
        Duration::from_micros(micros)
    }
}

impl Worker {
    pub(super) fn run(mut self) {
        let steps = 1 + self.random.below(self.mix.steps);
        for _ in 0..self.random.below(3) {
            self.watch();
        }
        for _ in 0..steps {
            self.step();
        }
        self.release_all();
        match self.random.below(3) {
            0 => self.rest_for(200 * world::TICK),
            1 if !self.wheel.is_shutdown() => pause(self.me, &self.wheel, 10 * world::TICK),
            _ => {}
        }
        while let Some((key, watch, _)) = self.watches.pop() {
            if self.random.percent(50) {
                self.unwatch(key, watch, None);
            } else {
                // It is never touched again, so it will be reaped.
                while watch.is_watched() && !self.wheel.is_shutdown() {
                    pause(self.me, &self.wheel, world::TICK);
                }
                self.unwatch(key, watch, None);
            }
        }
    }

    /// Removes repeating timers and drops guards, which would keep the others from ending.
    fn release_all(&mut self) {
        for key in std::mem::take(&mut self.intervals) {
            let _ = self.timers().remove_timer(&key);
        }
        for at in 0..self.watches.len() {
            let (key, _, busy) = &mut self.watches[at];
            let (key, busy) = (*key, busy.take());
            self.release(key, busy);
        }
    }

    fn step(&mut self) {
        let m = self.mix;
        let steps: [(u64, Step); 16] = [
            (m.set, Self::set),
            (m.interval, Self::set_interval),
            (m.move_to, Self::move_to),
            (m.remove, Self::remove),
            (m.drain, Self::drain),
            (m.watch, Self::watch),
            (m.touch, Self::touch),
            (m.busy, Self::busy),
            (m.unwatch, Self::unwatch_one),
            (m.sleep, Self::sleep),
            (m.sleep_and_drop, Self::sleep_and_drop),
            (m.advance, Self::advance),
            (m.rest, Self::rest),
            (m.settle, Self::settle),
            (m.metrics, Self::metrics),
            (m.shutdown, Self::shutdown),
        ];
        let mut at = self
            .random
            .below(steps.iter().map(|(weight, _)| weight).sum());
        for (weight, step) in steps {
            if at < weight {
                return step(self);
            }
            at -= weight;
        }
    }

    fn timers(&self) -> Arc<KeyedTimers<u64, u64>> {
        Arc::clone(self.timers.as_ref().expect("the mix has timers"))
    }

    fn set(&mut self) {
        let key = self.random.below(KEYS);
        let delay = delay(&mut self.random);
        let value = self.next_value();
        note(self.me, || format!("sets {key} to {value} in {delay:?}"));
        self.facts.update(|facts| facts.set.insert(value));
        if self.random.percent(30) {
            return self.set_if_absent(key, value, delay);
        }
        match self.timers().set_timer(key, value, delay) {
            Ok(replaced) => {
                note(self.me, || format!("has set {key}, for {replaced:?}"));
                self.has_come_out(key, replaced);
            }
            Err(error) => {
                note(self.me, || format!("has not set {key}: {error}"));
                self.facts.update(|facts| facts.set.remove(&value));
            }
        }
    }

    fn set_if_absent(&self, key: u64, value: u64, delay: Duration) {
        let answer = self.timers().set_if_absent(key, value, delay);
        note(self.me, || format!("has set {key} if absent: {answer:?}"));
        if !matches!(answer, Ok(None)) {
            self.facts.update(|facts| facts.set.remove(&value));
        }
        if answer.is_ok_and(|back| back.is_some_and(|back| back != (key, value))) {
            fail(format!("timer {key} came back with another value"));
        }
    }

    /// A call has returned this value.
    fn has_come_out(&self, key: u64, value: Option<u64>) {
        if value.is_some_and(|value| !self.facts.update(|facts| facts.out.insert(value))) {
            fail(format!("timer {key} ({value:?}) came out twice"));
        }
    }

    fn next_value(&self) -> u64 {
        self.facts.update(Facts::next_value)
    }

    fn set_interval(&mut self) {
        let key = INTERVALS + self.random.below(4);
        let period = world::TICK * u32::try_from(1 + self.random.below(4)).expect("small");
        note(self.me, || format!("sets {key} every {period:?}"));
        let _ = self.timers().set_interval(key, 0, period);
        self.intervals.push(key);
    }

    fn move_to(&mut self) {
        let key = self.random.below(KEYS);
        let delay = delay(&mut self.random);
        note(self.me, || format!("moves {key} to {delay:?} from now"));
        let moved = self.timers().move_timer(&key, delay);
        note(self.me, || format!("has moved {key}: {moved:?}"));
    }

    fn remove(&mut self) {
        let key = self.random.below(KEYS);
        note(self.me, || format!("removes {key}"));
        let removed = self.timers().remove_timer(&key).ok().flatten();
        note(self.me, || format!("has removed {key}: {removed:?}"));
        self.has_come_out(key, removed);
    }

    /// Removes all timers but one and the repeating ones.
    fn retain(&mut self) {
        let kept = self.random.below(KEYS);
        note(self.me, || format!("retains {kept}"));
        let mut removed = Vec::new();
        let _ = self.timers().retain(|&key, &mut value, _| {
            let keeps = key == kept || key >= INTERVALS;
            removed.extend((!keeps).then_some((key, value)));
            keeps
        });
        for (key, value) in removed {
            self.has_come_out(key, Some(value));
        }
    }

    fn drain(&mut self) {
        if self.random.percent(50) {
            return self.retain();
        }
        note(self.me, || "drains".to_owned());
        for expired in self.timers().drain().unwrap_or_default() {
            self.facts.came_out(expired.key, expired.value);
        }
    }

    fn watch(&mut self) {
        let Some(reaper) = &self.reaper else { return };
        let key = self.next_value();
        let last = clock::elapsed();
        note(self.me, || format!("watches {key}"));
        let Ok(watch) = reaper.watch(key, 0) else {
            return;
        };
        note(self.me, || format!("has begun to watch {key}"));
        self.facts.update(|facts| {
            let watched = facts.watches.entry(key).or_default();
            watched.not_before = last;
            watched.not_after = clock::elapsed();
        });
        self.watches.push((key, watch, None));
    }

    fn pick_watch(&mut self) -> Option<usize> {
        let n = self.watches.len();
        let at = self.random.below(n as u64);
        (n > 0).then(|| usize::try_from(at).expect("few"))
    }

    fn touch(&mut self) {
        if self.random.percent(50) {
            (0..self.watches.len()).for_each(|at| self.touch_one(at));
        } else if let Some(at) = self.pick_watch() {
            self.touch_one(at);
        }
    }

    fn touch_one(&self, at: usize) {
        let (key, watch, _) = &self.watches[at];
        let now = clock::elapsed();
        let was_reaped = self.facts.update(|facts| facts.watches[key].reaped);
        let counts = watch.touch();
        note(self.me, || {
            format!("touches {key}, as of {now:?}: {counts}")
        });
        if counts {
            self.facts.update(|facts| {
                if let Some(watched) = facts.watches.get_mut(key) {
                    watched.not_before = now;
                    watched.not_after = clock::elapsed();
                }
            });
        }
        if !counts {
            self.facts.update(|facts| facts.refused.insert(*key));
        }
        if counts && was_reaped {
            fail(format!("a touch of {key} counts, and it was reaped before"));
        }
    }

    fn busy(&mut self) {
        let Some(at) = self.pick_watch() else { return };
        let (key, watch, busy) = &mut self.watches[at];
        let key = *key;
        if let Some(guard) = busy.take() {
            self.release(key, Some(guard));
            return;
        }
        let guard = watch.busy();
        let effective = guard.is_effective();
        note(self.me, || format!("is busy with {key}: {effective}"));
        if !effective {
            self.facts.update(|facts| facts.refused.insert(key));
        }
        if effective {
            *busy = Some(guard);
            self.facts.update(|facts| {
                if let Some(watched) = facts.watches.get_mut(&key) {
                    watched.busy = true;
                }
            });
        }
    }

    /// Drops the guard, if there is one.
    fn release(&self, key: u64, guard: Option<BusyGuard>) {
        if guard.is_none() {
            return;
        }
        note(self.me, || format!("is not busy with {key} any more"));
        // The facts says so before it is so: from the release on the watch may be reaped, after an
        // idle duration.
        self.facts.update(|facts| {
            if let Some(watched) = facts.watches.get_mut(&key) {
                watched.busy = false;
                watched.not_before = clock::elapsed();
            }
        });
        drop(guard);
        self.facts.update(|facts| {
            if let Some(watched) = facts.watches.get_mut(&key) {
                watched.not_after = clock::elapsed();
            }
        });
    }

    fn unwatch_one(&mut self) {
        let Some(at) = self.pick_watch() else { return };
        let (key, watch, busy) = self.watches.swap_remove(at);
        if self.random.percent(40) {
            let expired = watch.expire_now();
            note(self.me, || format!("expires {key} now: {expired}"));
            self.facts.update(|facts| {
                // Whether by this or by being idle, it has to be received.
                facts.refused.insert(key);
                // One that was idle and has not been received is due at the end of this tick
                // instead.
                let now = clock::elapsed().saturating_sub(facts.idle);
                if let Some(watched) = facts.watches.get_mut(&key).filter(|_| expired) {
                    watched.not_after = watched.not_after.max(now);
                }
            });
            if watch.touch() && expired {
                fail(format!("a touch of {key} counts, and it expired before"));
            }
            if self.random.percent(50) {
                self.watches.push((key, watch, busy));
                return;
            }
        }
        self.unwatch(key, watch, busy);
    }

    fn unwatch(&self, key: u64, watch: WatchGuard, busy: Option<BusyGuard>) {
        self.release(key, busy);
        note(self.me, || format!("drops the watch {key}"));
        self.facts.update(|facts| facts.watches.remove(&key));
        drop(watch);
        note(self.me, || format!("has dropped the watch {key}"));
    }

    fn sleep(&mut self) {
        if self.wheel.is_shutdown() {
            return;
        }
        let delay = delay(&mut self.random);
        self.release_all();
        // Time may pass while the sleep is made.
        let mut not_before = clock::elapsed() + delay;
        let mut sleep = self.wheel.sleep(delay);
        let mut due = clock::elapsed() + delay;
        if self.random.percent(40) {
            // The sleep gets another waker, and then another deadline.
            let _ = sleep.poll_unpin(&mut Context::from_waker(Waker::noop()));
            let delay = self::delay(&mut self.random);
            note(self.me, || format!("resets a sleep to {delay:?}"));
            due = clock::elapsed() + delay;
            not_before = due;
            Pin::new(&mut sleep).reset(clock::now() + delay);
        }
        note(self.me, || format!("sleeps until {due:?}"));
        let how = Wait {
            panics: self.random.percent(self.mix.panicking),
            fresh: self.random.percent(30),
            must_by: Some(due),
        };
        let slept = sleep_on(self.me, how, sleep);
        note(self.me, || format!("has slept: {slept}"));
        if slept && clock::elapsed() < not_before {
            fail(format!("a sleep until {not_before:?} is early"));
        }
    }

    fn sleep_and_drop(&mut self) {
        if self.wheel.is_shutdown() {
            return;
        }
        let delay = delay(&mut self.random);
        note(self.me, || {
            format!("begins to sleep {delay:?}, and cancels")
        });
        let mut sleep = self.wheel.sleep(delay);
        let _ = sleep.poll_unpin(&mut Context::from_waker(Waker::noop()));
        drop(sleep);
    }

    fn advance(&mut self) {
        let micros = self.random.pick(&[300, 1_000, 1_000, 2_000, 4_000]);
        advance(self.me, Duration::from_micros(micros));
        thread::yield_now();
    }

    /// Does something without the wheel for a while.
    fn rest(&mut self) {
        let micros = self.random.pick(&[500, 1_000, 2_000, 5_000]);
        self.rest_for(Duration::from_micros(micros));
    }

    fn rest_for(&self, time: Duration) {
        note(self.me, || format!("rests for {time:?}"));
        world::rest(self.me, time);
    }

    fn settle(&mut self) {
        note(self.me, || "waits for all to settle".to_owned());
        let how = Wait {
            panics: self.random.percent(self.mix.panicking),
            ..Wait::default()
        };
        block_on(self.me, how, self.wheel.settle());
        note(self.me, || "all has settled".to_owned());
    }

    /// The counters do not go down, and those of keyed timers balance.
    fn metrics(&mut self) {
        let before = self.facts.update(|facts| facts.last_metrics);
        let m = self.wheel.metrics();
        let now = (m.keyed_set, m.sleeps_made);
        self.facts.update(|facts| {
            let last = &mut facts.last_metrics;
            *last = (last.0.max(now.0), last.1.max(now.1));
        });
        if now.0 < before.0 || now.1 < before.1 {
            fail(format!(
                "what was counted went down from {before:?} to {now:?}"
            ));
        }
        let ended = m.keyed_fired + m.keyed_removed + m.keyed_replaced + m.keyed_drained;
        if m.keyed_set != m.keyed_pending + ended {
            fail(format!("the counters of keyed timers do not add up: {m:?}"));
        }
    }

    fn shutdown(&mut self) {
        note(self.me, || "shuts the wheel down".to_owned());
        self.facts.update(|facts| facts.was_shut_down = true);
        let how = Wait {
            panics: self.random.percent(self.mix.panicking),
            ..Wait::default()
        };
        block_on(self.me, how, self.wheel.shutdown());
        note(self.me, || "has shut the wheel down".to_owned());
        if !self.wheel.is_shutdown() {
            fail("`shutdown` returned, and the wheel is not shut down");
        }
    }
}

/// Sleeps on the wheel.
fn pause(me: Me, wheel: &TimerWheel, delay: Duration) {
    let how = Wait {
        must_by: Some(clock::elapsed() + delay),
        ..Wait::default()
    };
    if !sleep_on(me, how, wheel.sleep(delay)) {
        // The wheel has ended, and there is nothing to wait on.
        thread::yield_now();
    }
}

/// Waits on a sleep. False when it goes on with Tokio's timer.
fn sleep_on(me: Me, how: Wait, mut sleep: Sleep) -> bool {
    let slept = poll_fn(|cx| match sleep.poll_unpin(cx) {
        Poll::Pending if !sleep.is_on_tokio() => Poll::Pending,
        polled => Poll::Ready(polled.is_ready()),
    });
    block_on(me, how, slept)
}
