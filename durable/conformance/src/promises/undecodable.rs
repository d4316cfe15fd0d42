//! Timers that do not decode.

use std::time::Duration;

use tickwheel_durable::store::{Action, Due, LoadWindow, Store, Write};

use crate::world::{Stores, World};

/// A timer that does not decode is dead, once. It does not block other
/// timers.
pub async fn ends_what_does_not_decode<T: Stores>(world: &World<T>) {
    let (store, space) = (world.store().await, world.namespace());
    let mut instance = world.instance().await;
    let poison = |key: &str, period| {
        Write::new(
            format!("{key:?}").into(),
            Action::set(
                "not a number".into(),
                Due::In(world.units(1)),
                period,
                false,
            ),
        )
    };
    let near = LoadWindow::new(Duration::ZERO, None);
    let writes = vec![poison("once", None), poison("again", Some(world.units(2)))];
    store.write(&space, writes, near).await.expect("it writes");
    instance.set("sound", 1, 2).await;
    assert_eq!(instance.next_acked().await.value, 1);
    instance.sees_nothing(8).await;

    let admin = instance.timers.admin();
    let metrics = instance.timers.metrics();
    assert_eq!(metrics.dead, 2);
    let dead = admin.dead(None, 10).await.expect("it lists");
    assert_eq!(dead.len(), 2);
    for entry in dead {
        let error = entry.value.expect_err("it does not decode").to_string();
        assert!(error.contains("cannot be decoded"), "{error}");
        let kept = entry.error.expect("it is kept");
        assert!(
            kept.starts_with(&error) && kept.len() > error.len(),
            "{kept}"
        );
        let token = entry.dead.expect("it is dead").token;
        assert_eq!(admin.discard_dead(token).await, Ok(true));
    }
    assert_eq!(instance.timers.counts().await.expect("it counts").dead, 0);
}
