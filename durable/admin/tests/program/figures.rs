//! Figures and their names, and how often they come.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use tickwheel_durable::rusqlite::Connection;

use super::support::{File, NAME, kill_timers, program, run, set};
use super::{HOUR, each};

/// The line of a table that has this word.
fn line<'a>(table: &'a str, word: &str) -> &'a str {
    let found = table.lines().find(|line| line.contains(word));
    found.unwrap_or_else(|| panic!("{word}: {table}"))
}

/// Each figure differs from the others, so that none takes the place of another one.
#[tokio::test]
async fn figure_is_under_its_name() {
    let file = File::new();
    let mut instance = file.instance().await;
    kill_timers(&mut instance, &["dead 1", "dead 2"], "poison").await;
    let (timers, mut claims) = instance;
    set(&timers, &["a", "b"], HOUR).await;
    let (value, period) = ("v".to_owned(), Duration::from_secs(90));
    let set_often = timers.set_interval("often", &value, period).await;
    set_often.expect("it is set");
    set(&timers, &["flying"], Duration::ZERO).await;
    let _claim = claims.recv().await.expect("it comes");

    let table = run(&file, &["stats"]).output;
    let (names, figures) = (line(&table, "namespace"), line(&table, "orders"));
    for (name, figure) in [
        ("namespace", "orders"),
        ("codec", "json"),
        ("state", "died:"),
        ("waiting", "3"),
        ("in flight", "1"),
        ("dead", "2"),
        ("earliest", "in"),
    ] {
        let place = names.find(name).expect("it is a column");
        let below = figures[place..].split_whitespace().next();
        assert_eq!(below, Some(figure), "{name}: {table}");
    }
    let stats = run(&file, &["stats", "--json"]).json();
    let orders = &stats["namespaces"][0];
    for (name, figure) in [("waiting", 3), ("in_flight", 1), ("dead", 2)] {
        assert_eq!(orders[name], figure, "{name}: {orders}");
    }
    assert_eq!(orders["overdue_seconds"], 0.0, "{orders}");

    let table = run(&file, &["list"]).output;
    let row = line(&table, "\"a\"");
    assert!(row.find("\"a\"") < row.find("\"v\""), "{table}");
    // Times sort as texts do.
    let now = orders["now"].as_str();
    for (state, number, times) in [
        ("waiting", 3, ["due", "lease_until", "died"]),
        ("in-flight", 1, ["lease_until", "due", "died"]),
        ("dead", 2, ["died", "due", "lease_until"]),
    ] {
        let listed = run(&file, &["list", "--json", "--state", state]).json();
        assert_eq!(each(&listed["timers"]).count(), number, "{listed}");
        for timer in each(&listed["timers"]) {
            let [own, others @ ..] = times.map(|name| timer[name].as_str());
            assert_eq!((own.is_some(), others), (true, [None; 2]), "{timer}");
            assert_eq!(own > now, state != "dead", "{timer}");
            let period = match timer["key"]["data"].as_str() {
                Some("often") => Value::from(90.0),
                _ => Value::Null,
            };
            assert_eq!(timer["period_seconds"], period, "{timer}");
        }
    }
    let instances = run(&file, &["instances", "--json"]).json();
    let instance = &instances["instances"][0];
    let is_alive = instance["alive_until"].as_str() >= instances["now"].as_str();
    assert_eq!(instance["is_alive"], is_alive, "{instances}");
}

#[tokio::test]
async fn watch_prints_as_often_as_it_was_told() {
    let file = File::new();
    let _instance = file.instance().await;
    let began = Instant::now();
    let ran = run(
        &file,
        &["watch", "--times", "3", "--every", "200ms", "--json"],
    );
    // The first one comes at once.
    assert!(began.elapsed() >= Duration::from_millis(400), "{ran:?}");
    assert_eq!((ran.code, ran.output.lines().count()), (0, 3), "{ran:?}");
    for line in ran.output.lines() {
        let record: Value = serde_json::from_str(line).expect("it is JSON");
        let orders = &record["namespaces"][0];
        assert_eq!(orders["namespace"], "orders");
        assert_eq!(orders["instances"][0]["name"], NAME);
    }
}

/// Regression: the first failure of the store ended it.
#[tokio::test]
async fn watch_goes_on_when_the_store_has_failed() {
    let file = File::new();
    drop(file.instance().await);
    let rename = |from: &str, to: &str| {
        let other = Connection::open(file.path()).expect("it opens");
        let rename = format!("ALTER TABLE tickwheel_{from} RENAME TO tickwheel_{to}");
        other.execute_batch(&rename).expect("it is renamed");
    };
    let mut command = program();
    command.arg("--url").arg(file.path());
    command.args(["watch", "--every", "100ms", "--json"]);
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.stdin(Stdio::null()).spawn().expect("it starts");
    let mut records = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    records.next().expect("it writes").expect("it is text");
    rename("timers", "gone");
    let mut errors = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut error = String::new();
    errors.read_line(&mut error).expect("it is text");
    assert!(error.contains("no such table"), "{error}");
    // A script that watches a few times is told.
    let told = run(&file, &["watch", "--times", "2", "--every", "100ms"]);
    assert_eq!(told.code, 1, "{told:?}");
    rename("gone", "timers");
    // More than it can have written before.
    assert_eq!(records.by_ref().take(20).count(), 20);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}

/// A reader that has seen enough, such as `head`, is no failure.
#[tokio::test]
async fn closed_output_ends_the_program_without_an_error() {
    let file = File::new();
    let _instance = file.instance().await;
    let mut command = program();
    command.arg("--url").arg(file.path());
    command.args(["watch", "--every", "100ms", "--json"]);
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.stdin(Stdio::null()).spawn().expect("it starts");
    let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("it writes");
    assert!(line.contains("orders"), "{line}");
    drop(output);
    let ended = child.wait_with_output().expect("it ends");
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert_eq!((ended.status.code(), &*errors), (Some(0), ""));
}
