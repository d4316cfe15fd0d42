//! A primary fails, and its synchronous standby takes over: nothing is lost, and the instances find
//! the new primary.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::join;
use tickwheel_durable::store::StoreError;
use tickwheel_durable::{Claims, DurableTimers, Postgres, builder};
use tokio::time::{sleep, timeout};

use super::outage::is_survived;
use super::server::{Server, client, missing, until};
use super::started::started;

const SECOND: Duration = Duration::from_secs(1);
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

type Timers = DurableTimers<String, u64>;

/// A primary and its standby.
struct Pair {
    primary: Server,
    standby: Server,
}

impl Pair {
    /// Commits of the primary wait for the standby from now on.
    async fn start() -> Option<Self> {
        let primary = Server::start(&["fsync=off"])?;
        let standby = primary.standby();
        let admin = client(&primary.url()).await;
        for sql in [
            "ALTER SYSTEM SET synchronous_standby_names = 'standby'",
            "SELECT pg_reload_conf()",
        ] {
            admin.batch_execute(sql).await.expect("it is set");
        }
        until("replication", async || {
            let sql = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
            let row = admin.query_one(sql, &[]).await.expect("it reads");
            row.get::<_, i64>(0) == 1
        })
        .await;
        Some(Pair { primary, standby })
    }

    /// A URL with both, in one order or the other.
    fn url(&self, standby_first: bool) -> String {
        let mut ports = [self.primary.port(), self.standby.port()];
        if standby_first {
            ports.reverse();
        }
        let [first, second] = ports;
        format!(
            "postgres://postgres@127.0.0.1:{first},127.0.0.1:{second}/postgres?target_session_attrs=read-write"
        )
    }

    /// Makes the standby the primary.
    async fn promote(&self) {
        let url = self.standby.url();
        let promote = "SELECT pg_promote(true, 60)";
        let promoted = client(&url).await.query_one(promote, &[]).await;
        assert!(promoted.expect("it is asked").get::<_, bool>(0));
        let write = "CREATE TABLE control (n int)";
        let written = client(&url).await.batch_execute(write).await;
        written.expect("it accepts writes");
    }

    /// Connects a plain client to the new primary and writes, again and again, until that is so.
    /// Returns how long it took at most.
    async fn control(&self, is_over: &Cell<bool>) -> Duration {
        let url = self.standby.url();
        let mut longest = Duration::ZERO;
        while !is_over.get() {
            let began = Instant::now();
            let write = "INSERT INTO control VALUES (1)";
            let written = client(&url).await.batch_execute(write).await;
            written.expect("it accepts writes");
            longest = longest.max(began.elapsed());
            sleep(SECOND / 50).await;
        }
        longest
    }
}

async fn start(url: &str) -> (Timers, Claims<String, u64>) {
    let store = Postgres::connect(url).await.expect("it connects");
    let build = || {
        builder("failover")
            .poll(Duration::from_millis(200))
            .lease(5 * SECOND)
            .call_timeout(CALL_TIMEOUT)
    };
    started(build, store).await
}

/// The fate of the timers.
#[derive(Default)]
struct Totals {
    /// Those that were set by a call that has returned, and when it was called.
    set: BTreeMap<u64, Instant>,
    delivered: BTreeSet<u64>,
    acknowledged: BTreeSet<u64>,
    again: BTreeSet<u64>,
    early: u32,
}

/// Sets timers, one after the other, until the end.
async fn write(timers: Timers, totals: Arc<Mutex<Totals>>, is_over: Arc<AtomicBool>) {
    for number in 0.. {
        if is_over.load(Ordering::Acquire) {
            return;
        }
        let delay = Duration::from_millis(number * 37 % 4_000);
        let called = Instant::now();
        if timers
            .set_timer(&number.to_string(), &number, delay)
            .await
            .is_ok()
        {
            let mut totals = totals.lock().expect("no test panics with it");
            totals.set.insert(number, called);
        }
        sleep(Duration::from_millis(2)).await;
    }
}

/// Acknowledges what is delivered.
async fn handle(mut claims: Claims<String, u64>, totals: Arc<Mutex<Totals>>) {
    while let Some(claim) = claims.recv().await {
        let number = claim.value;
        {
            let mut totals = totals.lock().expect("no test panics with it");
            totals.early += u32::from(SystemTime::now() < claim.deadline);
            totals.delivered.insert(number);
            if totals.acknowledged.contains(&number) {
                totals.again.insert(number);
            }
        }
        if claim.ack().await.is_ok() {
            let mut totals = totals.lock().expect("no test panics with it");
            totals.acknowledged.insert(number);
        }
    }
}

/// Timers are set and delivered while the primary fails in this way.
async fn survive(fail: impl FnOnce(&mut Server), standby_first: bool) {
    let Some(mut pair) = Pair::start().await else {
        return missing();
    };
    let url = pair.url(standby_first);
    let (timers, claims) = start(&url).await;
    let (writer, writers_claims) = start(&url).await;
    drop(writers_claims);
    let totals = Arc::<Mutex<Totals>>::default();
    let is_over = Arc::<AtomicBool>::default();
    let writes = tokio::spawn(write(writer, Arc::clone(&totals), Arc::clone(&is_over)));
    drop(tokio::spawn(handle(claims, Arc::clone(&totals))));
    sleep(3 * SECOND / 2).await;
    fail(&mut pair.primary);
    // A good while without any server.
    sleep(3 * SECOND).await;
    pair.promote().await;
    let promoted = Instant::now();
    let lock = || totals.lock().expect("no test panics with it");
    let back = async {
        let works = |totals: &Totals| totals.set.values().any(|&called| called > promoted);
        while !works(&lock()) {
            sleep(Duration::from_millis(5)).await;
        }
        while timers.deadline("0").await.is_err() {}
        promoted.elapsed()
    };
    let is_back = Cell::new(false);
    let back = async {
        let back = timeout(60 * SECOND, back).await.expect("it comes back");
        is_back.set(true);
        back
    };
    let (took, control) = join(back, pair.control(&is_back)).await;
    assert!(
        took <= CALL_TIMEOUT + 2 * SECOND + 20 * control,
        "back after {took:?}, a plain client took {control:?}"
    );
    sleep(SECOND).await;
    is_over.store(true, Ordering::Release);
    writes.await.expect("it does not panic");
    let missing = || -> Vec<u64> {
        let totals = lock();
        let missing = totals
            .set
            .keys()
            .filter(|number| !totals.delivered.contains(number));
        missing.copied().collect()
    };
    for _ in 0..300 {
        if missing().is_empty() {
            break;
        }
        sleep(SECOND / 10).await;
    }
    assert_eq!(missing(), [0; 0], "set and never delivered");
    let totals = lock();
    assert_eq!(totals.early, 0, "early");
    assert!(
        totals.again.is_empty(),
        "{:?} came again after an acknowledgement",
        totals.again
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_handlers_that_end_during_a_failover_run_once() {
    let Some(mut pair) = Pair::start().await else {
        return missing();
    };
    let store = Postgres::connect(&pair.url(false)).await;
    is_survived("handlers", store.expect("it connects"), async || {
        pair.primary.kill();
        sleep(SECOND).await;
        pair.promote().await;
    })
    .await;
}

/// Sets that return are on the standby too. It is named first, and passed over while it only reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_primary_loses_nothing() {
    survive(Server::kill, true).await;
}

/// It is named first. Its connections stay open, and the system accepts new ones for it, but
/// nothing responds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_primary_loses_nothing() {
    survive(Server::freeze, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standby_alone_is_unavailable() {
    let Some(pair) = Pair::start().await else {
        return missing();
    };
    let refused = Postgres::connect(&pair.standby.url()).await;
    let error = refused.expect_err("it only reads");
    let text = error.to_string();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{text}");
    assert!(
        text.contains("accepts no writes") && text.contains("standby"),
        "{text}"
    );
}

/// A primary that is demoted, behind a proxy that keeps its connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_that_only_reads_is_replaced() {
    let Some(server) = Server::start(&["fsync=off"]) else {
        return missing();
    };
    let (timers, _claims) = start(&server.url()).await;
    let admin = client(&server.url()).await;
    let set = async || timers.set_timer("a", &1, 3_600 * SECOND).await;
    let configure = async |setting: &str| {
        for sql in [setting, "SELECT pg_reload_conf()"] {
            admin.batch_execute(sql).await.expect("it is set");
        }
    };
    set().await.expect("it is set");
    let here = "SET default_transaction_read_only = off";
    admin.batch_execute(here).await.expect("it is set");
    configure("ALTER SYSTEM SET default_transaction_read_only = on").await;
    until("a connection that is refused", async || {
        let Err(error) = set().await else {
            return false;
        };
        let text = format!("{error:#}");
        assert!(text.contains("unavailable"), "{text}");
        text.contains("accepts no writes")
    })
    .await;
    configure("ALTER SYSTEM RESET default_transaction_read_only").await;
    until("writes", async || set().await.is_ok()).await;
}

#[tokio::test]
async fn each_host_says_why_it_cannot_be_used() {
    let url = "postgres://me:s3cret@127.0.0.1:1,127.0.0.1:2/orders";
    let error = Postgres::connect(url).await.expect_err("there is none");
    let text = format!("{error:#}");
    assert!(matches!(error, StoreError::Unavailable { .. }), "{text}");
    for part in [
        "at 127.0.0.1:1,127.0.0.1:2/orders as me: no host can be used",
        "127.0.0.1:1/orders as me: ",
        "127.0.0.1:2/orders as me: ",
        "refused",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("s3cret"), "{text}");
}
