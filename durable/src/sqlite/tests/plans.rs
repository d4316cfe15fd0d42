//! Every call of a running instance looks its rows up in an index, whatever the planner knows: a
//! claim costs the same among a thousand timers and among very many.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use rusqlite::StatementStatus;
use rusqlite::trace::{TraceEvent, TraceEventCodes};

use super::*;
use crate::store::{
    DeadChange, DeadRows, Fire, Inspect, KeyPlace, List, Load, Missed, PrefixRows, Schedules,
    Settle, Settlement, State, StoreTime, WriteOutcome,
};

/// The version of a dead row of the key `one`, of which there are very many.
const MIDDLE_OF_ONE: i64 = 3_700_025_000;

/// The steps that each statement has taken in all its runs, by its text. SQLite takes some for each
/// row that it looks at.
static STEPS: Mutex<BTreeMap<String, i32>> = Mutex::new(BTreeMap::new());

fn note(event: TraceEvent<'_>) {
    if let TraceEvent::Profile(statement, _) = event {
        let steps = statement.get_status(StatementStatus::VmStep);
        let mut all = STEPS.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(statement.sql().into_owned(), steps);
    }
}

/// Notes what the looks of the store do from now on.
async fn note_looks(store: &Sqlite) {
    let note = store.looks.ask(|connection| {
        connection.trace_v2(TraceEventCodes::SQLITE_TRACE_PROFILE, Some(note));
        Ok(Ok(()))
    });
    note.await.expect("it is traced");
}

/// Reads lists page by page, from their beginning and from their middle, which may be in the middle
/// of a key.
async fn read_lists(store: &Sqlite) {
    for state in [State::Waiting, State::InFlight, State::Dead] {
        let mut after = None;
        for _ in 0..3 {
            let list = List {
                state,
                after,
                limit: 10,
            };
            let page = store.list(&space(), list).await.expect("it lists");
            after = page.last().map(|row| (row.due, row.version));
        }
        let mut rows = PrefixRows::new(state, b"one".to_vec(), 10);
        for place in [None, Some(MIDDLE_OF_ONE)] {
            rows.after = place.map(|version| {
                let key = rows.prefix.clone();
                KeyPlace { key, version }.cursor()
            });
            let page = store.rows_with_prefix(&space(), rows.clone()).await;
            page.expect("it lists");
        }
    }
    store.count(&space()).await.expect("it counts");
}

/// Runs SQL on the connection of the store, and notes none of it.
async fn run(store: &Sqlite, sql: String) {
    let run = store.thread.call(move |batch| {
        batch
            .connection
            .trace_v2(TraceEventCodes::SQLITE_TRACE_PROFILE, None);
        batch.connection.execute_batch(&sql)?;
        batch
            .connection
            .trace_v2(TraceEventCodes::SQLITE_TRACE_PROFILE, Some(note));
        Ok(Ok(()))
    });
    run.await.expect("it is SQL");
}

/// Makes every call that an instance makes while it runs.
async fn make_all_calls(store: &Sqlite, instance: InstanceId) -> InstanceId {
    let space = space();
    let near = Terms::new(Duration::ZERO, Some(instance));
    let due = Due::In(Duration::ZERO);
    let of = |key: &str, action| Write {
        key: key.into(),
        action,
    };
    let set = |if_absent| Action::Set {
        value: b"v".to_vec(),
        due,
        period: None,
        schedule: None,
        if_absent,
    };
    let batch = vec![
        of("a", set(false)),
        of("b", set(true)),
        of("c", set(false)),
        of("d", Action::Remove),
        of("a", Action::Move { due }),
    ];
    let written = store.write(&space, batch, near).await.expect("it writes");
    let armed = written.iter().filter_map(|written| match written {
        WriteOutcome::Armed { row, .. } => Some(row.version),
        _ => None,
    });
    let versions = armed.collect();
    let load = Load {
        instance,
        window: Duration::from_secs(30),
        limit: 100,
        wanted: 0,
        alive: Duration::from_secs(60),
        schedules: Schedules::ALL,
        edition: None,
        name: None,
        last: None,
    };
    store.load(&space, load).await.expect("it loads");
    let fire = Fire {
        versions,
        unloaded: 0,
        lease: Some(Duration::from_secs(60)),
        missed: Missed::FireOnce,
        no_overlap: false,
        near,
        plans: Vec::new(),
        schedules: Schedules::ALL,
        by: None,
    };
    let fired = store.fire(&space, fire).await.expect("it fires").fired;
    assert_eq!(fired.len(), 3);
    let settlements = [
        Settlement::Extend(Duration::from_secs(60)),
        Settlement::Release,
        Settlement::Ack,
    ];
    let tokens = fired.iter().map(|fired| fired.token);
    for settlements in [settlements, [Settlement::Ack; 3]] {
        let settle = |(token, settlement)| Settle::new(token, settlement);
        let settles = tokens.clone().zip(settlements).map(settle).collect();
        let settled = store.settle(&space, settles, near).await;
        settled.expect("it settles");
    }
    let versions = tokens.collect();
    let left = store.unmark(&space, instance, versions).await;
    left.expect("it unmarks");
    let rows = store.rows_of(&space, b"a".to_vec(), 1).await;
    rows.expect("it reads");
    die_and_retry(store, near).await;
    let removes = ["a", "b", "c"].map(|key| of(key, Action::Remove));
    let removed = store.write(&space, removes.to_vec(), near).await;
    removed.expect("it removes");
    store.unload(&space, instance).await.expect("it unloads")
}

/// Makes a timer dead, and every call about dead ones.
async fn die_and_retry(store: &Sqlite, near: Terms) {
    let space = space();
    let set = Write {
        key: b"d".to_vec(),
        action: Action::set(b"v".to_vec(), Due::In(Duration::ZERO), None, false),
    };
    let (now, none) = (
        Duration::from_secs(60),
        DeadRows::Until(StoreTime::default()),
    );
    for which in [DeadRows::Key(b"d".to_vec()), none] {
        let written = store.write(&space, vec![set.clone()], near).await;
        let written = written.expect("it writes");
        let WriteOutcome::Armed { row, .. } = written[0] else {
            panic!("{written:?}")
        };
        let fire = Fire::new(vec![row.version], Some(now), near);
        let fired = store.fire(&space, fire).await.expect("it fires").fired;
        let token = fired[0].token;
        let dead = vec![Settle::new(token, Settlement::Dead).with_error("why")];
        store.settle(&space, dead, near).await.expect("it settles");
        let rows = store.rows_of(&space, b"d".to_vec(), 1).await;
        rows.expect("it reads");
        for (which, change) in [
            (which.clone(), DeadChange::Retry),
            (which, DeadChange::Discard),
            (DeadRows::Token(token), DeadChange::Discard),
        ] {
            let changed = store.change_dead(&space, which, change).await;
            changed.expect("it changes dead rows");
        }
        let remove = Write::new(b"d".to_vec(), Action::Remove);
        let removed = store.write(&space, vec![remove], near).await;
        removed.expect("it removes");
    }
}

#[tokio::test]
async fn looks_at_few_rows_among_very_many() {
    const ROWS: u32 = 50_000;
    let folder = Folder::new();
    let store = Sqlite::open(folder.file()).expect("it opens");
    let opened = Store::open(&store, &space(), &"json".into()).await;
    let mut instance = opened.expect("it opens").instance;
    note_looks(&store).await;
    // The statistics of an earlier `ANALYZE` may be long out of date: nothing, nothing in flight,
    // or all of it.
    let analyzed = ["", "; ANALYZE"];
    let filled = [(0, 1), (ROWS, ROWS + 1), (ROWS, 2)];
    let stages = filled
        .iter()
        .flat_map(|filled| analyzed.map(|then| (filled, then)));
    for (stage, ((rows, in_flight), then)) in stages.enumerate() {
        let fill = format!(
            "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {rows})
            INSERT INTO tickwheel_timers (version, namespace, state, key, value, due, deadline, attempt)
            SELECT n + {stage}000000000, 1, n % {in_flight} = 0, CAST(n || '-{stage}' AS BLOB), x'00',
                9000000000000000 - n / 1000, 0, 0
            FROM n WHERE {rows} > 0;
            WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {rows})
            INSERT INTO tickwheel_timers (version, namespace, state, key, value, due, deadline, attempt)
            SELECT n + {stage}500000000, 1, 2, CAST(n || '-{stage}' AS BLOB), x'00', 9000000000000000 - n / 1000, 0, 1
            FROM n WHERE {rows} > 0;
            WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {rows})
            INSERT INTO tickwheel_timers (version, namespace, state, key, value, due, deadline, attempt)
            SELECT n + {stage}700000000, 1, 2, x'6f6e65', x'00', 9000000000000000 - n / 1000, 0, 1
            FROM n WHERE {rows} > 0;
            UPDATE tickwheel_namespaces SET dead = (SELECT count(*) FROM tickwheel_timers WHERE state = 2){then}"
        );
        run(&store, fill).await;
        instance = make_all_calls(&store, instance).await;
        read_lists(&store).await;
    }
    store.purge(&space()).await.expect("it purges");
    run(&store, String::new()).await;
    let steps = STEPS.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(steps.len() > 15, "{} statements", steps.len());
    for (statement, &steps) in &*steps {
        assert!(steps < 20_000, "{steps} steps: {statement}");
    }
}
