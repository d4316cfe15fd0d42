//! The store as a whole: namespaces, lists, many connections at once.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use tickwheel_durable::store::{
    ANSWER_BYTES, Action, Due, Fired, Load, Settled, Settlement, State, Store, StoreTime,
    WriteOutcome,
};

use super::{Case, FAR, HOUR, NOW, set, versions, versions_of, write};
use crate::steps::pages;
use crate::world::{Stores, World, by_state};

/// Namespaces have nothing to do with each other.
pub async fn keeps_namespaces_apart<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let other = Case::open(&world.part("other")).await;
    let instance = other.instance().await;
    let row = case.set("a", NOW).await;
    assert_eq!(other.get("a").await, None);
    assert_eq!(other.load(instance, HOUR, 10).await.rows, []);
    assert_eq!(other.fire(vec![row.version]).await.fired, []);
    let token = case.fire(vec![row.version]).await.fired[0].token;
    let settlements = [Settlement::Ack, Settlement::Release, Settlement::Dead];
    for settlement in settlements.into_iter().chain([Settlement::Extend(HOUR)]) {
        let settled = other.settle(token, settlement).await;
        assert_eq!(settled, Settled::Lost, "{settlement:?}");
    }
    let removed = other.write(vec![write("a", Action::Remove)]).await;
    assert_eq!(removed, [WriteOutcome::Absent]);
    assert_eq!(other.purge().await, 0);
    assert_eq!(case.settle(token, Settlement::Ack).await, Settled::Done);
    // A row that waits is no claim.
    let waiting = case.set("b", FAR).await.version;
    for settlement in settlements {
        assert_eq!(case.settle(waiting, settlement).await, Settled::Lost);
    }
    assert_eq!(case.get("b").await.map(|row| row.version), Some(waiting));
    // A load of one namespace ends no instance of another: no instance would load its rows.
    let brief = case.instance().await;
    let request = Load::new(brief, 2 * HOUR, 10, world.units(1));
    assert_eq!(case.load_as(request).await.rows.len(), 1);
    world.wait(2).await;
    other.load(instance, HOUR, 10).await;
    let next = case.instance().await;
    let loaded = case.load(next, 2 * HOUR, 10).await;
    assert_eq!(versions(&loaded), [waiting]);
}

/// Lists go on where they ended; counts and purges are of everything.
pub async fn lists_counts_and_purges<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let counts = case.counts().await;
    assert_eq!((by_state(&counts), counts.earliest), ([0; 3], None));
    case.fired("fired").await;
    let counts = case.counts().await;
    assert_eq!((by_state(&counts), counts.earliest), ([0, 1, 0], None));
    let earliest = case.set("first", NOW).await;
    let same = Due::At(earliest.due.after(HOUR));
    for key in ["b", "a", "c"] {
        case.set(key, same).await;
    }
    // While no row is loaded the last one of all is due an hour later.
    assert_eq!(case.counts().await.earliest, Some(earliest.due));
    let instance = case.instance().await;
    case.load(instance, Duration::ZERO, 1).await;
    let counts = case.counts().await;
    assert_eq!(by_state(&counts), [4, 1, 0]);
    assert_eq!(counts.earliest, Some(earliest.due), "loaded or not");
    assert!(counts.now >= earliest.due);

    let all = case.list(State::Waiting).await;
    let keys: Vec<_> = all.iter().map(|row| row.key.as_slice()).collect();
    assert_eq!(keys, [&b"first"[..], b"b", b"a", b"c"]);
    let read = pages(&case.store, &case.space, State::Waiting, 2)
        .await
        .concat();
    assert_eq!(read, all);
    assert_eq!(all[0].loaded_by, Some(instance));
    let instance = case.unload(instance).await;
    let loaders = case.list(State::Waiting).await;
    assert!(
        loaders.iter().all(|row| row.loaded_by.is_none()),
        "{loaders:?}"
    );
    assert_eq!(case.purge().await, 5);
    assert_eq!(case.list(State::Waiting).await, []);
    assert_eq!(case.list(State::InFlight).await, []);
    assert_eq!(case.load(instance, 9 * HOUR, 9).await.rows, []);
}

/// A purge of many rows leaves none, whatever their state, and takes none of another namespace.
pub async fn purges_many_rows<T: Stores>(world: &World<T>) {
    const ROWS: u64 = 1_200;
    let case = Case::open(world).await;
    let other = Case::open(&world.part("other")).await;
    other.set("a", FAR).await;
    let instance = case.instance().await;
    let keys: Vec<_> = (0..ROWS).map(|number| number.to_string()).collect();
    for keys in keys.chunks(600) {
        let rows = case.set_all(keys.iter().map(|key| set(key, "", NOW))).await;
        case.fire(versions_of(&rows[..100])).await;
        case.load(instance, HOUR, 100).await;
    }
    assert_eq!(case.purge().await, ROWS);
    assert_eq!(by_state(&case.counts().await), [0; 3]);
    assert_eq!(case.load(instance, 9 * HOUR, 9).await.rows, []);
    case.set("0", FAR).await;
    assert_eq!(case.purge().await, 1);
    assert!(other.get("a").await.is_some());
}

/// Many connections fire, load and settle the same rows at once, and one succeeds for each.
pub async fn gives_each_row_to_one_of_many<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let mut cases = Vec::new();
    for _ in 0..4 {
        let (store, space) = (world.store().await, world.namespace());
        cases.push(Case { store, space });
    }
    let rows = (0..100).map(|number| set(&number.to_string(), "", NOW));
    let rows = versions_of(&case.set_all(rows).await);

    let load = cases.iter().map(|case| async {
        let instance = case.instance().await;
        versions(&case.load(instance, HOUR, 60).await)
    });
    let mut loaded: Vec<_> = join_all(load).await.concat();
    // What one of them was looking at the others may have left out.
    let instance = case.instance().await;
    loaded.extend(versions(&case.load(instance, HOUR, 60).await));
    assert_eq!(loaded.len(), 100);
    assert_eq!(
        loaded.into_iter().collect::<BTreeSet<_>>(),
        rows.iter().copied().collect()
    );

    let fire = cases.iter().map(|case| case.fire(rows.clone()));
    let fired: Vec<_> = join_all(fire)
        .await
        .into_iter()
        .flat_map(|report| report.fired)
        .collect();
    assert_eq!(fired.len(), 100);
    let tokens: BTreeSet<_> = fired.iter().map(|fired| fired.token).collect();
    assert_eq!(tokens.len(), 100);

    let settle = cases.iter();
    let settle = settle.map(|case| case.settle_all(tokens.iter().copied(), Settlement::Ack));
    let settled = join_all(settle).await.concat();
    assert_eq!(settled.iter().filter(|&&s| s == Settled::Done).count(), 100);

    let rows = (0..100).map(|number| set(&number.to_string(), "", NOW));
    case.write(rows.collect()).await;
    let fire = cases.iter().map(|case| async {
        let mut keys = Vec::new();
        let mut more = true;
        while more {
            let report = case.fire_besides(Vec::new(), 7).await;
            more = report.more;
            keys.extend(report.fired.into_iter().map(|fired| fired.key));
        }
        keys
    });
    let keys = join_all(fire).await.concat();
    assert_eq!(keys.len(), 100, "each is fired by one, and none is left");
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), 100);
}

/// Answers have at most [`ANSWER_BYTES`] of keys and values, and one row more. The other rows come
/// when they are asked for, and batches about large rows are answered as a whole.
pub async fn bounds_answers_in_bytes<T: Stores>(world: &World<T>) {
    async fn release<S: Store>(case: &Case<S>, fired: &[Fired]) {
        let tokens = fired.iter().map(|fired| fired.token);
        let retry = Settlement::RetryAfter(Duration::ZERO);
        let settled = case.settle_all(tokens, retry).await;
        assert_eq!(settled.len(), fired.len());
        assert!(settled.iter().all(|s| matches!(s, Settled::Armed(_))));
    }
    /// Without the last one they have fewer bytes than an answer may have.
    fn is_bounded(values: impl DoubleEndedIterator<Item = usize>) {
        let bytes: usize = values.rev().skip(1).sum();
        assert!(bytes < ANSWER_BYTES, "{bytes} bytes");
    }
    const LARGE: usize = 400 * 1024;
    const KEYS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
    let value_of = |key: &str| key.repeat(LARGE);
    let case = Case::open(world).await;
    // One of them is small, and is due first.
    let writes = KEYS.map(|key| match key {
        "a" => set(key, "a", Due::At(StoreTime::from_micros(1))),
        _ => set(key, &value_of(key), NOW),
    });
    let rows = versions_of(&case.set_all(writes).await);

    let listed = pages(&case.store, &case.space, State::Waiting, 100).await;
    for page in &listed {
        is_bounded(page.iter().map(|row| row.value.len()));
    }
    let listed = listed.concat();
    assert!(listed.iter().map(|row| row.version).eq(rows.clone()));

    let (mut asked, mut fired) = (rows, Vec::new());
    while !asked.is_empty() {
        let report = case.fire(asked.clone()).await;
        assert!(report.later.is_empty(), "{:?}", report.later);
        let done = asked.len() - report.rest;
        assert_eq!(report.fired.len(), done, "those left are the last ones");
        assert!(done > 0, "it goes on");
        is_bounded(report.fired.iter().map(|fired| fired.value.len()));
        asked.drain(..done);
        fired.extend(report.fired);
    }
    let keys = fired.iter().map(|fired| fired.key.as_slice());
    assert!(keys.eq(KEYS.map(str::as_bytes)), "in the order asked for");
    for fired in &fired[1..] {
        assert!(fired.value.iter().all(|byte| *byte == fired.key[0]));
        assert_eq!(fired.value.len(), LARGE);
    }

    release(&case, &fired).await;
    let mut again = Vec::new();
    let mut more = true;
    while more {
        let report = case.fire_besides(Vec::new(), 100).await;
        is_bounded(report.fired.iter().map(|fired| fired.value.len()));
        more = report.more;
        again.extend(report.fired);
    }
    assert_eq!(again.len(), KEYS.len());
    release(&case, &again).await;
    let moves = KEYS.map(|key| write(key, Action::move_to(FAR)));
    case.set_all(moves).await;
    // The same key again, beside others.
    let mut removes = KEYS.map(|key| write(key, Action::Remove)).to_vec();
    removes.insert(3, set("c", "new", FAR));
    let removed = case.write(removes).await;
    let value = |written: &WriteOutcome| match written {
        WriteOutcome::Removed { value, .. } => value.len(),
        _ => 0,
    };
    assert_eq!(
        removed.iter().map(value).collect::<Vec<_>>(),
        [1, LARGE, LARGE, 0, LARGE, LARGE, LARGE, LARGE]
    );
    assert_eq!(by_state(&case.counts().await), [1, 0, 0]);
}
