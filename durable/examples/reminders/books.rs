//! The books of all reminders, and the table at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A line of a worker.
pub(crate) struct Delivery {
    pub(crate) key: u32,
    pub(crate) attempt: u32,
    pub(crate) deadline: u64,
    pub(crate) received: u64,
}

impl Delivery {
    /// Reads `key attempt deadline received .`; the dot says that it is whole.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let delivery = Delivery {
            key: words.next()?.parse().ok()?,
            attempt: words.next()?.parse().ok()?,
            deadline: words.next()?.parse().ok()?,
            received: words.next()?.parse().ok()?,
        };
        (words.next() == Some(".")).then_some(delivery)
    }
}

/// Reads `key unacknowledged .`: the worker cannot tell whether its acknowledgement has arrived.
pub(crate) fn parse_unacknowledged(line: &str) -> Option<u32> {
    line.strip_suffix(" unacknowledged .")?.parse().ok()
}

/// One reminder.
#[derive(Default)]
struct Reminder {
    /// The deadline it was set or moved to last.
    deadline: u64,
    /// What it may have been moved to: the answer was lost.
    doubtful_deadline: Option<u64>,
    removed: bool,
    /// It may have been removed: the answer was lost.
    doubtful: bool,
    /// The attempts, and the workers that have got them.
    deliveries: Vec<(u32, u32)>,
    /// Those of them that could not acknowledge it.
    unacknowledged_by: Vec<u32>,
}

impl Reminder {
    fn is_open(&self) -> bool {
        !self.removed && !self.doubtful && self.deliveries.is_empty()
    }
}

#[derive(Default)]
pub(crate) struct Books {
    reminders: BTreeMap<u32, Reminder>,
    killed: BTreeSet<u32>,
    pub(crate) moved: u32,
    /// First deliveries.
    pub(crate) delivered: u32,
    pub(crate) removed: u32,
    /// Calls that failed and were made again.
    pub(crate) retried: u32,
    unacknowledged: u32,
    again: u32,
    early: u32,
    outdated: u32,
    lateness: Vec<u64>,
}

impl Books {
    pub(crate) fn set(&mut self, key: u32, deadline: u64) {
        self.reminders.entry(key).or_default().deadline = deadline;
    }

    pub(crate) fn moved(&mut self, key: u32, deadline: u64) {
        self.set(key, deadline);
        self.moved += 1;
    }

    /// It was moved, or had its old deadline, when it came due.
    pub(crate) fn may_be_moved(&mut self, key: u32, deadline: u64) {
        self.reminders.entry(key).or_default().doubtful_deadline = Some(deadline);
    }

    pub(crate) fn removed(&mut self, key: u32) {
        self.reminders.entry(key).or_default().removed = true;
        self.removed += 1;
    }

    /// It was removed, or delivered before.
    pub(crate) fn may_be_removed(&mut self, key: u32) {
        self.reminders.entry(key).or_default().doubtful = true;
    }

    /// The worker could not acknowledge it, so somebody gets it again, unless the acknowledgement did arrive.
    pub(crate) fn unacknowledged(&mut self, worker: u32, key: u32) {
        let reminder = self.reminders.entry(key).or_default();
        reminder.unacknowledged_by.push(worker);
        self.unacknowledged += 1;
    }

    pub(crate) fn killed(&mut self, worker: u32) {
        self.killed.insert(worker);
    }

    /// Takes down what a worker says.
    pub(crate) fn delivered(&mut self, worker: u32, delivery: &Delivery) {
        let reminder = self.reminders.entry(delivery.key).or_default();
        if delivery.attempt > 1 || !reminder.deliveries.is_empty() {
            self.again += 1;
        }
        if reminder.deliveries.is_empty() {
            self.delivered += 1;
            self.lateness
                .push(delivery.received.saturating_sub(delivery.deadline));
        }
        self.early += u32::from(delivery.received < delivery.deadline);
        let deadlines = [Some(reminder.deadline), reminder.doubtful_deadline];
        let outdated = reminder.removed || !deadlines.contains(&Some(delivery.deadline));
        self.outdated += u32::from(outdated);
        reminder.deliveries.push((delivery.attempt, worker));
    }

    /// How many are set and neither delivered nor removed.
    pub(crate) fn open(&self) -> usize {
        let reminders = self.reminders.values();
        reminders.filter(|reminder| reminder.is_open()).count()
    }

    /// How many were delivered again though the worker that had it before lives and has acknowledged it.
    fn twice(&mut self) -> usize {
        let twice = |reminder: &mut Reminder| {
            // What a worker receives when its lease is over it may tell late.
            reminder.deliveries.sort_unstable();
            let (killed, unacknowledged) = (&self.killed, &reminder.unacknowledged_by);
            let twice = |pair: &&[(u32, u32)]| {
                let ((attempt, worker), (next_attempt, _)) = (pair[0], pair[1]);
                let excused = killed.contains(&worker) || unacknowledged.contains(&worker);
                attempt == next_attempt || !excused
            };
            reminder.deliveries.windows(2).filter(twice).count()
        };
        self.reminders.values_mut().map(twice).sum()
    }

    /// Shows the table. Returns whether all is well.
    pub(crate) fn conclude(mut self) -> bool {
        let (lost, twice) = (self.open(), self.twice());
        self.lateness.sort_unstable();
        let late = |q: usize| {
            let index = (self.lateness.len() * q / 1000).min(self.lateness.len().saturating_sub(1));
            Duration::from_micros(self.lateness.get(index).copied().unwrap_or(0))
        };
        println!();
        for (name, count) in [
            ("set", self.reminders.len()),
            ("moved", self.moved as usize),
            ("removed", self.removed as usize),
            ("workers killed", self.killed.len()),
            ("calls tried again", self.retried as usize),
            ("delivered", self.delivered as usize),
            ("acknowledged in vain", self.unacknowledged as usize),
            ("delivered again", self.again as usize),
            ("lost", lost),
            ("early", self.early as usize),
            ("delivered again without reason", twice),
            ("delivered though moved or removed", self.outdated as usize),
        ] {
            println!("{name:>34}  {count:>7}");
        }
        for (name, q) in [("p50", 500), ("p99", 990), ("max", 1000)] {
            println!(
                "{:>34}  {:>7.1?} ms",
                format!("lateness {name}"),
                late(q).as_secs_f64() * 1e3
            );
        }
        lost == 0 && self.early == 0 && twice == 0 && self.outdated == 0
    }
}
