//! Connections that the user makes or prepares, and fewer of them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_durable::store::StoreError;
use tickwheel_durable::{Claims, DurableTimers, Postgres, PostgresOptions, builder};
use tokio::net::TcpStream;
use tokio_postgres::config::{Config, Host};
use tokio_postgres::{Client, NoTls};

use super::server::{Server, client, database, missing, until};

type Instance = (DurableTimers<String, u64>, Claims<String, u64>);

fn options(url: &str) -> PostgresOptions {
    PostgresOptions::new(url).expect("it parses")
}

/// An instance that would notice nothing without hints.
async fn start(options: PostgresOptions) -> Instance {
    let store = Postgres::connect_with(options).await.expect("it connects");
    let started = builder("options")
        .poll(Duration::from_secs(600))
        .window(Duration::from_secs(3_600))
        .call_timeout(Duration::from_secs(60))
        .start(&TimerWheel::new(), store)
        .await;
    started.expect("it starts")
}

/// Uses every lane, beginning with a timer that another instance sets.
async fn use_all((timers, claims): &mut Instance, url: &str) {
    let (writer, writers_claims) = start(options(url)).await;
    writers_claims.shutdown().await;
    for number in 0..3 {
        let set = writer.set_timer("a", &number, Duration::from_millis(20));
        set.await.expect("it is set");
        let next = tokio::time::timeout(Duration::from_secs(60), claims.recv()).await;
        let claim = next.expect("a hint comes").expect("the stream goes on");
        assert_eq!(claim.value, number);
        claim.ack().await.expect("it is held");
    }
    let far = Duration::from_secs(3_600);
    timers.set_timer("b", &1, far).await.expect("it is set");
    assert!(timers.deadline("b").await.expect("it reads").is_some());
    assert_eq!(timers.counts().await.expect("it counts").waiting, 1);
    let _ = timers.remove_timer("b").await.expect("it is removed");
    writer.shutdown().await;
}

/// Ends all connections of stores, and returns how many there were.
async fn cut(admin: &Client) -> i64 {
    let cut = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'tickwheel-durable'";
    let cut = admin.query_one(cut, &[]).await;
    cut.expect("it cuts").get(0)
}

async fn connections(admin: &Client) -> i64 {
    let count = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'tickwheel-durable'";
    let count = admin.query_one(count, &[]).await;
    count.expect("it counts").get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_keeps_to_its_number_of_connections() {
    let Some(url) = database("number").await else {
        return missing();
    };
    let admin = client(&url).await;
    for (number, expected) in (3..).zip(3..=7) {
        let mut instance = start(options(&url).connections(number)).await;
        use_all(&mut instance, &url).await;
        until("the end of the writer's connections", async || {
            connections(&admin).await == expected
        })
        .await;
        instance.0.shutdown().await;
        drop(instance);
        until("the end of the connections", async || {
            connections(&admin).await == 0
        })
        .await;
    }
    for number in [0, 2, 8] {
        let refused = Postgres::connect_with(options(&url).connections(number)).await;
        let error = refused.expect_err("it is out of range");
        let text = error.to_string();
        assert!(matches!(error, StoreError::Refused { .. }), "{text}");
        let says = format!("connections is {number}; it must be from 3 to 7");
        assert!(text.contains(&says), "{text}");
    }
}

/// A password is valid until the next one is set, and open connections are cut then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_connection_asks_for_its_password() {
    let Some(server) = Server::start(&["fsync=off"]) else {
        return missing();
    };
    let admin = client(&server.url()).await;
    let role =
        "CREATE ROLE guarded LOGIN PASSWORD 'first'; GRANT CREATE ON SCHEMA public TO guarded";
    admin.batch_execute(role).await.expect("it is made");
    let url = server.url().replace("postgres@", "guarded@");
    let password = Arc::new(Mutex::new("first"));
    let asked = Arc::<AtomicUsize>::default();
    let options = options(&url).before_connect({
        let (password, asked) = (Arc::clone(&password), Arc::clone(&asked));
        move |mut host: Config| {
            asked.fetch_add(1, Ordering::Relaxed);
            assert_eq!(host.get_hosts(), [Host::Tcp("127.0.0.1".into())]);
            host.password(*password.lock().expect("no test panics with it"));
            std::future::ready(Ok::<_, StoreError>(host))
        }
    });
    let (timers, _claims) = start(options).await;
    let far = Duration::from_secs(3_600);
    for next in ["second", "third"] {
        timers.set_timer("a", &1, far).await.expect("it is set");
        *password.lock().expect("no test panics with it") = next;
        let change = format!("ALTER ROLE guarded PASSWORD '{next}'");
        admin.batch_execute(&change).await.expect("it is changed");
        let before = asked.load(Ordering::Relaxed);
        assert!(cut(&admin).await >= 1);
        until("a new connection", async || {
            timers.set_timer("a", &1, far).await.is_ok()
        })
        .await;
        assert!(asked.load(Ordering::Relaxed) > before);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn error_of_a_function_is_the_cause() {
    let options = options("postgres://me:s3cret@127.0.0.1:1/orders")
        .before_connect(|_| std::future::ready(Err::<Config, _>("no token today")));
    let error = Postgres::connect_with(options).await;
    let error = error.expect_err("there is no token");
    let text = format!("{error:#}");
    assert!(error.may_pass(), "{text}");
    assert!(
        text.contains("127.0.0.1:1/orders as me") && text.contains("no token today"),
        "{text}"
    );
    assert!(!text.contains("s3cret"), "{text}");
    let mine = StoreError::refused("the vault is sealed");
    let options = PostgresOptions::from(Config::new().host("nowhere").clone())
        .before_connect(move |_| std::future::ready(Err::<Config, _>(mine.clone())));
    let error = Postgres::connect_with(options).await;
    assert_eq!(
        error.expect_err("it is sealed"),
        StoreError::refused("the vault is sealed")
    );
}

/// A host that refuses forever does not make another one that is away look so.
#[tokio::test]
async fn hosts_that_fail_are_refused_if_none_may_pass() {
    for (away, may_pass) in [([1, 2], true), ([0, 2], true), ([0, 0], false)] {
        let options = options("postgres://me@127.0.0.1:1,127.0.0.1:2/orders");
        let options = options.before_connect(move |host: Config| {
            let error = if away.contains(&host.get_ports()[0]) {
                StoreError::unavailable("it is away")
            } else {
                StoreError::refused("it is not for you")
            };
            std::future::ready(Err::<Config, _>(error))
        });
        let error = Postgres::connect_with(options).await;
        let error = error.expect_err("there is no host");
        assert_eq!(error.may_pass(), may_pass, "{error:#}");
    }
}

/// What may pass when others let go is told from what an operator has to look at.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_is_refused_and_full_server_is_unavailable() {
    let Some(url) = database("full").await else {
        return missing();
    };
    let admin = client(&url).await;
    let (timers, _claims) = start(options(&url)).await;
    for (state, may_pass) in [("53100", false), ("53200", true), ("53400", true)] {
        let full = format!(
            "CREATE OR REPLACE FUNCTION full_now() RETURNS trigger LANGUAGE plpgsql AS
                $$BEGIN RAISE EXCEPTION 'it is full' USING ERRCODE = '{state}'; END$$;
            CREATE OR REPLACE TRIGGER full_now BEFORE INSERT ON tickwheel_timers
                EXECUTE FUNCTION full_now()"
        );
        admin.batch_execute(&full).await.expect("it is made");
        let set = timers.set_timer("a", &1, Duration::from_secs(60)).await;
        let error = set.expect_err("it is full");
        let text = format!("{error:#}");
        assert!(
            text.contains("it is full") && text.contains(state),
            "{text}"
        );
        assert_eq!(error.may_pass(), may_pass, "{text}");
    }
}

/// Statements of a batch see what was committed before each of them, whatever a role or a database
/// has as its default.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_read_committed_whatever_the_default_is() {
    let Some(url) = database("isolated").await else {
        return missing();
    };
    let admin = client(&url).await;
    let default = "-cdefault_transaction_isolation=repeatable\\%20read";
    let (timers, _claims) = start(options(&format!("{url}?options={default}"))).await;
    let note = "CREATE TABLE levels (level text);
        CREATE FUNCTION note_level() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
            INSERT INTO public.levels VALUES (current_setting('transaction_isolation'));
            RETURN NULL;
        END$$;
        CREATE TRIGGER note_level AFTER INSERT OR UPDATE OR DELETE ON tickwheel_timers
            EXECUTE FUNCTION note_level()";
    admin.batch_execute(note).await.expect("it is made");
    let far = Duration::from_secs(3_600);
    timers.set_timer("a", &1, far).await.expect("it is set");
    let _ = timers.move_timer("a", far).await.expect("it is moved");
    let _ = timers.remove_timer("a").await.expect("it is removed");
    let levels = "SELECT count(*), min(level), max(level) FROM levels";
    let levels = admin.query_one(levels, &[]).await.expect("it reads");
    assert!(levels.get::<_, i64>(0) >= 3);
    let levels: (&str, &str) = (levels.get(1), levels.get(2));
    assert_eq!(levels, ("read committed", "read committed"));
}

/// The name by which an operator tells connections apart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_have_the_name_of_the_url() {
    let Some(url) = database("named").await else {
        return missing();
    };
    let _store = Postgres::connect(&format!("{url}?application_name=shop"))
        .await
        .expect("it connects");
    let admin = client(&url).await;
    let named = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'shop'";
    let named = admin.query_one(named, &[]).await.expect("it counts");
    assert!(named.get::<_, i64>(0) >= 2);
    assert_eq!(connections(&admin).await, 0, "by default they have another");
}

/// A function that never returns is given up, as a host that never responds.
#[tokio::test(start_paused = true)]
async fn function_that_hangs_is_given_up() {
    let options = options("postgres://me:s3cret@127.0.0.1:1/orders?connect_timeout=3")
        .before_connect(|_| std::future::pending::<Result<Config, StoreError>>());
    let error = Postgres::connect_with(options).await;
    let text = error.expect_err("it hangs").to_string();
    assert!(text.contains("no connection within 3s"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn function_makes_all_connections() {
    let Some(url) = database("own_sockets").await else {
        return missing();
    };
    let made = Arc::<AtomicUsize>::default();
    let options = PostgresOptions::from(url.parse::<Config>().expect("it parses")).connect_by({
        let made = Arc::clone(&made);
        move |config: Config| {
            made.fetch_add(1, Ordering::Relaxed);
            async move {
                let port = config.get_ports()[0];
                let socket = TcpStream::connect(("127.0.0.1", port)).await?;
                let connected = config.connect_raw(socket, NoTls).await;
                connected.map_err(std::io::Error::other)
            }
        }
    });
    let mut instance = start(options).await;
    use_all(&mut instance, &url).await;
    assert_eq!(made.load(Ordering::Relaxed), 7);
    assert!(cut(&client(&url).await).await >= 7);
    until("new connections", async || {
        let set = instance.0.set_timer("b", &1, Duration::from_secs(3_600));
        set.await.is_ok()
    })
    .await;
    assert!(made.load(Ordering::Relaxed) > 7);
}
