//! Each call of a store alone, as far as the traces of the [explorer](crate::explorer) do not hold
//! it to the store in memory.

mod charters;
mod dying;
mod hinting;
mod inspecting;
mod loading;
mod schedules;
mod whole;
mod writing;

use std::time::Duration;

use tickwheel_durable::store::{
    Action, Armed, Counts, Due, Fire, FireReport, InstanceId, List, Load, Loaded, Namespace,
    Settle, Settled, Settlement, State, Store, Stored, Terms, Version, Write, WriteOutcome,
};

use super::steps::in_steps;
use super::world::{Stores, World, opened};
pub use charters::*;
pub use dying::*;
pub use hinting::*;
pub use inspecting::*;
pub use loading::*;
pub use schedules::*;
pub use whole::*;
pub use writing::*;

pub(super) const HOUR: Duration = Duration::from_secs(3_600);

/// Due a long time from now.
const FAR: Due = Due::In(HOUR);

/// Due at once.
pub(super) const NOW: Due = Due::In(Duration::ZERO);

/// The instance that fires.
const CLAIMANT: InstanceId = InstanceId(17);

/// A store and a namespace, with calls that must succeed.
pub(super) struct Case<S> {
    pub(super) store: S,
    pub(super) space: Namespace,
}

impl<S: Store> Case<S> {
    async fn open<T: Stores<Store = S>>(world: &World<T>) -> Self {
        let case = Case {
            store: world.store().await,
            space: world.namespace(),
        };
        case.instance().await;
        case
    }

    async fn instance(&self) -> InstanceId {
        opened(&self.store, &self.space, &"test".into())
            .await
            .instance
    }

    async fn write(&self, writes: Vec<Write>) -> Vec<WriteOutcome> {
        self.write_near(writes, Terms::NONE).await
    }

    async fn write_near(&self, writes: Vec<Write>, terms: Terms) -> Vec<WriteOutcome> {
        let count = writes.len();
        let written = self.store.write(&self.space, writes, terms).await;
        let written = written.expect("it writes");
        assert_eq!(written.len(), count, "an answer for each write");
        written
    }

    /// Sets one key and returns its row.
    async fn set(&self, key: &str, due: Due) -> Armed {
        self.set_all([set(key, key, due)]).await[0]
    }

    /// Writes what must arm rows. Returns the rows.
    async fn set_all(&self, writes: impl IntoIterator<Item = Write>) -> Vec<Armed> {
        let written = self.write(writes.into_iter().collect()).await;
        written.iter().map(armed).collect()
    }

    async fn load(&self, instance: InstanceId, window: Duration, limit: usize) -> Loaded {
        self.load_as(Load::new(instance, window, limit, HOUR)).await
    }

    async fn load_as(&self, request: Load) -> Loaded {
        let loaded = self.store.load(&self.space, request).await;
        loaded.expect("it loads")
    }

    /// Ends an id. Returns the next one.
    async fn unload(&self, instance: InstanceId) -> InstanceId {
        let fresh = self.store.unload(&self.space, instance).await;
        fresh.expect("it unloads")
    }

    async fn fire(&self, versions: Vec<Version>) -> FireReport {
        self.fire_besides(versions, 0).await
    }

    /// Fires these rows, and so many that no instance has loaded.
    async fn fire_besides(&self, versions: Vec<Version>, unloaded: usize) -> FireReport {
        let mut request = Fire::new(versions, Some(HOUR), Terms::NONE);
        request.by = Some(CLAIMANT);
        request.unloaded = unloaded;
        self.fire_as(request).await
    }

    async fn fire_as(&self, request: Fire) -> FireReport {
        let fired = self.store.fire(&self.space, request).await;
        fired.expect("it fires")
    }

    /// Sets a key that is due and fires it. Returns the token.
    async fn fired(&self, key: &str) -> Version {
        let row = self.set(key, NOW).await;
        self.fire(vec![row.version]).await.fired[0].token
    }

    async fn settle(&self, token: Version, settlement: Settlement) -> Settled {
        self.settle_all([token], settlement).await[0]
    }

    async fn settle_all(
        &self,
        tokens: impl IntoIterator<Item = Version>,
        settlement: Settlement,
    ) -> Vec<Settled> {
        let settles = tokens.into_iter();
        let settles = settles.map(|token| Settle::new(token, settlement));
        self.settle_as(settles.collect(), Terms::NONE).await
    }

    async fn settle_as(&self, settles: Vec<Settle>, terms: Terms) -> Vec<Settled> {
        let settled = self.store.settle(&self.space, settles, terms).await;
        settled.expect("it settles")
    }

    /// Sets these keys, fires them, and makes them dead.
    pub(super) async fn die(&self, keys: &[String]) {
        let writes = keys.iter().map(|key| set(key, key, NOW));
        self.write(writes.collect()).await;
        let fired = self.fire_besides(Vec::new(), keys.len()).await.fired;
        let tokens = fired.iter().map(|fired| fired.token);
        let settled = self.settle_all(tokens, Settlement::Dead).await;
        assert_eq!(settled, vec![Settled::Done; keys.len()]);
    }

    async fn get(&self, key: &str) -> Option<Stored> {
        self.rows_of(key, 1).await.into_iter().next()
    }

    async fn rows_of(&self, key: &str, limit: usize) -> Vec<Stored> {
        let rows = self.store.rows_of(&self.space, key.into(), limit).await;
        rows.expect("it reads")
    }

    async fn counts(&self) -> Counts {
        self.store.count(&self.space).await.expect("it counts")
    }

    /// Deletes everything, step by step. Returns how many rows there were.
    async fn purge(&self) -> u64 {
        in_steps(async || self.store.purge(&self.space).await).await
    }

    async fn list(&self, state: State) -> Vec<Stored> {
        let request = List::new(state, None, 1_000);
        let rows = self.store.list(&self.space, request).await;
        rows.expect("it lists")
    }
}

pub(super) fn write(key: &str, action: Action) -> Write {
    let key = key.into();
    Write::new(key, action)
}

fn repeating(key: &str, due: Due, period: Duration) -> Write {
    let action = Action::set(Vec::new(), due, Some(period), false);
    write(key, action)
}

pub(super) fn set(key: &str, value: &str, due: Due) -> Write {
    let action = Action::set(value.into(), due, None, false);
    write(key, action)
}

fn armed(written: &WriteOutcome) -> Armed {
    match written {
        WriteOutcome::Armed { row, .. } => *row,
        other => panic!("{other:?} instead of a row that is armed"),
    }
}

fn versions_of(rows: &[Armed]) -> Vec<Version> {
    rows.iter().map(|row| row.version).collect()
}

/// The row of a claim that waits again.
fn waits_again(settled: Settled) -> Armed {
    match settled {
        Settled::Armed(row) => row,
        other => panic!("{other:?} instead of a row that waits again"),
    }
}

fn versions(loaded: &Loaded) -> Vec<Version> {
    loaded.rows.iter().map(|&(version, _)| version).collect()
}
