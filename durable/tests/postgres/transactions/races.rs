//! Transactions and calls on the same keys at the same moment.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{join, join_all};
use tickwheel_durable::{Moved, Removed, SetIfAbsent};
use tokio::time::timeout;

use super::super::server::{client, database, missing};
use super::{HOUR, SECOND, run, start, text};

/// No writer is told that a key has no timer while it has one at every instant, whichever writer
/// sets and moves it, and whatever is rolled back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timer_of_racing_writers_never_seems_absent() {
    let Some(url) = database("never_absent").await else {
        return missing();
    };
    let (timers, mut claims) = start(&url).await;
    let (others, _others_claims) = start(&url).await;
    let keys = ["a", "b", "c"];
    for key in keys {
        timers.set_timer(key, &0, HOUR).await.expect("it is set");
    }
    let user = async |number: u32| {
        let user = client(&url).await;
        for round in 0..120 {
            let key = keys[(round + number) as usize % 3];
            let (call, says) = match (round + number) % 4 {
                0 => ("tickwheel_set('orders', $1, '1', now())", "replaced"),
                1 => (
                    "tickwheel_set_if_absent('orders', $1, '9', now())",
                    "present",
                ),
                2 => ("tickwheel_move('orders', $1, now())", "moved"),
                _ => (
                    "tickwheel_set('orders', $1, '2', now() + interval '1 h')",
                    "replaced",
                ),
            };
            run(&user, "BEGIN").await;
            let said = user.query_one(&format!("SELECT {call}"), &[&key]).await;
            let said: String = said.expect("it is answered").get(0);
            // A timer that has fired is in flight, and then it may be set beside it.
            assert!(
                [says, "in_flight", "set"].contains(&&*said),
                "{call} says {said}"
            );
            if said == "set" {
                assert!(call.contains("tickwheel_set("), "{call} says {said}");
            }
            run(&user, if round % 5 == 0 { "ROLLBACK" } else { "COMMIT" }).await;
        }
    };
    let calls = async |round: usize| {
        let (key, other) = (keys[round % 3], keys[(round + 1) % 3]);
        assert_ne!(timers.move_timer(key, HOUR).await, Ok(Moved::Absent));
        let set = others.set_if_absent(other, &9, HOUR).await;
        assert_ne!(set, Ok(SetIfAbsent::Done));
        others
            .set_timer(key, &3, Duration::ZERO)
            .await
            .expect("it is set");
        assert_ne!(others.move_timer(other, HOUR).await, Ok(Moved::Absent));
    };
    let calls = async {
        for round in 0.. {
            calls(round).await;
        }
    };
    let put_back = async {
        loop {
            let claim = claims.recv().await.expect("it goes on");
            claim.retry_after(Duration::ZERO).await.expect("it is held");
        }
    };
    tokio::select! {
        _ = join_all([user(0), user(1), user(2)]) => {}
        () = calls => {}
        () = put_back => {}
    }
}

/// Each timer is delivered or removed, exactly one, also when a transaction removes it at the
/// moment it is due.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timer_is_removed_or_fired_never_both() {
    const TIMERS: u64 = 300;
    let Some(url) = database("removed_or_fired").await else {
        return missing();
    };
    let (timers, mut claims) = start(&url).await;
    let removed = AtomicU64::new(0);
    let remove = async {
        let user = client(&url).await;
        for n in 0..TIMERS {
            let key = n.to_string();
            let (set, due) = (
                "SELECT tickwheel_set('orders', $1, $2::text::jsonb, now() + $3::text::interval)",
                n % 7 * 2,
            );
            let set = user.query(set, &[&key, &key, &format!("{due} ms")]).await;
            set.expect("it is set");
            tokio::time::sleep(Duration::from_millis(6)).await;
            let gone = if n % 2 == 0 {
                run(&user, "BEGIN").await;
                let remove = "SELECT result FROM tickwheel_remove('orders', $1)";
                let gone: String = user
                    .query_one(remove, &[&key])
                    .await
                    .expect("it is answered")
                    .get(0);
                run(&user, "COMMIT").await;
                gone == "removed"
            } else {
                matches!(timers.remove_timer(&key).await, Ok(Removed::Done(_)))
            };
            removed.fetch_add(u64::from(gone), Ordering::Relaxed);
        }
        timers
            .set_timer("last", &TIMERS, Duration::ZERO)
            .await
            .expect("it is set");
    };
    let receive = async {
        let mut fired = HashSet::new();
        loop {
            let claim = timeout(30 * SECOND, claims.recv()).await;
            let claim = claim.expect("it comes").expect("it goes on");
            let value = claim.value;
            claim.ack().await.expect("it is held");
            if value == TIMERS {
                return fired;
            }
            assert!(fired.insert(value), "{value} comes twice");
        }
    };
    let ((), mut fired) = join(remove, receive).await;
    // Any that are delivered after the last one.
    while let Ok(Some(claim)) = timeout(2 * SECOND, claims.recv()).await {
        assert!(fired.insert(claim.value), "{} comes twice", claim.value);
        claim.ack().await.expect("it is held");
    }
    let removed = removed.into_inner();
    assert_eq!(fired.len() as u64 + removed, TIMERS, "{removed} removed");
    assert!(removed > 0 && !fired.is_empty(), "{removed} removed");
    let user = client(&url).await;
    let left = "SELECT count(*)::text FROM tickwheel_timers";
    assert_eq!(text(&user, left).await, "0");
}
