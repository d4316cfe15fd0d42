//! How much one script does, which keeps the server from everything else.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use tickwheel_durable::store::{
    Action, DeadChange, DeadRows, Due, Fire, List, Load, PrefixRows, Settle, Settlement, State,
    Store, Terms, Write, WriteOutcome,
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

    let (which, discard) = (DeadRows::Key(key.clone()), DeadChange::Discard);
    let changed = store.change_dead(&space, which, discard).await;
    let changed = changed.expect("it discards");
    assert_eq!((changed.rows, changed.more), (100, false));

    // A write of the key discards all of them.
    for writes in [set(1, 1), write(1, Action::Remove)] {
        die().await;
        let written = store.write(&space, vec![writes], near).await;
        written.expect("it writes");
        let counts = store.count(&space).await.expect("it counts");
        assert_eq!(counts.dead, 0);
    }
}

/// A script discards some hundred dead rows. One that discarded 600,000 took 2.8 s.
#[tokio::test]
async fn writes_that_discard_many_dead_rows_are_divided() {
    const KEYS: u32 = 24;
    let Some(server) = Server::start(&["--appendfsync", "no"]) else {
        return;
    };
    let (store, space) = server.open("looks").await;
    let all = || (0..KEYS).map(|key| set(key, 1)).collect::<Vec<_>>();
    let mut dead = Vec::new();
    for _ in 0..100 {
        let written = store.write(&space, all(), Terms::NONE).await;
        written.expect("it writes");
        let mut fire = Fire::new(Vec::new(), Some(Duration::from_secs(60)), Terms::NONE);
        fire.unloaded = KEYS as usize;
        let fired = store.fire(&space, fire).await.expect("it fires").fired;
        dead.extend(fired.iter().map(|fired| fired.token));
    }
    for tokens in dead.chunks(500) {
        let settles = tokens
            .iter()
            .map(|&token| Settle::new(token, Settlement::Dead));
        let settled = store.settle(&space, settles.collect(), Terms::NONE).await;
        settled.expect("it settles");
    }
    let counts = store.count(&space).await.expect("it counts");
    assert_eq!(counts.dead, 2_400);
    let before = scripts(&server).await;
    let written = store.write(&space, all(), Terms::NONE).await;
    assert_eq!(written.expect("it writes").len(), KEYS as usize);
    let scripts = scripts(&server).await - before;
    assert_eq!(scripts, 4, "600 rows each");
    let counts = store.count(&space).await.expect("it counts");
    assert_eq!((counts.waiting, counts.dead), (24, 0));
}

/// How many members of sorted sets the commands ask for that a script sends meanwhile.
async fn asked<T>(server: &Server, call: impl Future<Output = T>) -> (T, usize) {
    let mut other = TcpStream::connect(("127.0.0.1", server.port())).expect("it connects");
    other.write_all(b"MONITOR\r\n").expect("it is sent");
    let mut lines = BufReader::new(other).lines();
    assert_eq!(lines.next().expect("it answers").expect("it reads"), "+OK");
    let answer = call.await;
    server.command(&["PING", "that was all"]).await;
    let mut sum = 0;
    for line in lines.map(|line| line.expect("it reads")) {
        if line.contains("that was all") {
            break;
        }
        let words: Vec<_> = line.split('"').skip(1).step_by(2).collect();
        let number = |at: usize| words[at].parse::<usize>().expect("it is a number");
        sum += match words[..] {
            ["ZRANGEBYSCORE", .., "LIMIT", _, _] => number(words.len() - 1),
            ["ZRANGE", _, "0", "-1", ..] => 1,
            ["ZRANGE", _, from, to, ..] => match (from.parse::<usize>(), to.parse::<usize>()) {
                (Ok(from), Ok(to)) => to - from + 1,
                _ => 1,
            },
            _ => 0,
        };
    }
    (answer, sum)
}

/// Regression: a load after a roll-out read a thousand rows for each of a hundred ids that had
/// ended, and so did a fire and a look.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_ids_are_read_as_far_as_needed() {
    const IDS: u32 = 150;
    let Some(server) = Server::start(&["--appendfsync", "no"]) else {
        return;
    };
    let (store, space) = server.open("looks").await;
    let open = async || store.open(&space, &"json".into()).await.expect("it opens");
    let hour = Duration::from_secs(3_600);
    for id in 0..IDS {
        let instance = open().await.instance;
        let load = Load::new(instance, hour, 0, hour);
        store.load(&space, load).await.expect("it loads");
        let near = Terms::new(hour, Some(instance));
        let rows = (0..40).map(|key| set(100 * id + key, 1)).collect();
        store.write(&space, rows, near).await.expect("it writes");
        store.unload(&space, instance).await.expect("it unloads");
    }
    let instance = open().await.instance;
    let list = List::new(State::Waiting, None, 128);
    let (listed, looks) = asked(&server, store.list(&space, list)).await;
    assert_eq!(listed.expect("it lists").len(), 128);
    let mut fire = Fire::new(Vec::new(), Some(hour), Terms::NONE);
    fire.unloaded = 1_000;
    let (fired, fires) = asked(&server, store.fire(&space, fire)).await;
    let fired = fired.expect("it fires").fired.len();
    let load = Load::new(instance, hour, 1_000, hour);
    let (loaded, loads) = asked(&server, store.load(&space, load.clone())).await;
    let loaded = loaded.expect("it loads").rows.len();
    assert_eq!((fired, loaded), (1_000, 1_000));
    for asked in [looks, fires, loads] {
        // Some for each of the ids, and those that are answered.
        assert!(asked < 8_000, "{looks}, {fires}, {loads}");
    }
    // Each call reads some of very many ids. All get their turn.
    let mut rest = 4_000;
    for _ in 0..200 {
        let loaded = store.load(&space, load.clone()).await;
        rest -= loaded.expect("it loads").rows.len();
    }
    assert_eq!(rest, 0);
}

/// Regression: each part of a namespace was a few large keys, and one of more than 512 MB cannot
/// be moved to another node.
#[tokio::test]
async fn no_key_has_more_than_some_of_the_timers() {
    const ROWS: u32 = 4_000;
    let Some(server) = Server::start(&["--appendfsync", "no"]) else {
        return;
    };
    let (store, space) = server.open("looks").await;
    let hour = Due::In(Duration::from_secs(3_600));
    for first in (0..ROWS).step_by(500) {
        let rows = (first..first + 500).map(|key| match key % 2 {
            0 => write(key, Action::set(b"v".to_vec(), hour, None, false)),
            _ => write(key, Action::set_scheduled(b"v".to_vec(), hour, "s".into())),
        });
        let written = store.write(&space, rows.collect(), Terms::NONE).await;
        written.expect("it writes");
    }
    let keys: Vec<String> =
        redis::from_redis_value(server.command(&["KEYS", "*"]).await).expect("they are texts");
    let mut largest = 0;
    for key in keys {
        let kind = server.command(&["TYPE", &key]).await;
        let size = match redis::from_redis_value::<String>(kind).as_deref() {
            Ok("hash") => server.command(&["HLEN", &key]).await,
            _ => server.command(&["ZCARD", &key]).await,
        };
        largest = largest.max(redis::from_redis_value(size).expect("it is a number"));
    }
    assert!(largest < ROWS / 5, "{largest} of {ROWS} lie in one key");
    let mut after = None;
    let mut found = 0;
    loop {
        let mut request = PrefixRows::new(State::Waiting, b"0".to_vec(), 100);
        request.after = after;
        let page = store.inspect().rows_with_prefix(&space, request).await;
        let page = page.expect("it lists");
        found += page.rows.len();
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(found, 1_000);
    let purged = store.purge(&space).await.expect("it purges");
    assert_eq!((purged.rows, purged.more), (u64::from(ROWS), false));
    let left = server.command(&["KEYS", "*"]).await;
    let left: Vec<String> = redis::from_redis_value(left).expect("they are texts");
    assert_eq!(left, ["tickwheel:{looks}"]);
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
