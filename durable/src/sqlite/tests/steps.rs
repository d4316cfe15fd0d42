//! Calls that go in steps, of which each changes some hundred rows however many there are.

use super::*;
use crate::store::rules::STEP_ROWS;
use crate::store::{Fire, Load};

const HOUR: Duration = Duration::from_secs(3_600);

/// More than two steps.
const ROWS: usize = 2 * STEP_ROWS + 100;

/// Makes a call of an instance. Returns its answer, and how many rows it has changed.
async fn changed<T: Send + 'static>(
    store: &Sqlite,
    call: impl FnOnce(&mut Call<'_>) -> rusqlite::Result<T> + Send + 'static,
) -> (T, usize) {
    let calling = store.call(&space(), move |made| {
        let before = made.batch.connection.total_changes();
        let answer = call(made)?;
        let changes = made.batch.connection.total_changes() - before;
        Ok((answer, usize::try_from(changes).expect("they are few")))
    });
    calling.await.expect("it is made")
}

/// An instance that has loaded so many rows, the first of them due first.
async fn loaded(store: &Sqlite) -> InstanceId {
    let opened = Store::open(store, &space(), &"json".into()).await;
    let instance = opened.expect("it opens").instance;
    let writes = (0..ROWS).map(|number| {
        let due = Due::In(Duration::from_micros(number as u64));
        let key = format!("{number:05}").into_bytes();
        Write::new(key, Action::set(vec![7], due, None, false))
    });
    let written = store.write(&space(), writes.collect(), NEAR).await;
    written.expect("it writes");
    let load = Load::new(instance, HOUR, ROWS, HOUR);
    let found = store.load(&space(), load).await.expect("it loads").rows;
    assert_eq!(found.len(), ROWS);
    instance
}

/// Regression: the end of an id took as long as it had rows, in a transaction that all calls of all
/// processes waited for.
#[tokio::test]
async fn marks_of_an_ended_id_are_taken_away_in_steps() {
    let folder = Folder::new();
    let store = opened(&folder).await;
    let instance = loaded(&store).await;
    let (fresh, changes) = changed(&store, move |call| call.unload(instance)).await;
    assert!(changes <= STEP_ROWS + 5, "{changes}");
    let (mut keys, mut calls) = (Vec::new(), 0);
    loop {
        let load = Load::new(fresh, HOUR, 300, HOUR);
        let (answer, changes) = changed(&store, move |call| rules::load(call, &load)).await;
        assert!(changes <= STEP_ROWS + 305, "{changes}");
        keys.extend(answer.rows.iter().map(|&(_, due)| due));
        calls += 1;
        if !answer.more {
            break;
        }
    }
    assert_eq!(keys.len(), ROWS);
    assert!(keys.is_sorted(), "earliest first");
    assert!(calls < 6, "{calls}");
    let ids = changed(&store, |call| {
        let sql = "SELECT count(*) FROM tickwheel_instances";
        call.batch
            .connection
            .query_row(sql, (), |row| row.get::<_, i64>(0))
    });
    assert_eq!(ids.await.0, 1, "the ended one is forgotten");
}

/// A fire that takes due rows without loading them finds all of them, too.
#[tokio::test]
async fn fires_take_what_an_ended_id_has_left_step_by_step() {
    let folder = Folder::new();
    let store = opened(&folder).await;
    let instance = loaded(&store).await;
    let unloaded = store.unload(&space(), instance).await;
    unloaded.expect("it unloads");
    let (mut fired, mut due) = (0, Vec::new());
    loop {
        let mut fire = Fire::new(Vec::new(), Some(HOUR), NEAR);
        fire.unloaded = 400;
        let (report, changes) = changed(&store, move |call| rules::fire(call, &fire)).await;
        assert!(changes <= STEP_ROWS + 405, "{changes}");
        fired += report.fired.len();
        due.extend(report.fired.iter().map(|fired| fired.deadline));
        if !report.more {
            break;
        }
    }
    assert_eq!(fired, ROWS);
    assert!(due.is_sorted(), "earliest first");
}

/// Regression: one set deleted all dead rows of its key, 600,000 in 3 s.
#[tokio::test]
async fn writes_discard_dead_rows_in_steps() {
    const KEYS: usize = 20;
    let folder = Folder::new();
    let store = opened(&folder).await;
    let writes = || {
        let due = Due::In(Duration::ZERO);
        let key = |number| format!("{number:05}").into_bytes();
        let each = (0..KEYS)
            .map(move |number| Write::new(key(number), Action::set(vec![7], due, None, false)));
        each.collect::<Vec<_>>()
    };
    let mut tokens = Vec::new();
    for _ in 0..100 {
        let written = store.write(&space(), writes(), NEAR).await;
        written.expect("it writes");
        let mut fire = Fire::new(Vec::new(), Some(HOUR), NEAR);
        fire.unloaded = KEYS;
        let report = store.fire(&space(), fire).await.expect("it fires");
        tokens.extend(report.fired.iter().map(|fired| fired.token));
    }
    let settles = tokens
        .iter()
        .map(|&token| Settle::new(token, Settlement::Dead));
    let settled = store.settle(&space(), settles.collect(), NEAR).await;
    settled.expect("it settles");
    let (mut left, mut steps) = (writes().into_iter(), 0);
    while left.len() > 0 {
        let ((written, rest), changes) = changed(&store, move |call| {
            Ok((rules::write(call, &mut left, NEAR)?, left))
        })
        .await;
        assert!(changes <= STEP_ROWS + 110 + written.len(), "{changes}");
        (left, steps) = (rest, steps + 1);
    }
    assert_eq!(steps, 4);
    let counts = store.count(&space()).await.expect("it counts");
    assert_eq!((counts.waiting, counts.dead), (KEYS as u64, 0));
}
