//! Looks, which must not be in the way of calls.

use std::sync::mpsc;

use super::*;
use crate::store::{List, State};

const PAGE: List = List {
    state: State::Waiting,
    after: None,
    limit: 10,
};

/// A count of three million timers took seconds, in a transaction that every other call of every
/// process waited for.
#[tokio::test]
async fn call_completes_while_a_look_is_running() {
    let folder = Folder::new();
    let (store, space) = (opened(&folder).await, space());
    let (release, released) = mpsc::channel::<()>();
    let (begin, begun) = tokio::sync::oneshot::channel();
    let count = |connection: &Connection| {
        connection.query_row("SELECT count(*) FROM tickwheel_timers", (), |row| {
            row.get(0)
        })
    };
    let slow = store.looks.ask(move |connection| {
        let before: u32 = count(connection)?;
        // The receiver is gone if the test has failed.
        let _ = begin.send(());
        let _ = released.recv();
        Ok(Ok((before, count(connection)?)))
    });
    begun.await.expect("it looks");
    let written = store.write(&space, set("a", 1), NEAR).await;
    written.expect("it does not wait");
    let other = opened(&folder).await;
    let written = other.write(&space, set("b", 1), NEAR).await;
    written.expect("no other process does");
    drop(release);
    assert_eq!(
        slow.await,
        Ok((0, 0)),
        "all that a look sees is of one instant"
    );
    let counts = store.count(&space).await.expect("it counts");
    assert_eq!(counts.waiting, 2);
}

#[tokio::test]
async fn looks_do_not_wait_for_a_locked_file() {
    let folder = Folder::new();
    let (store, space) = (opened(&folder).await, space());
    let written = store.write(&space, set("a", 1), NEAR).await;
    written.expect("it writes");
    let other = Connection::open(folder.file()).expect("it opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("it locks");
    assert_eq!(store.count(&space).await.expect("it counts").waiting, 1);
    let rows = store.list(&space, PAGE).await;
    assert_eq!(rows.expect("it lists").len(), 1);
    other.execute_batch("COMMIT").expect("it unlocks");
}
