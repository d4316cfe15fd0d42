//! A random scheduler that seldom changes its mind, and holds threads up.
//!
//! One that chooses anew at each step lets every thread advance at about the same pace. A thread that is held up for
//! as long as others need for whole turns is then very rare, and that is what most races need. This one goes on with
//! the same thread most of the time; one that it leaves before it has to wait is often not looked at again for many
//! steps, as long as others can go on.

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

use super::work::Random;

#[derive(Debug)]
pub(super) struct Sluggish {
    random: Random,
    /// How many of a hundred steps are followed by one of the same thread.
    stays: u64,
    /// The thread that is held up, and for how many steps more.
    held_up: Option<(TaskId, u64)>,
    left: u64,
}

impl Sluggish {
    pub(super) fn new(seed: u64, stays: u64, schedules: u64) -> Self {
        Sluggish {
            random: Random::new(seed),
            stays,
            held_up: None,
            left: schedules,
        }
    }
}

impl Scheduler for Sluggish {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.left = self.left.checked_sub(1)?;
        self.held_up = None;
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
        self.held_up = (self.held_up).and_then(|(task, steps)| Some((task, steps.checked_sub(1)?)));
        if let Some(current) = current {
            if !is_yielding && self.random.below(100) < self.stays {
                return Some(current);
            }
            if self.held_up.is_none() && self.random.below(3) > 0 {
                self.held_up = Some((current, self.random.pick(&[20, 50, 100, 300])));
            }
        }
        let is_choice = |ids: &[TaskId]| ids.len() > 1;
        if let Some((task, _)) = self.held_up.filter(|_| is_choice(&ids)) {
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
