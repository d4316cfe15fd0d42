//! How much one script does, which keeps the server from everything else.

use std::time::Duration;

use tickwheel_durable::store::{
    Action, DeadChange, DeadRows, Due, Fire, List, Load, Settle, Settlement, State, Store, Terms,
    Write, WriteOutcome,
};

use crate::server::Server;

/// A value of which three make an answer long enough.
const LARGE: usize = 400 * 1024;

fn write(key: u32, action: Action) -> Write {
    let key = format!("{key:04}").into();
    Write::new(key, action)
}

fn set(key: u32, bytes: usize) -> Write {
    let action = Action::set(vec![b'v'; bytes], Due::In(Duration::ZERO), None, false);
    write(key, action)
}

/// How many scripts the server has run.
async fn scripts(server: &Server) -> u64 {
    let stats = format!("{:?}", server.command(&["INFO", "commandstats"]).await);
    let calls = stats.split("cmdstat_evalsha:calls=").nth(1);
    let calls = calls.map(|rest| rest.split(',').next().expect("a number follows"));
    calls.map_or(0, |calls| calls.parse().expect("it is a number"))
}

/// How many commands the server has run, those of scripts included.
async fn commands(server: &Server) -> u64 {
    let stats = format!("{:?}", server.command(&["INFO", "commandstats"]).await);
    let calls = stats.split(":calls=").skip(1);
    let calls = calls.map(|rest| rest.split(',').next().expect("a number follows"));
    calls
        .map(|calls| calls.parse::<u64>().expect("it is a number"))
        .sum()
}

/// A list of a thousand rows was one script.
#[tokio::test]
async fn lists_come_in_short_pages() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let (store, space) = server.open("looks").await;
    let writes = (0..400).map(|key| set(key, 1)).collect();
    store
        .write(&space, writes, Terms::NONE)
        .await
        .expect("it writes");
    let (mut after, mut keys) = (None, Vec::new());
    loop {
        let list = List::new(State::Waiting, after, 1_000);
        let page = store.list(&space, list).await.expect("it lists");
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 128, "{} rows", page.len());
        after = Some((last.due, last.version));
        keys.extend(page.into_iter().map(|row| row.key));
    }
    let all: Vec<Vec<u8>> = (0..400).map(|key| write(key, Action::Remove).key).collect();
    assert_eq!(keys, all);
}

/// A load of many rows keeps the server from the calls that fire what is due now.
#[tokio::test]
async fn loads_come_in_short_pages() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let (store, space) = server.open("looks").await;
    let instance = store
        .open(&space, &"json".into())
        .await
        .expect("it opens")
        .instance;
    let writes = (0..1_500).map(|key| set(key, 1)).collect();
    let written = store.write(&space, writes, Terms::NONE).await;
    written.expect("it writes");
    let load = Load::new(
        instance,
        Duration::from_secs(60),
        4_096,
        Duration::from_secs(60),
    );
    for (rows, more) in [(1_024, true), (476, false)] {
        let loaded = store.load(&space, load.clone()).await.expect("it loads");
        assert_eq!((loaded.rows.len(), loaded.more), (rows, more));
    }
}

/// A script read all dead rows of a key to find some of them.
#[tokio::test]
async fn few_dead_rows_of_a_key_are_found_among_many() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let (store, space) = server.open("looks").await;
    let near = Terms::NONE;
    let die = async || {
        let mut dead = Vec::new();
        for _ in 0..300 {
            let written = store.write(&space, vec![set(1, 1)], near).await;
            written.expect("it writes");
            let mut fire = Fire::new(Vec::new(), Some(Duration::from_secs(60)), near);
            fire.unloaded = 1;
            let fired = store.fire(&space, fire).await.expect("it fires").fired;
            dead.push(Settle::new(fired[0].token, Settlement::Dead));
        }
        let tokens: Vec<_> = dead.iter().map(|settle| settle.token).collect();
        store.settle(&space, dead, near).await.expect("it settles");
        tokens
    };
    let (key, tokens) = (write(1, Action::Remove).key, die().await);

    server.command(&["CONFIG", "RESETSTAT"]).await;
    let rows = store.rows_of(&space, key.clone(), 2).await;
    let rows = rows.expect("it reads").into_iter().map(|row| row.version);
    assert!(rows.eq(tokens.iter().rev().take(2).copied()), "the latest");
    let commands = commands(&server).await;
    assert!(commands < 50, "{commands} to look at two");

    for (rows, more) in [(256, true), (44, false)] {
        let (which, discard) = (DeadRows::Key(key.clone()), DeadChange::Discard);
        let changed = store.change_dead(&space, which, discard).await;
        let changed = changed.expect("it discards");
        assert_eq!((changed.rows, changed.more), (rows, more));
    }

    // A write of the key discards all of them, however many there are.
    for writes in [set(1, 1), write(1, Action::Remove)] {
        die().await;
        let written = store.write(&space, vec![writes], near).await;
        written.expect("it writes");
        let counts = store.count(&space).await.expect("it counts");
        assert_eq!(counts.dead, 0);
    }
}

/// Batches about large rows are several scripts of about a megabyte.
#[tokio::test]
async fn batches_of_large_rows_are_divided() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let (store, space) = server.open("looks").await;
    let writes = (0..9).map(|key| set(key, LARGE)).collect();
    let written = store.write(&space, writes, Terms::NONE).await;
    let written = written.expect("it writes");
    let version = |written: &WriteOutcome| match written {
        WriteOutcome::Armed { row, .. } => row.version,
        other => panic!("{other:?}"),
    };
    let mut left: Vec<_> = written.iter().map(version).collect();
    let mut tokens = Vec::new();
    while !left.is_empty() {
        let fire = Fire::new(left.clone(), Some(Duration::from_secs(60)), Terms::NONE);
        let report = store.fire(&space, fire).await.expect("it fires");
        assert!(report.fired.len() <= 3, "{}", report.fired.len());
        left.drain(..left.len() - report.rest);
        tokens.extend(report.fired.iter().map(|fired| fired.token));
    }
    assert_eq!(tokens.len(), 9);

    let before = scripts(&server).await;
    let again = |&token| Settle::new(token, Settlement::RetryAfter(Duration::ZERO));
    let settles = tokens.iter().map(again).collect();
    let settled = store.settle(&space, settles, Terms::NONE).await;
    assert_eq!(settled.expect("it settles").len(), 9);
    let settling = scripts(&server).await - before;
    assert!(settling >= 3, "{settling} scripts put nine back");

    let before = scripts(&server).await;
    let moves = (0..9).map(|key| {
        let due = Due::In(Duration::from_secs(60));
        write(key, Action::move_to(due))
    });
    let moved = store.write(&space, moves.collect(), Terms::NONE).await;
    assert_eq!(moved.expect("it moves").len(), 9);
    let removes = (0..9).map(|key| write(key, Action::Remove)).collect();
    let removed = store.write(&space, removes, Terms::NONE).await;
    assert_eq!(removed.expect("it removes").len(), 9);
    let writing = scripts(&server).await - before;
    assert!(writing >= 6, "{writing} scripts move and remove nine");
}
