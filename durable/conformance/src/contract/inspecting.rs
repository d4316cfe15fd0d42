//! The reads of an operator.

use std::time::Duration;

use tickwheel_durable::store::{
    Action, Due, Fire, LeftRow, Load, MAX_DUE_COUNT, Missed, PrefixRows, Settled, Settlement,
    State, Store, StoreTime, Stored, Terms, Version, Write, WriteOutcome,
};

use super::{Case, FAR, HOUR, NOW, Stores, World, set, versions_of, write};

/// At most this many rows of a key are read in each state.
const LIMIT: usize = 100;

impl<S: Store> Case<S> {
    /// The rows of a key, in order.
    async fn states_of(&self, key: &str) -> Vec<(State, Version)> {
        let rows = self.rows_of(key, LIMIT).await.into_iter();
        rows.map(|row| (row.state, row.version)).collect()
    }

    /// Reads all pages of so many rows.
    async fn with_prefix(&self, state: State, prefix: &[u8], limit: usize) -> Vec<Stored> {
        let inspect = self.store.inspect();
        let mut request = PrefixRows::new(state, prefix.to_vec(), limit);
        let mut rows = Vec::new();
        loop {
            let page = inspect.rows_with_prefix(&self.space, request.clone()).await;
            let page = page.expect("it lists");
            assert!(page.rows.len() <= limit, "{} rows", page.rows.len());
            rows.extend(page.rows);
            match page.next {
                Some(next) => request.after = Some(next),
                None => return rows,
            }
        }
    }

    /// Sets a key that repeats and has missed very many occurrences, and fires so many of them.
    /// Returns the version that waits then, and the tokens.
    async fn fired_often(
        &self,
        key: &str,
        value: Vec<u8>,
        times: usize,
    ) -> (Version, Vec<Version>) {
        let since = Due::At(StoreTime::default());
        let action = Action::set(value, since, Some(Duration::from_secs(60)), false);
        let mut waiting = self.set_all([write(key, action)]).await[0];
        let mut tokens = Vec::new();
        for _ in 0..times {
            let mut fire = Fire::new(vec![waiting.version], Some(HOUR), Terms::NONE);
            fire.missed = Missed::FireAll;
            let report = self.fire_as(fire).await;
            tokens.push(report.fired[0].token);
            waiting = report.next[0];
        }
        (waiting.version, tokens)
    }
}

/// The keys of rows, in order.
fn keys(mut rows: Vec<Stored>) -> Vec<Vec<u8>> {
    rows.sort_by_key(|row| (row.key.clone(), row.version));
    rows.into_iter().map(|row| row.key).collect()
}

/// A namespace is listed with its codec once it was opened. A look at one that was not opened does
/// not open it.
pub async fn names_the_namespaces_that_were_opened<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let inspect = case.store.inspect();
    let other = world.part("never").namespace();
    inspect
        .instances(&other)
        .await
        .expect_err("no instance has opened it");
    // By name, in whichever order they were opened.
    for part in ["f", "E", "d", "c", "b", "a"] {
        Case::open(&world.part(part)).await;
    }
    let namespaces = inspect.namespaces().await.expect("it lists");
    assert!(namespaces.is_sorted_by_key(|found| found.name.as_str()));
    let found = namespaces.iter().find(|found| found.name == case.space);
    assert_eq!(
        found.map(|found| found.charter.codec.as_str()),
        Some("test")
    );
    assert!(namespaces.iter().all(|found| found.name != other));
    let alone = inspect.charter(&case.space).await.expect("it looks");
    assert_eq!(alone.as_ref(), found.map(|found| &found.charter));
    assert_eq!(inspect.charter(&other).await.expect("it looks"), None);
}

/// An instance is listed from its first load on, with its name, what it has loaded and what it
/// lacks, until it is unloaded.
pub async fn lists_instances<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let inspect = case.store.inspect();
    let (first, second) = (case.instance().await, case.instance().await);
    for key in ["a", "b"] {
        case.set(key, NOW).await;
    }
    case.load(first, HOUR, 10).await;
    let mut load = Load::new(second, HOUR, 5, HOUR);
    load.wanted = 3;
    load.name = Some("mailer on host-7".to_owned());
    let loaded = case.load_as(load).await;
    // Its life ends later now, and its id stays the lesser one.
    case.load(first, HOUR, 0).await;
    let instances = inspect.instances(&case.space).await.expect("it lists");
    assert!(instances.is_sorted_by_key(|instance| instance.id));
    let figures = |id| {
        let found = instances.iter().find(|instance| instance.id == id);
        let found = found.expect("it is listed");
        assert!(found.alive_until > loaded.now, "it is alive");
        (found.loaded, found.lacks, found.name.as_deref())
    };
    assert_eq!(figures(first), (2, 0, None));
    assert_eq!(figures(second), (0, 3, Some("mailer on host-7")));
    case.unload(second).await;
    let token = case.fired("c").await;
    let leave = LeftRow::new(first, Duration::ZERO, HOUR);
    case.settle(token, Settlement::Leave(leave)).await;
    let left = inspect.instances(&case.space).await.expect("it lists");
    let alive = left
        .iter()
        .filter(|instance| instance.alive_until > loaded.now);
    assert_eq!(
        alive.map(|instance| instance.id).collect::<Vec<_>>(),
        [first]
    );
}

/// All rows of a key are listed at once, the waiting one first, and none of another namespace.
pub async fn lists_all_rows_of_a_key<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let claims = [case.fired("a").await, case.fired("a").await];
    let waiting = case.set("a", FAR).await.version;
    case.fired("ab").await;
    case.settle(claims[0], Settlement::Dead).await;
    let expected = [
        (State::Waiting, waiting),
        (State::InFlight, claims[1]),
        (State::Dead, claims[0]),
    ];
    assert_eq!(case.states_of("a").await, expected);
    assert_eq!(case.states_of("b").await, []);
    let other = Case::open(&world.part("other")).await;
    assert_eq!(other.states_of("a").await, []);

    // The answers name the latest of those in flight.
    let claims = [case.fired("c").await, case.fired("c").await];
    assert_eq!(case.get("c").await.map(|row| row.version), Some(claims[1]));
    let moved = case.write(vec![write("c", Action::move_to(FAR))]).await;
    assert_eq!(moved, [WriteOutcome::InFlight(claims[1])]);

    // If all of them are dead, the latest is read, in whichever order they died.
    for token in [claims[1], claims[0]] {
        case.settle(token, Settlement::Dead).await;
        world.wait(1).await;
    }
    assert_eq!(case.get("c").await.map(|row| row.version), Some(claims[1]));
    let expected = [(State::Dead, claims[1]), (State::Dead, claims[0])];
    assert_eq!(case.states_of("c").await, expected);
    // A page that ends between both goes on with the other.
    let rows = case.with_prefix(State::Dead, b"c", 1).await;
    let rows: Vec<_> = rows.iter().map(|row| row.version).collect();
    assert_eq!(rows, claims);
}

/// However many rows a key has, the latest are listed: so many in each state, and no more once they
/// have enough bytes.
pub async fn lists_the_latest_of_many_rows_of_a_key<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let expected = |waiting, state, tokens: &[Version], rows| {
        let latest = tokens.iter().rev().take(rows);
        let latest = latest.map(|&token| (state, token));
        let waiting = (State::Waiting, waiting);
        [waiting].into_iter().chain(latest).collect::<Vec<_>>()
    };
    // Three rows of 400 KiB have enough bytes.
    for (key, bytes, claims, listed) in
        [("many", 200, LIMIT + 3, LIMIT), ("large", 400 * 1024, 4, 2)]
    {
        let (waiting, tokens) = case.fired_often(key, vec![b'v'; bytes], claims).await;
        assert_eq!(
            case.states_of(key).await,
            expected(waiting, State::InFlight, &tokens, listed)
        );
        let settled = case.settle_all(tokens.clone(), Settlement::Dead).await;
        assert_eq!(settled, vec![Settled::Done; claims]);
        assert_eq!(
            case.states_of(key).await,
            expected(waiting, State::Dead, &tokens, listed)
        );
        case.purge().await;
    }
}

/// Rows in each state are found by what their keys begin with, page by page, whatever bytes that
/// is.
pub async fn finds_rows_by_prefix<T: Stores>(world: &World<T>) {
    let mut names: Vec<Vec<u8>> = vec![
        b"order*".to_vec(),
        b"order\xff\xff".to_vec(),
        b"order\xff\xff\x01".to_vec(),
        b"order".to_vec(),
        b"\"order\"".to_vec(),
        b"orde".to_vec(),
        b"[o]rder \xe2\x80\xae".to_vec(),
        b"\xff\xff".to_vec(),
        b"2".to_vec(),
    ];
    names.extend((0..700).map(|number| format!("order {number:03}").into_bytes()));
    for (part, state) in [
        ("waiting", State::Waiting),
        ("in-flight", State::InFlight),
        ("dead", State::Dead),
    ] {
        let case = Case::open(&world.part(part)).await;
        let writes = names
            .iter()
            .map(|name| Write::new(name.clone(), set("", "value", NOW).action));
        let rows = case.set_all(writes).await;
        if state != State::Waiting {
            let fired = case.fire(versions_of(&rows)).await.fired;
            assert_eq!(fired.len(), names.len());
            for fired in fired.iter().filter(|_| state == State::Dead) {
                case.settle(fired.token, Settlement::Dead).await;
            }
        }
        for (prefix, limit) in [
            (&b"order "[..], 64),
            (b"order\xff", 1),
            (b"order*", 10),
            (b"[o]", 10),
            (b"\xff", 10),
            // Names on the server may end with a version, whose digits belong to no key.
            (b"2", 10),
            (b"21", 10),
            (b"2179", 10),
            (b"", 300),
            (b"nothing", 10),
        ] {
            let expected = names.iter().filter(|name| name.starts_with(prefix));
            let mut expected: Vec<_> = expected.cloned().collect();
            expected.sort();
            let found = keys(case.with_prefix(state, prefix, limit).await);
            assert_eq!(found, expected, "{state:?}, {prefix:?}");
        }
    }
}

/// The store counts waiting rows by when they are due, whether an instance has loaded them or not.
/// The end of a span is not part of it.
pub async fn counts_what_is_due_when<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let inspect = case.store.inspect();
    let now = case.counts().await.now;
    let at = |minutes: u64| now.after(Duration::from_secs(60 * minutes));
    let writes = [1, 2, 2, 5, 9, 10]
        .iter()
        .enumerate()
        .map(|(key, &minutes)| set(&key.to_string(), "", Due::At(at(minutes))));
    case.write(writes.collect()).await;
    case.fired("fired").await;
    let instance = case.instance().await;
    case.load(instance, Duration::from_secs(150), 10).await;
    let times: Vec<StoreTime> = [0, 1, 2, 3, 10].map(at).to_vec();
    let other = Case::open(&world.part("other")).await;
    for (space, expected) in [(&case.space, [0, 1, 2, 2]), (&other.space, [0; 4])] {
        let counts = inspect.count_due(space, times.clone()).await;
        assert_eq!(counts, Ok(expected.to_vec()));
    }
    let counts = inspect.count_due(&case.space, vec![at(1)]).await;
    assert_eq!(counts, Ok(Vec::new()));
    // The lease of the claim ends in this span, and a claim does not wait.
    let counts = inspect.count_due(&case.space, vec![at(55), at(65)]);
    assert_eq!(counts.await, Ok(vec![0]));
    // Times that do not ascend have nothing between them.
    let counts = inspect.count_due(&case.space, vec![at(10), at(0), at(0), at(10)]);
    assert_eq!(counts.await, Ok(vec![0, 0, 5]));
    for part in 0..11 {
        let writes = (0..1_000).map(|key| set(&format!("{part} {key}"), "", Due::At(at(60))));
        case.write(writes.collect()).await;
    }
    let counts = inspect.count_due(&case.space, vec![at(30), at(90)]).await;
    assert_eq!(counts, Ok(vec![MAX_DUE_COUNT as u64]));
}
