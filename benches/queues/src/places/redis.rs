//! A Redis server with an append-only file. Queries are Lua scripts. Its count of commands includes
//! those that scripts call.

use std::time::Duration;

use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;
use server::Server;
use tokio::time::sleep;

use super::Place;

#[allow(
    dead_code,
    unreachable_pub,
    clippy::duplicate_mod,
    clippy::pedantic,
    reason = "it is shared with the tests"
)]
#[path = "../../../../durable/tests/redis/server.rs"]
mod server;

pub(crate) struct OnRedis {
    connection: MultiplexedConnection,
    process: u32,
    server: Server,
}

impl OnRedis {
    async fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        let command = command.arg(&words[1..]);
        let answer = command.query_async(&mut self.connection.clone()).await;
        answer.expect("the server does as it is told")
    }

    /// A number that the server tells about itself, or 0 as long as it has not told it.
    async fn info(&self, section: &str, before: &str) -> i64 {
        let text: String = self.command(&["INFO", section]).await;
        let after = text.lines().find_map(|line| line.strip_prefix(before));
        let number = after.and_then(|after| after.split(',').next());
        number.map_or(0, |number| number.parse().expect("it is a number"))
    }
}

impl Place for OnRedis {
    // The first query for the scripts is a command, and the second for the commands.
    const OWN: [i64; 2] = [2, 0];

    async fn start(appendfsync: &str) -> Self {
        let server = Server::start(&["--appendfsync", appendfsync]);
        let server = server.expect("Redis is installed");
        let mut place = OnRedis {
            connection: server.client().await.expect("it connects"),
            process: 0,
            server,
        };
        let process = place.info("server", "process_id:").await;
        place.process = u32::try_from(process).expect("it is a process");
        place
    }

    fn url(&self) -> String {
        self.server.url()
    }

    fn process(&self) -> u32 {
        self.process
    }

    async fn work(&self) -> Option<[i64; 2]> {
        let commands = self.info("stats", "total_commands_processed:").await;
        let scripts = self.info("commandstats", "cmdstat_evalsha:calls=").await;
        Some([commands, scripts])
    }

    async fn count(&self, query: &str) -> i64 {
        self.command(&["EVAL", query, "0"]).await
    }

    async fn empty(&self, query: &str) {
        // A script that took long would have the queue's own calls fail.
        while self.count(query).await > 0 {}
        let _: redis::Value = self.command(&["BGREWRITEAOF"]).await;
        while self.info("persistence", "aof_rewrite_in_progress:").await != 0 {
            sleep(Duration::from_millis(20)).await;
        }
    }
}
