//! Transactions that look at a snapshot, and those that are prepared.

use std::time::Duration;

use tickwheel_durable::{Claim, Claims, DurableTimers, Moved, Removed, Retry};
use tokio::time::timeout;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::super::server::{Server, client, database, missing};
use super::{HOUR, SECOND, run, start, text};

/// What happens to a key after the snapshot was taken.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    Set,
    Moved,
    Removed,
    ByFunction,
    Fired,
    Acknowledged,
    PutBack,
    Died,
    /// To another key.
    None,
}

const CHANGES: [Change; 9] = [
    Change::Set,
    Change::Moved,
    Change::Removed,
    Change::ByFunction,
    Change::Fired,
    Change::Acknowledged,
    Change::PutBack,
    Change::Died,
    Change::None,
];

const CALLS: [&str; 4] = [
    "SELECT tickwheel_set('orders', 'KEY', '7', now() + interval '1 h')",
    "SELECT tickwheel_set_if_absent('orders', 'KEY', '7', now() + interval '1 h')",
    "SELECT tickwheel_move('orders', 'KEY', now() + interval '1 h')",
    "SELECT result FROM tickwheel_remove('orders', 'KEY')",
];

struct Case {
    timers: DurableTimers<String, u64>,
    claims: Claims<String, u64>,
    user: Client,
    /// Timers that stay in flight.
    held: Vec<Claim<String, u64>>,
}

impl Case {
    /// Prepares the state that the change starts from.
    async fn before(&mut self, key: &str, change: Change) -> Option<Claim<String, u64>> {
        let delay = match change {
            Change::Set => return None,
            Change::Acknowledged | Change::PutBack | Change::Died => Duration::ZERO,
            _ => HOUR,
        };
        let set = self.timers.set_timer(key, &1, delay).await;
        set.expect("it is set");
        match delay {
            Duration::ZERO => Some(self.claims.recv().await.expect("it is delivered")),
            _ => None,
        }
    }

    async fn change(&mut self, key: &str, change: Change, claim: Option<Claim<String, u64>>) {
        let timers = &self.timers;
        match change {
            Change::Set => timers.set_timer(key, &1, HOUR).await.expect("it is set"),
            Change::Moved => assert_eq!(timers.move_timer(key, 2 * HOUR).await, Ok(Moved::Done)),
            Change::Removed => {
                assert_eq!(timers.remove_timer(key).await, Ok(Removed::Done(1)));
            }
            Change::ByFunction => run(&self.user, &CALLS[2].replace("KEY", key)).await,
            Change::Fired => {
                let moved = timers.move_timer(key, Duration::ZERO).await;
                assert_eq!(moved, Ok(Moved::Done));
                let claim = self.claims.recv().await.expect("it is delivered");
                self.held.push(claim);
            }
            Change::None => {
                let set = timers.set_timer("another", &1, HOUR).await;
                set.expect("it is set");
            }
            Change::Acknowledged | Change::PutBack | Change::Died => {
                let claim = claim.expect("it is in flight");
                let settled = match change {
                    Change::Acknowledged => claim.ack().await,
                    Change::PutBack => claim.retry_after(HOUR).await,
                    _ => claim.fail(Retry::never("why")).await,
                };
                settled.expect("it is held");
            }
        }
    }
}

/// The functions answered by the snapshot: a timer that was there seemed absent. Instances are not
/// concerned, whatever the default of the database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_changed_since_the_snapshot_is_a_serialization_failure() {
    let Some(url) = database("isolation").await else {
        return missing();
    };
    let user = client(&url).await;
    let name = url.rsplit_once('/').expect("it has a name").1;
    let default = format!("ALTER DATABASE {name} SET default_transaction_isolation = serializable");
    run(&user, &default).await;
    let (timers, claims) = start(&url).await;
    let held = Vec::new();
    let mut case = Case {
        timers,
        claims,
        user,
        held,
    };
    let other = client(&url).await;
    for (level, level_name) in ["REPEATABLE READ", "SERIALIZABLE"].iter().enumerate() {
        for (number, change) in CHANGES.into_iter().enumerate() {
            for (call_number, call) in CALLS.iter().enumerate() {
                let key = format!("{level} {number} {call_number}");
                let call = call.replace("KEY", &key);
                let says = format!("{level_name}, {change:?}: {call}");
                let claim = case.before(&key, change).await;
                let begin = format!(
                    "BEGIN ISOLATION LEVEL {level_name}; SELECT count(*) FROM tickwheel_timers"
                );
                run(&other, &begin).await;
                case.change(&key, change, claim).await;
                let answer = other.query(&call, &[]).await;
                if change == Change::None {
                    assert!(answer.is_ok(), "{says}: {answer:?}");
                } else {
                    let error = answer.map(|rows| rows[0].get::<_, String>(0));
                    let error = error.expect_err(&says);
                    let code = error.code();
                    assert_eq!(
                        code,
                        Some(&SqlState::T_R_SERIALIZATION_FAILURE),
                        "{says}: {error:?}"
                    );
                }
                run(&other, "ROLLBACK").await;
                // The same again sees everything.
                let again = format!("BEGIN ISOLATION LEVEL {level_name}");
                run(&other, &again).await;
                let answer = text(&other, &call).await;
                let flies = change == Change::Fired;
                let waits = !flies
                    && !matches!(
                        change,
                        Change::Removed | Change::Acknowledged | Change::Died
                    );
                let expected = match (call_number, waits) {
                    (0, true) => "replaced",
                    (0 | 1, false) if !flies => "set",
                    (0, _) => "set",
                    (1, true) => "present",
                    (2, true) => "moved",
                    (3, true) => "removed",
                    (3, _) if change == Change::Died => "removed",
                    _ if flies => "in_flight",
                    _ => "absent",
                };
                assert_eq!(answer, expected, "{says}");
                run(&other, "COMMIT").await;
            }
        }
    }
    // What was only looked at is not held up.
    for claim in case.held {
        claim.ack().await.expect("it is held");
    }
}

/// While a transaction has looked at a claim, and is open, the claim is acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshot_delays_no_acknowledgement() {
    let Some(url) = database("snapshot_of_a_claim").await else {
        return missing();
    };
    let (timers, mut claims) = start(&url).await;
    let set = timers.set_timer("KEY", &1, Duration::ZERO).await;
    set.expect("it is set");
    let claim = claims.recv().await.expect("it is delivered");
    let user = client(&url).await;
    run(&user, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    assert_eq!(text(&user, CALLS[1]).await, "in_flight");
    claim.ack().await.expect("it is held");
    run(&user, "COMMIT").await;
}

/// `NOTIFY` cannot be prepared, so hints are left out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_without_hints_can_be_prepared() {
    let Some(server) = Server::start(&["fsync=off", "max_prepared_transactions=4"]) else {
        return missing();
    };
    let (timers, mut claims) = start(&server.url()).await;
    let user = client(&server.url()).await;
    let set = "SELECT tickwheel_set('orders', 'a', '7', now())";
    run(&user, &format!("BEGIN; {set}")).await;
    let refused = user.batch_execute("PREPARE TRANSACTION 'with hints'").await;
    let refused = refused.expect_err("it has a hint");
    assert_eq!(refused.code(), Some(&SqlState::FEATURE_NOT_SUPPORTED));
    let prepare =
        format!("BEGIN; SET LOCAL tickwheel.hints = off; {set}; PREPARE TRANSACTION 'without'");
    run(&user, &prepare).await;
    drop(user);
    let early = timeout(SECOND / 2, claims.recv()).await;
    assert!(early.is_err(), "it is not committed");
    let other = client(&server.url()).await;
    run(&other, "COMMIT PREPARED 'without'").await;
    let claim = timeout(60 * SECOND, claims.recv()).await;
    let claim = claim.expect("by the next poll").expect("it goes on");
    assert_eq!((claim.key.as_str(), claim.value), ("a", 7));
    claim.ack().await.expect("it is held");
    assert_eq!(timers.counts().await.expect("it counts").waiting, 0);
}
