//! Setting, moving and removing.

use std::collections::BTreeSet;
use std::time::Duration;

use tickwheel_durable::store::{
    Action, Due, Settle, Settled, Settlement, State, Store, StoreTime, Write, WriteOutcome,
};

use super::{Case, FAR, HOUR, NOW, UNLOADED, armed, set, versions, write};
use crate::world::{Stores, World};

/// Sets replace, moves keep the value, removes return it; each raises the version, within one batch
/// too.
pub async fn sets_moves_and_removes<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let batch = vec![
        set("a", "1", FAR),
        set("b", "2", FAR),
        set("a", "3", FAR),
        write("a", Action::move_to(NOW)),
        write("b", Action::Remove),
        write("b", Action::move_to(FAR)),
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
    let removed = WriteOutcome::removed(b.version, b"2".to_vec());
    assert_eq!(written[4], removed);
    assert_eq!(written[5..], [WriteOutcome::Absent, WriteOutcome::Absent]);

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
        let action = Action::set(b"new".to_vec(), FAR, None, true);
        vec![write("a", action.clone()), write("a", action)]
    };
    let written = case.write(set_absent()).await;
    armed(&written[0]);
    assert_eq!(written[1], WriteOutcome::Present);
    let token = case.fired("a").await;
    let written = case.write(set_absent()).await;
    assert_eq!(
        written,
        [WriteOutcome::InFlight(token), WriteOutcome::InFlight(token)]
    );
    case.settle(token, Settlement::Ack).await;
    armed(&case.write(set_absent()).await[0]);
}

/// Moves and removes of a key that has fired change nothing, and name the latest token.
pub async fn names_the_token_of_what_has_fired<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let first = case.fired("a").await;
    let second = case.fired("a").await;
    assert!(first < second, "tokens grow");
    for action in [Action::Remove, Action::move_to(FAR)] {
        let written = case.write(vec![write("a", action)]).await;
        assert_eq!(written, [WriteOutcome::InFlight(second)]);
    }
    let row = case.get("a").await.expect("it is there");
    assert_eq!((row.version, row.state), (second, State::InFlight));
    let waiting = case.set("a", FAR).await;
    let row = case.get("a").await.expect("it is there");
    assert_eq!((row.version, row.state), (waiting.version, State::Waiting));
    assert_eq!(case.list(State::InFlight).await.len(), 2);
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

/// Keys and values are bytes, of any kind and length up to the bounds; a batch may have a thousand
/// of them.
pub async fn keeps_any_bytes<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let all: Vec<u8> = (0..=255).collect();
    let mut longest = all.repeat(4);
    longest.truncate(tickwheel_durable::MAX_KEY_BYTES);
    let values = [
        Vec::new(),
        all.clone(),
        vec![0; tickwheel_durable::MAX_VALUE_BYTES],
    ];
    let keys = [Vec::new(), b"'\"\\ {}*?".to_vec(), longest];
    let writes = keys
        .iter()
        .zip(&values)
        .map(|(key, value)| Write::new(key.clone(), Action::set(value.clone(), NOW, None, false)));
    let written = case.write(writes.collect()).await;
    let versions = written.iter().map(|w| armed(w).0.version).collect();
    let fired = case.fire(versions).await.fired;
    assert!(fired.iter().map(|fired| &fired.key).eq(&keys));
    assert!(fired.iter().map(|fired| &fired.value).eq(&values));

    let many = (0..1_000).map(|number| set(&number.to_string(), "", FAR));
    let written = case.write(many.collect()).await;
    let different: BTreeSet<_> = written.iter().map(|w| armed(w).0.version).collect();
    assert_eq!(different.len(), 1_000);
    let tokens = fired
        .iter()
        .map(|fired| Settle::new(fired.token, Settlement::Ack));
    let settled = case
        .store
        .settle(&case.space, tokens.collect(), UNLOADED)
        .await;
    assert_eq!(settled, Ok(vec![Settled::Done; 3]));
    // Nothing to do is nothing wrong.
    assert_eq!(case.write(Vec::new()).await, []);
    assert_eq!(case.fire(Vec::new()).await.fired, []);
}
