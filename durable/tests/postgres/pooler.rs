//! Through pgbouncer, which the tests start: sessions are fine, transactions are refused, and
//! nothing is left behind.

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_durable::store::{Namespace, Store, StoreError};
use tickwheel_durable::{Postgres, builder};

use super::server::{Server, client, free_port, missing, not_run, until};

/// Starts a pooler, and stops it when the input ends. It refuses to be root, too.
const RUN: &str = r#"
set -eu
as=
if [ "$(id -u)" = 0 ]; then as="setpriv --reuid postgres --regid postgres --clear-groups --"; fi
$as "$1" -q "$2" >/dev/null 2>&1 </dev/null &
pooler=$!
echo started
read -r _ || true
kill -TERM $pooler
wait $pooler || true
"#;

struct Pooler {
    port: u16,
    _held: UdpSocket,
    shell: Child,
}

impl Pooler {
    /// Starts one before a server, with these settings.
    fn start(program: &Path, server: &Server, settings: &str) -> Self {
        let (port, held) = free_port();
        let folder = server.folder();
        let users = folder.join("users");
        std::fs::write(&users, "\"postgres\" \"\"\n").expect("it is written");
        let config = folder.join(format!("pooler-{port}.ini"));
        let text = format!(
            "[databases]
            * = host=127.0.0.1 port={}
            [pgbouncer]
            listen_addr = 127.0.0.1
            listen_port = {port}
            unix_socket_dir =
            auth_type = trust
            auth_file = {}
            {settings}
            ",
            server.port(),
            users.display()
        );
        let text: Vec<_> = text.lines().map(str::trim).collect();
        std::fs::write(&config, text.join("\n")).expect("it is written");
        let mut command = Command::new("sh");
        command.args(["-c", RUN, "sh"]).arg(program).arg(&config);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = piped.spawn().expect("a shell starts");
        let output = shell.stdout.take().expect("it is piped");
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        read.expect("it can be read");
        Pooler {
            port,
            _held: held,
            shell,
        }
    }

    async fn url(&self) -> String {
        until("the start of the pooler", async || {
            tokio::net::TcpStream::connect(("127.0.0.1", self.port))
                .await
                .is_ok()
        })
        .await;
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// pgbouncer, where Debian puts it or what `PATH` has.
fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    folders.find_map(|folder| Some(folder.join("pgbouncer")).filter(|program| program.exists()))
}

/// A server and the program, or nothing if one of them is missing.
fn start() -> Option<(Server, PathBuf)> {
    let Some(program) = program() else {
        not_run("no pgbouncer is installed");
        return None;
    };
    let Some(server) = Server::start(&["fsync=off"]) else {
        missing();
        return None;
    };
    Some((server, program))
}

/// The settings that a neighbour in the pool has, beside those of the server.
async fn changed_settings(url: &str) -> Vec<String> {
    let neighbour = client(url).await;
    let sql = "SELECT name FROM pg_settings WHERE source = 'session'
        AND name NOT IN ('client_encoding', 'application_name', 'DateStyle', 'TimeZone')";
    let rows = neighbour.query_typed(sql, &[]).await.expect("it reads");
    rows.iter().map(|row| row.get(0)).collect()
}

/// A store worked for two seconds, and its neighbours in the pool planned with its settings from
/// then on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pooler_of_transactions_is_refused_by_name() {
    let Some((server, program)) = start() else {
        return;
    };
    for settings in [
        "pool_mode = transaction",
        "pool_mode = statement",
        "pool_mode = transaction\ndefault_pool_size = 1",
        "pool_mode = transaction\ndefault_pool_size = 2\nserver_round_robin = 1\nmin_pool_size = 2",
        "pool_mode = transaction\ndefault_pool_size = 5\nserver_round_robin = 1\nmin_pool_size = 5",
    ] {
        let pooler = Pooler::start(&program, &server, settings);
        let url = pooler.url().await;
        let refused = Postgres::connect(&url).await.expect_err(settings);
        let text = refused.to_string();
        assert!(
            matches!(refused, StoreError::Refused { .. })
                && text.contains("pooler of transactions")
                && text.contains("pgbouncer"),
            "{settings}: {text}"
        );
        assert_eq!(changed_settings(&url).await, [""; 0], "{settings}");
    }
}

/// Others use the pool meanwhile, and take and give back its connections all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_pooler_of_transactions_is_refused_too() {
    let Some((server, program)) = start() else {
        return;
    };
    let settings = "pool_mode = transaction\ndefault_pool_size = 4";
    let pooler = Pooler::start(&program, &server, settings);
    let url = pooler.url().await;
    let mut neighbours = Vec::new();
    for _ in 0..3 {
        let client = client(&url).await;
        neighbours.push(tokio::spawn(async move {
            let busy = "SELECT pg_sleep(random() * 0.003)";
            while client.query_typed(busy, &[]).await.is_ok() {}
        }));
    }
    for _ in 0..10 {
        let refused = Postgres::connect(&url).await.expect_err("it is refused");
        assert!(refused.to_string().contains("pgbouncer"), "{refused}");
    }
    for neighbour in neighbours {
        neighbour.abort();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pooler_of_sessions_serves_all_calls() {
    let Some((server, program)) = start() else {
        return;
    };
    let pooler = Pooler::start(&program, &server, "pool_mode = session");
    let url = pooler.url().await;
    let start = async || {
        let store = Postgres::connect(&url).await.expect("it connects");
        let builder = builder::<String, u64>("sessions")
            .poll(Duration::from_secs(600))
            .window(Duration::from_secs(3_600));
        let started = builder.start(&TimerWheel::new(), store).await;
        started.expect("it starts")
    };
    let (timers, mut claims) = start().await;
    let (writer, writers_claims) = start().await;
    writers_claims.shutdown().await;
    for number in 0..20 {
        // Without a poll only a hint tells of it.
        let key = number.to_string();
        let set = writer.set_timer(&key, &number, Duration::from_millis(20));
        set.await.expect("it is set");
        let next = tokio::time::timeout(Duration::from_secs(60), claims.recv()).await;
        let claim = next.expect("it comes").expect("the stream goes on");
        assert_eq!(claim.value, number);
        claim.ack().await.expect("it is held");
    }
    assert_eq!(timers.counts().await.expect("it counts").waiting, 0);
    timers.shutdown().await;
    drop((timers, claims, writer));
    // Its connections go back to the pool, and the next client gets one of them.
    until("the end of the store", async || {
        changed_settings(&url).await.is_empty()
    })
    .await;
}

/// The pooler gives the process of a call that was given up to the next client, and the store had
/// it ended there: its own next call failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_that_a_pooler_gives_to_another_is_not_ended() {
    let Some((server, program)) = start() else {
        return;
    };
    let pooler = Pooler::start(&program, &server, "pool_mode = session");
    let store = Postgres::connect(&pooler.url().await).await;
    let store = store.expect("it connects");
    let space = Namespace::new("given_up").expect("it is a name");
    store.open(&space, &"json".into()).await.expect("it opens");
    store.count(&space).await.expect("it counts");
    let admin = client(&server.url()).await;
    let lock = "BEGIN; LOCK TABLE tickwheel_timers";
    admin.batch_execute(lock).await.expect("it is locked");
    let late = tokio::time::timeout(Duration::from_secs(1), store.count(&space)).await;
    late.expect_err("it waits");
    admin.batch_execute("COMMIT").await.expect("it is free");
    let reset = "SELECT pid FROM pg_stat_activity WHERE query = 'DISCARD ALL' AND state = 'idle'";
    let mut process: i32 = 0;
    until("a process that is given back", async || {
        let rows = admin.query(reset, &[]).await.expect("it reads");
        process = rows.first().map_or(0, |row| row.get(0));
        process != 0
    })
    .await;
    store.count(&space).await.expect("it counts again");
    let is_there = "SELECT FROM pg_stat_activity WHERE pid = $1";
    let found = admin.query(is_there, &[&process]).await.expect("it reads");
    assert_eq!(found.len(), 1, "it goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pooler_without_room_says_so() {
    let Some((server, program)) = start() else {
        return;
    };
    let settings = "pool_mode = session\ndefault_pool_size = 1";
    let pooler = Pooler::start(&program, &server, settings);
    let url = pooler.url().await;
    let refused = Postgres::connect(&url).await.expect_err("there is no room");
    let text = refused.to_string();
    assert!(text.contains("room for all connections"), "{text}");
}
