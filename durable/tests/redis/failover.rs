//! A primary goes, and another server takes over: named by Sentinels, or in a cluster.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use futures_util::future::join;
use tickwheel::TimerWheel;
use tickwheel_durable::{Claims, DurableTimers, Moved, Redis, builder};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};

use crate::cluster::Cluster;
use crate::faults::{delivered, set_at_last, start, start_within};
use crate::outage::is_survived;
use crate::sentinel::Watched;
use crate::server::{Server, connect, not_run, until};

const SECOND: Duration = Duration::from_secs(1);
const FAR: Duration = Duration::from_secs(3_600);

/// Servers of which one is the primary of what these tests set.
pub(crate) trait Servers: Sized {
    /// `None` if there is no such program.
    async fn start() -> Option<Self>;

    fn url(&self) -> String;

    /// The number of the server that is the primary by its own account and by that of the others.
    async fn primary(&self) -> Option<usize>;

    fn servers(&mut self) -> &mut [Server];
}

async fn replicated(servers: &impl Servers) -> Redis {
    let store = connect(&servers.url()).await;
    store.wait_for_replicas(1)
}

/// Each of the two replicas may take over: the others judge which one has more by what they heard a
/// second ago.
const REPLICAS: usize = 2;

/// Waits until all agree on a primary, which is another one than `old`. Returns which one it is.
///
/// A busy server may be silent for a moment, or not know yet what the others know.
pub(super) async fn until_primary(servers: &impl Servers, old: Option<usize>) -> usize {
    let mut primary = None;
    until("all agree on a primary", async || {
        primary = servers.primary().await.filter(|&one| Some(one) != old);
        primary.is_some()
    })
    .await;
    primary.expect("it is known")
}

/// Sets timers until a call fails, and sends those set by calls that have returned.
async fn set_until_it_fails(
    timers: DurableTimers<String, u64>,
    task: u64,
    is_set: UnboundedSender<u64>,
) {
    for number in 0..100_000 {
        let value = task * 100_000 + number;
        let key = value.to_string();
        let set = timers.set_timer(&key, &value, 4 * SECOND).await;
        if set.is_err() {
            break;
        }
        is_set.send(value).expect("it is received");
    }
}

/// Sets a timer until that works on the new primary. No call is replicated before a replica follows
/// it: what a plain client sees of that, and how long its calls take, is the control.
async fn comes_back(primary: &Server, timers: &DurableTimers<String, u64>, value: u64) -> Duration {
    let began = Instant::now();
    let is_set = Cell::new(false);
    let setting = async {
        set_at_last(timers, "at last", value).await;
        is_set.set(true);
        began.elapsed()
    };
    let control = async {
        let (mut followed, mut longest) = (None, Duration::ZERO);
        loop {
            let asked = Instant::now();
            let replicas = primary.try_command(&["WAIT", "1", "20"]).await;
            longest = longest.max(asked.elapsed());
            if matches!(replicas, Ok(redis::Value::Int(1..))) && followed.is_none() {
                followed = Some(began.elapsed());
            }
            if let Some(followed) = followed.filter(|_| is_set.get()) {
                return (followed, longest);
            }
            sleep(SECOND / 50).await;
        }
    };
    let (back, (followed, longest)) = join(setting, control).await;
    // A call that hung has its time limit, and what comes after it two seconds.
    assert!(
        back < followed + 4 * SECOND + 20 * longest,
        "back after {back:?}, a replica follows after {followed:?}, a plain call took {longest:?}"
    );
    back
}

/// Nothing that a call has returned is lost, and calls work again within their time limit and two
/// seconds after the others have a new primary with a replica.
async fn survives_a_kill<S: Servers>() {
    let Some(mut servers) = S::start().await else {
        return;
    };
    let (timers, mut claims) = start(replicated(&servers).await).await;
    let (other, other_claims) = start(replicated(&servers).await).await;
    other_claims.shutdown().await;
    // It can change nothing any more when one replica is left.
    let kept_by_both = connect(&servers.url()).await.wait_for_replicas(REPLICAS);
    let (setting, no_claims) = start(kept_by_both).await;
    no_claims.shutdown().await;
    let (is_set, mut were_set) = unbounded_channel();
    for task in 0..16 {
        tokio::spawn(set_until_it_fails(setting.clone(), task, is_set.clone()));
    }
    drop(is_set);
    sleep(SECOND).await;
    let old = until_primary(&servers, None).await;
    let mut kept = BTreeSet::new();
    while kept.len() < 100 {
        kept.insert(were_set.recv().await.expect("no call fails"));
    }
    servers.servers()[old].kill();
    while let Some(value) = were_set.recv().await {
        kept.insert(value);
    }
    let began = Instant::now();
    let new = until_primary(&servers, Some(old)).await;
    let waited = began.elapsed();
    let back = comes_back(&servers.servers()[new], &timers, u64::MAX).await;
    println!(
        "{} were set; replaced after {waited:?}, back after {back:?}",
        kept.len()
    );
    kept.insert(u64::MAX);
    delivered(&mut claims, &kept).await;
    // Hints are heard again: a poll would take a fifth of a second, too.
    set_at_last(&other, "of the other", 7).await;
    delivered(&mut claims, &BTreeSet::from([7])).await;
}

/// Handlers end while there is no primary. Whichever replica takes over has what calls have
/// returned. They work again when the old primary is back, as a replica.
async fn handlers_run_once_through_a_kill<S: Servers>() {
    let Some(mut servers) = S::start().await else {
        return;
    };
    let store = connect(&servers.url()).await;
    let store = store.wait_for_replicas(REPLICAS);
    // In a cluster only the node that has this namespace has replicas.
    is_survived("faults", store, async || {
        let old = until_primary(&servers, None).await;
        servers.servers()[old].kill();
        until_primary(&servers, Some(old)).await;
        servers.servers()[old].run();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_handlers_that_end_during_a_failover_run_once() {
    handlers_run_once_through_a_kill::<Watched>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_handlers_that_end_during_a_failover_in_a_cluster_run_once() {
    handlers_run_once_through_a_kill::<Cluster>().await;
}

/// The replicas that are left have this time to follow a new primary: without one, no call is
/// replicated.
const FOLLOW: Duration = Duration::from_secs(10);

/// A primary that hung, was replaced, and wakes up changes nothing any more.
async fn survives_a_primary_that_hangs<S: Servers>() {
    let Some(mut servers) = S::start().await else {
        return;
    };
    let (timers, mut claims) = start(replicated(&servers).await).await;
    let kept = timers.set_timer("kept", &1, FAR).await;
    kept.expect("it is set");
    let old = until_primary(&servers, None).await;
    servers.servers()[old].signal("STOP");
    let hung = timers.set_timer("kept", &100, FAR).await;
    assert!(hung.is_err(), "it hangs");
    let new = until_primary(&servers, Some(old)).await;
    comes_back(&servers.servers()[new], &timers, 2).await;
    let moved = timers.move_timer("kept", SECOND).await;
    assert_eq!(moved, Ok(Moved::Done));
    servers.servers()[old].signal("CONT");
    delivered(&mut claims, &BTreeSet::from([1, 2])).await;
    sees_nothing(&mut claims).await;
}

async fn sees_nothing(claims: &mut Claims<String, u64>) {
    while let Ok(Some(claim)) = timeout(3 * SECOND, claims.recv()).await {
        // Delivered again, since its acknowledgement was lost.
        assert!(claim.attempt > 1 && claim.value < 3, "{claim:?}");
        claim.ack().await.expect("it is held");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_that_no_replica_receives_fails() {
    let Some(primary) = Server::start(&["--repl-diskless-sync-delay", "0"]) else {
        return;
    };
    let port = primary.port().to_string();
    let replica = Server::start(&["--replicaof", "127.0.0.1", &port]).expect("there is one");
    let store = primary.connect().await.wait_for_replicas(1);
    let (timers, _claims) = start_within(30 * SECOND, store).await;
    let mut set = timers.set_timer("timer", &1, FAR).await;
    let began = Instant::now();
    while set.is_err() && began.elapsed() < FOLLOW {
        set = timers.set_timer("timer", &1, FAR).await;
    }
    assert_eq!(set, Ok(()), "the replica follows");
    replica.signal("STOP");
    let error = timers.set_timer("timer", &2, FAR).await;
    let error = error.expect_err("the replica hangs");
    assert!(error.may_pass(), "{error}");
    let text = format!("{error:#}");
    assert!(text.contains("only 0 of 1 replicas have it"), "{text}");
    // It is done all the same, as after any error. Queries do not wait.
    let entry = timers.admin().get("timer").await.expect("it answers");
    assert_eq!(entry.expect("it is there").value, Ok(2));
    let error = timers.admin().purge().await;
    let error = error.expect_err("the replica hangs");
    assert!(error.may_pass(), "{error}");
    replica.signal("CONT");
    set_at_last(&timers, "timer", 3).await;
}

/// A timer that fired and reached no replica was delivered to no instance: it had lost an attempt,
/// or was gone. Nothing is written between the move, which the replica still has, and the deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timer_is_not_fired_while_replicas_are_away() {
    let Some(primary) = Server::start(&["--repl-diskless-sync-delay", "0"]) else {
        return;
    };
    let port = primary.port().to_string();
    let replica = Server::start(&["--replicaof", "127.0.0.1", &port]).expect("there is one");
    let store = primary.connect().await.wait_for_replicas(1);
    let wheel = TimerWheel::new();
    let builder = builder::<String, u64>("faults").poll(10 * SECOND);
    let started = builder.at_most_once().start(&wheel, store).await;
    let (timers, mut claims) = started.expect("it starts");
    until("the replica follows", async || {
        timers.set_timer("timer", &1, FAR).await.is_ok()
    })
    .await;
    let moved = timers.move_timer("timer", 3 * SECOND).await;
    assert_eq!(moved, Ok(Moved::Done));
    replica.signal("STOP");
    let fired = timeout(6 * SECOND, claims.recv()).await;
    assert!(fired.is_err(), "{fired:?}");
    replica.signal("CONT");
    let claim = timeout(30 * SECOND, claims.recv()).await;
    let claim = claim.expect("it is there").expect("it comes");
    assert_eq!((&*claim.key, claim.value), ("timer", 1));
}

/// The example program, if it was built.
fn reminders() -> Option<PathBuf> {
    let test = std::env::current_exe().expect("it has a path");
    // target/debug/deps/redis-..
    let program = test.parent()?.with_file_name("examples").join("reminders");
    program.is_file().then_some(program)
}

/// The example fails if a reminder is lost, early, or comes twice without a reason, while its
/// workers are killed, and here a server too.
async fn reminders_survive_a_kill<S: Servers>() {
    let Some(program) = reminders() else {
        return not_run("the example `reminders` is not built");
    };
    let Some(mut servers) = S::start().await else {
        return;
    };
    let mut command = tokio::process::Command::new(program);
    command.args(["--timers", "2000", "--store", &servers.url()]);
    command.stdout(Stdio::piped()).kill_on_drop(true);
    let mut running = command.spawn().expect("it starts");
    let mut lines = BufReader::new(running.stdout.take().expect("it is piped")).lines();
    let (mut said, mut is_killed) = (String::new(), false);
    let until_it_ends = async {
        while let Some(line) = lines.next_line().await.expect("it can be read") {
            // Reminders come. The last one is due twelve seconds after the first.
            if !is_killed && line.ends_with(" delivered") && !line.ends_with(" 0 delivered") {
                let old = until_primary(&servers, None).await;
                servers.servers()[old].kill();
                is_killed = true;
            }
            said += &line;
            said.push('\n');
        }
        running.wait().await.expect("it is waited for")
    };
    // It gives up by itself whatever takes too long. This only ends a test that hangs.
    let ended = timeout(300 * SECOND, until_it_ends).await;
    let ended = ended.unwrap_or_else(|_| panic!("it hangs: {said}"));
    assert!(ended.success() && is_killed, "{said}");
    assert!(said.contains("redis+"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reminders_survive_a_failover_of_sentinels() {
    reminders_survive_a_kill::<Watched>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reminders_survive_a_failover_in_a_cluster() {
    reminders_survive_a_kill::<Cluster>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_replace_a_primary_that_is_killed() {
    survives_a_kill::<Watched>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_replace_a_primary_that_hangs() {
    survives_a_primary_that_hangs::<Watched>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_replaces_a_primary_that_is_killed() {
    survives_a_kill::<Cluster>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_replaces_a_primary_that_hangs() {
    survives_a_primary_that_hangs::<Cluster>().await;
}
