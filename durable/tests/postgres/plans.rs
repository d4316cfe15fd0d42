//! Every call looks its rows up in an index, whatever the planner knows: a claim costs the same
//! among a thousand timers and among very many.
//!
//! The server explains each statement as it runs, with what it has read, into its log.

use std::time::Duration;

use tickwheel_durable::Postgres;
use tickwheel_durable::store::{
    Action, DeadChange, DeadRows, Due, Fire, InstanceId, List, Load, Namespace, Settle, Settlement,
    State, Store, StoreTime, Terms, Version, Write, WriteOutcome,
};

use super::server::{Server, client, missing};

const FAR: Duration = Duration::from_secs(3_600);

/// The plan by which the server has read the timers: a line for each scan, and the one below it.
fn scans(log: &str) -> Vec<(&str, &str)> {
    let lines: Vec<_> = log.lines().map(str::trim).collect();
    let below = lines.iter().skip(1).chain([&""]);
    (lines.iter().copied().zip(below.copied()))
        .filter(|(line, _)| {
            let is_table = [" on tickwheel_timers", " on tickwheel_dead"].iter();
            line.contains("Scan") && is_table.clone().any(|table| line.contains(table))
        })
        .collect()
}

/// The number after a word.
fn number(line: &str, word: &str) -> Option<u64> {
    let rest = line.split(word).nth(1)?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn write(key: &str, action: Action) -> Write {
    let key = key.into();
    Write::new(key, action)
}

fn set(key: &str, if_absent: bool) -> Write {
    let action = Action::set(b"v".to_vec(), Due::In(Duration::ZERO), None, if_absent);
    write(key, action)
}

/// Makes every call that an instance makes while it runs, and those of its handles. Returns the id
/// under which it goes on.
pub(super) async fn make_all_calls(
    store: &Postgres,
    space: &Namespace,
    instance: InstanceId,
) -> InstanceId {
    let near = Terms::new(FAR, Some(instance));
    let due = Due::In(Duration::ZERO);
    let batch = vec![
        set("a", false),
        set("b", true),
        set("c", false),
        write("d", Action::Remove),
        write("a", Action::move_to(due)),
    ];
    let alone = store.write(space, vec![set("e", false)], near).await;
    alone.expect("it writes");
    let written = store.write(space, batch, near).await.expect("it writes");
    let armed = written.iter().filter_map(|written| match written {
        WriteOutcome::Armed { row, .. } => Some(row.version),
        _ => None,
    });
    let versions: Vec<Version> = armed.collect();
    let load = Load::new(instance, Duration::from_secs(30), 100, FAR);
    store.load(space, load).await.expect("it loads");
    let fire = Fire::new(versions, Some(FAR), near);
    let fired = store.fire(space, fire).await.expect("it fires").fired;
    assert_eq!(fired.len(), 3);
    let hows = [
        Settlement::Extend(FAR),
        Settlement::Release,
        Settlement::Ack,
    ];
    let settle = |(token, settlement)| Settle::new(token, settlement);
    let tokens = fired.iter().map(|fired| fired.token);
    let settles: Vec<_> = tokens.clone().zip(hows).map(settle).collect();
    store
        .settle(space, settles, near)
        .await
        .expect("it settles");
    let acks: Vec<_> = tokens.zip([Settlement::Ack; 3]).map(settle).collect();
    store.settle(space, acks, near).await.expect("it settles");
    let rows = store.rows_of(space, b"a".to_vec(), 1).await;
    rows.expect("it reads");
    die_and_retry(store, space, near).await;
    for state in [State::Waiting, State::InFlight, State::Dead] {
        let list = List::new(state, None, 10);
        store.list(space, list).await.expect("it lists");
    }
    let left = store.unmark(space, instance, vec![Version(1), Version(2)]);
    left.await.expect("it unmarks");
    let unloaded = store.unload(space, instance).await;
    let removes = ["a", "b", "c", "e"].map(|key| write(key, Action::Remove));
    let removed = store.write(space, removes.to_vec(), near).await;
    removed.expect("it removes");
    unloaded.expect("it unloads")
}

/// Makes a timer dead, and every call about dead ones.
async fn die_and_retry(store: &Postgres, space: &Namespace, near: Terms) {
    let none = DeadRows::Until(StoreTime::default());
    for which in [DeadRows::Key(b"f".to_vec()), none] {
        let written = store.write(space, vec![set("f", false)], near).await;
        let written = written.expect("it writes");
        let WriteOutcome::Armed { row, .. } = written[0] else {
            panic!("{written:?}")
        };
        let fire = Fire::new(vec![row.version], Some(FAR), near);
        let fired = store.fire(space, fire).await.expect("it fires").fired;
        let token = fired[0].token;
        let dead = vec![Settle::new(token, Settlement::Dead).with_error("why")];
        store.settle(space, dead, near).await.expect("it settles");
        let rows = store.rows_of(space, b"f".to_vec(), 1).await;
        rows.expect("it reads");
        for (which, change) in [
            (which.clone(), DeadChange::Retry),
            (which, DeadChange::Discard),
            (DeadRows::Token(token), DeadChange::Discard),
        ] {
            let changed = store.change_dead(space, which, change).await;
            changed.expect("it changes dead rows");
        }
        // Beside another write, and of a key that was dead.
        let batch = vec![
            write("f", Action::Remove),
            set("f", true),
            write("f", Action::Remove),
        ];
        let removed = store.write(space, batch, near).await;
        removed.expect("it removes");
    }
}

/// Fills the table in stages, makes all calls after each, and looks at how the server has run them.
/// A stage is how many rows, one in how many of them is in flight, and what follows.
async fn reads_few_rows_after(stages: &[(u32, u32, &str)]) {
    let settings = [
        "fsync=off",
        "shared_preload_libraries=auto_explain",
        "auto_explain.log_min_duration=0",
        "auto_explain.log_analyze=on",
        "auto_explain.log_timing=off",
    ];
    let Some(server) = Server::start(&settings) else {
        return missing();
    };
    let store = Postgres::connect(&server.url()).await.expect("it connects");
    let space = Namespace::new("plans").expect("it is a name");
    let mut instance = store
        .open(&space, &"json".into())
        .await
        .expect("it opens")
        .instance;
    let admin = client(&server.url()).await;
    for (rows, in_flight, then) in stages {
        let fill = format!(
            "SET auto_explain.log_min_duration = -1;
            INSERT INTO tickwheel_timers (version, namespace, key, value, in_flight, due, deadline, attempt)
            SELECT nextval('tickwheel_versions'), 1, (n || '-' || {rows})::bytea, 'v', n % {in_flight} = 0, 9e15::bigint - n, 0, 0
            FROM generate_series(1, {rows}) n;
            INSERT INTO tickwheel_dead (version, namespace, key, value, died, deadline, attempt)
            SELECT nextval('tickwheel_versions'), 1, (n || '-' || {rows})::bytea, 'v', 9e15::bigint - n, 0, 1
            FROM generate_series(1, {rows}) n{then}"
        );
        admin.batch_execute(&fill).await.expect("it is filled");
        instance = make_all_calls(&store, &space, instance).await;
    }
    let log = std::fs::read_to_string(server.folder().join("log")).expect("it can be read");
    let plans: Vec<_> = log.split("LOG:  duration").skip(1).collect();
    let explained = plans.len();
    assert!(explained >= 20 * stages.len(), "{explained} statements");
    for plan in plans {
        for (scan, condition) in scans(plan) {
            // Without its first column the whole index is read, and that counts as no row.
            let first_column = if scan.contains("_pkey") {
                "(version "
            } else {
                "(namespace = "
            };
            assert!(scan.contains("Index"), "{scan} in {plan}");
            // The greatest number of an index is its last row.
            let is_last = scan.contains("Backward") && number(scan, "(actual rows=") <= Some(1);
            assert!(
                is_last || condition.contains(first_column),
                "{scan} in {plan}"
            );
            let rows = number(scan, "(actual rows=");
            let never = scan.contains("never executed");
            assert!(
                never || rows.is_some_and(|rows| rows <= 101),
                "{scan} in {plan}"
            );
        }
        for line in plan.lines().filter(|line| line.contains("Rows Removed by")) {
            assert!(
                number(line, ": ").is_some_and(|rows| rows < 100),
                "{line} in {plan}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_few_rows_among_very_many() {
    // The first plans are made for empty tables, and kept. The last ones know what is there.
    let stages = [
        (0, 10, ""),
        (1_000, 10, ""),
        (200_000, 10, ""),
        (1, 10, "; ANALYZE"),
    ];
    reads_few_rows_after(&stages).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_few_rows_where_very_many_wait() {
    // As after a backlog was written: the index of those in flight is empty when the first plans
    // are made.
    reads_few_rows_after(&[(100_000, 1_000_000, ""), (10_000, 2, "")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_few_rows_where_very_many_dead_have_one_key() {
    // As of a repeating timer whose occurrences all die. To a planner that knows of few keys, no
    // key selects anything.
    let of_keys = |keys| {
        format!(
            "; INSERT INTO tickwheel_dead (version, namespace, key, value, died, deadline, attempt)
            SELECT nextval('tickwheel_versions'), 1, convert_to(repeat('key ', 10) || n % {keys}, 'UTF8'), 'v', 9e15::bigint - n, 0, 1
            FROM generate_series(1, 100000) n; ANALYZE tickwheel_dead"
        )
    };
    reads_few_rows_after(&[(0, 10, &of_keys(1)), (0, 10, &of_keys(100))]).await;
}
