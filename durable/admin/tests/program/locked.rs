//! Keys that an open transaction has changed, in PostgreSQL.

use serde_json::Value;
use tickwheel::TimerWheel;
use tickwheel_durable::{Postgres, builder};

use super::postgres::{client, database, missing};
use super::support::{counted, ended, kill_timers, program};

/// Regression: the first timer with a locked key ended the change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locked_key_keeps_no_other_one_from_being_changed() {
    let Some(url) = database("admin_locked").await else {
        return missing();
    };
    let store = Postgres::connect(&url).await.expect("it connects");
    let started = builder("orders").start(&TimerWheel::new(), store).await;
    let mut instance = started.expect("it starts");
    kill_timers(&mut instance, &["a", "b"], "poison").await;
    let (timers, mut claims) = instance;
    let user = client(&url).await;
    let begin = "BEGIN; SELECT tickwheel_set('orders', 'a', '\"v\"', now() + interval '1 h')";
    user.batch_execute(begin).await.expect("it is set");
    let ran = ended(program().args(["--url", &url, "retry", "a", "b", "--json"]));
    assert_eq!(ran.code, 1, "{ran:?}");
    let done: Value = serde_json::from_str(&ran.output).expect("it is JSON");
    assert_eq!((&done["changed"], &done["locked"]), (&1.into(), &1.into()));
    let error = done["error"].as_str().expect("it is told");
    assert!(error.contains("open transactions"), "{error}");
    // In the log and after it.
    assert_eq!(ran.errors.matches(error).count(), 2, "{ran:?}");
    let ran = ended(program().args(["--url", &url, "retry", "a", "absent"]));
    assert_eq!(ran.code, 1, "{ran:?}");
    for words in ["0 retried", "has no timer"] {
        assert!(ran.output.contains(words), "{ran:?}");
    }
    let claim = claims.recv().await.expect("it comes again");
    assert_eq!(claim.key, "b");
    user.batch_execute("ROLLBACK").await.expect("it ends");
    assert_eq!(counted(&timers).await, [0, 1, 1]);
}
