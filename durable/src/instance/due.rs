//! The rows that have come due here and are not fired yet.
//!
//! They come off the wheel, or from a load if they were due already. The instance leaves rows that
//! the program does not take soon to other instances that lack some.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::lock::lock;
use crate::store::Version;

/// Rows that are due, earliest first.
#[derive(Default)]
pub(super) struct DueRows {
    state: Mutex<State>,
    /// Notifies the task that fires of further rows.
    pub(super) changed: Notify,
}

#[derive(Default)]
struct State {
    /// By when they were due, with when they came here.
    rows: BTreeMap<(Instant, Version), Instant>,
    /// Rows that are marked, and that this instance has no room for.
    surplus: Vec<Version>,
}

impl DueRows {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn len(&self) -> usize {
        self.lock().rows.len()
    }

    pub(super) fn add(&self, rows: impl IntoIterator<Item = (Instant, Version)>) {
        let now = Instant::now();
        let mut rows = rows.into_iter().map(|row| (row, now)).peekable();
        if rows.peek().is_some() {
            self.lock().rows.extend(rows);
            self.changed.notify_one();
        }
    }

    /// Adds a row to leave to other instances.
    pub(super) fn add_surplus(&self, version: Version) {
        self.lock().surplus.push(version);
        self.changed.notify_one();
    }

    /// Takes the first rows, at most `at_most`.
    pub(super) fn take(&self, at_most: usize) -> Vec<(Instant, Version)> {
        let mut state = self.lock();
        let mut taken = Vec::with_capacity(at_most.min(state.rows.len()));
        while taken.len() < at_most {
            let Some((row, _)) = state.rows.pop_first() else {
                break;
            };
            taken.push(row);
        }
        taken
    }

    /// Takes the surplus.
    pub(super) fn take_surplus(&self) -> Vec<Version> {
        std::mem::take(&mut self.lock().surplus)
    }

    /// Takes rows that have been here for `overdue_after`, except the first `keep`, and at most
    /// `at_most`.
    pub(super) fn take_old(
        &self,
        keep: usize,
        overdue_after: Duration,
        at_most: usize,
    ) -> Vec<Version> {
        let mut state = self.lock();
        let old = state.rows.iter().skip(keep);
        let old: Vec<_> = old
            .filter(|(_, came)| came.elapsed() >= overdue_after)
            .map(|(&row, _)| row)
            .take(at_most)
            .collect();
        for row in &old {
            state.rows.remove(row);
        }
        old.into_iter().map(|(_, version)| version).collect()
    }

    pub(super) fn clear(&self) {
        *self.lock() = State::default();
    }
}
