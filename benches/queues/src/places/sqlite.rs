//! An `SQLite` file with a write-ahead log, in the folder for temporary files. There is no server:
//! the CPU time is that of the measuring process, callers and handlers included.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};

use super::Place;

pub(crate) struct OnSqlite {
    folder: PathBuf,
    pool: SqlitePool,
}

impl Place for OnSqlite {
    const OWN: [i64; 2] = [0, 0];

    async fn start(_: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tickwheel-sqlite-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("the folder is made");
        let options = SqliteConnectOptions::new()
            .filename(folder.join("timers"))
            // A queue that is behind leaves the file free for moments only.
            .busy_timeout(Duration::from_mins(5));
        // Connects at the first query, when the queue has made the file.
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .connect_lazy_with(options);
        OnSqlite { folder, pool }
    }

    fn url(&self) -> String {
        self.folder.join("timers").display().to_string()
    }

    fn process(&self) -> u32 {
        std::process::id()
    }

    async fn work(&self) -> Option<[i64; 2]> {
        None
    }

    async fn count(&self, query: &str) -> i64 {
        let count = sqlx::query_scalar(sqlx::AssertSqlSafe(query.to_owned())).fetch_one(&self.pool);
        count.await.expect("it is SQL")
    }

    async fn empty(&self, query: &str) {
        for query in [query, "PRAGMA wal_checkpoint(TRUNCATE)"] {
            let executed = sqlx::raw_sql(sqlx::AssertSqlSafe(query.to_owned())).execute(&self.pool);
            executed.await.expect("it is SQL");
        }
    }
}

impl Drop for OnSqlite {
    fn drop(&mut self) {
        // A file that is left over is harmless.
        let _ = fs::remove_dir_all(&self.folder);
    }
}
