//! What becomes of a batch of writes, and of a batch of settles.

use std::iter;
use std::sync::Arc;

use super::Core;
use super::group_commit::{Batches, Outcome};
use super::lease::Ending;
use crate::error::Error;
use crate::store::{Settled, StoreError, Write, WriteOutcome};

pub(super) async fn run_writes(core: Arc<Core>, batches: Batches<Write, WriteOutcome>) {
    let core = &*core;
    let flush = |writes: Vec<Write>, until| async move {
        let count = writes.len();
        let written = match core.write_near(core.near(), writes, until).await {
            Ok(written) => written,
            Err(error) => {
                let failed = (0..count).map(|_| Outcome::Done(Err(error.clone())));
                return failed.collect();
            }
        };
        let outcomes = written.into_iter().map(|written| {
            match written {
                WriteOutcome::Armed { row, replaced } => {
                    if let Some(version) = replaced {
                        core.disarm(version);
                    }
                    core.arm_if_loaded(row);
                }
                WriteOutcome::Removed { version, .. } => core.disarm(version),
                WriteOutcome::Absent | WriteOutcome::Present | WriteOutcome::InFlight(_) => {}
                WriteOutcome::Locked(write) => return Outcome::Locked(write),
            }
            Outcome::Done(Ok(written))
        });
        outcomes.collect()
    };
    let key = |write: &Write| write.key.clone();
    batches.run(Write::bytes, key, flush).await;
}

pub(super) async fn run_settles(core: Arc<Core>, batches: Batches<Ending, ()>) {
    let core = &*core;
    let flush = |mut endings: Vec<Ending>, _| async move {
        let settled = settle_each(core, &mut endings).await;
        let claims_ended = !core.loads();
        let outcomes = endings.into_iter().zip(settled);
        let outcomes = outcomes.map(|(mut ending, settled)| match settled {
            Ok(Settled::Locked) if ending.is_given_up(claims_ended) => {
                Outcome::Done(Err(Error::Store(StoreError::locked("the key"))))
            }
            Ok(Settled::Locked) => {
                ending.renew();
                Outcome::Locked(ending)
            }
            Ok(settled) => {
                if let Settled::Armed(row) = settled {
                    core.arm_if_loaded(row);
                }
                Outcome::Done(ending.conclude(&settled))
            }
            Err(error) if ending.is_tried_again(&error, claims_ended) => Outcome::Failed(ending),
            Err(error) => Outcome::Done(Err(error)),
        });
        outcomes.collect()
    };
    batches.run(Ending::bytes, Ending::order, flush).await;
}

/// The store may refuse so many calls before the rest of a batch fails. It finds one of a
/// thousand that are refused by themselves.
const REFUSALS: usize = 16;

/// Settles, and returns the outcome of each. One that the store refuses, as a database does an
/// error text that its encoding cannot hold, fails no others.
async fn settle_each(core: &Core, endings: &mut [Ending]) -> Vec<Result<Settled, Error>> {
    let mut settled = Vec::with_capacity(endings.len());
    let mut parts: Vec<_> = iter::once(0..endings.len()).collect();
    let mut refusals = 0;
    while let Some(part) = parts.pop() {
        let asked = endings[part.clone()].iter().map(Ending::settle).collect();
        let error = match core.calls.settle(asked, core.near()).await {
            Ok(answers) => {
                settled.extend(answers.into_iter().map(Ok));
                continue;
            }
            Err(error) => error,
        };
        refusals += 1;
        let is_refused = matches!(error, Error::Store(StoreError::Refused { .. }));
        let goes_on = is_refused && refusals < REFUSALS;
        if goes_on && part.len() > 1 {
            let middle = part.start + part.len() / 2;
            parts.extend([middle..part.end, part.start..middle]);
        } else if goes_on && endings[part.start].drop_error_text(&error) {
            parts.push(part);
        } else {
            settled.extend(part.map(|_| Err(error.clone())));
        }
    }
    settled
}
