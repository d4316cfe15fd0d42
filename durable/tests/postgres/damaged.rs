//! Rows that another program has written.

use tickwheel_durable::Postgres;

use super::server::{client, database, missing};

#[path = "../support/damaged.rs"]
mod rows;

/// With the column `early` a load finds them at once, else within a minute.
fn insert(key: &str, due: &str, columns: (&str, &str)) -> String {
    let (names, values) = columns;
    format!(
        "INSERT INTO tickwheel_timers (version, namespace, in_flight, key, value, due, deadline, early, {names})
        SELECT nextval('tickwheel_versions'), id, false, convert_to('\"{key}\"', 'UTF8'), '1', {due}, 5, pg_current_xact_id(), {values}
        FROM tickwheel_namespaces WHERE name = 'damaged'"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_rows_are_set_aside() {
    let Some(url) = database("damaged_rows").await else {
        return missing();
    };
    let store = Postgres::connect(&url).await.expect("it connects");
    let started = rows::start(store, "damaged").await;
    let other = client(&url).await;
    let rows = [
        insert("attempt", "1", ("attempt", "-1")),
        insert("many", "1", ("attempt", "2147483647")),
        insert("period", "2", ("attempt, period", "0, 0")),
        insert("long", "3", ("attempt, period", "0, 9223372036854775807")),
        insert("due", "'-9223372036854775808'", ("attempt", "0")),
        insert("both", "4", ("attempt, period, schedule", "0, 1000, 'x'")),
        insert("deadline", "5", ("attempt", "0")).replace("5, 5,", "5, -9,"),
    ];
    for row in &rows {
        let refused = other.batch_execute(row).await.expect_err(row);
        let refused = format!("{:?}", refused.code());
        assert!(
            refused.contains("23514"),
            "{refused} is no violation of a check"
        );
    }
    let drop = "ALTER TABLE tickwheel_timers DROP CONSTRAINT tickwheel_sound";
    other.batch_execute(drop).await.expect("it is dropped");
    for row in &rows {
        other.batch_execute(row).await.expect("it is written");
    }
    started
        .check(&[
            ("attempt", "attempt is -1"),
            ("many", "attempt is 2147483647"),
            ("period", "period is 0"),
            ("long", "period is 9223372036854775807"),
            ("due", "due is -9223372036854775808"),
            ("both", "a period and a schedule"),
            ("deadline", "deadline is -9"),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_with_the_most_attempts_is_delivered() {
    let Some(url) = database("most_attempts").await else {
        return missing();
    };
    let store = Postgres::connect(&url).await.expect("it connects");
    let write = async || {
        let row = insert("most", "1", ("attempt", "2147483646"));
        let written = client(&url).await.batch_execute(&row).await;
        written.expect("it is written");
    };
    rows::check_most_attempts(store, "damaged", write).await;
}
