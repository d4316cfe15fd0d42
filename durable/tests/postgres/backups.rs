//! The commands of the page on backups, on a server.

use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_durable::{Claims, DurableTimers, Postgres, builder};
use tokio::time::timeout;

use super::page::run;
use super::server::{client, database, missing, not_run};

const TIMERS: u64 = 300;

type Instance = (DurableTimers<String, u64>, Claims<String, u64>);

/// An instance on the schema of the page.
async fn start(url: &str) -> Instance {
    let url = format!("{url}?options=-csearch_path%3Dtimers");
    let store = Postgres::connect(&url).await.expect("it connects");
    let started = builder("orders").start(&TimerWheel::new(), store).await;
    started.expect("it starts")
}

/// A dump of production in another place sent its reminders.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_of_the_page_bring_timers_to_another_database_and_hold_them() {
    let (Some(url), Some(other)) = (database("dumped").await, database("restored").await) else {
        return missing();
    };
    let folder = std::env::temp_dir().join(format!("tickwheel-dump-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the folder is made");
    let commands = |words| {
        let variables = [("DATABASE_URL", &*url), ("OTHER_URL", &*other)];
        let ran = run("PostgreSQL", words, &folder, &variables);
        if ran.is_none() {
            not_run("no pg_dump, pg_restore and psql are installed");
        }
        ran
    };
    let admin = client(&url).await;
    let make = "CREATE SCHEMA timers";
    admin.batch_execute(make).await.expect("it is made");
    let (timers, _claims) = start(&url).await;
    let all: Vec<_> = (0..TIMERS)
        .map(|key| (format!("order {key}"), key))
        .collect();
    let delay = Duration::from_secs(6);
    let set = timers.set_many(all.iter().map(|(key, value)| (key, value, delay)));
    set.await.expect("they are set");
    let Some(()) = commands("Back up") else {
        return;
    };
    timers.shutdown().await;
    commands("Restore").expect("it was installed");
    commands("Hold").expect("it was installed");
    let (held, mut claims) = start(&other).await;
    let nothing = timeout(2 * delay, claims.recv()).await;
    assert!(nothing.is_err(), "{nothing:?} is held");
    held.shutdown().await;
    commands("Release").expect("it was installed");
    let (restored, mut claims) = start(&other).await;
    for _ in 0..TIMERS {
        let claim = timeout(Duration::from_secs(20), claims.recv()).await;
        let claim = claim.expect("it comes").expect("the stream goes on");
        claim.ack().await.expect("it is held");
    }
    // The functions came with the tables.
    let set = "SELECT timers.tickwheel_set('orders', 'order 17', '30', now())";
    let admin = client(&other).await;
    admin.batch_execute(set).await.expect("it is set");
    let claim = timeout(Duration::from_secs(20), claims.recv()).await;
    let claim = claim.expect("it comes").expect("the stream goes on");
    assert_eq!((&*claim.key, claim.value), ("order 17", 30));
    restored.shutdown().await;
    std::fs::remove_dir_all(&folder).expect("it is there");
}
