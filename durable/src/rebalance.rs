//! Moving timers to the shards that have their keys.

use std::collections::HashSet;

use crate::error::Error;
use crate::instance::{Core, Cores};
use crate::store::{
    Action, Due, List, LoadWindow, State, StoreTime, Stored, Version, Write, WriteOutcome,
};

/// So many rows are read and moved at once.
const BATCH: usize = 512;

/// The result of [`Admin::rebalance`](crate::Admin::rebalance).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Rebalanced {
    /// How many timers it has moved.
    pub moved: u64,
    /// How many it has left in a shard that does not have their keys: dead ones, others with the key of a dead one, and those
    /// in flight, whose instance has crashed. They are delivered, retried and discarded there, but calls by their keys do not
    /// find them.
    pub left: u64,
}

/// Moves the waiting rows, and counts the others.
pub(crate) async fn rebalance(cores: &Cores) -> Result<Rebalanced, Error> {
    let mut rebalanced = Rebalanced::default();
    // Setting and removing a key would discard its dead rows.
    let mut dead = HashSet::new();
    for state in [State::Dead, State::InFlight, State::Waiting] {
        for (shard, core) in cores.iter().enumerate() {
            let mut after = None;
            while let Some((rows, last)) = next_rows(core, state, after).await? {
                after = Some(last);
                if state == State::Dead {
                    dead.extend(rows.iter().map(|row| row.key.clone()));
                }
                let misplaced = rows.into_iter();
                let misplaced = misplaced.filter(|row| cores.shard_of(&row.key) != shard);
                let (moving, staying): (Vec<_>, Vec<_>) =
                    misplaced.partition(|row| state == State::Waiting && !dead.contains(&row.key));
                let count = (moving.len() + staying.len()) as u64;
                let moved = move_rows(cores, core, moving).await?;
                rebalanced.moved += moved;
                rebalanced.left += count - moved;
            }
        }
    }
    Ok(rebalanced)
}

type Last = (StoreTime, Version);

/// The next rows, and the last of them; `None` when there are no more.
async fn next_rows(
    core: &Core,
    state: State,
    after: Option<Last>,
) -> Result<Option<(Vec<Stored>, Last)>, Error> {
    let rows = core.calls.list(List::new(state, after, BATCH)).await?;
    let last = rows.last().map(|row| (row.due, row.version));
    Ok(last.map(|last| (rows, last)))
}

/// Sets rows in the shards that have their keys, and then removes them from this one. Returns how many.
async fn move_rows(cores: &Cores, from: &Core, rows: Vec<Stored>) -> Result<u64, Error> {
    let mut shards = vec![Vec::new(); cores.iter().len()];
    for row in rows {
        let action = Action::Set {
            value: row.value,
            due: Due::At(row.due),
            period: row.period,
            schedule: row.schedule,
            if_absent: true,
        };
        shards[cores.shard_of(&row.key)].push(Write::new(row.key, action));
    }
    let mut moved = 0;
    for (core, sets) in cores.iter().zip(shards) {
        if sets.is_empty() {
            continue;
        }
        let keys: Vec<_> = sets.iter().map(|set| set.key.clone()).collect();
        let outcomes = core.calls.write(sets, LoadWindow::NONE).await?;
        let is_there = |outcome: &WriteOutcome| {
            // A timer that is there already is newer, or was moved by a call that did not get to remove the old one.
            matches!(outcome, WriteOutcome::Armed { .. } | WriteOutcome::Present)
        };
        let there = keys.into_iter().zip(&outcomes);
        let there = there.filter(|(_, outcome)| is_there(outcome));
        let removes: Vec<_> = there
            .map(|(key, _)| Write::new(key, Action::Remove))
            .collect();
        if removes.is_empty() {
            continue;
        }
        let removed = from.calls.write(removes, LoadWindow::NONE).await?;
        let removed = removed.iter();
        let removed = removed.filter(|outcome| matches!(outcome, WriteOutcome::Removed { .. }));
        moved += removed.count() as u64;
    }
    Ok(moved)
}
