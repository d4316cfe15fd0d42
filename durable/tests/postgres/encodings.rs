//! A database in another encoding than UTF-8.

use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_durable::{Claim, Postgres, Retry, builder};

use super::server::{client, missing, shared_url, until};

const HOUR: Duration = Duration::from_secs(3_600);

/// The encoding of the database has no arrow, so a question mark is kept. The call that put the
/// timer back was refused, with the acknowledgements of all others that went with it, again and
/// again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn error_text_that_the_database_cannot_hold_holds_up_no_other_timer() {
    let Some(shared) = shared_url() else {
        return missing();
    };
    let name = format!("latin1_{}", std::process::id());
    let create = format!(
        "CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    );
    let made = client(shared).await.batch_execute(&create).await;
    made.expect("it is made");
    let (server, _) = shared.rsplit_once('/').expect("it names a database");
    let store = Postgres::connect(&format!("{server}/{name}")).await;
    let store = store.expect("it connects");
    let builder = builder::<u64, u64>("orders");
    let started = builder.start(&TimerWheel::new(), store).await;
    let (timers, mut claims) = started.expect("it starts");
    for key in 0..50 {
        let set = timers.set_timer(&key, &key, Duration::from_millis(20 * key));
        set.await.expect("it is set");
    }
    let handle = |claim: Claim<u64, u64>| async move {
        if claim.key % 10 == 0 {
            return Err(Retry::after(HOUR).because("a \u{2192} b"));
        }
        Ok(())
    };
    let settled = async {
        until("none is in flight", async || {
            let counts = timers.counts().await.expect("it counts");
            (counts.waiting, counts.in_flight) == (5, 0)
        })
        .await;
    };
    tokio::select! {
        () = claims.dispatch(64, handle) => panic!("the stream goes on"),
        () = settled => {}
    }
    let entry = timers.admin().get(&0).await.expect("it reads");
    let entry = entry.expect("it waits");
    assert_eq!((entry.attempt, entry.error.as_deref()), (1, Some("a ? b")));
    assert_eq!(timers.metrics().delivered, 50);
}
