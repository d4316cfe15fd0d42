//! `migrate`, on each store.

use serde_json::{Value, json};
use tickwheel_durable::rusqlite::Connection;
use tickwheel_durable::store::{Namespace, Store as _};
use tickwheel_durable::{Charter, Migration, Postgres, Sqlite};

use super::postgres::{client, database, missing};
use super::redis::Server;
use super::support::{File, Run, ended, program};

fn migrate(url: &str, arguments: &[&str]) -> Run {
    ended(program().args(["--url", url, "migrate"]).args(arguments))
}

/// The version of a schema, and the oldest that can use it.
fn versions(url: &str) -> [Value; 2] {
    let record = migrate(url, &["status", "--json"]).json();
    assert_eq!(record["latest"], 1);
    assert_eq!(record["schemas"].as_array().map(Vec::len), Some(1));
    let schema = &record["schemas"][0];
    assert_eq!(schema["namespace"], Value::Null);
    [schema["version"].clone(), schema["readable_by"].clone()]
}

/// All that is done with a store without tables. Applies a text by hand.
async fn takes_and_prints_steps(url: &str, migrations: &[Migration], apply: impl AsyncFn(&str)) {
    assert_eq!(versions(url), [json!(0), json!(0)]);
    let up = migrate(url, &["up"]);
    assert_eq!(up.code, 0, "{up:?}");
    assert!(up.output.contains("all timers"), "{up:?}");
    assert!(up.errors.contains("action=migrate from=0 to=1"), "{up:?}");
    assert_eq!(versions(url), [json!(1), json!(1)]);
    let again = migrate(url, &["up"]);
    assert_eq!((again.code, &*again.errors), (0, ""), "{again:?}");

    let unsure = migrate(url, &["down", "--to", "0"]);
    assert_eq!(unsure.code, 2, "{unsure:?}");
    assert!(unsure.errors.contains("needs --yes"), "{unsure:?}");
    let printed = migrate(url, &["down", "--to", "0", "--print"]);
    assert_eq!(printed.output.trim(), migrations[0].down.trim());
    assert_eq!(versions(url), [json!(1), json!(1)]);
    let down = migrate(url, &["down", "--to", "0", "--yes"]);
    assert_eq!(down.code, 0, "{down:?}");
    assert!(down.errors.contains("from=1 to=0"), "{down:?}");
    assert_eq!(versions(url), [json!(0), json!(0)]);

    let printed = migrate(url, &["up", "--print"]);
    assert_eq!(printed.output.trim(), migrations[0].up.trim());
    assert_eq!(versions(url), [json!(0), json!(0)]);
    apply(&printed.output).await;
    assert_eq!(versions(url), [json!(1), json!(1)]);
    let none = migrate(url, &["up", "--print"]);
    assert_eq!((none.code, &*none.output), (0, ""), "{none:?}");
    let from = migrate(url, &["up", "--print", "--from", "0"]);
    assert_eq!(from.output, printed.output);
    let unknown = migrate(url, &["up", "--to", "2"]);
    assert_eq!(unknown.code, 2, "{unknown:?}");
    assert!(unknown.errors.contains("up to version 1"), "{unknown:?}");
}

/// The schema has version 9, of a later program.
fn leaves_a_later_schema(url: &str) {
    let up = migrate(url, &["up"]);
    assert_eq!((up.code, &*up.errors), (0, ""), "{up:?}");
    let down = migrate(url, &["down", "--to", "1", "--yes"]);
    assert_eq!(down.code, 1, "{down:?}");
    assert!(down.errors.contains("the steps up to 1"), "{down:?}");
}

fn refuses_a_schema_that_it_cannot_read(url: &str) {
    let up = migrate(url, &["up"]);
    assert_eq!(up.code, 1, "{up:?}");
    assert!(up.errors.contains("schema version 9"), "{up:?}");
    let status = migrate(url, &["status"]);
    assert_eq!(status.code, 0, "{status:?}");
}

#[tokio::test]
async fn tables_of_a_file_are_migrated_and_printed() {
    let file = File::new();
    let path = file.path();
    let url = path.to_str().expect("it is text");
    assert_eq!(migrate(url, &["up"]).code, 3, "there is no file");
    drop(Connection::open(&path).expect("it opens"));
    std::fs::write(&path, "").expect("it is there");
    takes_and_prints_steps(url, Sqlite::MIGRATIONS, async |text| {
        let mut file = Connection::open(&path).expect("it opens");
        let transaction = file.transaction().expect("it begins");
        transaction.execute_batch(text).expect("it is applied");
        transaction.commit().expect("it ends");
    })
    .await;
    let (timers, claims) = file.instance().await;
    drop(claims);
    timers.shutdown().await;
    let set = |name: &str| {
        let file = Connection::open(&path).expect("it opens");
        let set = "UPDATE tickwheel_meta SET value = 9 WHERE name = ?1";
        assert_eq!(file.execute(set, [name]), Ok(1));
    };
    set("schema");
    leaves_a_later_schema(url);
    set("readable_by");
    refuses_a_schema_that_it_cannot_read(url);
    assert_eq!(versions(url), [json!(9), json!(9)]);
    // To look leaves one whole file.
    let log = file.path().with_file_name("timers.db-wal");
    assert!(!log.exists());
}

#[tokio::test]
async fn tables_of_a_database_are_migrated_and_printed() {
    let Some(url) = database("admin_migrates").await else {
        return missing();
    };
    let admin = client(&url).await;
    takes_and_prints_steps(&url, Postgres::MIGRATIONS, async |text| {
        let text = format!("BEGIN; {text} COMMIT");
        admin.batch_execute(&text).await.expect("it is applied");
    })
    .await;
    Postgres::connect(&url).await.expect("it connects");
    let set = async |column: &str| {
        let set = format!("UPDATE tickwheel_schema SET {column} = 9");
        admin.batch_execute(&set).await.expect("it is set");
    };
    set("version").await;
    leaves_a_later_schema(&url);
    set("readable_by").await;
    refuses_a_schema_that_it_cannot_read(&url);
    assert_eq!(versions(&url), [json!(9), json!(9)]);
}

#[tokio::test]
async fn each_namespace_in_redis_has_a_schema() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let (url, store) = (server.url(), server.connect().await);
    let open = async |name: &str, parts| {
        let mut charter = Charter::new("json");
        charter.parts = parts;
        let space = Namespace::new(name).expect("it is a name");
        let opened = store.open(&space, &charter).await;
        opened.expect("it opens");
    };
    open("mails", 1).await;
    for part in ["orders", "orders/1"] {
        open(part, 2).await;
    }
    let set = async |field: &str| {
        let set = ["HSET", "tickwheel:{orders/1}", field, "9"];
        server.command(&set).await;
    };
    let shown = |arguments: &[&str]| {
        let record = migrate(&url, arguments).json();
        let schemas = record["schemas"].as_array().expect("they are many").clone();
        let schema = |each: Value| {
            let name = each["namespace"].as_str().expect("it has one").to_owned();
            (name, each["version"].as_u64(), each["readable_by"].as_u64())
        };
        let mut schemas: Vec<_> = schemas.into_iter().map(schema).collect();
        schemas.sort();
        schemas
    };
    let each = |name: &str, version| (name.to_owned(), Some(version), Some(1));
    set("schema").await;
    let all = [each("mails", 1), each("orders", 1), each("orders/1", 9)];
    assert_eq!(shown(&["status", "--json"]), all);
    let both = ["status", "--json", "--namespace", "orders"];
    assert_eq!(shown(&both), all[1..]);
    assert_eq!(shown(&["up", "--json"]), all);
    leaves_a_later_schema(&url);
    let absent = migrate(&url, &["status", "--namespace", "absent"]);
    assert_eq!(absent.code, 3, "{absent:?}");
    let first = migrate(&url, &["down", "--to", "0", "--yes"]);
    assert_eq!(first.code, 2, "{first:?}");
    assert!(first.errors.contains("`purge`"), "{first:?}");
    set("readable_by").await;
    refuses_a_schema_that_it_cannot_read(&url);
    // The others can be read.
    assert_eq!(migrate(&url, &["up", "--namespace", "mails"]).code, 0);
}
