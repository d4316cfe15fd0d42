//! What is asked before a change, and what many timers have to do with it.

use std::sync::{Arc, Mutex};

use tickwheel_durable::Memory;
use tickwheel_durable::store::{
    Due, Fire, LoadWindow, Namespace, Settle, Store as _, Write, WriteOutcome,
};

use super::*;
use crate::operator::Desk;

const HOUR: Duration = Duration::from_secs(3_600);

/// Timers of a store in memory, and what is logged.
struct Case {
    store: Memory,
    space: Namespace,
    operator: Operator,
    logged: Arc<Mutex<Vec<String>>>,
}

impl Case {
    async fn new() -> Self {
        let (store, space) = (
            Memory::new(),
            Namespace::new("orders").expect("it is a name"),
        );
        let opened = store.open(&space, &"json".into()).await;
        opened.expect("it opens");
        let mut desk = Desk::new(store.clone().into(), Duration::from_secs(5));
        let logged = Arc::<Mutex<Vec<String>>>::default();
        desk.log = Arc::new({
            let logged = Arc::clone(&logged);
            move |line| logged.lock().expect("it is sound").push(line.to_owned())
        });
        let found = desk.namespaces(Some(&space)).await.expect("it lists");
        let operator = desk.operator(&found[0]);
        Case {
            store,
            space,
            operator,
            logged,
        }
    }

    /// Sets timers with keys that begin with `order `.
    async fn set(&self, numbers: std::ops::Range<usize>, due: Duration) -> Vec<Version> {
        let writes = numbers.map(|number| {
            let set =
                tickwheel_durable::store::Action::set(b"1".to_vec(), Due::In(due), None, false);
            Write::new(format!("\"order {number}\"").into_bytes(), set)
        });
        let written = self
            .store
            .write(&self.space, writes.collect(), LoadWindow::NONE);
        let written = written.await.expect("it writes");
        let versions = written.iter().map(|written| match written {
            WriteOutcome::Armed { row, .. } => row.version,
            other => panic!("{other:?}"),
        });
        versions.collect()
    }

    /// Fires so many timers. Returns their tokens.
    async fn in_flight(&self, numbers: std::ops::Range<usize>) -> Vec<Version> {
        let versions = self.set(numbers, Duration::ZERO).await;
        let fire = Fire::new(versions, Some(HOUR), LoadWindow::NONE);
        let fired = self.store.fire(&self.space, fire).await.expect("it fires");
        fired.fired.iter().map(|fired| fired.token).collect()
    }

    async fn count(&self, action: Action, selection: Selection) -> String {
        let counted = count(&self.operator, action, &selection).await;
        counted.expect("it counts").1
    }
}

fn orders() -> Selection {
    Selection::Prefix(b"\"order ".to_vec())
}

#[test]
fn what_nothing_brings_back_is_asked_first() {
    let one = Selection::Keys(vec![b"a".to_vec()]);
    let move_on = Action::MoveIn(HOUR);
    for (action, of_one, of_many) in [
        (Action::Remove, true, true),
        (Action::Discard, true, true),
        (Action::Acknowledge, true, true),
        (Action::Purge, true, true),
        (move_on, false, true),
        (Action::Run, false, true),
        (Action::Release, false, true),
        (Action::Retry, false, false),
    ] {
        let asked = [&one, &orders(), &Selection::All].map(|which| action.is_asked(which));
        assert_eq!(asked, [of_one, of_many, of_many], "{action:?}");
    }
}

#[tokio::test]
async fn question_says_how_many_there_are() {
    let case = Case::new().await;
    case.in_flight(0..2).await;
    case.set(2..COUNTED, HOUR).await;
    assert_eq!(
        case.count(Action::Release, Selection::All).await,
        "2 in flight timers"
    );
    let all = case.count(Action::Remove, Selection::All).await;
    assert_eq!(all, "9,998 waiting timers");
    assert_eq!(case.count(Action::Remove, orders()).await, all);
    case.set(COUNTED..COUNTED + 1_100, HOUR).await;
    let over = case.count(Action::Remove, orders()).await;
    assert!(over.starts_with("over 10,"), "{over}");
}

#[tokio::test]
async fn all_dead_timers_of_a_prefix_are_retried() {
    const DEAD: usize = FOUND_AT_ONCE + 7;
    let case = Case::new().await;
    let tokens = case.in_flight(0..DEAD).await;
    let settles = tokens
        .into_iter()
        .map(|token| Settle::new(token, Settlement::Dead));
    let settled = case
        .store
        .settle(&case.space, settles.collect(), LoadWindow::NONE);
    settled.await.expect("it settles");
    let done = act(&case.operator, "me", Action::Retry, orders(), &|_| ()).await;
    assert_eq!(done.expect("it acts").changed, DEAD as u64);
}

#[tokio::test]
async fn log_says_why_a_change_has_failed() {
    let case = Case::new().await;
    let wrong = Selection::Keys(vec![b"a".to_vec()]);
    let failed = act(&case.operator, "me", Action::Purge, wrong, &|_| ()).await;
    let why = failed.expect_err("a purge is of all").to_string();
    let logged = case.logged.lock().expect("it is sound");
    assert!(logged[0].contains("changed=0"), "{logged:?}");
    assert!(logged[0].ends_with(&format!("error={why:?}")), "{logged:?}");
}

#[tokio::test]
async fn all_claims_are_released_and_no_dead_timer_is_touched() {
    let case = Case::new().await;
    let tokens = case.in_flight(0..3).await;
    let settles = vec![Settle::new(tokens[0], Settlement::Dead)];
    let settled = case.store.settle(&case.space, settles, LoadWindow::NONE);
    settled.await.expect("it settles");
    let done = act(
        &case.operator,
        "me",
        Action::Release,
        Selection::All,
        &|_| (),
    )
    .await;
    assert_eq!(done.expect("it acts").changed, 2);
    let counts = case.operator.counts().await.expect("it counts");
    assert_eq!((counts.waiting, counts.in_flight, counts.dead), (2, 0, 1));
}
