//! The barriers: tasks in [`settle`](crate::TimerWheel::settle) that wait until everything is applied and has fired.
//!
//! A barrier is met in two steps:
//!
//! 1. The commands that were pushed before its own are applied. Some may lie in queues that the
//!    actor emptied just before they were pushed. So when the barrier's command comes out of the
//!    backlog, the actor appends it once more, behind everything that it takes next. When it comes
//!    out again, all of that is applied, except for batches of dirty timers in progress.
//! 2. These batches are processed, and every timer that is due by that turn fires. This module
//!    waits for that.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use crate::panic::{WOKEN, catch_panic};
use crate::sync::EXPLORED;

/// How many tasks are woken in one turn.
const WAKES_PER_TURN: usize = if EXPLORED { 1 } else { 256 };

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Barrier {
    /// Neither the ticks of turns nor the numbers of batches decrease, so the first one is met first.
    pub(super) waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
pub(super) struct Waiting {
    /// Everything due by this tick has to have fired.
    tick: u64,
    /// This many batches of dirty timers have to be processed.
    batches: u64,
    done: oneshot::Sender<()>,
}

impl Barrier {
    /// Adds a barrier whose commands are applied, except perhaps for dirty indices in the first
    /// `batches` batches. It now waits for these, and for the timers due by `tick`, the current
    /// one.
    pub(super) fn add(&mut self, tick: u64, batches: u64, done: oneshot::Sender<()>) {
        self.waiting.push_back(Waiting {
            tick,
            batches,
            done,
        });
    }

    /// Wakes some of the tasks whose barriers are met: every timer due before tick `before` has
    /// fired, and the first `batches` batches are processed.
    pub(super) fn fired(&mut self, before: u64, batches: u64) {
        for _ in 0..WAKES_PER_TURN {
            let is_met = |next: &Waiting| next.tick < before && next.batches <= batches;
            if !self.waiting.front().is_some_and(is_met) {
                return;
            }
            let Some(Waiting { done, .. }) = self.waiting.pop_front() else {
                return;
            };
            // An error means that the task does not wait any more.
            catch_panic(WOKEN, || done.send(()));
        }
    }

    /// The actor ends: wakes all tasks.
    pub(super) fn close(&mut self) {
        for Waiting { done, .. } in self.waiting.drain(..) {
            catch_panic(WOKEN, || drop(done));
        }
    }
}
