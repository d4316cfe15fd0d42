//! Those who wait for everything to be applied and fired.

use tokio::sync::oneshot;

/// A barrier has two parts: the commands that were submitted before it have to be applied, and then what is due has to
/// fire. Queues are emptied one after the other, so only the *next* filling of the backlog is certain to hold the last of
/// those commands.
#[derive(Debug, Default)]
pub(super) struct Barrier {
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    /// The filling of the backlog by whose end everything is applied.
    round: u64,
    /// The tick by which everything then has to be fired.
    target: Option<u64>,
    done: oneshot::Sender<()>,
}

impl Barrier {
    /// One more, whose command was in the filling `round`.
    pub(super) fn add(&mut self, round: u64, done: oneshot::Sender<()>) {
        self.waiting.push(Waiting {
            round: round + 1,
            target: None,
            done,
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The filling `round` is applied: who waited for it now waits for what is due by `now`.
    pub(super) fn applied(&mut self, round: u64, now: u64) {
        for waiting in &mut self.waiting {
            if waiting.target.is_none() && waiting.round <= round {
                waiting.target = Some(now);
            }
        }
    }

    /// Everything due before tick `before` has fired.
    pub(super) fn fired(&mut self, before: u64) {
        if self.waiting.is_empty() {
            return;
        }
        let is_met = |waiting: &Waiting| waiting.target.is_some_and(|target| target < before);
        let (met, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<Vec<_>, _>(is_met);
        self.waiting = waiting;
        for Waiting { done, .. } in met {
            // Who does not wait any more need not be told.
            let _ = done.send(());
        }
    }
}
