//! Rows that another program has written.

use tickwheel_durable::rusqlite::Connection;
use tickwheel_durable_conformance::Stores;

use super::File;

#[path = "../support/damaged.rs"]
mod rows;

fn insert(version: i64, key: &str, due: &str, columns: (&str, &str)) -> String {
    let (names, values) = columns;
    format!(
        "INSERT INTO tickwheel_timers (version, namespace, state, key, value, due, deadline, {names})
        SELECT {version}, id, 0, CAST('\"{key}\"' AS BLOB), x'31', {due}, 5, {values} FROM tickwheel_namespaces
        WHERE name = 'damaged'"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_rows_are_set_aside() {
    let file = File::new();
    let started = rows::start(file.connect().await, "damaged").await;
    let other = Connection::open(file.folder.join("timers.db")).expect("it opens");
    let rows = [
        insert(1_001, "attempt", "1", ("attempt", "-1")),
        insert(1_002, "many", "1", ("attempt", "2147483647")),
        insert(1_003, "period", "2", ("attempt, period", "0, 0")),
        insert(1_004, "due", "-7", ("attempt", "0")),
        insert(
            1_005,
            "text",
            "3",
            ("attempt, schedule", "0, CAST(x'ff' AS TEXT)"),
        ),
        insert(
            1_006,
            "both",
            "4",
            ("attempt, period, schedule", "0, 1000, 'x'"),
        ),
        insert(1_007, "deadline", "5", ("attempt", "0")).replace("5, 5,", "5, -9,"),
    ];
    // The checks of the table hold all off but a text that is none.
    for row in rows.iter().filter(|row| !row.contains("AS TEXT")) {
        let refused = other.execute_batch(row).expect_err(row).to_string();
        assert!(refused.contains("CHECK constraint failed"), "{refused}");
    }
    other
        .execute_batch("PRAGMA ignore_check_constraints = ON")
        .expect("it is set");
    for row in &rows {
        other.execute_batch(row).expect("it is written");
    }
    // The calls count the rows.
    let counted = "UPDATE tickwheel_namespaces SET waiting = waiting + 7 WHERE name = 'damaged'";
    other.execute_batch(counted).expect("it is written");
    started
        .check(&[
            ("attempt", "attempt is -1"),
            ("many", "attempt is 2147483647"),
            ("period", "period is 0"),
            ("due", "due is -7"),
            ("text", "schedule is no text"),
            ("both", "a period and a schedule"),
            ("deadline", "deadline is -9"),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_with_the_most_attempts_is_delivered() {
    let file = File::new();
    let other = file.folder.join("timers.db");
    let write = async || {
        let other = Connection::open(other).expect("it opens");
        let row = insert(1_001, "most", "1", ("attempt", "2147483646"));
        let counted = "UPDATE tickwheel_namespaces SET waiting = waiting + 1";
        let both = format!("BEGIN; {row}; {counted}; COMMIT");
        other.execute_batch(&both).expect("it is written");
    };
    rows::check_most_attempts(file.connect().await, "damaged", write).await;
}
