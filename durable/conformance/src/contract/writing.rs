//! Setting, moving and removing.

use std::collections::BTreeSet;
use std::time::Duration;

use tickwheel_durable::store::{
    Action, Due, LoadWindow, MAX_ERROR_BYTES, Settle, Settled, Settlement, State, Store, StoreTime,
    Write,
};

use super::{Case, FAR, HOUR, NOW, armed, set, versions, write};
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
        let written = case.write(vec![write("cron", set)]).await;
        assert_eq!(armed(&written[0]).0.due.is_never(), due != FAR);
    }
    let written = case.write(vec![set("a", "", NOW), set("b", "", FAR)]).await;
    let [(now, _), (far, _)] = [&written[0], &written[1]].map(armed);
    assert_eq!(far.due, now.due.after(HOUR));
    case.purge().await;
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

    let longest = "\u{10FFFF}".repeat(MAX_ERROR_BYTES / 4);
    let settle = Settle::new(fired[0].token, Settlement::Dead).with_error(&longest);
    let settled = case
        .store
        .settle(&case.space, vec![settle], LoadWindow::NONE)
        .await;
    assert_eq!(settled, Ok(vec![Settled::Done]));
    let dead = case.list(State::Dead).await;
    assert_eq!(dead[0].error.as_ref(), Some(&longest));

    let many = (0..1_000).map(|number| set(&number.to_string(), "", FAR));
    let written = case.write(many.collect()).await;
    let different: BTreeSet<_> = written.iter().map(|w| armed(w).0.version).collect();
    assert_eq!(different.len(), 1_000);
    let tokens = fired[1..]
        .iter()
        .map(|fired| Settle::new(fired.token, Settlement::Ack));
    let settled = case
        .store
        .settle(&case.space, tokens.collect(), LoadWindow::NONE)
        .await;
    assert_eq!(settled, Ok(vec![Settled::Done; 2]));
    // Nothing to do is nothing wrong.
    assert_eq!(case.write(Vec::new()).await, []);
    assert_eq!(case.fire(Vec::new()).await.fired, []);
}
