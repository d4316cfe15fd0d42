//! Dead rows: how they are listed, retried and discarded.

use std::collections::BTreeSet;
use std::time::Duration;

use tickwheel_durable::store::{
    Action, DeadChange, DeadRows, MAX_DEAD_OF_KEY, Settled, Settlement, State, Store, StoreTime,
    Stored, Version, WriteOutcome,
};

use super::{Case, FAR, NOW, set, versions_of, write};
use crate::steps::{in_steps, pages};
use crate::world::{Stores, World, by_state, key};

const ALL: DeadRows = DeadRows::Until(StoreTime::NEVER);

impl<S: Store> Case<S> {
    /// Sets a key, fires it, and makes it dead. Returns its token.
    async fn dead(&self, key: &str) -> Version {
        let token = self.fired(key).await;
        assert_eq!(self.settle(token, Settlement::Dead).await, Settled::Done);
        token
    }

    pub(super) async fn retry(&self, which: DeadRows) -> u64 {
        self.change_dead(which, DeadChange::Retry).await
    }

    async fn discard(&self, which: DeadRows) -> u64 {
        self.change_dead(which, DeadChange::Discard).await
    }

    async fn change_dead(&self, which: DeadRows, change: DeadChange) -> u64 {
        in_steps(async || {
            let step = self.store.change_dead(&self.space, which.clone(), change);
            step.await
        })
        .await
    }

    /// The tokens of the dead rows.
    async fn tokens(&self) -> Vec<Version> {
        let rows = self.list(State::Dead).await.into_iter();
        rows.map(|row| row.version).collect()
    }
}

/// Dead rows are discarded by token, by key, by time, and with everything else in a purge.
pub async fn discards_dead_rows<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let other = Case::open(&world.part("other")).await;
    other.instance().await;
    let mut tokens = Vec::new();
    for key in ["a", "b", "c"] {
        tokens.push(case.dead(key).await);
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
    assert_eq!(case.discard(DeadRows::Key(b"a".to_vec())).await, 1);
    assert_eq!(case.tokens().await, tokens[2..]);
    case.dead("d").await;
    let died = case.list(State::Dead).await[0].due;
    let before = died.before(Duration::from_micros(1));
    assert_eq!(case.discard(DeadRows::Until(before)).await, 0);
    assert_eq!(case.discard(DeadRows::Until(died)).await, 1);
    assert_eq!(case.discard(ALL).await, 1);
    assert_eq!(by_state(&case.counts().await), [0, 0, 0]);

    case.dead("a").await;
    case.fired("b").await;
    case.set("c", FAR).await;
    assert_eq!(case.purge().await, 3);
    assert_eq!(by_state(&case.counts().await), [0, 0, 0]);
    assert_eq!(case.get("a").await, None);

    // A claim that died beside a newer timer goes with it.
    let token = case.fired("a").await;
    case.set("a", FAR).await;
    assert_eq!(case.settle(token, Settlement::Dead).await, Settled::Done);
    assert_eq!(by_state(&case.counts().await), [1, 0, 1]);
    let removed = case.write(vec![write("a", Action::Remove)]).await;
    assert!(matches!(removed[0], WriteOutcome::Removed { .. }));
    assert_eq!(by_state(&case.counts().await), [0, 0, 0]);

    // Pages go on by when rows died, whatever their tokens are.
    let claims = [case.fired("a").await, case.fired("b").await];
    let died = [claims[1], claims[0]];
    for token in died {
        assert_eq!(case.settle(token, Settlement::Dead).await, Settled::Done);
        world.wait(1).await;
    }
    let listed = pages(&case.store, &case.space, State::Dead, 1).await;
    let listed = listed.iter().flatten().map(|row| row.version);
    assert_eq!(listed.collect::<Vec<_>>(), died);
}

/// D13: a timer that repeats each second and fails for weeks leaves no more dead rows than one step
/// discards: those that were fired last.
pub async fn keeps_the_latest_dead_rows_of_a_key<T: Stores>(world: &World<T>) {
    const MORE: usize = 20;
    let case = Case::open(world).await;
    let other = case.dead("b").await;
    let mut claims = Vec::new();
    for _ in 0..MAX_DEAD_OF_KEY + MORE {
        claims.push(case.fired("a").await);
    }
    let all = vec![Settled::Done; claims.len()];
    // One after the other, and several in a batch.
    let (first, last) = claims.split_at(MAX_DEAD_OF_KEY + MORE / 2);
    for &token in first {
        assert_eq!(case.settle(token, Settlement::Dead).await, Settled::Done);
    }
    let settled = case.settle_all(last.to_vec(), Settlement::Dead).await;
    assert_eq!(settled, all[..last.len()]);
    let dead = |rows: Vec<Stored>| -> BTreeSet<Version> {
        rows.into_iter().map(|row| row.version).collect()
    };
    let kept: BTreeSet<_> = claims[MORE..].iter().copied().collect();
    assert_eq!(dead(case.rows_of("a", 1_000).await), kept);
    assert_eq!(
        by_state(&case.counts().await),
        [0, 0, kept.len() as u64 + 1]
    );
    assert_eq!(dead(case.rows_of("b", 1).await), [other].into());
    let removed = case.write(vec![write("a", Action::Remove)]).await;
    let latest = claims.last().copied();
    assert!(
        matches!(removed[0], WriteOutcome::Removed { version, .. } if Some(version) == latest),
        "{removed:?}"
    );
    assert_eq!(by_state(&case.counts().await), [0, 0, 1]);
}

/// A batch that discards thousands of dead rows is made as a whole, in order.
pub async fn batches_discard_many_dead_rows<T: Stores>(world: &World<T>) {
    const KEYS: u64 = 24;
    let case = Case::open(world).await;
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let mut claims = Vec::new();
    for _ in 0..MAX_DEAD_OF_KEY {
        let rows = case
            .set_all(keys.iter().map(|key| set(key, key, NOW)))
            .await;
        let fired = case.fire(versions_of(&rows)).await.fired;
        claims.extend(fired.iter().map(|fired| fired.token));
    }
    for claims in claims.chunks(500) {
        case.settle_all(claims.to_vec(), Settlement::Dead).await;
    }
    let dead = KEYS * MAX_DEAD_OF_KEY as u64;
    assert_eq!(by_state(&case.counts().await), [0, 0, dead]);
    let writes = keys
        .iter()
        .enumerate()
        .map(|(number, key)| match number % 2 {
            0 => set(key, key, FAR),
            _ => write(key, Action::Remove),
        });
    let written = case.write(writes.collect()).await;
    for (number, (outcome, key)) in written.iter().zip(&keys).enumerate() {
        match outcome {
            WriteOutcome::Armed { .. } => assert_eq!(number % 2, 0),
            WriteOutcome::Removed { value, .. } => assert_eq!(value, key.as_bytes()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(by_state(&case.counts().await), [KEYS / 2, 0, 0]);
}

/// Very many are listed in pages, and retried and discarded in steps, each once.
pub async fn retries_and_discards_many_dead_rows<T: Stores>(world: &World<T>) {
    const ROWS: u64 = 2_600;
    let case = Case::open(world).await;
    let keys: Vec<_> = (0..ROWS).map(key).collect();
    let die = async || {
        for keys in keys.chunks(500) {
            case.die(keys).await;
        }
    };
    die().await;
    let listed = pages(&case.store, &case.space, State::Dead, 700).await;
    let listed = listed.into_iter().flatten();
    let listed: Vec<_> = listed.map(|row| (row.due, row.version, row.key)).collect();
    assert!(listed.is_sorted(), "those that died first come first");
    let different: BTreeSet<_> = listed.iter().map(|(.., key)| key).collect();
    assert_eq!((listed.len(), different.len()), (keys.len(), keys.len()));
    assert_eq!(by_state(&case.counts().await), [0, 0, ROWS]);
    assert_eq!(case.retry(ALL).await, ROWS);
    assert_eq!(by_state(&case.counts().await), [ROWS, 0, 0]);
    assert_eq!(case.purge().await, ROWS);
    die().await;
    assert_eq!(case.discard(ALL).await, ROWS);
    assert_eq!(by_state(&case.counts().await), [0, 0, 0]);
    assert_eq!(case.purge().await, 0);
}
