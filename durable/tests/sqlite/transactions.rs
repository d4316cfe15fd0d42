//! Timers in transactions of users.

mod killed;

use std::path::PathBuf;
use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_durable::rusqlite::TransactionBehavior::{Deferred, Immediate};
use tickwheel_durable::rusqlite::{Connection, named_params};
use tickwheel_durable::store::StoreError;
use tickwheel_durable::{
    BuildError, Claim, Claims, DurableTimers, Error, Moved, Removed, Retry, SetIfAbsent, Sqlite,
    SqliteTransaction, builder,
};
use tokio::time::timeout;

use super::File;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// A file with an instance on it, and a connection of the user's.
struct Shop {
    file: File,
    store: Sqlite,
    timers: DurableTimers<String, u64>,
    claims: Claims<String, u64>,
    user: Connection,
}

impl Shop {
    async fn open(poll: Duration) -> Self {
        let file = File::new();
        let path = file.folder.join("timers.db");
        let store = Sqlite::open(&path).expect("it opens");
        let builder = builder("orders")
            .poll(poll)
            .window(HOUR)
            .call_timeout(20 * SECOND);
        let started = builder.start(&TimerWheel::new(), store.clone()).await;
        let (timers, claims) = started.expect("it starts");
        let user = Connection::open(&path).expect("it opens");
        user.busy_timeout(20 * SECOND).expect("it takes one");
        user.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
            .expect("it is made");
        Shop {
            file,
            store,
            timers,
            claims,
            user,
        }
    }

    fn path(&self) -> PathBuf {
        self.file.folder.join("timers.db")
    }

    /// Does something in a transaction, and commits it.
    fn commit<T>(&mut self, run: impl FnOnce(&SqliteTransaction<'_, String, u64>) -> T) -> T {
        let transaction = self
            .user
            .transaction_with_behavior(Immediate)
            .expect("it begins");
        let timers = SqliteTransaction::new(&transaction, "orders").expect("it was opened");
        let done = run(&timers);
        drop(timers);
        transaction.commit().expect("it commits");
        done
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_in_a_transaction_answer_as_others_do() {
    let mut shop = Shop::open(SECOND / 20).await;
    shop.commit(|orders| {
        orders.set_timer("a", &1, HOUR).expect("it is set");
        assert_eq!(
            orders.set_if_absent("a", &2, HOUR),
            Ok(SetIfAbsent::Present)
        );
        assert_eq!(orders.set_if_absent("b", &3, HOUR), Ok(SetIfAbsent::Done));
        assert_eq!(orders.move_timer("b", 2 * HOUR), Ok(Moved::Done));
        assert_eq!(orders.move_timer("c", HOUR), Ok(Moved::Absent));
        assert_eq!(orders.remove_timer("c"), Ok(Removed::Absent));
        assert_eq!(orders.remove_timer("a"), Ok(Removed::Done(1)));
        orders
            .set_timer("near", &4, Duration::ZERO)
            .expect("it is set");
    });
    // A poll finds it, without a hint.
    let claim = shop.claims.recv().await.expect("it goes on");
    assert_eq!((claim.key.as_str(), claim.value), ("near", 4));
    shop.commit(|orders| {
        assert!(matches!(
            orders.move_timer("near", HOUR),
            Ok(Moved::InFlight(_))
        ));
        assert!(matches!(
            orders.remove_timer("near"),
            Ok(Removed::InFlight(_))
        ));
        let set = orders.set_if_absent("near", &5, HOUR);
        assert!(matches!(set, Ok(SetIfAbsent::InFlight(_))));
    });
    claim.ack().await.expect("it is held");
    let counts = shop.timers.counts().await.expect("it counts");
    assert_eq!((counts.waiting, counts.in_flight), (1, 0));
    assert_eq!(shop.timers.remove_timer("b").await, Ok(Removed::Done(3)));
}

/// Sets a timer that is due, and receives it.
async fn fire(shop: &mut Shop, value: u64) -> Claim<String, u64> {
    let set = shop.timers.set_timer("a", &value, Duration::ZERO).await;
    set.expect("it is set");
    let claim = shop.claims.recv().await.expect("it goes on");
    assert_eq!(claim.value, value);
    claim
}

async fn die(claim: &Claim<String, u64>) {
    let died = claim.fail(Retry::never("why")).await;
    died.expect("it is held");
}

impl Shop {
    /// The numbers of waiting, flying and dead timers.
    async fn counts(&self) -> (u64, u64, u64) {
        let counts = self.timers.counts().await.expect("it counts");
        (counts.waiting, counts.in_flight, counts.dead)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_in_a_transaction_outdate_dead_timers() {
    let mut shop = Shop::open(SECOND).await;
    for if_absent in [false, true] {
        die(&fire(&mut shop, 1).await).await;
        shop.commit(|orders| assert_eq!(orders.move_timer("a", HOUR), Ok(Moved::Absent)));
        assert_eq!(shop.counts().await, (0, 0, 1));
        shop.commit(|orders| {
            if if_absent {
                assert_eq!(orders.set_if_absent("a", &2, HOUR), Ok(SetIfAbsent::Done));
            } else {
                orders.set_timer("a", &2, HOUR).expect("it is set");
            }
            assert_eq!(orders.move_timer("a", HOUR), Ok(Moved::Done));
        });
        assert_eq!(shop.counts().await, (1, 0, 0));
        assert_eq!(shop.timers.remove_timer("a").await, Ok(Removed::Done(2)));
    }

    // A remove returns the latest, in whichever order they died.
    let older = fire(&mut shop, 1).await;
    let newer = fire(&mut shop, 2).await;
    die(&newer).await;
    shop.commit(|orders| {
        let set = orders.set_if_absent("a", &5, HOUR);
        assert!(matches!(set, Ok(SetIfAbsent::InFlight(_))));
        let removed = orders.remove_timer("a");
        assert!(matches!(removed, Ok(Removed::InFlight(_))));
    });
    assert_eq!(shop.counts().await, (0, 1, 1));
    die(&older).await;
    shop.commit(|orders| {
        assert_eq!(orders.remove_timer("a"), Ok(Removed::Done(2)));
        assert_eq!(orders.remove_timer("a"), Ok(Removed::Absent));
    });
    assert_eq!(shop.counts().await, (0, 0, 0));

    // With a waiting timer the dead ones stay until it is removed.
    let claim = fire(&mut shop, 1).await;
    shop.commit(|orders| orders.set_timer("a", &7, HOUR).expect("it is set"));
    die(&claim).await;
    shop.commit(|orders| {
        let set = orders.set_if_absent("a", &8, HOUR);
        assert_eq!(set, Ok(SetIfAbsent::Present));
    });
    assert_eq!(shop.counts().await, (1, 0, 1));
    shop.commit(|orders| assert_eq!(orders.remove_timer("a"), Ok(Removed::Done(7))));
    assert_eq!(shop.counts().await, (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolled_back_timer_was_never_set() {
    let mut shop = Shop::open(SECOND / 20).await;
    shop.timers
        .set_timer("kept", &1, HOUR)
        .await
        .expect("it is set");
    let transaction = shop
        .user
        .transaction_with_behavior(Immediate)
        .expect("it begins");
    let orders = SqliteTransaction::<String, u64>::new(&transaction, "orders").expect("opened");
    orders
        .set_timer("new", &2, Duration::ZERO)
        .expect("it is set");
    assert_eq!(orders.remove_timer("kept"), Ok(Removed::Done(1)));
    drop(orders);
    transaction.rollback().expect("it rolls back");
    assert!(timeout(SECOND / 2, shop.claims.recv()).await.is_err());
    let counts = shop.timers.counts().await.expect("it counts");
    assert_eq!((counts.waiting, counts.in_flight), (1, 0));
    assert_eq!(shop.timers.remove_timer("kept").await, Ok(Removed::Done(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hint_after_the_commit_needs_no_poll() {
    let mut shop = Shop::open(600 * SECOND).await;
    for round in 0..3 {
        shop.commit(|orders| {
            orders
                .set_timer("near", &round, SECOND / 20)
                .expect("it is set");
        });
        shop.store.hint("orders").expect("it is a name");
        let claim = timeout(60 * SECOND, shop.claims.recv()).await;
        let claim = claim.expect("long before a poll").expect("it goes on");
        assert_eq!(claim.value, round);
        claim.ack().await.expect("it is held");
    }
    assert!(shop.store.hint("no name").is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_of_another_file_or_namespace_is_refused() {
    let mut shop = Shop::open(SECOND).await;
    let transaction = shop.user.transaction().expect("it begins");
    let refused = |namespace: &str| {
        let refused = SqliteTransaction::<String, u64>::new(&transaction, namespace);
        format!("{:#}", refused.expect_err(namespace))
    };
    assert!(refused("no name").contains("no name"));
    assert!(refused("order").contains("namespace order was not opened"));
    drop(transaction);
    let mut other = Connection::open_in_memory().expect("it opens");
    let transaction = other.transaction().expect("it begins");
    let refused = SqliteTransaction::<String, u64>::new(&transaction, "orders");
    let refused = refused.expect_err("it has no tables");
    assert!(
        format!("{refused:#}").contains("Sqlite::open"),
        "{refused:#}"
    );
    assert!(matches!(
        refused,
        BuildError::Open(Error::Store(StoreError::Refused { .. }))
    ));
}

/// A call that fails leaves the transaction as it was, for the user to go on or to roll back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_transaction_fails_and_changes_nothing() {
    let mut shop = Shop::open(SECOND).await;
    shop.user
        .busy_timeout(Duration::ZERO)
        .expect("it takes one");
    let transaction = shop
        .user
        .transaction_with_behavior(Deferred)
        .expect("it begins");
    let orders = SqliteTransaction::<String, u64>::new(&transaction, "orders").expect("opened");
    shop.timers
        .set_timer("a", &1, HOUR)
        .await
        .expect("it is set");
    let error = orders
        .set_timer("a", &2, HOUR)
        .expect_err("it has read before");
    assert!(
        matches!(error, Error::Store(StoreError::Unavailable { .. })),
        "{error:#}"
    );
    let long = "k".repeat(2_000);
    let error = orders
        .set_timer(&long, &2, HOUR)
        .expect_err("it is too long");
    assert_eq!(
        error,
        Error::TooLong {
            what: "key",
            len: 2_002,
            max: 1_024
        }
    );
    drop(orders);
    transaction.rollback().expect("it rolls back");
    assert_eq!(shop.timers.remove_timer("a").await, Ok(Removed::Done(1)));
}

/// A key that has a timer at every instant is never said to have none, and no write is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_race_with_calls_on_the_same_keys() {
    let mut shop = Shop::open(SECOND / 20).await;
    let (timers, keys) = (shop.timers.clone(), ["a", "b"]);
    for key in keys {
        timers.set_timer(key, &0, HOUR).await.expect("it is set");
    }
    let calls = tokio::spawn(async move {
        for round in 0..200 {
            let key = keys[round % 2];
            assert_ne!(
                timers.move_timer(key, Duration::ZERO).await,
                Ok(Moved::Absent)
            );
            let set = timers.set_if_absent(key, &9, HOUR).await;
            assert_ne!(set, Ok(SetIfAbsent::Done));
            timers.set_timer(key, &1, HOUR).await.expect("it is set");
        }
    });
    let mut claims = std::mem::replace(&mut shop.claims, Shop::open(SECOND).await.claims);
    let put_backs = tokio::spawn(async move {
        while let Some(claim) = claims.recv().await {
            claim.retry_after(Duration::ZERO).await.expect("it is held");
        }
    });
    let mut shop = tokio::task::spawn_blocking(move || {
        for round in 0..200 {
            let key = keys[round % 2];
            shop.commit(|orders| {
                assert_ne!(orders.move_timer(key, Duration::ZERO), Ok(Moved::Absent));
                assert_ne!(orders.set_if_absent(key, &9, HOUR), Ok(SetIfAbsent::Done));
                orders.set_timer(key, &2, HOUR).expect("it is set");
            });
        }
        shop
    })
    .await
    .expect("it ends");
    calls.await.expect("it ends");
    put_backs.abort();
    let ended = put_backs.await.expect_err("the stream goes on");
    assert!(ended.is_cancelled(), "{ended}");
    shop.commit(|orders| {
        for key in keys {
            assert_ne!(orders.move_timer(key, HOUR), Ok(Moved::Absent));
        }
    });
    for key in keys {
        let rows = shop.timers.admin().all_of(key).await.expect("it reads");
        let values = rows.into_iter().map(|row| row.value.expect("it decodes"));
        let values: Vec<u64> = values.collect();
        // A claim that was put back may be there, too.
        let is_kept = values.iter().any(|value| [1, 2].contains(value));
        assert!(is_kept && !values.contains(&9), "{key}: {values:?}");
    }
}

/// The statements for other clients, as the documentation shows them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_statements_do_what_calls_do() {
    let mut shop = Shop::open(SECOND / 20).await;
    let text = include_str!("../../src/sqlite/plain.sql");
    let code: String = text
        .lines()
        .filter(|line| !line.starts_with("--"))
        .collect();
    let statements: Vec<_> = code.split(';').map(str::to_owned).collect();
    let [set, moved, remove, find] =
        [0..6, 6..8, 8..12, 12..13].map(|range| statements[range].to_vec());
    let run = |user: &mut Connection, statements: &[String], key: &str, value: &str, due: i64| {
        let transaction = user
            .transaction_with_behavior(Immediate)
            .expect("it begins");
        let mut changed = Vec::new();
        for statement in statements {
            let mut statement = transaction.prepare(statement).expect("it is SQL");
            for (name, value) in
                named_params! {":key": key, ":value": value, ":due": due, ":namespace": "orders"}
            {
                if let Some(index) = statement.parameter_index(name).expect("it is a name") {
                    statement
                        .raw_bind_parameter(index, value)
                        .expect("it is bound");
                }
            }
            changed.push(if statement.column_count() > 0 {
                usize::from(statement.raw_query().next().expect("it reads").is_some())
            } else {
                statement.raw_execute().expect("it runs")
            });
        }
        transaction.commit().expect("it commits");
        changed
    };
    let far = 4_102_444_800_000_000; // the year 2100
    for key in ["a", "\"b\\ \u{1}\u{1f}\u{7f}/\n\t\u{8}\u{c}\r", "日本 🕰"] {
        assert_eq!(run(&mut shop.user, &find, key, "", 0), [0]);
        run(&mut shop.user, &set, key, "6", far);
        run(&mut shop.user, &set, key, "7", far);
        assert_eq!(run(&mut shop.user, &find, key, "", 0), [1]);
        assert_eq!(shop.timers.counts().await.expect("it counts").waiting, 1);
        assert_eq!(run(&mut shop.user, &moved, key, "", far + 1)[1], 1);
        assert_eq!(
            shop.timers.remove_timer(key).await,
            Ok(Removed::Done(7)),
            "{key}"
        );
        assert_eq!(run(&mut shop.user, &moved, key, "", far)[1], 0);
        assert_eq!(run(&mut shop.user, &remove, key, "", 0)[2..], [0, 1]);
        run(&mut shop.user, &set, key, "8", far);
        assert_eq!(run(&mut shop.user, &remove, key, "", 0)[2..], [1, 1]);
        assert_eq!(shop.timers.counts().await.expect("it counts").waiting, 0);
        run(&mut shop.user, &set, key, "9", far);
        run(&mut shop.user, &moved, key, "", 0);
        let claim = shop.claims.recv().await.expect("it goes on");
        assert_eq!((claim.key.as_str(), claim.value), (key, 9));
        die(&claim).await;
        assert_eq!(run(&mut shop.user, &moved, key, "", 0)[1], 0);
        assert_eq!(shop.counts().await, (0, 0, 1));
        run(&mut shop.user, &set, key, "9", 0);
        assert_eq!(shop.counts().await.2, 0);
        // A dead one goes with a waiting one, whatever is in flight, and otherwise stays beside
        // that.
        let older = shop.claims.recv().await.expect("it goes on");
        for (waits, left) in [(true, (0, 1, 0)), (false, (0, 1, 1))] {
            run(&mut shop.user, &set, key, "0", 0);
            let newer = shop.claims.recv().await.expect("it goes on");
            if waits {
                run(&mut shop.user, &set, key, "10", far);
            }
            die(&newer).await;
            run(&mut shop.user, &remove, key, "", 0);
            assert_eq!(shop.counts().await, left);
        }
        die(&older).await;
        run(&mut shop.user, &remove, key, "", 0);
        assert_eq!(shop.counts().await, (0, 0, 0));
    }
}

#[cfg(feature = "cron")]
#[tokio::test]
async fn transactions_set_and_change_cron_timers() {
    let mut shop = Shop::open(SECOND / 20).await;
    let set = shop.commit(|timers| timers.set_cron("a", &7, "* * * * * *", "UTC"));
    assert_eq!(set, Ok(()));
    for _ in 0..2 {
        let claim = timeout(20 * SECOND, shop.claims.recv()).await;
        let claim = claim.expect("it comes").expect("the stream goes on");
        assert_eq!(claim.value, 7);
        claim.ack().await.expect("it is held");
    }
    let moved = shop.commit(|timers| timers.move_timer("a", HOUR));
    assert_eq!(moved, Ok(Moved::Done));
    let schedule = async |shop: &Shop| {
        let entry = shop.timers.admin().get("a").await.expect("it reads");
        entry.expect("it waits").schedule
    };
    assert_eq!(schedule(&shop).await.as_deref(), Some("* * * * * * UTC"));
    let set = shop.commit(|timers| timers.set_timer("a", &8, HOUR));
    assert_eq!((set, schedule(&shop).await), (Ok(()), None));
    shop.commit(|timers| timers.set_cron("a", &9, "@yearly", "UTC"))
        .expect("it is set");
    let removed = shop.commit(|timers| timers.remove_timer("a"));
    assert_eq!(removed, Ok(Removed::Done(9)));
    let never = shop.commit(|timers| timers.set_cron("a", &9, "0 0 30 2 *", "UTC"));
    assert!(matches!(never, Err(Error::Cron(_))), "{never:?}");
}
