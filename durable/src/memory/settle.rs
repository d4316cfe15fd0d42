//! Settles claims.

use std::time::Duration;

use super::Call;
use crate::store::{Due, LoadWindow, Settle, Settled, Settlement, State};

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
        if settlement == Settlement::Unfire {
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
}
