//! Settles claims.

use std::time::Duration;

use super::Call;
use crate::store::{Due, LeftRow, LoadWindow, Settle, Settled, Settlement, State, Stored};

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
        let until = match settlement {
            Settlement::Ack => return Settled::Done,
            Settlement::Dead => {
                row.state = State::Dead;
                row.due = self.now;
                (row.loaded_by, row.claimed_by) = (None, None);
                self.space.dead.put(row);
                return Settled::Done;
            }
            Settlement::Extend(lease) => lease,
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
        row.due = self.now.after(until);
        self.put(row);
        if until.is_zero() {
            self.space.hint.notify_waiters();
        }
        Settled::Done
    }

    /// Puts a row back for other instances.
    fn leave(&mut self, mut row: Stored, left: LeftRow, near: LoadWindow) -> Settled {
        let (id, until) = (left.by.left(), self.now.after(left.alive));
        self.space.alive.entry(id).or_insert(until);
        row.due = self.now.after(left.pause);
        let mut settled = Settled::Done;
        let mut version = row.version;
        if self.space.waiting.contains_key(&row.key) {
            row.loaded_by = None;
            self.put(row);
        } else {
            let unloaded = LoadWindow::new(near.window, None);
            let armed = self.arm(row, unloaded);
            (settled, version) = (Settled::Armed(armed), armed.version);
        }
        let row = self.space.rows.get_mut(&version).expect("it was just put");
        row.loaded_by = Some(id);
        self.space.unloaded.remove(&(row.due, version));
        self.space.hint.notify_waiters();
        settled
    }
}
