//! Where timers are kept: a new server, or a new file. It counts what happens there meanwhile.

mod postgres;
mod redis;
mod sqlite;

use std::fs;
use std::time::Duration;

pub(crate) use postgres::OnPostgres;
pub(crate) use redis::OnRedis;
pub(crate) use sqlite::OnSqlite;

pub(crate) trait Place: Sized {
    /// How much [`work`](Self::work) itself adds to what it counts.
    const OWN: [i64; 2];

    /// Starts a server, or makes a file. Redis has this setting of `appendfsync`.
    async fn start(appendfsync: &str) -> Self;

    /// Its URL, or the path of the file.
    fn url(&self) -> String;

    /// The number of the process that does the work.
    fn process(&self) -> u32;

    /// The statements that clients have run so far, and the transactions, or on Redis the commands
    /// and the scripts.
    async fn work(&self) -> Option<[i64; 2]>;

    /// A number, by a query in the language of the place.
    async fn count(&self, query: &str) -> i64;

    /// Removes what a queue has, and does what the place would do by itself after a while. A script
    /// is run until it returns 0.
    async fn empty(&self, query: &str);

    /// The CPU time that the process has used, with its children.
    fn cpu(&self) -> Duration {
        let process = self.process();
        let processes = fs::read_dir("/proc")
            .expect("processes can be listed")
            .flatten();
        let ticks = processes.filter_map(|entry| {
            let number: u32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            // The name, which may have spaces, stands in parentheses.
            let (_, rest) = stat.rsplit_once(')')?;
            let fields: Vec<u64> = (rest.split_whitespace())
                .map(|field| field.parse().unwrap_or(0))
                .collect();
            // From the state on, which is the third field of all: the parent, then user and system
            // time, then the same of children that have ended.
            let own = fields[11] + fields[12];
            if number == process {
                Some(own + fields[13] + fields[14])
            } else {
                (fields[1] == u64::from(process)).then_some(own)
            }
        });
        Duration::from_millis(ticks.sum::<u64>() * 10)
    }
}
