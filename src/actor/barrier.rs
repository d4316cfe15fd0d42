//! The barriers: tasks in [`settle`](crate::TimerWheel::settle) that wait until everything is applied and has fired.
//!
//! A barrier has two parts. First, the commands that were pushed before its own are applied. They may be in other queues,
//! which the actor may have emptied a moment before they were pushed. So when the barrier's command comes out of the
//! backlog, the actor appends it once more, behind everything that it takes next. When it comes out again all of that is
//! applied. Second, every timer that is due by that turn fires; this module waits for that.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use crate::panic::{WOKEN, catch_panic};
use crate::sync::EXPLORED;

/// How many tasks are woken in one turn.
const WAKES_PER_TURN: usize = if EXPLORED { 1 } else { 256 };

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Barrier {
    /// Each waiting task, with the tick by which everything has to have fired. Ticks of turns do not decrease, so the
    /// first one is met first.
    waiting: VecDeque<(u64, oneshot::Sender<()>)>,
}

impl Barrier {
    /// Adds a barrier whose commands are applied. It now waits for the timers due by `tick`, the current one.
    pub(super) fn add(&mut self, tick: u64, done: oneshot::Sender<()>) {
        self.waiting.push_back((tick, done));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Every timer due before tick `before` has fired: wakes some of the tasks that wait for that.
    pub(super) fn fired(&mut self, before: u64) {
        for _ in 0..WAKES_PER_TURN {
            let is_met = |&(tick, _): &(u64, _)| tick < before;
            if !self.waiting.front().is_some_and(is_met) {
                return;
            }
            let Some((_, done)) = self.waiting.pop_front() else {
                return;
            };
            // An error means that the task does not wait any more.
            catch_panic(WOKEN, || done.send(()));
        }
    }

    /// The actor ends: wakes all tasks.
    pub(super) fn close(&mut self) {
        for (_, done) in self.waiting.drain(..) {
            catch_panic(WOKEN, || drop(done));
        }
    }
}
