//! Setting, moving and removing.

use std::collections::BTreeSet;
use std::time::Duration;

use tickwheel_durable::store::{
    Action, Due, Fire, MAX_ERROR_BYTES, Settle, Settled, Settlement, State, Store, StoreTime,
    Terms, Version, Write,
};

use super::{Case, FAR, HOUR, NOW, repeating, set, versions, versions_of, write};
use crate::world::{Stores, World};

/// Deadlines saturate at never, the past is due, and the time is read once in a call.
pub async fn takes_any_deadline<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    for due in [Due::In(Duration::MAX), Due::At(StoreTime::NEVER)] {
        assert_eq!(case.set("never", due).await.due, StoreTime::NEVER);
    }
    // A set revives such a timer, also one with the schedule that it has.
    for due in [Due::At(StoreTime::NEVER), FAR] {
        let set = Action::set_scheduled(Vec::new(), due, "0 9 * * * UTC".into());
        let row = case.set_all([write("cron", set)]).await[0];
        assert_eq!(row.due.is_never(), due != FAR);
    }
    let rows = case.set_all([set("a", "", NOW), set("b", "", FAR)]).await;
    assert_eq!(rows[1].due, rows[0].due.after(HOUR));
    case.purge().await;
    let past = case.set("past", Due::At(StoreTime::from_micros(1))).await;
    let instance = case.instance().await;
    assert_eq!(
        versions(&case.load(instance, HOUR, 9).await),
        [past.version]
    );
    let fired = case.fire(vec![past.version]).await.fired;
    assert_eq!(fired[0].deadline.as_micros(), 1);
    case.purge().await;
    saturates_at_never(&case).await;
}

/// Intervals, leases and delays without end lead to never, and others in the same batch do not.
async fn saturates_at_never<S: Store>(case: &Case<S>) {
    const END: Duration = Duration::MAX;
    let is_never = async |state| {
        let mut rows = case.list(state).await;
        rows.sort_by_key(|row| (row.key.clone(), row.version));
        let rows = rows.iter().map(|row| (row.key[0], row.due.is_never()));
        rows.collect::<Vec<_>>()
    };
    let writes = [
        repeating("a", NOW, END),
        repeating("b", NOW, HOUR),
        set("c", "", NOW),
        set("d", "", NOW),
    ];
    let named = versions_of(&case.set_all(writes).await);
    let fire = async |versions: &[Version], lease| {
        let fire = Fire::new(versions.to_vec(), Some(lease), Terms::NONE);
        let fired = case.fire_as(fire).await.fired.into_iter();
        fired.map(|fired| fired.token).collect::<Vec<_>>()
    };
    let settle = async |tokens: &[Version], settlements: &[Settlement]| {
        let settles = tokens.iter().zip(settlements);
        let settles = settles.map(|(&token, &how)| Settle::new(token, how));
        let settled = case.settle_as(settles.collect(), Terms::NONE).await;
        assert!(!settled.contains(&Settled::Lost) && settled.len() == settlements.len());
    };
    let mut tokens = fire(&named[..3], HOUR).await;
    tokens.extend(fire(&named[3..], END).await);
    let waiting = [(b'a', true), (b'b', false)];
    assert_eq!(is_never(State::Waiting).await, waiting, "intervals");
    let claims = [(b'a', false), (b'b', false), (b'c', false), (b'd', true)];
    assert_eq!(is_never(State::InFlight).await, claims, "leases");
    let (end, hour) = (Settlement::Extend(END), Settlement::Extend(HOUR));
    settle(&tokens, &[hour, end, end, hour]).await;
    let claims = [(b'a', false), (b'b', true), (b'c', true), (b'd', false)];
    assert_eq!(is_never(State::InFlight).await, claims, "longer leases");
    // Beside the next occurrences, and alone.
    let (end, hour) = (Settlement::RetryAfter(END), Settlement::RetryAfter(HOUR));
    settle(&tokens, &[end, hour, hour, end]).await;
    let claims = [(b'a', true), (b'b', false)];
    assert_eq!(is_never(State::InFlight).await, claims, "delays");
    let waiting = [(b'a', true), (b'b', false), (b'c', false), (b'd', true)];
    assert_eq!(is_never(State::Waiting).await, waiting, "delays");
    // A store that counts further than never takes such a row for a damaged one.
    let moves = ["a", "b", "c", "d"].map(|key| write(key, Action::move_to(FAR)));
    let moved = case.set_all(moves).await;
    assert!(moved.iter().all(|row| !row.due.is_never()));
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
    let rows = case.set_all(writes).await;
    let fired = case.fire(versions_of(&rows)).await.fired;
    assert!(fired.iter().map(|fired| &fired.key).eq(&keys));
    assert!(fired.iter().map(|fired| &fired.value).eq(&values));

    let longest = "\u{10FFFF}".repeat(MAX_ERROR_BYTES / 4);
    let settle = Settle::new(fired[0].token, Settlement::Dead).with_error(&longest);
    let settled = case.settle_as(vec![settle], Terms::NONE).await;
    assert_eq!(settled, [Settled::Done]);
    let dead = case.list(State::Dead).await;
    assert_eq!(dead[0].error.as_ref(), Some(&longest));

    let many = (0..1_000).map(|number| set(&number.to_string(), "", FAR));
    let rows = case.set_all(many).await;
    let different: BTreeSet<_> = versions_of(&rows).into_iter().collect();
    assert_eq!(different.len(), 1_000);
    let tokens = fired[1..].iter().map(|fired| fired.token);
    let settled = case.settle_all(tokens, Settlement::Ack).await;
    assert_eq!(settled, [Settled::Done; 2]);
    // Nothing to do is nothing wrong.
    assert_eq!(case.write(Vec::new()).await, []);
    assert_eq!(case.fire(Vec::new()).await.fired, []);
}
