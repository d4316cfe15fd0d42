//! The counts that calls keep, which must be those of the rows.

use super::*;
use crate::store::{DeadChange, DeadRows, Missed, Schedules, Settlement, State, WriteOutcome};

/// Compares the counts with the rows.
async fn counts_are_those_of_the_rows(store: &Sqlite, what: &str) {
    let counts = store.count(&space()).await.expect("it counts");
    let rows = store.looks.ask(|connection| {
        let count = |state: i64| {
            let sql = "SELECT count(*) FROM tickwheel_timers WHERE state = ?1";
            connection.query_row(sql, [state], |row| row.get::<_, u32>(0).map(u64::from))
        };
        Ok(Ok((count(0)?, count(1)?, count(2)?)))
    });
    let rows = rows.await.expect("it looks");
    let counts = (counts.waiting, counts.in_flight, counts.dead);
    assert_eq!(counts, rows, "after {what}");
}

fn version(written: &[WriteOutcome]) -> Version {
    match written[0] {
        WriteOutcome::Armed { row, .. } => row.version,
        ref other => panic!("{other:?}"),
    }
}

/// A set of one key that is due at once.
fn due(key: u8, period: Option<Duration>, if_absent: bool) -> Vec<Write> {
    vec![Write {
        key: vec![key],
        action: Action::Set {
            value: Vec::new(),
            due: Due::In(Duration::ZERO),
            period,
            schedule: None,
            if_absent,
        },
    }]
}

/// Every kind of call, and calls that fail after they have written, in a random order on few keys.
#[tokio::test]
async fn counts_stay_those_of_the_rows() {
    let folder = Folder::new();
    let (store, space) = (opened(&folder).await, space());
    let mut random = fastrand::Rng::with_seed(7);
    let mut versions = vec![Version(1)];
    for number in 0..400 {
        let key = random.u8(0..6);
        let period = random.bool().then_some(Duration::from_secs(3_600));
        let kind = random.u8(0..16);
        let at = random.usize(versions.len().saturating_sub(8)..versions.len());
        let some = versions[at];
        let write = async |writes| {
            let written = store.write(&space, writes, NEAR).await;
            written.expect("it writes")
        };
        match kind {
            0..4 => versions.push(version(&write(due(key, period, false)).await)),
            4 => drop(write(due(key, None, true)).await),
            5 => {
                let (key, action) = (vec![key], Action::Remove);
                drop(write(vec![Write { key, action }]).await);
            }
            6 => {
                let action = Action::Move {
                    due: Due::In(Duration::ZERO),
                };
                let key = vec![key];
                let moved = write(vec![Write { key, action }]).await;
                if let WriteOutcome::Armed { row, .. } = moved[0] {
                    versions.push(row.version);
                }
            }
            7..10 => {
                let leases = [None, Some(Duration::ZERO), Some(Duration::from_secs(60))];
                let rules = [Missed::FireAll, Missed::FireOnce, Missed::Skip];
                let fire = Fire {
                    versions: vec![some, versions[versions.len() - 1]],
                    unloaded: 0,
                    lease: leases[random.usize(0..3)],
                    missed: rules[random.usize(0..3)],
                    no_overlap: false,
                    near: NEAR,
                    plans: Vec::new(),
                    schedules: Schedules::ALL,
                    by: None,
                };
                let report = store.fire(&space, fire).await.expect("it fires");
                versions.extend(report.fired.iter().map(|fired| fired.token));
                versions.extend(report.next.iter().map(|row| row.version));
            }
            10..12 => {
                let settlements = [
                    Settlement::Ack,
                    Settlement::RetryAfter(Duration::ZERO),
                    Settlement::Release,
                    Settlement::Unfire,
                    Settlement::Extend(Duration::ZERO),
                    Settlement::Dead,
                    Settlement::Dead,
                ];
                let settlement = settlements[random.usize(0..settlements.len())];
                let settle = Settle::new(some, settlement);
                let settled = store.settle(&space, vec![settle], NEAR).await;
                if let Settled::Armed(row) = settled.expect("it settles")[0] {
                    versions.push(row.version);
                }
            }
            12 => {
                let failing = store.call(&space, move |call| {
                    rules::write(call, &mut due(key, None, false).into_iter(), NEAR)?;
                    Err::<(), _>(rusqlite::Error::InvalidQuery)
                });
                failing.await.expect_err("it fails");
            }
            13 => {
                let which = DeadRows::Key(vec![key]);
                let retried = store.change_dead(&space, which, DeadChange::Retry);
                retried.await.expect("it retries");
            }
            14 => {
                let which = DeadRows::Token(some);
                let discarded = store.change_dead(&space, which, DeadChange::Discard);
                discarded.await.expect("it discards");
            }
            _ if number % 3 == 0 => drop(store.purge(&space).await.expect("it purges")),
            _ => {
                let opened = Store::open(&store, &space, &"json".into()).await;
                let unloaded = store.unload(&space, opened.expect("it opens").instance);
                unloaded.await.expect("it unloads");
            }
        }
        counts_are_those_of_the_rows(&store, &format!("call {number} of kind {kind}")).await;
    }
    let counts = store.count(&space).await.expect("it counts");
    assert!(counts.waiting + counts.in_flight > 0, "something is there");
}

/// Rows of both states in one step of a purge, and more than one step.
#[tokio::test]
async fn steps_of_a_purge_are_counted() {
    let folder = Folder::new();
    let (store, space) = (opened(&folder).await, space());
    let writes = (0..700_u16).map(|number| Write {
        key: number.to_be_bytes().to_vec(),
        ..due(0, None, false).remove(0)
    });
    let written = store.write(&space, writes.collect(), NEAR).await;
    let written = written.expect("it writes");
    let list = crate::store::List {
        state: State::Waiting,
        after: None,
        limit: 300,
    };
    let rows = store.list(&space, list).await.expect("it lists");
    let fire = Fire {
        versions: rows.iter().map(|row| row.version).collect(),
        unloaded: 0,
        lease: Some(Duration::from_secs(60)),
        missed: Missed::FireOnce,
        no_overlap: false,
        near: NEAR,
        plans: Vec::new(),
        schedules: Schedules::ALL,
        by: None,
    };
    let fired = store.fire(&space, fire).await.expect("it fires").fired;
    assert_eq!((written.len(), fired.len()), (700, 300));
    let mut steps = 0;
    loop {
        counts_are_those_of_the_rows(&store, &format!("{steps} steps")).await;
        let purged = store.purge(&space).await.expect("it purges");
        steps += 1;
        if !purged.more {
            break;
        }
    }
    assert!(steps > 1);
    counts_are_those_of_the_rows(&store, "all steps").await;
}
