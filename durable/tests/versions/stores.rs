//! The stores that both versions work on, and how their schema is changed.

use std::path::PathBuf;

use tickwheel_durable_next::{Postgres, PostgresOptions, Redis, SchemaVersion, Sqlite};

use super::postgres::{client, database, missing};
use super::redis::Server;
use super::worker::NAMESPACE;

pub(crate) enum Place {
    Postgres(String),
    Redis(Server),
    Sqlite(PathBuf),
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Place::Sqlite(folder) = self {
            // A file that is left over is harmless.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

#[allow(clippy::unused_async, reason = "they are called alike")]
impl Place {
    pub(crate) async fn postgres(name: &str) -> Option<Self> {
        let url = database(name).await;
        if url.is_none() {
            missing();
        }
        url.map(Place::Postgres)
    }

    pub(crate) async fn redis(_: &str) -> Option<Self> {
        // No server is killed.
        Server::start(&["--appendfsync", "everysec"]).map(Place::Redis)
    }

    pub(crate) async fn sqlite(name: &str) -> Option<Self> {
        let name = format!("tickwheel-versions-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("the folder is made");
        Some(Place::Sqlite(folder))
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Place::Postgres(url) => url.clone(),
            Place::Redis(server) => server.url(),
            Place::Sqlite(folder) => folder.join("timers.db").display().to_string(),
        }
    }

    /// Takes the schema to a version, as `tickwheel-admin migrate` of the next version does.
    pub(crate) async fn migrate(&self, to: u32) -> SchemaVersion {
        let url = self.url();
        let migrated = match self {
            Place::Postgres(_) => {
                let options = PostgresOptions::new(&url).expect("it parses");
                Postgres::migrate(options, to).await
            }
            Place::Redis(_) => {
                let redis = Redis::connect(&url).await.expect("it connects");
                redis.migrate(NAMESPACE, to).await
            }
            Place::Sqlite(_) => Sqlite::migrate(&url, to),
        };
        migrated.expect("it migrates")
    }

    pub(crate) async fn version(&self) -> SchemaVersion {
        let url = self.url();
        let version = match self {
            Place::Postgres(_) => {
                let options = PostgresOptions::new(&url).expect("it parses");
                Postgres::schema_version(options).await
            }
            Place::Redis(_) => {
                let redis = Redis::connect(&url).await.expect("it connects");
                redis.schema_version(NAMESPACE).await
            }
            Place::Sqlite(_) => Sqlite::schema_version(&url),
        };
        version.expect("it reads")
    }

    /// Says which version is the oldest that can use the store, as a later step would that takes
    /// something away.
    pub(crate) async fn set_readable_by(&self, version: u32) {
        match self {
            Place::Postgres(url) => {
                let set = format!("UPDATE tickwheel_schema SET readable_by = {version}");
                let set = client(url).await.batch_execute(&set).await;
                set.expect("it is set");
            }
            Place::Redis(server) => {
                let (key, version) = (format!("tickwheel:{{{NAMESPACE}}}"), version.to_string());
                server
                    .command(&["HSET", &key, "readable_by", &version])
                    .await;
            }
            Place::Sqlite(_) => {
                let file = rusqlite::Connection::open(self.url()).expect("it opens");
                let patience = std::time::Duration::from_secs(20);
                file.busy_timeout(patience).expect("it waits");
                let set = "UPDATE tickwheel_meta SET value = ?1 WHERE name = 'readable_by'";
                file.execute(set, [version]).expect("it is set");
            }
        }
    }

    /// How often the next version has noted in its own table that it opened the namespace.
    pub(crate) async fn added(&self) -> i64 {
        match self {
            Place::Postgres(url) => {
                let sql = "SELECT count(*) FROM tickwheel_openings";
                let row = client(url).await.query_one(sql, &[]).await;
                row.expect("it reads").get(0)
            }
            Place::Redis(server) => {
                let key = format!("tickwheel:{{{NAMESPACE}}}:openings");
                let count = server.command(&["SCARD", &key]).await;
                ::redis::from_redis_value(count).expect("it is a number")
            }
            Place::Sqlite(_) => {
                let file = rusqlite::Connection::open(self.url()).expect("it opens");
                let sql = "SELECT count(*) FROM tickwheel_openings";
                let count = file.query_row(sql, (), |row| row.get(0));
                count.expect("it reads")
            }
        }
    }
}
