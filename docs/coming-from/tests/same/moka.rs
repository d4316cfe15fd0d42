//! moka's time to live with an eviction listener against a set of keyed timers. Its clock is the
//! real one.

use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_coming_from::moka::{after, before};
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::support::ms;

/// Long enough for a busy machine to make its calls before anything expires.
const TTL: Duration = Duration::from_secs(2);

/// Those that were told, sorted: moka promises no order of several that expire at once.
async fn told(mut ended: UnboundedReceiver<(String, u32)>, count: usize) -> Vec<(String, u32)> {
    let mut told = Vec::new();
    for _ in 0..count {
        let next = tokio::time::timeout(ms(60_000), ended.recv()).await;
        told.push(next.expect("it is told").expect("it listens"));
    }
    let more = tokio::time::timeout(ms(500), ended.recv()).await;
    assert!(!matches!(more, Ok(Some(_))), "no more is told: {more:?}");
    told.sort();
    told
}

#[tokio::test]
async fn same_sessions_end_with_the_same_users() {
    let (ended, before_ended) = mpsc::unbounded_channel();
    let before = before::sessions(TTL, ended);
    let house = tokio::spawn(before::keep_house(before.clone()));
    let wheel = TimerWheel::new();
    let (ended, after_ended) = mpsc::unbounded_channel();
    let after = after::sessions(&wheel, ended);

    for (session, user) in [("a", 1), ("b", 2), ("c", 3), ("a", 4)] {
        before.insert(session.to_owned(), user).await;
        after
            .set_timer(session.to_owned(), user, TTL)
            .expect("it is open");
    }
    before.invalidate("b").await;
    after.remove_timer("b").expect("it is open");
    for session in ["a", "b", "c", "d"] {
        assert_eq!(before.get(session).await, after.get(session), "{session}");
    }

    let told = (told(before_ended, 2).await, told(after_ended, 2).await);
    assert_eq!(told.0, told.1);
    assert_eq!(told.0, [("a".to_owned(), 4), ("c".to_owned(), 3)]);
    for session in ["a", "b", "c", "d"] {
        assert_eq!(before.get(session).await, None, "{session}");
        assert_eq!(after.get(session), None, "{session}");
    }
    house.abort();
}

#[tokio::test]
async fn silent_cache_tells_its_listener_here_only() {
    let ttl = ms(50);
    let (ended, mut before_ended) = mpsc::unbounded_channel();
    let before = before::sessions(ttl, ended);
    let wheel = TimerWheel::new();
    let (ended, mut after_ended) = mpsc::unbounded_channel();
    let after = after::sessions(&wheel, ended);
    before.insert("a".to_owned(), 1).await;
    after.set_timer("a".to_owned(), 1, ttl).expect("it is open");

    tokio::time::sleep(ms(1000)).await;
    assert_eq!(after_ended.recv().await, Some(("a".to_owned(), 1)));
    assert!(before_ended.try_recv().is_err());
    before.run_pending_tasks().await;
    assert_eq!(before_ended.recv().await, Some(("a".to_owned(), 1)));
}

#[tokio::test]
async fn listener_hears_of_the_last_user_of_a_replaced_session() {
    let wheel = TimerWheel::new();
    let (ended, after_ended) = mpsc::unbounded_channel();
    let after = after::sessions(&wheel, ended);
    after
        .set_timer("a".to_owned(), 1, ms(500))
        .expect("it is open");
    // The caller has the old user, the listener does not hear of it.
    let replaced = after
        .set_timer("a".to_owned(), 2, ms(10))
        .expect("it is open");
    assert_eq!(replaced, Some(1));
    assert_eq!(told(after_ended, 1).await, [("a".to_owned(), 2)]);
}
