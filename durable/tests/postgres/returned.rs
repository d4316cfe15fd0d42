//! A database that returns to an earlier state, or is emptied, under instances that run.

use std::time::Duration;

use tickwheel_durable::{Postgres, builder};
use tokio::time::sleep;

use super::returned_support::{is_survived, loss_is_survived};
use super::server::{client, database, missing};
use super::started::started;

const POLL: Duration = Duration::from_millis(200);
const LONG_POLL: Duration = Duration::from_secs(5);

const TABLES: [&str; 4] = ["namespaces", "instances", "timers", "dead"];

async fn run(url: &str, sql: &str) {
    let ran = client(url).await.batch_execute(sql).await;
    ran.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

async fn two_stores(url: &str) -> [Postgres; 2] {
    let connect = async || Postgres::connect(url).await.expect("it connects");
    [connect().await, connect().await]
}

/// Keeps the rows beside the tables.
pub(super) async fn keep(url: &str) {
    let tables =
        TABLES.map(|table| format!("CREATE TABLE kept.{table} AS TABLE tickwheel_{table};"));
    run(url, &format!("CREATE SCHEMA kept; {}", tables.concat())).await;
}

/// Has the tables as they were kept, in one commit.
pub(super) async fn restore(url: &str) {
    let lock =
        TABLES.map(|table| format!("LOCK TABLE tickwheel_{table} IN ACCESS EXCLUSIVE MODE;"));
    let tables = ["instances", "timers", "dead"].map(|table| {
        format!(
            "DELETE FROM tickwheel_{table}; INSERT INTO tickwheel_{table} SELECT * FROM kept.{table};"
        )
    });
    let (lock, tables) = (lock.concat(), tables.concat());
    run(url, &format!("BEGIN; {lock} {tables} COMMIT")).await;
}

/// Ends all other connections of the database.
async fn cut(url: &str) {
    let cut = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    run(url, cut).await;
}

#[tokio::test]
async fn database_restored_in_place_strands_no_timer() {
    let Some(url) = database("restored_in_place").await else {
        return missing();
    };
    let stores = two_stores(&url).await;
    let keep = async || keep(&url).await;
    let noticed = is_survived(stores, POLL, keep, async || restore(&url).await).await;
    assert_eq!(noticed, 2);
}

/// As after a failover to a standby that lacks less than what came since the last load.
#[tokio::test]
async fn database_that_returns_within_a_poll_strands_no_timer() {
    let Some(url) = database("returned").await else {
        return missing();
    };
    let stores = two_stores(&url).await;
    let go_back = async || {
        restore(&url).await;
        run(&url, "SELECT setval('tickwheel_versions', 2)").await;
        cut(&url).await;
    };
    is_survived(stores, LONG_POLL, async || keep(&url).await, go_back).await;
}

#[tokio::test]
async fn truncated_tables_are_used_again() {
    let Some(url) = database("truncated").await else {
        return missing();
    };
    let stores = two_stores(&url).await;
    let tables = TABLES.map(|table| format!("tickwheel_{table}")).join(", ");
    let truncate = format!("TRUNCATE {tables} RESTART IDENTITY");
    loss_is_survived(stores, async || run(&url, &truncate).await).await;
}

/// Another process makes them again, and the namespace too, when the ids of those that run would
/// have ended anyway.
#[tokio::test]
async fn tables_made_again_are_used() {
    let Some(url) = database("made_again").await else {
        return missing();
    };
    let stores = two_stores(&url).await;
    let make_again = async || {
        let names = ["schema", "namespaces", "instances", "timers", "dead"];
        let tables = names.map(|name| format!("tickwheel_{name}")).join(", ");
        let functions = "DO $$ DECLARE f regprocedure; BEGIN
            FOR f IN SELECT oid::regprocedure FROM pg_proc WHERE proname LIKE 'tickwheel%' LOOP
                EXECUTE 'DROP FUNCTION ' || f || ' CASCADE';
            END LOOP; END $$";
        let tables =
            format!("DROP TABLE {tables} CASCADE; DROP SEQUENCE tickwheel_versions CASCADE");
        run(&url, &format!("BEGIN; {tables}; {functions}; COMMIT")).await;
        sleep(10 * POLL).await;
        let store = Postgres::connect(&url).await.expect("it makes them");
        let (timers, claims) = started(|| builder("returned"), store).await;
        drop(claims);
        timers.shutdown().await;
    };
    loss_is_survived(stores, make_again).await;
}
