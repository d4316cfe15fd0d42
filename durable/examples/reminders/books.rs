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

/// One reminder.
#[derive(Default)]
struct Reminder {
    /// The deadline it was set or moved to last.
    deadline: u64,
    removed: bool,
    /// The workers that have got it.
    delivered_to: Vec<u32>,
}

#[derive(Default)]
pub(crate) struct Books {
    reminders: BTreeMap<u32, Reminder>,
    killed: BTreeSet<u32>,
    pub(crate) moved: u32,
    /// First deliveries.
    pub(crate) delivered: u32,
    pub(crate) removed: u32,
    again: u32,
    twice: u32,
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

    pub(crate) fn removed(&mut self, key: u32) {
        self.reminders.entry(key).or_default().removed = true;
        self.removed += 1;
    }

    pub(crate) fn killed(&mut self, worker: u32) {
        self.killed.insert(worker);
    }

    /// Takes down what a worker says.
    pub(crate) fn delivered(&mut self, worker: u32, delivery: &Delivery) {
        let reminder = self.reminders.entry(delivery.key).or_default();
        let before = reminder.delivered_to.last();
        if delivery.attempt > 1 || before.is_some() {
            self.again += 1;
        }
        // Somebody who lives had it already.
        if before.is_some_and(|before| !self.killed.contains(before)) {
            self.twice += 1;
        }
        if before.is_none() {
            self.delivered += 1;
            self.lateness
                .push(delivery.received.saturating_sub(delivery.deadline));
        }
        self.early += u32::from(delivery.received < delivery.deadline);
        let outdated = reminder.removed || delivery.deadline != reminder.deadline;
        self.outdated += u32::from(outdated);
        reminder.delivered_to.push(worker);
    }

    /// How many are set and neither delivered nor removed.
    pub(crate) fn open(&self) -> usize {
        let open = |reminder: &&Reminder| !reminder.removed && reminder.delivered_to.is_empty();
        self.reminders.values().filter(open).count()
    }

    /// Shows the table. Returns whether all is well.
    pub(crate) fn conclude(mut self) -> bool {
        let lost = self.open();
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
            ("delivered", self.delivered as usize),
            ("delivered again after a kill", self.again as usize),
            ("lost", lost),
            ("early", self.early as usize),
            ("delivered twice without a kill", self.twice as usize),
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
        lost == 0 && self.early == 0 && self.twice == 0 && self.outdated == 0
    }
}
