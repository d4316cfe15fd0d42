//! A server that sorts texts by a language, which Lua asks when it compares them.

use std::collections::BTreeSet;
use std::time::Duration;

use tickwheel_durable::Redis;
use tickwheel_durable::store::{
    Action, Due, Fire, Inspect as _, Namespace, PrefixRows, Settle, Settlement, State, Store as _,
    Terms, Write,
};

use crate::server::Server;

const NEAR: Terms = Terms::NONE;

async fn set(store: &Redis, space: &Namespace, keys: impl IntoIterator<Item = Vec<u8>>) {
    let set = |key| {
        let action = Action::set(b"v".to_vec(), Due::In(Duration::ZERO), None, false);
        Write::new(key, action)
    };
    let writes = keys.into_iter().map(set).collect();
    let written = store.write(space, writes, NEAR).await;
    written.expect("it writes");
}

/// The state of a row with an error is a capital. In English it came after the small letters, so
/// the row could not be read, and each fire failed.
#[tokio::test]
async fn failed_timer_fires_again_in_each_language() {
    let Some(server) = Server::start_in_english() else {
        return;
    };
    let (store, space) = server.open("language").await;
    set(&store, &space, [b"a".to_vec()]).await;
    for error in [None, Some("first"), Some("second")] {
        let mut fire = Fire::new(Vec::new(), Some(Duration::from_secs(60)), NEAR);
        fire.unloaded = 1;
        let fired = store.fire(&space, fire).await.expect("it fires").fired;
        let rows = store.rows_of(&space, b"a".to_vec(), 1).await;
        let rows = rows.expect("it reads");
        assert_eq!(rows[0].error.as_deref(), error);
        let next = if error.is_none() { "first" } else { "second" };
        let again = Settlement::RetryAfter(Duration::ZERO);
        let settles = vec![Settle::new(fired[0].token, again).with_error(next)];
        let settled = store.settle(&space, settles, NEAR).await;
        settled.expect("it settles");
    }
}

/// Bytes that are no letters are alike to a language, so a page took keys for listed that were not.
#[tokio::test]
async fn pages_by_prefix_list_each_key_in_each_language() {
    let Some(server) = Server::start_in_english() else {
        return;
    };
    let (store, space) = server.open("language").await;
    let keys: BTreeSet<_> = (0..=255).map(|byte| vec![b'k', byte, b'x']).collect();
    set(&store, &space, keys.clone()).await;
    let mut request = PrefixRows::new(State::Waiting, b"k".to_vec(), 10);
    let mut listed = BTreeSet::new();
    loop {
        let page = store.rows_with_prefix(&space, request.clone()).await;
        let page = page.expect("it lists");
        listed.extend(page.rows.into_iter().map(|row| row.key));
        request.after = page.next;
        if request.after.is_none() {
            break;
        }
    }
    assert_eq!(listed, keys);
}
