//! What becomes of a batch of writes, and of a batch of settles.

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
    let flush = |endings: Vec<Ending>, _| async move {
        let asked = endings.iter().map(Ending::settle).collect();
        let settled = core.calls.settle(asked, core.near()).await;
        let claims_ended = !core.loads();
        let settled = match settled {
            Ok(settled) => settled,
            Err(error) => {
                let failed = endings.into_iter().map(|mut ending| {
                    if ending.is_tried_again(&error, claims_ended) {
                        Outcome::Failed(ending)
                    } else {
                        Outcome::Done(Err(error.clone()))
                    }
                });
                return failed.collect();
            }
        };
        let outcomes = endings.into_iter().zip(settled);
        let outcomes = outcomes.map(|(mut ending, settled)| match settled {
            Settled::Locked if ending.give_up(claims_ended) => {
                Outcome::Done(Err(Error::Store(StoreError::locked("the key"))))
            }
            Settled::Locked => {
                ending.renew();
                Outcome::Locked(ending)
            }
            settled => {
                if let Settled::Armed(row) = settled {
                    core.arm_if_loaded(row);
                }
                Outcome::Done(ending.conclude(&settled))
            }
        });
        outcomes.collect()
    };
    batches.run(Ending::bytes, Ending::order, flush).await;
}
