//! Dead rows: how they come to be, what writes do about them, and how they are retried and
//! discarded.

use std::collections::BTreeSet;
use std::time::Duration;

use tickwheel_durable::store::{
    Action, DeadChange, DeadRows, List, MAX_ERROR_BYTES, Namespace, Settle, Settled, Settlement,
    State, Store, Version,
};

use super::{Case, FAR, HOUR, NOW, UNLOADED, armed, set, write};
use crate::world::{Stores, World};

const ALL: DeadRows = DeadRows::OlderThan(Duration::ZERO);

impl<S: Store> Case<S> {
    async fn settle_with(&self, token: Version, how: Settlement, error: &str) -> Settled {
        let settles = vec![Settle::new(token, how).with_error(error)];
        let settled = self.store.settle(&self.space, settles, UNLOADED).await;
        settled.expect("it settles")[0]
    }

    /// Sets a key, fires it, and makes it dead. Returns its token.
    async fn dead(&self, key: &str, value: &str) -> Version {
        let row = armed(&self.write(vec![set(key, value, NOW)]).await[0]).0;
        self.dies(row.version).await
    }

    async fn dies(&self, version: Version) -> Version {
        let token = self.fire(vec![version]).await.fired[0].token;
        assert_eq!(self.settle(token, Settlement::Dead).await, Settled::Done);
        token
    }

    async fn retry(&self, which: DeadRows) -> u64 {
        self.change_dead(which, DeadChange::Retry).await
    }

    async fn discard(&self, which: DeadRows) -> u64 {
        self.change_dead(which, DeadChange::Discard).await
    }

    async fn change_dead(&self, which: DeadRows, change: DeadChange) -> u64 {
        let mut rows = 0;
        loop {
            let step = self.store.change_dead(&self.space, which.clone(), change);
            let step = step.await.expect("it changes dead rows");
            rows += step.rows;
            if !step.more {
                return rows;
            }
            assert!(step.rows > 0, "a step that changes nothing is the last");
        }
    }

    /// The tokens of the dead rows.
    async fn tokens(&self) -> Vec<Version> {
        let rows = self.list(State::Dead).await.into_iter();
        rows.map(|row| row.version).collect()
    }

    /// How many rows are waiting, in flight and dead.
    async fn counts(&self) -> [u64; 3] {
        let counts = self.store.count(&self.space).await.expect("it counts");
        [counts.waiting, counts.in_flight, counts.dead]
    }
}

/// A row keeps the last error that it was settled with, until it is set again.
pub async fn keeps_the_last_error<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let error = async || case.get("a").await.expect("it is there").error;
    let now = Settlement::RetryAfter(Duration::ZERO);
    let token = case.fired("a").await;
    assert_eq!(error().await, None);
    let Settled::Armed(row) = case.settle_with(token, now, "first").await else {
        panic!("it is put back")
    };
    assert_eq!(error().await.as_deref(), Some("first"));
    let moved = case.write(vec![write("a", Action::move_to(NOW))]).await;
    let (moved, replaced) = armed(&moved[0]);
    assert_eq!(replaced, Some(row.version));
    let fired = case.fire(vec![moved.version]).await.fired[0].clone();
    assert_eq!(fired.attempt, 2);
    assert_eq!(error().await.as_deref(), Some("first"));
    let long = "\u{10FFFF}".repeat(MAX_ERROR_BYTES / 4);
    let extend = Settlement::Extend(HOUR);
    let extended = case.settle_with(fired.token, extend, &long).await;
    assert_eq!(extended, Settled::Done);
    assert_eq!(error().await, Some(long.clone()));
    let Settled::Armed(row) = case.settle(fired.token, Settlement::Release).await else {
        panic!("it is released")
    };
    assert_eq!(error().await, Some(long.clone()));
    case.dies(row.version).await;
    assert_eq!(error().await, Some(long));
    case.set("a", FAR).await;
    assert_eq!(error().await, None);

    // Beside a newer row it stays in flight.
    let token = case.fired("b").await;
    let newer = case.set("b", FAR).await;
    assert_eq!(case.settle_with(token, now, "beside").await, Settled::Done);
    let row = case.get("b").await.expect("it is there");
    assert_eq!((row.version, row.error), (newer.version, None));
    let flying = case.list(State::InFlight).await;
    assert_eq!(flying[0].error.as_deref(), Some("beside"));
}

/// When several have died under one key, the one that died first waits under it.
pub async fn retries_dead_rows_of_a_key<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let mut tokens = Vec::new();
    for value in ["1", "2", "3"] {
        let (row, _) = armed(&case.write(vec![set("a", value, NOW)]).await[0]);
        tokens.push(case.fire(vec![row.version]).await.fired[0].token);
    }
    for token in tokens {
        assert_eq!(case.settle(token, Settlement::Dead).await, Settled::Done);
        world.wait(1).await;
    }
    assert_eq!(case.retry(DeadRows::Key(b"b".to_vec())).await, 0);
    assert_eq!(case.retry(DeadRows::OlderThan(HOUR)).await, 0);
    assert_eq!(case.retry(DeadRows::Key(b"a".to_vec())).await, 3);
    assert_eq!(case.get("a").await.expect("it waits").value, b"1");
    assert_eq!(case.counts().await, [1, 2, 0]);
}

/// Dead rows are discarded by token, by key, by age, and with everything else in a purge.
pub async fn discards_dead_rows<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let other = Case {
        store: world.store().await,
        space: Namespace::new(&format!("{}-other", case.space)).expect("it is a name"),
    };
    other.instance().await;
    let mut tokens = Vec::new();
    for key in ["a", "b", "c"] {
        tokens.push(case.dead(key, key).await);
        world.wait(1).await;
    }
    assert_eq!(case.tokens().await, tokens, "those that died first");
    for which in [
        DeadRows::Token(tokens[0]),
        DeadRows::Key(b"a".to_vec()),
        ALL,
    ] {
        assert_eq!(other.discard(which.clone()).await, 0);
        assert_eq!(other.retry(which).await, 0);
    }
    assert_eq!(case.discard(DeadRows::Token(tokens[1])).await, 1);
    assert_eq!(case.discard(DeadRows::Token(tokens[1])).await, 0);
    assert_eq!(case.retry(DeadRows::Token(tokens[1])).await, 0);
    assert_eq!(case.discard(DeadRows::OlderThan(HOUR)).await, 0);
    assert_eq!(case.discard(DeadRows::Key(b"a".to_vec())).await, 1);
    assert_eq!(case.tokens().await, tokens[2..]);
    let age = world.units(1);
    case.dead("d", "").await;
    let older = case.discard(DeadRows::OlderThan(age)).await;
    assert!(older >= 1, "the one that died a unit ago");
    assert_eq!(case.discard(ALL).await, 2 - older);
    assert_eq!(case.counts().await, [0, 0, 0]);

    case.dead("a", "").await;
    case.fired("b").await;
    case.set("c", FAR).await;
    assert_eq!(case.purge().await, 3);
    assert_eq!(case.counts().await, [0, 0, 0]);
    assert_eq!(case.get("a").await, None);
}

/// Very many are listed in pages, and retried and discarded in steps, each once.
pub async fn retries_and_discards_many_dead_rows<T: Stores>(world: &World<T>) {
    const ROWS: usize = 2_600;
    let case = Case::open(world).await;
    let die = async |keys: std::ops::Range<usize>| {
        let keys: Vec<_> = keys.map(|key| key.to_string()).collect();
        for keys in keys.chunks(500) {
            let writes = keys.iter().map(|key| set(key, key, NOW));
            case.write(writes.collect()).await;
            let fired = case.fire_besides(vec![], 500).await.fired;
            let settles = fired.iter().map(|f| Settle::new(f.token, Settlement::Dead));
            let settled = case.store.settle(&case.space, settles.collect(), UNLOADED);
            let settled = settled.await.expect("it settles");
            assert_eq!(settled, vec![Settled::Done; 500.min(keys.len())]);
        }
    };
    die(0..ROWS).await;
    let (mut after, mut listed) = (None, Vec::new());
    loop {
        let list = List::new(State::Dead, after, 700);
        let page = case.store.list(&case.space, list).await;
        let page = page.expect("it lists");
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 700);
        after = Some((last.due, last.version));
        listed.extend(page.into_iter().map(|row| (row.due, row.version, row.key)));
    }
    assert!(listed.is_sorted(), "those that died first come first");
    let keys: BTreeSet<_> = listed.iter().map(|(.., key)| key.clone()).collect();
    assert_eq!((listed.len(), keys.len()), (ROWS, ROWS));
    assert_eq!(case.counts().await, [0, 0, ROWS as u64]);
    assert_eq!(case.retry(ALL).await, ROWS as u64);
    assert_eq!(case.counts().await, [ROWS as u64, 0, 0]);
    assert_eq!(case.purge().await, ROWS as u64);
    die(0..ROWS).await;
    assert_eq!(case.discard(ALL).await, ROWS as u64);
    assert_eq!(case.counts().await, [0, 0, 0]);
    assert_eq!(case.purge().await, 0);
}
