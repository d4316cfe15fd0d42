//! Rows that another program has written.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tickwheel_durable::store::{Action, Due, Fire, Store as _, Terms, Write, WriteOutcome};

use super::server::Server;

#[path = "../support/damaged.rs"]
mod rows;

/// A row as the scripts pack it.
fn packed(state: u8, numbers: [f64; 3], key: &str, rest: &[u8]) -> Vec<u8> {
    let key = format!("{key:?}");
    let mut row = vec![state];
    for number in numbers {
        row.extend(number.to_le_bytes());
    }
    row.extend(u16::try_from(key.len()).expect("it is short").to_le_bytes());
    row.extend(key.as_bytes());
    row.extend(rest);
    row
}

/// The bucket that has the row with a version.
fn rows_with(version: &str) -> String {
    format!("tickwheel:{{damaged}}:rows:{}", &version[14..])
}

/// The bucket that has the version if its row waits and is not loaded.
fn waiting_with(version: &str) -> String {
    format!("tickwheel:{{damaged}}:waiting:{}", &version[15..])
}

/// The bucket that has a key.
fn keys_with(key: &str) -> String {
    let hash = redis::Script::new(key).get_hash().to_owned();
    format!("tickwheel:{{damaged}}:keys:{}", &hash[..1])
}

async fn connected(server: &Server) -> MultiplexedConnection {
    server.client().await.expect("it connects")
}

/// Writes a waiting row.
async fn write_row(other: &mut MultiplexedConnection, key: &str, row: &[u8], number: u64) {
    // As many digits as those that scripts write.
    let version = (1_000_000_000_001_000 + number).to_string();
    let mut write = redis::pipe();
    write.atomic();
    if !row.is_empty() {
        write.hset(rows_with(&version), &version, row);
    }
    let key = format!("{key:?}");
    write.hset(keys_with(&key), &key, &version);
    write.zadd(waiting_with(&version), &version, number);
    let written: redis::RedisResult<()> = write.query_async(other).await;
    written.expect("it is written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_rows_are_set_aside() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let started = rows::start(server.connect().await, "damaged").await;
    let mut other = connected(&server).await;
    let rows = [
        ("attempt", packed(b'w', [5.0, -1.0, 0.0], "attempt", b"1")),
        (
            "many",
            packed(b'w', [5.0, 2_147_483_647.0, 0.0], "many", b"1"),
        ),
        (
            "deadline",
            packed(b'w', [f64::NAN, 0.0, 0.0], "deadline", b"1"),
        ),
        ("period", packed(b'w', [5.0, 0.0, 0.5], "period", b"1")),
        ("schedule", packed(b'w', [5.0, 0.0, -1.0], "schedule", b"1")),
        ("state", packed(b'x', [5.0, 0.0, 0.0], "state", b"1")),
        (
            "error",
            packed(b'W', [5.0, 0.0, 0.0], "error", &[255, 255, 1]),
        ),
        ("gone", Vec::new()),
        ("cut", b"w....".to_vec()),
    ];
    for ((key, row), number) in rows.iter().zip(1..) {
        write_row(&mut other, key, row, number).await;
    }
    // Those of which nothing is left are not among the dead.
    for key in ["gone", "cut"] {
        let mut forget = redis::cmd("HDEL");
        forget
            .arg(keys_with(&format!("{key:?}")))
            .arg(format!("{key:?}"));
        let forgotten: redis::RedisResult<()> = forget.query_async(&mut other).await;
        forgotten.expect("it is written");
    }
    started
        .check(&[
            ("attempt", "attempt is -1"),
            ("many", "attempt is 2147483647"),
            ("deadline", "deadline is"),
            ("period", "period is 0.5"),
            ("schedule", "its schedule is gone"),
            ("state", "its state is none"),
            ("error", "it is cut off"),
            ("", "it is cut off"),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_with_the_most_attempts_is_delivered() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let write = async || {
        let row = packed(b'w', [5.0, 2_147_483_646.0, 0.0], "most", b"1");
        write_row(&mut connected(&server).await, "most", &row, 1).await;
    };
    rows::check_most_attempts(server.connect().await, "damaged", write).await;
}

/// A write that meets such a row before it has fired sets it aside, too, and its key is free.
#[tokio::test]
async fn move_of_a_damaged_row_sets_it_aside() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let (store, space) = server.open("damaged").await;
    let row = packed(b'w', [5.0, -1.0, 0.0], "a", b"1");
    let (key, version) = (b"\"a\"", "1000000000001001");
    let mut write = redis::pipe();
    write.hset(rows_with(version), version, row.as_slice());
    write.hset(keys_with("\"a\""), key, version);
    write.zadd(waiting_with(version), version, 9_007_199_254_740_990_u64);
    let written = write.query_async(&mut connected(&server).await).await;
    let () = written.expect("it is written");
    let change = async |action| {
        let near = Terms::NONE;
        let writes = vec![Write::new(key.to_vec(), action)];
        let written = store.write(&space, writes, near).await;
        written.expect("it writes").remove(0)
    };
    let far = Due::In(Duration::from_secs(3_600));
    assert_eq!(change(Action::move_to(far)).await, WriteOutcome::Absent);
    let dead = store.count(&space).await.expect("it counts").dead;
    assert_eq!(dead, 1);
    let set = change(Action::set(b"2".to_vec(), far, None, true)).await;
    assert!(matches!(set, WriteOutcome::Armed { .. }), "{set:?}");
}

/// An index is lost with an evicted key. A fire that meets one of its rows once failed whole, and
/// the instance tried it forever.
#[tokio::test]
async fn row_without_its_entry_in_an_index_fires() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let (store, space) = server.open("damaged").await;
    let hour = Duration::from_secs(3_600);
    let set = Action::set(b"1".to_vec(), Due::In(hour), Some(hour), false);
    let writes = vec![Write::new(b"\"a\"".to_vec(), set)];
    let written = store.write(&space, writes, Terms::NONE).await;
    let WriteOutcome::Armed { row, .. } = written.expect("it writes").remove(0) else {
        panic!("it is set");
    };
    let mut remove = redis::cmd("DEL");
    remove.arg(waiting_with(&row.version.0.to_string()));
    let removed = remove.query_async(&mut connected(&server).await).await;
    assert_eq!(removed, Ok(1));
    let fire = Fire::new(vec![row.version], Some(hour), Terms::NONE);
    let report = store.fire(&space, fire).await.expect("it fires");
    assert_eq!(report.fired.len(), 1, "{report:?}");
}
