//! The explorer's scheduler: it seldom switches threads, and delays some of them.
//!
//! A scheduler that chooses again at each step lets all threads advance at about the same pace.
//! Most races need a thread that is delayed for as long as others need for whole turns, which is
//! very rare then. This scheduler goes on with the same thread most of the time. When it preempts a
//! thread it often delays it for many steps, as long as others can run.

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

use super::mix::Random;

#[derive(Debug)]
pub(super) struct Sluggish {
    random: Random,
    /// The percentage of steps after which the same thread goes on.
    stays: u64,
    /// The thread that is delayed, and for how many more steps.
    delayed: Option<(TaskId, u64)>,
    left: u64,
}

impl Sluggish {
    pub(super) fn new(seed: u64, stays: u64, schedules: u64) -> Self {
        Sluggish {
            random: Random::new(seed),
            stays,
            delayed: None,
            left: schedules,
        }
    }
}

impl Scheduler for Sluggish {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.left = self.left.checked_sub(1)?;
        self.delayed = None;
        Some(Schedule::new(0))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let mut ids: Vec<_> = runnable.iter().map(|task| task.id()).collect();
        let current = current.filter(|current| ids.contains(current));
        self.delayed = (self.delayed).and_then(|(task, steps)| Some((task, steps.checked_sub(1)?)));
        if let Some(current) = current {
            if !is_yielding && self.random.below(100) < self.stays {
                return Some(current);
            }
            if self.delayed.is_none() && self.random.below(3) > 0 {
                self.delayed = Some((current, self.random.pick(&[20, 50, 100, 300])));
            }
        }
        let is_choice = |ids: &[TaskId]| ids.len() > 1;
        if let Some((task, _)) = self.delayed.filter(|_| is_choice(&ids)) {
            ids.retain(|&id| id != task);
        }
        if let Some(current) = current.filter(|_| is_choice(&ids)) {
            ids.retain(|&id| id != current);
        }
        Some(self.random.pick(&ids))
    }

    fn next_u64(&mut self) -> u64 {
        self.random.next()
    }
}
