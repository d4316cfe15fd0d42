//! Each call of a store alone, rule by rule.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;

use super::world::{Stores, World};
use crate::store::{
    Action, Armed, Due, Fire, FireReport, How, InstanceId, List, Load, Loaded, Missed, Namespace,
    Near, Settle, Settled, State, Store, StoreError, StoreTime, Stored, Version, Write, Written,
};

const HOUR: Duration = Duration::from_secs(3_600);

/// Due a long time from now.
const FAR: Due = Due::In(HOUR);

/// Due at once.
const NOW: Due = Due::In(Duration::ZERO);

/// Nothing is loaded in passing.
const UNLOADED: Near = Near {
    window: Duration::ZERO,
    loader: None,
};

/// A store and a namespace, with calls that must succeed.
struct Case<S> {
    store: S,
    space: Namespace,
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
        let opened = self.store.open(&self.space, "test").await;
        opened.expect("it opens").instance
    }

    async fn write(&self, writes: Vec<Write>) -> Vec<Written> {
        self.write_near(writes, UNLOADED).await
    }

    async fn write_near(&self, writes: Vec<Write>, near: Near) -> Vec<Written> {
        let count = writes.len();
        let written = self.store.write(&self.space, writes, near).await;
        let written = written.expect("it writes");
        assert_eq!(written.len(), count, "an answer for each write");
        written
    }

    /// Sets one key and returns its row.
    async fn set(&self, key: &str, due: Due) -> Armed {
        armed(&self.write(vec![set(key, key, due)]).await[0]).0
    }

    async fn load(&self, instance: InstanceId, window: Duration, limit: usize) -> Loaded {
        let request = Load {
            instance,
            window,
            limit,
            alive: HOUR,
        };
        let loaded = self.store.load(&self.space, request).await;
        loaded.expect("it loads")
    }

    async fn fire(&self, versions: Vec<Version>) -> FireReport {
        let request = Fire {
            versions,
            lease: Some(HOUR),
            missed: Missed::FireOnce,
            near: UNLOADED,
        };
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

    async fn settle(&self, token: Version, how: How) -> Settled {
        let settles = vec![Settle { token, how }];
        let settled = self.store.settle(&self.space, settles, UNLOADED).await;
        settled.expect("it settles")[0]
    }

    async fn get(&self, key: &str) -> Option<Stored> {
        let row = self.store.get(&self.space, key.into()).await;
        row.expect("it reads")
    }

    async fn list(&self, state: State) -> Vec<Stored> {
        let request = List {
            state,
            after: None,
            limit: 1_000,
        };
        let rows = self.store.list(&self.space, request).await;
        rows.expect("it lists")
    }
}

fn write(key: &str, action: Action) -> Write {
    let key = key.into();
    Write { key, action }
}

fn set(key: &str, value: &str, due: Due) -> Write {
    let action = Action::Set {
        value: value.into(),
        due,
        period: None,
        if_absent: false,
    };
    write(key, action)
}

fn armed(written: &Written) -> (Armed, Option<Version>) {
    match *written {
        Written::Armed { row, replaced } => (row, replaced),
        ref other => panic!("{other:?} instead of a row that is armed"),
    }
}

fn versions(loaded: &Loaded) -> Vec<Version> {
    loaded.rows.iter().map(|&(version, _)| version).collect()
}

/// Sets replace, moves keep the value, removes return it; each raises the version, within one batch too.
pub async fn sets_moves_and_removes<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let batch = vec![
        set("a", "1", FAR),
        set("b", "2", FAR),
        set("a", "3", FAR),
        write("a", Action::Move { due: NOW }),
        write("b", Action::Remove),
        write("b", Action::Move { due: FAR }),
        write("c", Action::Remove),
    ];
    let written = case.write(batch).await;
    let (first, replaced) = armed(&written[0]);
    assert_eq!(replaced, None);
    let (b, _) = armed(&written[1]);
    let (second, replaced) = armed(&written[2]);
    assert_eq!(replaced, Some(first.version));
    let (third, replaced) = armed(&written[3]);
    assert_eq!(replaced, Some(second.version));
    assert!(first.version < second.version && second.version < third.version);
    assert_eq!(
        second.due.since(third.due),
        HOUR,
        "the time is read once in a call"
    );
    let removed = Written::Removed {
        version: b.version,
        value: b"2".to_vec(),
    };
    assert_eq!(written[4], removed);
    assert_eq!(written[5..], [Written::Absent, Written::Absent]);

    let row = case.get("a").await.expect("it is there");
    assert_eq!(
        (row.version, row.state, row.attempt),
        (third.version, State::Waiting, 0)
    );
    assert_eq!(
        (row.value, row.due, row.deadline),
        (b"3".to_vec(), third.due, third.due)
    );
    assert_eq!((case.get("b").await, case.get("c").await), (None, None));
}

/// A conditional set does nothing when the key has a row in either state.
pub async fn sets_if_absent_only_then<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let set_absent = || {
        let action = Action::Set {
            value: b"new".to_vec(),
            due: FAR,
            period: None,
            if_absent: true,
        };
        vec![write("a", action.clone()), write("a", action)]
    };
    let written = case.write(set_absent()).await;
    armed(&written[0]);
    assert_eq!(written[1], Written::Present);
    let token = case.fired("a").await;
    let written = case.write(set_absent()).await;
    assert_eq!(
        written,
        [Written::InFlight(token), Written::InFlight(token)]
    );
    case.settle(token, How::Ack).await;
    armed(&case.write(set_absent()).await[0]);
}

/// Moves and removes of a key that has fired change nothing, and name the latest token.
pub async fn names_the_token_of_what_has_fired<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let first = case.fired("a").await;
    let second = case.fired("a").await;
    assert!(first < second, "tokens grow");
    for action in [Action::Remove, Action::Move { due: FAR }] {
        let written = case.write(vec![write("a", action)]).await;
        assert_eq!(written, [Written::InFlight(second)]);
    }
    let row = case.get("a").await.expect("it is there");
    assert_eq!((row.version, row.state), (second, State::InFlight));
    let waiting = case.set("a", FAR).await;
    let row = case.get("a").await.expect("it is there");
    assert_eq!((row.version, row.state), (waiting.version, State::Waiting));
    assert_eq!(case.list(State::InFlight).await.len(), 2);
}

/// Loads hand out near rows, earliest first, to one instance, up to a limit.
pub async fn loads_near_rows_once<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let (first, second) = (case.instance().await, case.instance().await);
    assert_ne!(first, second);
    let minutes = |minutes: u64| Due::In(Duration::from_secs(60 * minutes));
    let mut rows = Vec::new();
    for (key, due) in [("c", 3), ("a", 1), ("far", 61), ("b", 2), ("now", 0)] {
        rows.push(case.set(key, minutes(due)).await);
    }
    let [c, a, _, b, now] = rows[..] else {
        panic!("five rows")
    };
    let none = case.load(first, HOUR, 0).await;
    assert_eq!((none.rows.len(), none.more), (0, true));
    let loaded = case.load(first, HOUR, 2).await;
    assert_eq!(loaded.rows, [(now.version, now.due), (a.version, a.due)]);
    assert!(loaded.more);
    let loaded = case.load(second, HOUR, 10).await;
    assert_eq!(loaded.rows, [(b.version, b.due), (c.version, c.due)]);
    assert!(!loaded.more);
    assert_eq!(case.load(first, HOUR, 10).await.rows, []);
    let row = case.get("a").await.expect("it is there");
    assert_eq!(row.loaded_by, Some(first));
    // The mark goes with the version.
    let moved = write("a", Action::Move { due: FAR });
    let (moved, _) = armed(&case.write(vec![moved]).await[0]);
    assert!(!moved.loaded);
    let far = case.load(second, 2 * HOUR, 10).await;
    assert!(versions(&far).contains(&moved.version));
}

/// What an instance leaves or dies with is loaded by others.
pub async fn loads_what_others_left<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let (first, second) = (case.instance().await, case.instance().await);
    let row = case.set("a", FAR).await;
    assert_eq!(versions(&case.load(first, HOUR, 10).await), [row.version]);
    case.store
        .unload(&case.space, first)
        .await
        .expect("it unloads");
    assert_eq!(versions(&case.load(second, HOUR, 10).await), [row.version]);
    // A sign of life that ends soon.
    let request = Load {
        instance: second,
        window: HOUR,
        limit: 0,
        alive: world.units(1),
    };
    case.store
        .load(&case.space, request)
        .await
        .expect("it loads");
    assert_eq!(versions(&case.load(first, HOUR, 10).await), []);
    world.wait(2).await;
    assert_eq!(versions(&case.load(first, HOUR, 10).await), [row.version]);
}

/// Near rows are loaded in the step that makes them, for an instance that counts as living.
pub async fn marks_near_rows_for_living_instances<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let instance = case.instance().await;
    let near = Near {
        window: 2 * HOUR,
        loader: Some(instance),
    };
    let batch = || vec![set("near", "", FAR), set("far", "", Due::In(3 * HOUR))];
    let loaded = |written: Vec<Written>| {
        written
            .iter()
            .map(|w| armed(w).0.loaded)
            .collect::<Vec<_>>()
    };
    assert_eq!(loaded(case.write_near(batch(), near).await), [false, false]);
    case.load(instance, Duration::ZERO, 0).await;
    assert_eq!(loaded(case.write_near(batch(), near).await), [true, false]);
    let row = case.get("near").await.expect("it is there");
    assert_eq!(row.loaded_by, Some(instance));
    case.store
        .unload(&case.space, instance)
        .await
        .expect("it unloads");
    assert_eq!(loaded(case.write_near(batch(), near).await), [false, false]);
    let row = case.get("near").await.expect("it is there");
    assert_eq!(row.loaded_by, None);
}

/// A row fires if its version exists and it is due, in the order asked for, with a new token each.
pub async fn fires_what_is_due_and_exists<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let (a, b, far) = (
        case.set("a", NOW).await,
        case.set("b", NOW).await,
        case.set("far", FAR).await,
    );
    let old = case.set("gone", NOW).await;
    case.set("gone", FAR).await;
    let never = Version(far.version.0 + 1_000_000);
    let asked = vec![
        b.version,
        far.version,
        old.version,
        never,
        a.version,
        b.version,
    ];
    let report = case.fire(asked).await;
    let keys: Vec<_> = report.fired.iter().map(|fired| fired.key.clone()).collect();
    assert_eq!(keys, [b"b".to_vec(), b"a".to_vec()]);
    assert_eq!(report.later, [far]);
    assert_eq!(report.next, []);
    for (fired, row) in report.fired.iter().zip([b, a]) {
        assert!(fired.token > row.version);
        assert_eq!((fired.attempt, fired.missed, fired.repeats), (1, 0, false));
        assert_eq!((fired.deadline, &fired.value), (row.due, &fired.key));
        assert!(fired.deadline <= report.now);
    }
    for row in case.list(State::InFlight).await {
        assert_eq!(
            row.due,
            report.now.after(HOUR),
            "the lease begins when it fires"
        );
        assert_eq!((row.period, row.loaded_by, row.attempt), (None, None, 1));
    }
    assert_eq!(case.list(State::InFlight).await.len(), 2);
}

/// A claim whose lease has ended is loaded and fires again, under a new token.
pub async fn fires_again_after_the_lease<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let instance = case.instance().await;
    let token = case.fired("a").await;
    assert_eq!(
        versions(&case.load(instance, 2 * HOUR, 10).await),
        [],
        "the lease lasts"
    );
    assert_eq!(case.fire(vec![token]).await.later.len(), 1);
    assert_eq!(
        case.settle(token, How::Extend(Duration::ZERO)).await,
        Settled::Done
    );
    assert_eq!(
        versions(&case.load(instance, Duration::ZERO, 10).await),
        [token]
    );
    let again = case.fire(vec![token]).await;
    let fired = &again.fired[0];
    assert!(fired.token > token);
    assert_eq!((fired.attempt, &fired.value), (2, &b"a".to_vec()));
    assert_eq!(case.settle(token, How::Ack).await, Settled::Lost);
    assert_eq!(case.settle(fired.token, How::Ack).await, Settled::Done);
}

/// The next occurrence of a repeating row waits in the same step, by the rule for what was missed.
pub async fn repeats_in_the_step_that_fires<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    for (missed, fires, count, behind) in [
        (Missed::FireAll, true, 0, 1),
        (Missed::FireOnce, true, 2, 3),
        (Missed::Skip, false, 0, 3),
    ] {
        let now = case.set("clock", NOW).await.due;
        // Two occurrences after it have been missed.
        let deadline = StoreTime::from_micros(now.as_micros() - 9_000_000_000);
        let action = Action::Set {
            value: b"v".to_vec(),
            due: Due::At(deadline),
            period: Some(HOUR),
            if_absent: false,
        };
        let (row, _) = armed(&case.write(vec![write("a", action)]).await[0]);
        let report = case
            .fire_as(Fire {
                versions: vec![row.version],
                lease: Some(HOUR),
                missed,
                near: UNLOADED,
            })
            .await;
        let next = if fires { &report.next } else { &report.later };
        assert_eq!(
            (report.next.len(), report.later.len()),
            (usize::from(fires), usize::from(!fires))
        );
        assert_eq!(next[0].due, deadline.after(HOUR * behind), "{missed:?}");
        assert!(next[0].version > row.version);
        let fired: Vec<_> = report
            .fired
            .iter()
            .map(|f| (f.deadline, f.missed, f.repeats))
            .collect();
        assert_eq!(
            fired,
            vec![(deadline, count, true); usize::from(fires)],
            "{missed:?}"
        );
        let waiting = case.get("a").await.expect("the next one waits");
        assert_eq!(
            (waiting.version, waiting.state),
            (next[0].version, State::Waiting)
        );
        assert_eq!(
            (waiting.period, waiting.attempt, waiting.deadline),
            (Some(HOUR), 0, next[0].due)
        );
        if let Some(fired) = report.fired.first() {
            assert_eq!(case.settle(fired.token, How::Ack).await, Settled::Done);
        }
        assert!(case.get("a").await.is_some(), "an ack leaves the next one");
    }
}

/// Without a lease what fires is gone, and a repeating one goes on.
pub async fn deletes_what_fires_at_most_once<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let once = case.set("once", NOW).await;
    let action = Action::Set {
        value: Vec::new(),
        due: NOW,
        period: Some(HOUR),
        if_absent: false,
    };
    let (repeating, _) = armed(&case.write(vec![write("again", action)]).await[0]);
    let report = case
        .fire_as(Fire {
            versions: vec![once.version, repeating.version],
            lease: None,
            missed: Missed::FireOnce,
            near: UNLOADED,
        })
        .await;
    assert_eq!((report.fired.len(), report.next.len()), (2, 1));
    assert_eq!(case.list(State::InFlight).await, []);
    assert_eq!(case.get("once").await, None);
    let waiting = case.get("again").await.expect("it waits");
    assert_eq!(waiting.version, report.next[0].version);
    assert_eq!(
        case.settle(report.fired[0].token, How::Ack).await,
        Settled::Lost
    );
}

/// A settle whose token names no claim changes nothing.
pub async fn settles_by_token<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let waiting = case.set("waiting", FAR).await;
    let token = case.fired("a").await;
    for how in [How::Ack, How::Again(HOUR), How::Release, How::Extend(HOUR)] {
        assert_eq!(case.settle(waiting.version, how).await, Settled::Lost);
        assert_eq!(
            case.settle(Version(token.0 + 1_000_000), how).await,
            Settled::Lost
        );
    }
    assert_eq!(
        case.settle(token, How::Extend(3 * HOUR)).await,
        Settled::Done
    );
    let row = case.get("a").await.expect("it is there");
    assert_eq!((row.version, row.attempt), (token, 1), "the token stays");
    assert!(row.due >= row.deadline.after(3 * HOUR));
    assert_eq!(
        case.settle(token, How::Extend(Duration::MAX)).await,
        Settled::Done
    );
    assert!(case.get("a").await.expect("it is there").due.is_never());
    assert_eq!(case.settle(token, How::Ack).await, Settled::Done);
    assert_eq!(case.settle(token, How::Ack).await, Settled::Lost);
    assert!(case.get("waiting").await.is_some());
}

/// Put back, a row waits under its key again, with its attempts; released, with its deadline too.
pub async fn puts_back_under_its_key<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let deadline = case.set("a", NOW).await.due;
    let version = case.get("a").await.expect("it is there").version;
    let token = case.fire(vec![version]).await.fired[0].token;
    let Settled::Armed(row) = case.settle(token, How::Release).await else {
        panic!("it is released")
    };
    assert!(row.version > token);
    let stored = case.get("a").await.expect("it waits");
    assert_eq!(
        (stored.version, stored.state),
        (row.version, State::Waiting)
    );
    assert_eq!((stored.attempt, stored.deadline), (1, deadline));
    let fired = case.fire(vec![row.version]).await.fired[0].clone();
    assert_eq!((fired.attempt, fired.deadline), (2, deadline));
    let Settled::Armed(row) = case.settle(fired.token, How::Again(HOUR)).await else {
        panic!("it is put back")
    };
    let stored = case.get("a").await.expect("it waits");
    assert_eq!(
        (stored.attempt, stored.deadline, stored.due),
        (2, row.due, row.due)
    );
    assert!(row.due >= deadline.after(HOUR));
    assert_eq!(case.settle(fired.token, How::Ack).await, Settled::Lost);
    // A timer as any other.
    let moved = case
        .write(vec![write("a", Action::Move { due: FAR })])
        .await;
    assert_eq!(armed(&moved[0]).1, Some(row.version));
}

/// Put back beside a newer row of its key, a row stays in flight until then, and the newer one stays as it is.
pub async fn puts_back_beside_a_newer_row<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let token = case.fired("a").await;
    let newer = case.set("a", FAR).await;
    assert_eq!(
        case.settle(token, How::Again(2 * HOUR)).await,
        Settled::Done
    );
    let in_flight = case.list(State::InFlight).await;
    assert_eq!(in_flight.len(), 1);
    assert_eq!(in_flight[0].version, token);
    assert!(in_flight[0].due > newer.due);
    assert_eq!(case.settle(token, How::Release).await, Settled::Done);
    let fired = case.fire(vec![token]).await.fired[0].clone();
    assert_eq!(fired.attempt, 2);
    let waiting = case.get("a").await.expect("it waits");
    assert_eq!((waiting.version, waiting.due), (newer.version, newer.due));
}

/// Namespaces have nothing to do with each other.
pub async fn keeps_namespaces_apart<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let other = format!("{}-other", case.space);
    let other = Case {
        store: world.store().await,
        space: Namespace::new(&other).expect("it is a name"),
    };
    let instance = other.instance().await;
    let row = case.set("a", NOW).await;
    assert_eq!(other.get("a").await, None);
    assert_eq!(other.load(instance, HOUR, 10).await.rows, []);
    assert_eq!(other.fire(vec![row.version]).await.fired, []);
    let token = case.fire(vec![row.version]).await.fired[0].token;
    assert_eq!(other.settle(token, How::Ack).await, Settled::Lost);
    let removed = other.write(vec![write("a", Action::Remove)]).await;
    assert_eq!(removed, [Written::Absent]);
    assert_eq!(other.store.purge(&other.space).await, Ok(0));
    assert_eq!(case.settle(token, How::Ack).await, Settled::Done);
}

/// A namespace is not opened with another codec, and the error names both.
pub async fn refuses_another_codec<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let error = case.store.open(&case.space, "other").await;
    let expected = StoreError::Codec {
        namespace: case.space.to_string(),
        stored: "test".into(),
        asked: "other".into(),
    };
    assert_eq!(error, Err(expected));
}

/// Lists go on where they ended; counts and purges are of everything.
pub async fn lists_counts_and_purges<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let counts = case.store.count(&case.space).await.expect("it counts");
    assert_eq!(
        (counts.waiting, counts.in_flight, counts.earliest),
        (0, 0, None)
    );
    let earliest = case.set("first", NOW).await;
    let same = Due::At(earliest.due.after(HOUR));
    for key in ["b", "a", "c"] {
        case.set(key, same).await;
    }
    case.fired("fired").await;
    let instance = case.instance().await;
    case.load(instance, Duration::ZERO, 1).await;
    let counts = case.store.count(&case.space).await.expect("it counts");
    assert_eq!((counts.waiting, counts.in_flight), (4, 1));
    assert_eq!(counts.earliest, Some(earliest.due), "loaded or not");
    assert!(counts.now >= earliest.due);

    let all = case.list(State::Waiting).await;
    let keys: Vec<_> = all.iter().map(|row| row.key.as_slice()).collect();
    assert_eq!(keys, [&b"first"[..], b"b", b"a", b"c"]);
    let mut read = Vec::new();
    let mut after = None;
    loop {
        let request = List {
            state: State::Waiting,
            after,
            limit: 2,
        };
        let page = case
            .store
            .list(&case.space, request)
            .await
            .expect("it lists");
        let Some(last) = page.last() else { break };
        after = Some((last.due, last.version));
        read.extend(page);
    }
    assert_eq!(read, all);
    assert_eq!(case.store.purge(&case.space).await, Ok(5));
    assert_eq!(case.list(State::Waiting).await, []);
    assert_eq!(case.list(State::InFlight).await, []);
    assert_eq!(case.load(instance, 9 * HOUR, 9).await.rows, []);
}

/// Keys and values are bytes, of any kind and length up to the bounds; a batch may have a thousand of them.
pub async fn keeps_any_bytes<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let all: Vec<u8> = (0..=255).collect();
    let mut longest = all.repeat(4);
    longest.truncate(crate::MAX_KEY_BYTES);
    let values = [Vec::new(), all.clone(), vec![0; crate::MAX_VALUE_BYTES]];
    let keys = [Vec::new(), b"'\"\\ {}*?".to_vec(), longest];
    let writes = keys.iter().zip(&values).map(|(key, value)| Write {
        key: key.clone(),
        action: Action::Set {
            value: value.clone(),
            due: NOW,
            period: None,
            if_absent: false,
        },
    });
    let written = case.write(writes.collect()).await;
    let versions = written.iter().map(|w| armed(w).0.version).collect();
    let fired = case.fire(versions).await.fired;
    assert!(fired.iter().map(|fired| &fired.key).eq(&keys));
    assert!(fired.iter().map(|fired| &fired.value).eq(&values));

    let many = (0..1_000).map(|number| set(&number.to_string(), "", FAR));
    let written = case.write(many.collect()).await;
    let different: BTreeSet<_> = written.iter().map(|w| armed(w).0.version).collect();
    assert_eq!(different.len(), 1_000);
    let tokens = fired.iter().map(|fired| Settle {
        token: fired.token,
        how: How::Ack,
    });
    let settled = case
        .store
        .settle(&case.space, tokens.collect(), UNLOADED)
        .await;
    assert_eq!(settled, Ok(vec![Settled::Done; 3]));
    // Nothing to do is nothing wrong.
    assert_eq!(case.write(Vec::new()).await, []);
    assert_eq!(case.fire(Vec::new()).await.fired, []);
}

/// Deadlines saturate at never, and the past is due.
pub async fn takes_any_deadline<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    for due in [Due::In(Duration::MAX), Due::At(StoreTime::NEVER)] {
        assert_eq!(case.set("never", due).await.due, StoreTime::NEVER);
    }
    let past = case.set("past", Due::At(StoreTime::from_micros(1))).await;
    let instance = case.instance().await;
    assert_eq!(
        versions(&case.load(instance, HOUR, 9).await),
        [past.version]
    );
    let fired = case.fire(vec![past.version]).await.fired;
    assert_eq!(fired[0].deadline.as_micros(), 1);
}

/// Of many connections that fire, load and settle the same rows at once, one succeeds for each.
pub async fn gives_each_row_to_one_of_many<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let mut cases = Vec::new();
    for _ in 0..4 {
        let (store, space) = (world.store().await, world.namespace());
        cases.push(Case { store, space });
    }
    let rows = (0..100).map(|number| set(&number.to_string(), "", NOW));
    let rows = case.write(rows.collect()).await;
    let rows: Vec<_> = rows.iter().map(|w| armed(w).0.version).collect();

    let load = cases.iter().map(|case| async {
        let instance = case.instance().await;
        versions(&case.load(instance, HOUR, 60).await)
    });
    let loaded: Vec<_> = join_all(load).await.concat();
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

    let settles: Vec<_> = tokens
        .iter()
        .map(|&token| Settle {
            token,
            how: How::Ack,
        })
        .collect();
    let settle = cases
        .iter()
        .map(|case| case.store.settle(&case.space, settles.clone(), UNLOADED));
    let settled: Vec<_> = join_all(settle)
        .await
        .into_iter()
        .flat_map(|s| s.expect("it settles"))
        .collect();
    assert_eq!(settled.iter().filter(|&&s| s == Settled::Done).count(), 100);
}

/// Of sets of one key by many connections at once, each replaces one other, and the last one stays.
pub async fn keeps_one_row_under_a_key<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(world.store().await);
    }
    let set_some = stores.iter().map(|store| async {
        let mut written = Vec::new();
        for _ in 0..10 {
            let writes = vec![set("a", "", FAR), set("b", "", FAR)];
            let answer = store.write(&case.space, writes, UNLOADED).await;
            written.push(armed(&answer.expect("it writes")[0]));
        }
        written
    });
    let written = join_all(set_some).await.concat();
    let set: BTreeSet<_> = written.iter().map(|(row, _)| row.version).collect();
    let replaced: BTreeSet<_> = written
        .iter()
        .filter_map(|&(_, replaced)| replaced)
        .collect();
    assert_eq!((set.len(), replaced.len()), (40, 39));
    let left: Vec<_> = set.difference(&replaced).copied().collect();
    let row = case.get("a").await.expect("it is there");
    assert_eq!(left, [row.version]);
    assert_eq!(case.list(State::Waiting).await.len(), 2);
}
