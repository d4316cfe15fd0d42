//! The state of all reminders, and the table at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::redelivery::{Leases, Redeliveries};
use super::store::LEASE;
use super::worker::in_micros;

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

/// Which worker has got which attempt, and when.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Receipt {
    attempt: u32,
    worker: u32,
    received: u64,
}

/// One reminder.
#[derive(Default)]
struct Reminder {
    /// The deadline it was set or moved to last.
    deadline: u64,
    /// The deadlines that it may have been moved to: the answer was lost.
    doubtful_deadline: Option<u64>,
    removed: bool,
    /// It may have been removed: the answer was lost.
    doubtful: bool,
    deliveries: Vec<Receipt>,
    /// Those of them that could not acknowledge it.
    unacknowledged_by: Vec<u32>,
}

impl Reminder {
    fn is_open(&self) -> bool {
        !self.removed && !self.doubtful && self.deliveries.is_empty()
    }
}

#[derive(Default)]
pub(crate) struct Totals {
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
    /// The deadline and the lateness of each first delivery.
    first: Vec<(u64, u64)>,
    /// When the lease of each delivery ends.
    pub(crate) leases: Leases,
}

impl Totals {
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

    /// The worker could not acknowledge it, so it is delivered again, unless the acknowledgement
    /// did arrive.
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
            let lateness = delivery.received.saturating_sub(delivery.deadline);
            self.first.push((delivery.deadline, lateness));
        }
        // Each attempt before it had its own lease.
        let leases = u64::from(delivery.attempt.saturating_sub(1)) * in_micros(LEASE);
        self.early += u32::from(delivery.received < delivery.deadline + leases);
        let deadlines = [Some(reminder.deadline), reminder.doubtful_deadline];
        let outdated = reminder.removed || !deadlines.contains(&Some(delivery.deadline));
        self.outdated += u32::from(outdated);
        reminder.deliveries.push(Receipt {
            attempt: delivery.attempt,
            worker,
            received: delivery.received,
        });
    }

    /// How many are set and neither delivered nor removed.
    pub(crate) fn open(&self) -> usize {
        let reminders = self.reminders.values();
        reminders.filter(|reminder| reminder.is_open()).count()
    }

    /// How many were delivered again though the worker that had it before lives and has
    /// acknowledged it.
    fn twice(&mut self) -> usize {
        let twice = |reminder: &mut Reminder| {
            // A worker may report late on a claim that it receives when its lease is over.
            reminder.deliveries.sort_unstable();
            let (killed, unacknowledged) = (&self.killed, &reminder.unacknowledged_by);
            let twice = |pair: &&[Receipt]| {
                let worker = pair[0].worker;
                let excused = killed.contains(&worker) || unacknowledged.contains(&worker);
                pair[0].attempt == pair[1].attempt || !excused
            };
            reminder.deliveries.windows(2).filter(twice).count()
        };
        self.reminders.values_mut().map(twice).sum()
    }

    /// How long it took until each that was delivered again was.
    fn redeliveries(&self) -> Redeliveries {
        let mut all = Redeliveries::new(&self.leases, &self.first);
        for (&key, reminder) in &self.reminders {
            for (index, next) in reminder.deliveries.iter().enumerate() {
                let Some(attempt) = next.attempt.checked_sub(1).filter(|&before| before > 0) else {
                    continue;
                };
                let mut before = reminder.deliveries[..index].iter().rev();
                let told = before.find(|receipt| receipt.attempt == attempt);
                let told = told.map(|receipt| receipt.received);
                all.add(&self.leases, (key, attempt), told, next.received);
            }
        }
        all.after.sort_unstable();
        all
    }

    /// Shows the table. Returns whether all is well.
    pub(crate) fn conclude(mut self) -> bool {
        // This sorts the deliveries.
        let (lost, twice) = (self.open(), self.twice());
        let mut lateness: Vec<_> = self.first.iter().map(|&(_, lateness)| lateness).collect();
        lateness.sort_unstable();
        let again = self.redeliveries();
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
            ("again before its lease had ended", again.too_soon),
            ("again later than lease and poll", again.too_late),
            ("put off by a second kill or outage", again.put_off),
            ("again, lease unknown", again.unmeasured),
        ] {
            println!("{name:>34}  {count:>7}");
        }
        for (name, times) in [
            ("lateness", &lateness),
            ("again, after firing", &again.after),
        ] {
            for (quantile_name, q) in [("p50", 500), ("p99", 990), ("max", 1000)] {
                let name = format!("{name} {quantile_name}");
                let time = Duration::from_micros(quantile(times, q));
                println!("{name:>34}  {:>7.1} ms", time.as_secs_f64() * 1e3);
            }
        }
        println!("{}", again.bound());
        let in_time = again.too_soon + again.too_late == 0;
        lost == 0 && self.early == 0 && twice == 0 && self.outdated == 0 && in_time
    }
}

/// So many thousandths of these, which are sorted, are not greater.
pub(crate) fn quantile(sorted: &[u64], thousandths: usize) -> u64 {
    let index = (sorted.len() * thousandths / 1000).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or(0)
}
