//! Loading, and what becomes of it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Case, FAR, HOUR, NOW, armed, repeating, set, versions, write};
use crate::conformance::world::{Stores, World};
use crate::store::{
    Action, Due, Fire, How, Load, Missed, Near, Settle, Settled, State, Store, Version, Written,
};

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
    let first = case.unload(first).await;
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
    case.unload(instance).await;
    assert_eq!(loaded(case.write_near(batch(), near).await), [false, false]);
    let row = case.get("near").await.expect("it is there");
    assert_eq!(row.loaded_by, None);
}

/// An instance that has unloaded goes on under another id, and the old one holds nothing and marks nothing.
pub async fn ends_the_life_of_an_id<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let (first, other) = (case.instance().await, case.instance().await);
    let waiting = case.set("waiting", NOW).await.version;
    let token = case.fired("lapsed").await;
    let extended = case.settle(token, How::Extend(Duration::ZERO)).await;
    assert_eq!(extended, Settled::Done);
    let all = BTreeSet::from([waiting, token]);
    let load = async |instance| {
        let loaded = case.load(instance, HOUR, 10).await;
        versions(&loaded).into_iter().collect::<BTreeSet<_>>()
    };
    assert_eq!(load(first).await, all);
    // When the answer is lost it unloads again.
    let lost = case.unload(first).await;
    let second = case.unload(first).await;
    let ids = [first, other, lost, second];
    assert_eq!(BTreeSet::from(ids).len(), 4, "{ids:?}");
    assert!(second > first && second > other, "{ids:?}");
    // The instance itself may load what it has given back, and so may another one.
    assert_eq!(load(second).await, all);
    assert_eq!(load(other).await, BTreeSet::new());
    let third = case.unload(second).await;
    assert_eq!(load(other).await, all);
    assert_eq!(load(third).await, BTreeSet::new());
    // Whatever still names an id that has ended marks nothing, whichever call that is.
    let soon = Due::In(Duration::from_secs(60));
    for ended in [first, lost, second] {
        let near = Near {
            window: HOUR,
            loader: Some(ended),
        };
        let minute = Duration::from_secs(60);
        let set = vec![set("set", "", soon), repeating("repeats", NOW, minute)];
        let written = case.write_near(set, near).await;
        let repeats = armed(&written[1]).0.version;
        assert!(written.iter().all(|written| !armed(written).0.loaded));
        let fire = Fire {
            versions: vec![repeats],
            lease: Some(HOUR),
            missed: Missed::FireOnce,
            near,
        };
        let report = case.fire_as(fire).await;
        assert!(!report.next[0].loaded);
        let removed = case.write(vec![write("repeats", Action::Remove)]).await;
        assert!(matches!(removed[0], Written::Removed { .. }));
        let settle = Settle {
            token: report.fired[0].token,
            how: How::Again(Duration::ZERO),
        };
        let settled = case.store.settle(&case.space, vec![settle], near).await;
        let Settled::Armed(row) = settled.expect("it settles")[0] else {
            panic!("it is put back")
        };
        assert!(!row.loaded);
        let loaders = case.list(State::Waiting).await;
        let loaders = loaders.iter().filter_map(|row| row.loaded_by);
        assert_eq!(loaders.collect::<Vec<_>>(), [other]);
    }
    assert_eq!(load(third).await.len(), 2);
}

/// What an instance leaves to others is theirs to load, and only what it has loaded itself.
pub async fn leaves_single_rows_to_others<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let (first, other) = (case.instance().await, case.instance().await);
    let token = case.fired("lapsed").await;
    let extended = case.settle(token, How::Extend(Duration::ZERO)).await;
    assert_eq!(extended, Settled::Done);
    let kept = case.set("kept", NOW).await.version;
    let left = case.set("left", NOW).await.version;
    assert_eq!(versions(&case.load(first, HOUR, 10).await).len(), 3);
    let unmark = async |instance, rows: &[Version]| {
        let unmarked = case.store.unmark(&case.space, instance, rows.to_vec());
        assert_eq!(unmarked.await, Ok(Vec::new()), "nobody has locked a row");
    };
    // Not its own, and not there.
    unmark(other, &[kept, left, token]).await;
    unmark(first, &[Version(kept.0 + 1_000_000)]).await;
    unmark(first, &[]).await;
    assert!(versions(&case.load(other, HOUR, 10).await).is_empty());
    unmark(first, &[left, token]).await;
    let loaded: BTreeSet<_> = versions(&case.load(other, HOUR, 10).await)
        .into_iter()
        .collect();
    assert_eq!(loaded, BTreeSet::from([left, token]));
}
