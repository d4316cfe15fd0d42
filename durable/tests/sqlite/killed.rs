//! A process that is killed in a transaction of its own, or as it commits.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

use tickwheel_durable::rusqlite::Connection;
use tickwheel_durable::rusqlite::TransactionBehavior::Immediate;
use tickwheel_durable::{Removed, SqliteTransaction};

use super::{HOUR, SECOND, Shop};

/// Names the file to the process that a test kills.
const CHILD: &str = "TICKWHEEL_TEST_CHILD";

/// The process that a test kills: it inserts an order, sets its timer, and says so; then it
/// commits, and says so.
#[test]
#[ignore = "it is a process of another test"]
fn child_process() {
    let Ok(path) = std::env::var(CHILD) else {
        return;
    };
    let mut user = Connection::open(path).expect("it opens");
    user.busy_timeout(20 * SECOND).expect("it takes one");
    let transaction = user
        .transaction_with_behavior(Immediate)
        .expect("it begins");
    transaction
        .execute("INSERT INTO orders DEFAULT VALUES", ())
        .expect("it is inserted");
    let order = transaction.last_insert_rowid();
    let orders = SqliteTransaction::<String, u64>::new(&transaction, "orders").expect("opened");
    let set = orders.set_timer(&format!("order {order}"), &order.unsigned_abs(), HOUR);
    set.expect("it is set");
    drop(orders);
    println!("\nset");
    std::io::stdin()
        .read_exact(&mut [0])
        .expect("the test goes on");
    transaction.commit().expect("it commits");
    println!("\ncommitted");
    std::thread::sleep(60 * SECOND);
}

/// What the process says.
type Said = Lines<BufReader<ChildStdout>>;

fn until_it_says(said: &mut Said, what: &str) {
    let line = said.find(|line| line.as_ref().is_ok_and(|line| line == what));
    line.expect("it says it").expect("it is text");
}

/// Kills it after the insert, or if it is told to commit, after that and what the test waits for.
fn kill_child(path: &Path, commits: bool, wait: impl FnOnce(&mut Said)) {
    let child = std::env::current_exe().expect("it is a file");
    let mut command = Command::new(child);
    command.args([
        "--exact",
        "transactions::killed::child_process",
        "--ignored",
        "--nocapture",
    ]);
    let piped = command
        .env(CHILD, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = piped.spawn().expect("it starts");
    let mut said = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    until_it_says(&mut said, "set");
    if commits {
        let input = child.stdin.as_mut().expect("it is piped");
        input.write_all(b"\n").expect("it reads");
        wait(&mut said);
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_process_leaves_order_and_timer_or_neither() {
    let shop = Shop::open(SECOND).await;
    for round in 0..12 {
        kill_child(&shop.path(), round % 3 > 0, |_| {
            std::thread::sleep(Duration::from_micros(round * 400));
        });
    }
    kill_child(&shop.path(), true, |said| until_it_says(said, "committed"));
    let mut select = shop
        .user
        .prepare("SELECT id FROM orders")
        .expect("it is SQL");
    let orders = select.query_map((), |row| row.get::<_, i64>(0).map(i64::unsigned_abs));
    let orders = orders.expect("it reads");
    let orders: Vec<u64> = orders.collect::<Result<_, _>>().expect("it reads");
    assert!(!orders.is_empty());
    let counts = shop.timers.counts().await.expect("it counts");
    assert_eq!(counts.waiting, orders.len() as u64);
    for order in orders {
        let timer = shop.timers.remove_timer(&format!("order {order}")).await;
        assert_eq!(timer, Ok(Removed::Done(order)));
    }
}
