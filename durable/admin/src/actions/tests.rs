//! Questions before changes, and changes of many timers.

use std::sync::atomic::{AtomicU64, Ordering};

use tickwheel_durable::store::MAX_DEAD_OF_KEY;
use tickwheel_durable::{Retry, builder};

use super::*;
use crate::case::Case;

const HOUR: Duration = Duration::from_secs(3_600);

async fn count_of(case: &Case, action: Action, selection: Selection) -> String {
    let counted = question(&case.operator, action, selection).await;
    counted.expect("it counts").what
}

async fn act(case: &Case, question: &Question) -> Outcome {
    let told = AtomicU64::new(0);
    let progress = |rows| _ = told.fetch_add(rows, Ordering::Relaxed);
    let mut work = Work::new(&case.operator, "me", question, &progress);
    work.run().await;
    assert_eq!(told.load(Ordering::Relaxed), work.outcome.changed);
    work.outcome.clone()
}

async fn acted(case: &Case, action: Action, selection: Selection) -> Outcome {
    let question = question(&case.operator, action, selection).await;
    act(case, &question.expect("it counts")).await
}

/// Why it has failed.
fn why(done: &Outcome) -> String {
    let failure = done.failure.as_ref().expect("it has failed");
    failure.to_string()
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
        let asked =
            [&one, &orders(), &Selection::All].map(|which| action.needs_confirmation(which));
        assert_eq!(asked, [of_one, of_many, of_many], "{action:?}");
    }
}

/// Regression: the log of a change of three keys said "3 of them".
#[test]
fn choice_names_its_first_keys_and_tokens() {
    let keys = |count: u8| (b'a'..b'a' + count).map(|key| vec![key]).collect();
    let shown = |count| Selection::Keys(keys(count)).shown();
    assert_eq!([shown(1), shown(3)], ["a", "a, b, c"]);
    assert_eq!(shown(12), "a, b, c, d, e, f, g, h, i, j, and 2 more");
    let tokens = Selection::Tokens(vec![Version(1), Version(2)]);
    assert_eq!(tokens.shown(), "token 1, token 2");
    let empty = Selection::Keys(vec![Vec::new()]);
    assert_eq!(empty.shown(), "(empty)");
}

#[tokio::test]
async fn question_says_how_many_there_are() {
    let case = Case::new().await;
    case.in_flight(0..2).await;
    case.set(2..MAX_COUNTED, HOUR).await;
    assert_eq!(
        count_of(&case, Action::Release, Selection::All).await,
        "2 in flight timers"
    );
    let all = count_of(&case, Action::Remove, Selection::All).await;
    assert_eq!(all, "9,998 waiting timers");
    assert_eq!(count_of(&case, Action::Remove, orders()).await, all);
    case.set(MAX_COUNTED..MAX_COUNTED + 1_100, HOUR).await;
    let over = count_of(&case, Action::Remove, orders()).await;
    assert!(over.starts_with("over 10,"), "{over}");
}

#[tokio::test]
async fn question_before_a_purge_counts_timers_of_each_state() {
    let case = Case::new().await;
    let tokens = case.in_flight(0..3).await;
    case.die(vec![tokens[0]], "why").await;
    case.set(3..6, HOUR).await;
    let asked = count_of(&case, Action::Purge, Selection::All).await;
    assert_eq!(asked, "6 timers");
}

/// Those that a run makes due now are in flight soon, and were not left.
#[tokio::test]
async fn timers_in_flight_with_the_prefix_are_left_and_counted() {
    let case = Case::new().await;
    case.in_flight(0..3).await;
    case.set(3..5, HOUR).await;
    let done = acted(&case, Action::Run, orders()).await;
    assert_eq!((done.changed, done.in_flight), (2, 3));
    let done = acted(&case, Action::Remove, orders()).await;
    assert_eq!((done.changed, done.in_flight), (2, 3));
    let done = acted(&case, Action::Remove, orders()).await;
    assert_eq!(done.left(), ["3 in flight: left alone"]);
}

#[tokio::test]
async fn reasons_end_and_say_how_many_more_there_are() {
    let case = Case::new().await;
    let keys = (0..MAX_REASONS + 3)
        .map(|key| vec![b'a'; key + 1])
        .collect();
    let done = acted(&case, Action::Run, Selection::Keys(keys)).await;
    assert_eq!(done.unchanged, MAX_REASONS as u64 + 3);
    let left = done.left();
    assert_eq!(left.len(), MAX_REASONS + 1);
    assert_eq!(left[MAX_REASONS], "and 3 more");
}

/// A question stops counting; the change does not.
#[tokio::test]
async fn all_dead_timers_of_a_prefix_are_retried() {
    const DEAD: usize = MAX_COUNTED + 7;
    let case = Case::new().await;
    let tokens = case.in_flight(0..DEAD).await;
    case.die(tokens, "why").await;
    let done = acted(&case, Action::Retry, orders()).await;
    assert_eq!(done.changed, DEAD as u64);
}

#[tokio::test]
async fn log_says_why_a_change_has_failed() {
    let case = Case::new().await;
    let question = question(&case.operator, Action::Purge, Selection::All).await;
    case.store.set_away(true);
    let why = why(&act(&case, &question.expect("it counts")).await);
    let logged = case.logged.lock().expect("it is sound");
    assert!(logged[0].contains("changed=0"), "{logged:?}");
    assert!(logged[0].ends_with(&format!("error={why:?}")), "{logged:?}");
}

#[tokio::test]
async fn all_claims_are_released_and_no_dead_timer_is_touched() {
    let case = Case::new().await;
    let tokens = case.in_flight(0..3).await;
    case.die(vec![tokens[0]], "why").await;
    let done = acted(&case, Action::Release, Selection::All).await;
    assert_eq!(done.changed, 2);
    let counts = case.operator.counts().await.expect("it counts");
    assert_eq!((counts.waiting, counts.in_flight, counts.dead), (2, 0, 1));
}

/// A question that stopped counting would not know the newest claim.
#[tokio::test]
async fn all_claims_are_released_however_many_there_are() {
    let case = Case::new().await;
    case.in_flight(0..MAX_COUNTED).await;
    // The newest one has the last key.
    case.in_flight(99_999..100_000).await;
    let done = acted(&case, Action::Release, Selection::All).await;
    assert_eq!(done.changed, MAX_COUNTED as u64 + 1);
}

#[tokio::test]
async fn change_of_a_locked_key_says_that_nothing_was_changed() {
    let case = Case::new().await;
    let (dead, claim) = (case.in_flight(0..1).await[0], case.in_flight(0..1).await[0]);
    case.set(0..2, HOUR).await;
    case.die(vec![dead], "why").await;
    case.store.set_locked(true);
    let first = || Selection::Keys(vec![b"\"order 0\"".to_vec()]);
    let tokens = || Selection::Tokens(vec![claim, dead]);
    for (action, which) in [
        (Action::Remove, first()),
        (Action::Remove, orders()),
        (Action::Release, first()),
        (Action::Release, tokens()),
        (Action::Retry, first()),
        (Action::Discard, Selection::All),
    ] {
        let done = acted(&case, action, which.clone()).await;
        assert!(why(&done).contains("open transactions"), "{which:?}");
        let (changed, locked) = (done.changed, done.locked);
        assert!(changed == 0 && locked > 0, "{which:?}: {done:?}");
        let logged = case.logged.lock().expect("it is sound").pop();
        let logged = logged.expect("it is logged");
        assert!(logged.contains("open transactions"), "{logged}");
    }
    case.store.set_locked(false);
    let counts = case.operator.counts().await.expect("it counts");
    assert_eq!((counts.waiting, counts.in_flight, counts.dead), (2, 1, 1));
}

// The page and the program wait no longer than the limit; what they have sent may take longer.
#[tokio::test(start_paused = true)]
async fn change_takes_no_effect_after_its_time_limit() {
    let mut case = Case::new().await;
    case.operator.access.limit = Duration::from_secs(1);
    case.set(0..1, HOUR).await;
    let late = case.operator.access.limit + Duration::from_millis(1);
    for which in [Selection::Keys(vec![b"\"order 0\"".to_vec()]), orders()] {
        case.store.set_late(Some(("write", late)));
        let done = acted(&case, Action::Remove, which.clone()).await;
        assert!(why(&done).contains("unavailable"), "its answer was lost");
        tokio::time::sleep(2 * late).await;
        assert_eq!(case.operator.counts().await.expect("it counts").waiting, 1);
        // In time it does.
        case.store.set_late(None);
        assert_eq!(acted(&case, Action::Remove, which).await.changed, 1);
        case.set(0..1, HOUR).await;
    }
}

/// A key may have many claims and dead timers: each failed occurrence of a repeating one is such.
#[tokio::test]
async fn all_timers_of_a_key_are_counted_and_changed() {
    let case = Case::new().await;
    let key = || Selection::Keys(vec![b"\"order 0\"".to_vec()]);
    let mut claims = Vec::new();
    for _ in 0..130 {
        claims.extend(case.in_flight(0..1).await);
    }
    case.die(claims.split_off(120), "why").await;
    let counted = count_of(&case, Action::Discard, key()).await;
    assert_eq!(counted, "10 dead timers");
    let counted = count_of(&case, Action::Release, key()).await;
    assert_eq!(counted, "120 in flight timers");
    for (action, changed) in [(Action::Discard, 10), (Action::Acknowledge, 120)] {
        let done = acted(&case, action, key()).await;
        let expected = Outcome {
            changed,
            ..Outcome::default()
        };
        assert_eq!(done, expected, "{action:?}");
    }
}

/// A store answers with so many bytes at once, whatever the number of timers is.
#[tokio::test]
async fn large_timers_of_a_key_are_all_counted_and_changed() {
    let case = Case::new().await;
    let wheel = tickwheel::TimerWheel::new();
    let started = builder::<String, String>("orders").start(&wheel, case.memory.clone());
    let (timers, mut claims) = started.await.expect("it starts");
    let large = "x".repeat(ANSWER_BYTES / 5);
    let mut all = Vec::new();
    for _ in 0..12 {
        let set = timers.set_timer("order 0", &large, Duration::ZERO).await;
        set.expect("it is set");
        all.push(claims.recv().await.expect("it comes"));
    }
    for claim in all {
        claim.fail(Retry::never("why")).await.expect("it is held");
    }
    let key = || Selection::Keys(vec![b"\"order 0\"".to_vec()]);
    let counted = count_of(&case, Action::Discard, key()).await;
    assert_eq!(counted, "12 dead timers");
    assert_eq!(acted(&case, Action::Discard, key()).await.changed, 12);
}

/// Regression: timers that died again at once were retried again and again.
#[tokio::test]
async fn retry_of_a_key_ends_although_its_timers_die_again() {
    const DEAD: usize = MAX_DEAD_OF_KEY;
    let case = Case::new().await;
    let mut tokens = Vec::new();
    for _ in 0..DEAD {
        tokens.extend(case.in_flight(0..1).await);
    }
    case.die(tokens, "why").await;
    let wheel = tickwheel::TimerWheel::new();
    let started = builder::<String, u32>("orders").start(&wheel, case.memory.clone());
    let (_timers, mut claims) = started.await.expect("it starts");
    let key = Selection::Keys(vec![b"\"order 0\"".to_vec()]);
    let done = tokio::select! {
        done = acted(&case, Action::Retry, key) => done,
        () = claims.dispatch(256, |_| async { Err(Retry::never("again")) }) => panic!("it goes on"),
    };
    assert_eq!(done.changed, DEAD as u64);
}

/// Regression: a timer that died while the question was read was discarded unseen.
#[tokio::test(start_paused = true)]
async fn timer_that_died_after_the_question_is_left() {
    let case = Case::new().await;
    let tokens = case.in_flight(0..4).await;
    for (selection, pair) in [(Selection::All, &tokens[..2]), (orders(), &tokens[2..])] {
        case.die(pair[..1].to_vec(), "why").await;
        let question = question(&case.operator, Action::Discard, selection.clone()).await;
        tokio::time::sleep(Duration::from_secs(9)).await;
        case.die(pair[1..].to_vec(), "why").await;
        let done = act(&case, &question.expect("it counts")).await;
        assert_eq!(done.changed, 1, "{selection:?}");
        assert_eq!(
            count_of(&case, Action::Discard, selection).await,
            "1 dead timer"
        );
        assert_eq!(
            acted(&case, Action::Discard, Selection::All).await.changed,
            1
        );
    }
}

/// Regression: claims of handlers that had begun after the question were ended, and their timers
/// were lost.
#[tokio::test]
async fn claim_that_is_newer_than_the_question_is_left() {
    let case = Case::new().await;
    let key = Selection::Keys(vec![b"\"order 0\"".to_vec()]);
    for selection in [Selection::All, orders(), key] {
        case.in_flight(0..1).await;
        let question = question(&case.operator, Action::Acknowledge, selection).await;
        let newer = case.in_flight(0..1).await;
        let done = act(&case, &question.expect("it counts")).await;
        assert_eq!(done.changed, 1);
        let done = acted(&case, Action::Acknowledge, Selection::Tokens(newer)).await;
        assert_eq!(done.changed, 1, "it was left");
    }
}

/// Versions grow under the same key only: a claim of another key that is made later may have a
/// smaller one.
#[tokio::test]
async fn claim_that_the_question_did_not_count_is_left() {
    let case = Case::new().await;
    for selection in [Selection::All, orders()] {
        let other = case.in_flight(0..1).await;
        let counted = case.in_flight(1..2).await;
        let question = question(&case.operator, Action::Acknowledge, selection).await;
        let mut question = question.expect("it counts");
        // As if the first claim, which has the smaller version, had been made since.
        assert!(question.claims.remove(&other[0]));
        assert_eq!(act(&case, &question).await.changed, 1);
        let done = acted(&case, Action::Acknowledge, Selection::Tokens(other)).await;
        assert_eq!(done.changed, 1, "it was left");
        let done = acted(&case, Action::Acknowledge, Selection::Tokens(counted)).await;
        assert_eq!(done.changed, 0, "it was acknowledged");
    }
}

/// Regression: a key that waits counted as in flight, too, if an earlier firing was.
#[tokio::test]
async fn refused_key_counts_as_in_flight_if_its_reason_says_so() {
    let case = Case::new().await;
    case.in_flight(0..2).await;
    case.set(0..1, HOUR).await;
    for (number, in_flight, reason) in [(0, 0, "is waiting"), (1, 1, "is in flight")] {
        let key = Selection::Keys(vec![format!("\"order {number}\"").into_bytes()]);
        let done = acted(&case, Action::Retry, key).await;
        assert_eq!((done.in_flight, done.unchanged), (in_flight, 1));
        assert!(done.reasons[0].contains(reason), "{done:?}");
    }
}

/// Regression: the page says that the log tells what became of a change, and the process had ended.
#[tokio::test(start_paused = true)]
async fn change_that_is_cut_off_is_logged() {
    let case = Case::new().await;
    case.set(0..300, HOUR).await;
    let acting = acted(&case, Action::Remove, orders());
    let cut_off = tokio::time::timeout(Duration::from_millis(1), acting).await;
    assert!(cut_off.is_err());
    let logged = case.logged.lock().expect("it is sound");
    assert_eq!(logged.len(), 1);
    let text = "changed=128 error=\"it was cut off\"";
    assert!(logged[0].contains(text), "{logged:?}");
}

/// It waited when it was looked for, and fires before it is changed.
#[tokio::test(start_paused = true)]
async fn timer_that_fires_meanwhile_is_left_and_told() {
    let case = Case::new().await;
    let versions = case.set(0..1, Duration::from_millis(500)).await;
    // A look takes its time to answer.
    case.store.set_slow("rows_of", Duration::from_secs(1));
    let key = Selection::Keys(vec![b"\"order 0\"".to_vec()]);
    let question = question(&case.operator, Action::Remove, key).await;
    let question = question.expect("it counts");
    let fires = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        case.fire(versions).await;
    };
    let (done, ()) = tokio::join!(act(&case, &question), fires);
    assert_eq!((done.changed, done.in_flight, done.unchanged), (0, 1, 1));
    assert!(
        done.reasons[0].contains("is in flight with token"),
        "{done:?}"
    );
}
