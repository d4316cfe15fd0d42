//! Settles claims.

use std::time::Duration;

use super::Call;
use crate::store::{
    Due, InstanceId, LeftRow, LoadWindow, Settle, Settled, Settlement, State, Stored,
};

impl Call<'_> {
    pub(super) fn settle(&mut self, settle: Settle, near: LoadWindow) -> Settled {
        let Settle {
            token,
            settlement,
            error,
        } = settle;
        let row = self.space.rows.get(&token);
        if row.is_none_or(|row| row.state != State::InFlight) {
            return Settled::Lost;
        }
        let mut row = self.take(token).expect("it was just there");
        if matches!(settlement, Settlement::Unfire | Settlement::Leave(_)) {
            row.attempt = row.attempt.saturating_sub(1);
        }
        row.error = error.or(row.error);
        let delay = match settlement {
            Settlement::Ack => return Settled::Done,
            Settlement::Dead => {
                row.state = State::Dead;
                row.due = self.now;
                (row.loaded_by, row.claimed_by) = (None, None);
                self.space.dead.put(row);
                return Settled::Done;
            }
            Settlement::Extend(lease) => {
                row.due = self.now.after(lease);
                self.put(row);
                return Settled::Done;
            }
            Settlement::Leave(left) => return self.leave(row, left, near),
            Settlement::RetryAfter(_) | Settlement::Release | Settlement::Unfire
                if !self.space.waiting.contains_key(&row.key) =>
            {
                if let Settlement::RetryAfter(delay) = settlement {
                    return Settled::Armed(self.rearm(row, Due::In(delay), near));
                }
                row.due = self.now;
                return Settled::Armed(self.arm(row, near));
            }
            Settlement::RetryAfter(delay) => delay,
            Settlement::Release | Settlement::Unfire => Duration::ZERO,
        };
        row.due = self.now.after(delay);
        self.put_beside(row, None);
        if delay.is_zero() {
            self.space.hint.notify_waiters();
        }
        Settled::Done
    }

    /// Puts a row back in flight, beside a newer one of its key. No claim holds it any more.
    fn put_beside(&mut self, mut row: Stored, left_by: Option<InstanceId>) {
        row.version = self.next_version();
        (row.loaded_by, row.claimed_by) = (left_by, None);
        self.put(row);
    }

    /// Puts a row back for other instances.
    fn leave(&mut self, mut row: Stored, left: LeftRow, near: LoadWindow) -> Settled {
        let (id, until) = (left.by.left(), self.now.after(left.alive));
        self.space.alive.entry(id).or_insert(until);
        row.due = self.now.after(left.pause);
        self.space.hint.notify_waiters();
        if self.space.waiting.contains_key(&row.key) {
            self.put_beside(row, Some(id));
            return Settled::Done;
        }
        let armed = self.arm(row, LoadWindow::new(near.window, None));
        let rows = &mut self.space.rows;
        let row = rows.get_mut(&armed.version).expect("it was just put");
        row.loaded_by = Some(id);
        self.space.unloaded.remove(&(row.due, armed.version));
        Settled::Armed(armed)
    }
}
