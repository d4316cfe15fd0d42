//! Loads begin where the last one has ended: they walk through no entries of rows that are gone,
//! which an old snapshot keeps in the indices, and find all that comes before that place.
//!
//! The server counts the pages that a statement looks at.

use std::time::Duration;

use tickwheel_durable::Postgres;
use tickwheel_durable::store::{
    Action, Continuity, DeadChange, DeadRows, Due, Fire, InstanceId, Load, Namespace, Settle,
    Settlement, Store, StoreTime, Terms, Version, Write, WriteOutcome,
};
use tokio::time::timeout;
use tokio_postgres::Client;

use super::returned::{keep, restore};
use super::server::{Server, client, database, missing};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const NOW: Due = Due::In(Duration::ZERO);

async fn run(client: &Client, sql: &str) {
    let done = client.batch_execute(sql).await;
    done.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

struct Case {
    url: String,
    store: Postgres,
    space: Namespace,
    instance: InstanceId,
}

impl Case {
    async fn open(url: String) -> Self {
        let store = Postgres::connect(&url).await.expect("it connects");
        let space = Namespace::new("place").expect("it is a name");
        let opened = store.open(&space, &"json".into()).await.expect("it opens");
        let instance = opened.instance;
        Case {
            url,
            store,
            space,
            instance,
        }
    }

    /// Another instance in another process.
    async fn other(&self) -> Self {
        Case::open(self.url.clone()).await
    }

    async fn load_for(&self, limit: usize, alive: Duration) -> Vec<Version> {
        let load = Load::new(self.instance, 30 * SECOND, limit, alive);
        let loaded = self.store.load(&self.space, load).await.expect("it loads");
        loaded
            .rows
            .into_iter()
            .map(|(version, _)| version)
            .collect()
    }

    async fn load(&self) -> Vec<Version> {
        self.load_for(4096, HOUR).await
    }

    async fn write(&self, key: &str, due: Due) -> Version {
        let action = Action::set(b"1".to_vec(), due, None, false);
        let writes = vec![Write::new(key.into(), action)];
        let written = self.store.write(&self.space, writes, Terms::NONE).await;
        match written.expect("it writes")[0] {
            WriteOutcome::Armed { row, .. } => row.version,
            ref other => panic!("{other:?}"),
        }
    }

    async fn fire(&self, versions: Vec<Version>) -> Vec<Version> {
        let fire = Fire::new(versions, Some(HOUR), Terms::NONE);
        let fired = self
            .store
            .fire(&self.space, fire)
            .await
            .expect("it fires")
            .fired;
        fired.iter().map(|fired| fired.token).collect()
    }

    async fn settle(&self, tokens: Vec<Version>, settlement: Settlement) {
        let settles = tokens
            .into_iter()
            .map(|token| Settle::new(token, settlement));
        let settled = self
            .store
            .settle(&self.space, settles.collect(), Terms::NONE)
            .await;
        settled.expect("it settles");
    }

    /// The lives of timers, some of which their writer loads and some of which it does not.
    async fn live(&self, rounds: u32) {
        for round in 0..rounds {
            for loader in [None, Some(self.instance)] {
                let writes = (0..500).map(|number: u32| {
                    let action = Action::set(b"1".to_vec(), NOW, None, false);
                    Write::new(format!("{round}-{number}").into(), action)
                });
                let near = Terms::new(HOUR, loader);
                let written = self.store.write(&self.space, writes.collect(), near).await;
                let written = written.expect("it writes").into_iter();
                let versions = written.map(|written| match written {
                    WriteOutcome::Armed { row, .. } => row.version,
                    other => panic!("{other:?}"),
                });
                let versions = versions.collect();
                self.load().await;
                let tokens = self.fire(versions).await;
                assert_eq!(tokens.len(), 500);
                self.settle(tokens, Settlement::Ack).await;
            }
        }
    }

    /// Loads once a second for so long.
    async fn idle(&self, seconds: u32) {
        for _ in 0..seconds {
            tokio::time::sleep(SECOND).await;
            assert_eq!(self.load().await, []);
        }
    }
}

/// The pages that the statements of the latest load have looked at.
fn pages_of_last_load(server: &Server) -> u64 {
    let log = std::fs::read_to_string(server.folder().join("log")).expect("it can be read");
    let plans: Vec<_> = log.split("LOG:  duration").skip(1).collect();
    let load = plans
        .iter()
        .rposition(|plan| plan.contains("AS others_lack"));
    let load = load.expect("it is explained");
    let pages = |plan: &str| -> u64 {
        let buffers = plan.lines().find(|line| line.contains("Buffers: shared"));
        let numbers = buffers.into_iter().flat_map(|line| line.split(['=', ' ']));
        numbers.filter_map(|word| word.parse::<u64>().ok()).sum()
    };
    // The sign of life comes before it, and the place after it.
    plans[load - 1..]
        .iter()
        .take(3)
        .map(|plan| pages(plan))
        .sum()
}

/// An open transaction anywhere keeps the index entries of all timers since: an idle load took 90
/// ms after 200,000 of them, and 340 after 600,000.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_load_walks_through_no_rows_that_are_gone() {
    let settings = [
        "fsync=off",
        "shared_preload_libraries=auto_explain",
        "auto_explain.log_min_duration=0",
        "auto_explain.log_analyze=on",
        "auto_explain.log_buffers=on",
        "auto_explain.log_timing=off",
    ];
    let Some(server) = Server::start(&settings) else {
        return missing();
    };
    let case = Case::open(server.url()).await;
    case.idle(3).await;
    let fresh = pages_of_last_load(&server);
    let report = client(&server.url()).await;
    run(
        &report,
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM tickwheel_timers",
    )
    .await;
    case.live(10).await;
    // What was written a moment ago is looked at.
    case.idle(14).await;
    let old = pages_of_last_load(&server);
    assert!(
        old <= 2 * fresh,
        "{old} pages, and {fresh} of a fresh table"
    );
    run(&report, "COMMIT").await;
}

/// An old transaction in the database is what an operator has to look for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_tells_how_old_the_oldest_snapshot_is() {
    let Some(url) = database("place_snapshot").await else {
        return missing();
    };
    let case = Case::open(url).await;
    let report = client(&case.url).await;
    run(&report, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await;
    tokio::time::sleep(2 * SECOND).await;
    let age = async |case: &Case| {
        let load = Load::new(case.instance, SECOND, 10, HOUR);
        let loaded = case.store.load(&case.space, load).await.expect("it loads");
        loaded.oldest_snapshot
    };
    let old = age(&case).await.expect("the first load looks for it");
    assert!(old >= 2 * SECOND, "{old:?}");
    assert_eq!(age(&case).await, None, "others do not");
    run(&report, "COMMIT").await;
    let young = age(&case.other().await).await;
    assert!(young.is_some_and(|young| young < old), "{young:?}");
}

/// Whatever comes before the place at which loads begin is found by the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_finds_what_comes_before_its_place() {
    let Some(url) = database("place").await else {
        return missing();
    };
    let case = Case::open(url).await;
    let (other, user) = (case.other().await, client(&case.url).await);
    // One that sees its timers before the place passes them, and one that is set to the past.
    run(
        &user,
        "BEGIN; SELECT tickwheel_set('place', 'of a user', '1', now())",
    )
    .await;
    let past = client(&case.url).await;
    run(
        &past,
        "BEGIN; SELECT tickwheel_set('place', 'past', '1', '2001-01-01')",
    )
    .await;
    case.idle(8).await;
    run(&user, "COMMIT").await;
    assert_eq!(
        case.load().await.len(),
        1,
        "a transaction that has begun long ago"
    );
    run(&past, "COMMIT").await;
    assert_eq!(
        case.load().await.len(),
        1,
        "a set to the past in a transaction"
    );
    case.idle(8).await;
    // From now on a load begins a few seconds ago.
    let at = StoreTime::from_micros(1_000_000);
    let row = other.write("past", Due::At(at)).await;
    assert_eq!(case.load().await, [row], "a set to the past");
    let tokens = case.fire(vec![row]).await;
    case.settle(tokens.clone(), Settlement::Dead).await;
    let retried =
        other
            .store
            .change_dead(&case.space, DeadRows::Token(tokens[0]), DeadChange::Retry);
    assert_eq!(retried.await.expect("it retries").rows, 1);
    let retried = case.load().await;
    assert_eq!(retried.len(), 1, "a retry");

    // An instance loads rows that were due long ago, and gives them back in each way.
    for way in ["it unmarks", "it unloads", "it dies"] {
        let row = other.write("old", Due::At(at)).await;
        let alive = if way == "it dies" {
            Duration::ZERO
        } else {
            HOUR
        };
        assert_eq!(other.load_for(10, alive).await, [row]);
        assert_eq!(case.load_for(0, HOUR).await, []);
        match way {
            "it unmarks" => {
                let unmarked = other.store.unmark(&case.space, other.instance, vec![row]);
                unmarked.await.expect("it unmarks");
            }
            "it unloads" => {
                let unloaded = other.store.unload(&case.space, other.instance);
                unloaded.await.expect("it unloads");
            }
            _ => {}
        }
        assert_eq!(case.load().await, [row], "{way}");
        case.fire(vec![row]).await;
    }

    // Rows that a load leaves: beyond its limit, and locked.
    let left = [
        other.write("left 1", Due::At(at)).await,
        other.write("left 2", Due::At(at)).await,
    ];
    assert_eq!(case.load_for(1, HOUR).await, left[..1]);
    assert_eq!(case.load_for(0, HOUR).await, []);
    run(
        &user,
        "BEGIN; SELECT 1 FROM tickwheel_timers WHERE key = 'left 2' FOR UPDATE",
    )
    .await;
    for _ in 0..3 {
        assert_eq!(case.load().await, []);
    }
    run(&user, "ROLLBACK").await;
    assert_eq!(case.load().await, left[1..]);
}

/// Rows that return by a restore in place, while all connections last, may be due before the place.
/// No instance has loaded them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_after_a_return_begins_at_the_beginning() {
    let Some(server) = Server::start(&["fsync=off"]) else {
        return missing();
    };
    let case = Case::open(server.url()).await;
    let other = case.other().await;
    let rows = [
        case.write("first", NOW).await,
        case.write("second", NOW).await,
    ];
    keep(&case.url).await;
    let tokens = case.fire(rows.to_vec()).await;
    case.settle(tokens, Settlement::Ack).await;
    let mut last = None;
    let load = async |last| {
        let mut load = Load::new(case.instance, 30 * SECOND, 10, HOUR);
        load.last = last;
        let loaded = case.store.load(&case.space, load).await.expect("it loads");
        assert_eq!(loaded.rows, []);
        (loaded.continuity, Some(loaded.receipt))
    };
    for _ in 0..9 {
        tokio::time::sleep(SECOND).await;
        let (continuity, receipt) = load(last).await;
        assert_eq!(continuity, Continuity::Kept);
        assert_eq!(other.load().await, []);
        last = receipt;
    }
    restore(&case.url).await;
    let (continuity, _) = load(last).await;
    assert_eq!(continuity, Continuity::Broken);
    assert_eq!(case.load_for(1, HOUR).await, rows[..1], "the next load");
    // An instance that starts has nothing to compare.
    let opened = other.store.open(&case.space, &"json".into()).await;
    let instance = opened.expect("it opens").instance;
    let started = Case { instance, ..other };
    assert_eq!(started.load().await, rows[1..], "another instance");
}

/// Loads waited for a row that a transaction had locked, if its instance had died.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_waits_for_no_locked_row_of_a_dead_instance() {
    let Some(url) = database("place_locked").await else {
        return missing();
    };
    let case = Case::open(url).await;
    let other = case.other().await;
    let rows = [
        other.write("locked", NOW).await,
        other.write("free", NOW).await,
    ];
    assert_eq!(other.load_for(10, Duration::ZERO).await.len(), 2);
    let user = client(&case.url).await;
    run(
        &user,
        "BEGIN; SELECT 1 FROM tickwheel_timers WHERE key = 'locked' FOR UPDATE",
    )
    .await;
    let load = timeout(60 * SECOND, case.load()).await;
    assert_eq!(load.expect("it does not wait"), rows[1..]);
    // However often others load meanwhile, the first load after the lock finds the row.
    case.idle(12).await;
    let unloaded = timeout(60 * SECOND, other.store.unload(&case.space, other.instance)).await;
    unloaded.expect("it does not wait").expect("it unloads");
    run(&user, "ROLLBACK").await;
    assert_eq!(case.load().await, rows[..1]);
}

/// How many rows are marked by an id.
async fn marked_by(client: &Client, InstanceId(id): InstanceId) -> i64 {
    let count = "SELECT count(*) FROM tickwheel_timers WHERE loaded_by = $1";
    let counted = client.query_one(count, &[&id]).await;
    counted.expect("it counts").get(0)
}

/// Neither an unload nor a load changes more than a bounded number of rows of an id that has ended,
/// and the loads of another instance find all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marks_of_an_ended_id_are_taken_away_in_steps() {
    const ROWS: i64 = 3_000;
    const STEP: i64 = 1_024;
    let Some(url) = database("steps_of_marks").await else {
        return missing();
    };
    let client = client(&url).await;
    let ended = Case::open(url).await;
    let action = || Action::set(b"1".to_vec(), Due::In(10 * SECOND), None, false);
    let writes = (0..ROWS).map(|number| Write::new(number.to_string().into(), action()));
    let written = ended
        .store
        .write(&ended.space, writes.collect(), Terms::NONE);
    written.await.expect("it writes");
    assert_eq!(ended.load().await.len(), 3_000);
    let unloaded = ended.store.unload(&ended.space, ended.instance).await;
    unloaded.expect("it unloads");
    assert_eq!(marked_by(&client, ended.instance).await, ROWS - STEP);

    // One that dies takes them over, and a third one.
    let (dies, lives) = (ended.other().await, ended.other().await);
    for (from, to, alive) in [(&ended, &dies, SECOND / 10), (&dies, &lives, HOUR)] {
        let mut loaded = 0;
        for _ in 0..10 {
            let before = marked_by(&client, from.instance).await;
            let load = Load::new(to.instance, 30 * SECOND, 4_096, alive);
            let answer = to.store.load(&to.space, load).await.expect("it loads");
            let left = marked_by(&client, from.instance).await;
            assert!(before - left <= STEP, "{before} to {left}");
            assert!(answer.more || left == 0, "the next load goes on");
            loaded += answer.rows.len();
            if left == 0 {
                break;
            }
        }
        assert_eq!(loaded, 3_000);
        tokio::time::sleep(SECOND / 2).await;
    }
}
