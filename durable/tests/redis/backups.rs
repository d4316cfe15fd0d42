//! The commands of the page on backups, on servers.

use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_durable::{Claims, DurableTimers, builder};
use tokio::time::timeout;

use crate::page::run;
use crate::server::{Server, not_run};

const TIMERS: u64 = 300;

type Instance = (DurableTimers<String, u64>, Claims<String, u64>);

async fn start(server: &Server) -> Instance {
    let store = server.connect().await;
    let started = builder("orders").start(&TimerWheel::new(), store).await;
    started.expect("it starts")
}

/// A snapshot of production in another place sent its reminders.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_of_the_page_bring_timers_to_another_server_and_hold_them() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let mut other = Server::start(&["--appendonly", "no"]).expect("there is one");
    let folder = other.folder().to_owned();
    let (url, other_url) = (server.url(), other.url());
    let commands = |words| {
        let variables = [
            ("REDIS_URL", &*url),
            ("OTHER_URL", &*other_url),
            ("OTHER_FOLDER", folder.to_str().expect("it is text")),
        ];
        let ran = run("Redis", words, &folder, &variables);
        if ran.is_none() {
            not_run("no redis-cli is installed");
        }
        ran
    };
    let (timers, _claims) = start(&server).await;
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
    other.kill();
    commands("Restore").expect("it was installed");
    other.run();
    commands("Go on").expect("it was installed");
    assert_eq!(
        other.info("persistence", "aof_enabled").await.as_deref(),
        Some("1")
    );
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
    restored.shutdown().await;
}
