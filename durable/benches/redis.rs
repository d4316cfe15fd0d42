//! The store in Redis, next to Redis used plainly: a command for each set, and a sorted set that is
//! polled each second.
//!
//! ```sh
//! cargo bench -p tickwheel-durable --bench redis --features redis
//! ```

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::aio::MultiplexedConnection;
use tickwheel_durable::Redis;
use tokio::time::{interval, sleep};

#[path = "support/reminders.rs"]
mod reminders;
#[expect(dead_code, reason = "the tests need more of it")]
#[path = "../tests/redis/server.rs"]
mod server;
mod support;

use reminders::{measure, rate};
use support::{Connect, report, report_delays, wanted};

struct Local(String);

impl Connect for Local {
    type Store = Redis;

    async fn connect(&self) -> Redis {
        server::connect(&self.0).await
    }
}

async fn plain(url: &str) -> MultiplexedConnection {
    let client = redis::Client::open(url).expect("it is a URL");
    let connecting = client.get_multiplexed_async_connection();
    connecting.await.expect("it connects")
}

fn now() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("it is after the epoch").as_secs_f64()
}

/// A command for each set, by tasks that share a connection.
async fn plain_sets(connection: &MultiplexedConnection) {
    for (tasks, total) in [(64, 50_000), (1_024, 100_000)] {
        let connection = connection.clone();
        let set = move |number: u64| {
            let mut connection = connection.clone();
            async move {
                let member = format!("{number}:reminder {number:>8}: something that is to be done");
                let mut command = redis::cmd("ZADD");
                let set = command.arg("plain").arg(now() + 86_400.0).arg(member);
                let set = set.query_async::<()>(&mut connection).await;
                set.expect("it is set");
            }
        };
        let rate = rate(tasks, total, set).await;
        report(
            &format!("plain: ZADD each, {tasks} tasks"),
            &format!("{rate:>9.0} a second"),
        );
    }
}

/// A sorted set that is polled each second.
async fn plain_poll(mut connection: MultiplexedConnection) {
    const TIMERS: usize = 500;
    redis::cmd("DEL")
        .arg("plain")
        .exec_async(&mut connection)
        .await
        .expect("it is empty");
    for number in 0..TIMERS {
        let mut command = redis::cmd("ZADD");
        let due = now() + 0.5 + f64::from(u32::try_from(number).expect("it is small")) / 100.0;
        let set = command.arg("plain").arg(due).arg(number);
        set.exec_async(&mut connection).await.expect("it is set");
    }
    let mut late = Vec::new();
    let mut poll = interval(Duration::from_secs(1));
    while late.len() < TIMERS {
        poll.tick().await;
        let now = now();
        let mut command = redis::cmd("ZRANGEBYSCORE");
        command.arg("plain").arg("-inf").arg(now).arg("WITHSCORES");
        let due: Vec<(String, f64)> = command
            .query_async(&mut connection)
            .await
            .expect("it reads");
        for (member, due) in due {
            let mut command = redis::cmd("ZREM");
            let removed = command.arg("plain").arg(member);
            removed
                .exec_async(&mut connection)
                .await
                .expect("it is removed");
            late.push(Duration::from_secs_f64(now - due));
        }
    }
    report_delays("plain: lateness, polled each second", late);
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    for fsync in ["always", "everysec"] {
        let Some(server) = server::Server::start(&["--appendfsync", fsync]) else {
            return;
        };
        println!("\nappendfsync {fsync}");
        let connection = plain(&server.url()).await;
        if wanted("plain") {
            plain_sets(&connection).await;
            plain_poll(connection).await;
        }
        measure(&Local(server.url())).await;
        sleep(Duration::from_millis(100)).await;
    }
}
