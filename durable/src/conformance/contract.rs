//! Each call of a store alone, rule by rule.

use std::time::Duration;

use super::world::{Stores, World};
use crate::store::{Action, Due, Near, State, Store, Version, Write, Written};

/// Due a long time from now.
const FAR: Due = Due::In(Duration::from_secs(36_000));

/// Nothing is loaded in passing.
const UNLOADED: Near = Near {
    window: Duration::ZERO,
    loader: None,
};

fn set(key: &str, value: &str, due: Due) -> Write {
    Write {
        key: key.into(),
        action: Action::Set {
            value: value.into(),
            due,
            period: None,
            if_absent: false,
        },
    }
}

fn write(key: &str, action: Action) -> Write {
    let key = key.into();
    Write { key, action }
}

fn armed(written: &Written) -> (Version, Option<Version>) {
    match *written {
        Written::Armed { row, replaced } => (row.version, replaced),
        ref other => panic!("{other:?} instead of a row that is armed"),
    }
}

/// Sets replace, moves keep the value, removes return it; each raises the version, within one batch too.
pub async fn sets_moves_and_removes<T: Stores>(world: &World<T>) {
    let (store, space) = (world.store().await, world.namespace());
    store.open(&space, "test").await.expect("it opens");
    let batch = vec![
        set("a", "1", FAR),
        set("b", "2", FAR),
        set("a", "3", FAR),
        write("a", Action::Move { due: FAR }),
        write("b", Action::Remove),
        write("b", Action::Move { due: FAR }),
        write("c", Action::Remove),
    ];
    let written = store
        .write(&space, batch, UNLOADED)
        .await
        .expect("it writes");
    let (first, replaced) = armed(&written[0]);
    assert_eq!(replaced, None);
    let (b, _) = armed(&written[1]);
    let (second, replaced) = armed(&written[2]);
    assert_eq!(replaced, Some(first));
    let (third, replaced) = armed(&written[3]);
    assert_eq!(replaced, Some(second));
    assert!(first < second && second < third, "versions grow");
    let value = b"2".to_vec();
    assert_eq!(written[4], Written::Removed { version: b, value });
    assert_eq!(written[5..], [Written::Absent, Written::Absent]);

    let row = store.get(&space, b"a".to_vec()).await.expect("it reads");
    let row = row.expect("it is there");
    assert_eq!(
        (row.version, row.state, row.attempt),
        (third, State::Waiting, 0)
    );
    assert_eq!((row.value, row.due), (b"3".to_vec(), row.deadline));
}
