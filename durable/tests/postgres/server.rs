//! PostgreSQL servers for tests.
//!
//! Tests share the server that `TICKWHEEL_POSTGRES_URL` leads to, or else one that is started from
//! the usual places of its programs, in a temporary folder, on a port of the loopback interface.
//! Without either the tests fail if `CI` is set; else they say so and pass. A server may be a
//! standby of another one.
//!
//! A shell stands between the test process and its server: it waits for its input to end, which
//! happens however the process ends, then stops the server and removes the folder.

#[path = "../support/not_run.rs"]
mod not_run;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub(crate) use not_run::not_run;
use tickwheel_durable::Postgres;
use tickwheel_durable::store::{Load, Namespace, Store as _};
use tokio_postgres::NoTls;

/// Starts a server in a new folder, says so, and does what it reads: `freeze` stops all processes
/// of the server where they are, `thaw` lets them go on, `keep` ends them and leaves the data,
/// `kill` ends them at once. The end of the input removes everything. Root cannot run a server:
/// `postgres` does.
const RUN: &str = r#"
set -eu
bin=$1 port=$2 folder=$3 primary=$4
shift 4
as=
if [ "$(id -u)" = 0 ]; then as="setpriv --reuid postgres --regid postgres --clear-groups --"; fi
if [ ! -d "$folder" ]; then
    mkdir -p "$folder"
    if [ -n "$as" ]; then chown postgres "$folder"; fi
    if [ -n "$primary" ]; then
        (cd "$folder" && $as "$bin/pg_basebackup" -D "$folder/data" -R -X stream -c fast -d "$primary") >/dev/null
    else
        (cd "$folder" && $as "$bin/initdb" -D "$folder/data" -A trust -U postgres -N -E UTF8 --no-locale) >/dev/null
        {
            echo "host all guarded 127.0.0.1/32 scram-sha-256"
            cat "$folder/data/pg_hba.conf"
        } >"$folder/hba"
        cat "$folder/hba" >"$folder/data/pg_hba.conf"
    fi
fi
cd "$folder"
# Else what an earlier server said stands there until the new one has opened it.
rm -f "$folder/log"
$as "$bin/postgres" -D data -p "$port" -k "$folder" "$@" >"$folder/log" 2>&1 </dev/null &
server=$!
while ! grep -qs "ready to accept .*connections" "$folder/log"; do
    kill -0 $server || { cat "$folder/log" >&2; exit 1; }
    sleep 0.05
done
echo ready
all() {
    kill -$1 $server
    for stat in /proc/[0-9]*/stat; do
        if read -r process _ _ parent _ <"$stat" && [ "$parent" = $server ]; then kill -$1 "$process" || true; fi
    done 2>/dev/null
}
while :; do
    read -r how || how=remove
    case $how in
    freeze) all STOP ;;
    thaw) all CONT ;;
    kill) all KILL ;;
    *) break ;;
    esac
    echo done
done
all CONT 2>/dev/null || true
kill -INT $server 2>/dev/null || true
wait $server || true
if [ "$how" = remove ]; then rm -rf "$folder"; fi
"#;

/// A new server, which goes with it.
pub(crate) struct Server {
    bin: PathBuf,
    folder: PathBuf,
    port: u16,
    _held: UdpSocket,
    settings: Vec<String>,
    /// Where the primary is, of a standby.
    primary: Option<String>,
    shell: Option<Child>,
    says: Option<BufReader<ChildStdout>>,
}

impl Server {
    /// Starts a server with these settings, or none if its programs are not found.
    pub(crate) fn start(settings: &[&str]) -> Option<Self> {
        Self::start_as(settings, None)
    }

    /// Starts a standby of this server, with its data.
    pub(crate) fn standby(&self) -> Self {
        let port = self.port;
        let primary = format!("host=127.0.0.1 port={port} user=postgres application_name=standby");
        Self::start_as(&["fsync=off"], Some(primary)).expect("the programs are there")
    }

    fn start_as(settings: &[&str], primary: Option<String>) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tickwheel-postgres-{}-{number}", std::process::id());
        let (port, held) = free_port();
        let mut server = Server {
            bin: programs()?,
            folder: std::env::temp_dir().join(name),
            port,
            _held: held,
            settings: settings.iter().map(|&setting| setting.to_owned()).collect(),
            primary,
            shell: None,
            says: None,
        };
        server.start_again();
        Some(server)
    }

    /// Starts it again after [`stop`](Self::stop).
    pub(crate) fn start_again(&mut self) {
        let mut command = Command::new("sh");
        command.args(["-c", RUN, "sh"]).arg(&self.bin);
        command.arg(self.port.to_string()).arg(&self.folder);
        command.arg(self.primary.as_deref().unwrap_or_default());
        let common = ["listen_addresses=127.0.0.1", "max_connections=1000"];
        for setting in common
            .iter()
            .copied()
            .chain(self.settings.iter().map(String::as_str))
        {
            command.args(["-c", setting]);
        }
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = piped.spawn().expect("a shell starts");
        let output = shell.stdout.take().expect("it is piped");
        self.says = Some(BufReader::new(output));
        self.shell = Some(shell);
        self.expect("ready");
    }

    fn expect(&mut self, word: &str) {
        let mut line = String::new();
        let says = self.says.as_mut().expect("it runs");
        says.read_line(&mut line).expect("it can be read");
        assert_eq!(line.trim_end(), word, "of the server");
    }

    fn tell(&mut self, word: &str) {
        use std::io::Write;
        let shell = self.shell.as_mut().expect("it runs");
        let input = shell.stdin.as_mut().expect("it is piped");
        writeln!(input, "{word}").expect("the shell reads");
    }

    /// Stops all its processes where they are: connections stay open, and nothing responds.
    pub(crate) fn freeze(&mut self) {
        self.tell("freeze");
        self.expect("done");
    }

    /// Lets its processes go on after [`freeze`](Self::freeze).
    pub(crate) fn thaw(&mut self) {
        self.tell("thaw");
        self.expect("done");
    }

    /// Kills all its processes.
    pub(crate) fn kill(&mut self) {
        self.tell("kill");
        self.expect("done");
    }

    /// Stops it as an operator does, who leaves the data.
    pub(crate) fn stop(&mut self) {
        self.tell("keep");
        let mut shell = self.shell.take().expect("it runs");
        shell.wait().expect("the shell ends");
    }

    /// The URL of its first database.
    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Its port on the loopback interface.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Its folder, where it can read files.
    pub(crate) fn folder(&self) -> &PathBuf {
        &self.folder
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut shell) = self.shell.take() {
            drop(shell.stdin.take());
            let _ = shell.wait();
        } else {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// Where Debian and others put the latest version's programs, or what `PATH` has.
fn programs() -> Option<PathBuf> {
    let versions = [
        "/usr/lib/postgresql",
        "/usr/local/pgsql",
        "/opt/homebrew/opt",
    ];
    let mut installed: Vec<_> = versions
        .iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flat_map(|entries| entries.flatten().map(|entry| entry.path().join("bin")))
        .collect();
    installed.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut bins = installed
        .into_iter()
        .rev()
        .chain(std::env::split_paths(&path));
    bins.find(|bin| bin.join("initdb").exists() && bin.join("postgres").exists())
}

/// The program `psql`, beside the server's or in the `PATH`.
pub(crate) fn psql() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut bins = programs().into_iter().chain(std::env::split_paths(&path));
    bins.find_map(|bin| Some(bin.join("psql")).filter(|psql| psql.exists()))
}

/// A port that is free, which the system gives to no client: those begin at 32,768. The UDP port of
/// the same number is held: the server starts later, or again, and no other test takes the port
/// meanwhile.
pub(crate) fn free_port() -> (u16, UdpSocket) {
    loop {
        let random = RandomState::new().hash_one(0_u8) % 3_000;
        let port = 22_000 + u16::try_from(random).expect("it is small");
        let address = ("127.0.0.1", port);
        if let (Ok(held), Ok(_)) = (UdpSocket::bind(address), TcpListener::bind(address)) {
            return (port, held);
        }
    }
}

/// Ends a test that cannot run.
pub(crate) fn missing() {
    not_run("no PostgreSQL is installed, and TICKWHEEL_POSTGRES_URL is not set");
}

/// The URL of the server that tests share, if there is one.
pub(crate) fn shared_url() -> Option<&'static str> {
    static SHARED: OnceLock<Option<(String, Option<Server>)>> = OnceLock::new();
    let shared = SHARED.get_or_init(|| {
        if let Ok(url) = std::env::var("TICKWHEEL_POSTGRES_URL") {
            return Some((url, None));
        }
        // Never dropped: its shell sees the process end.
        let server = Server::start(&["fsync=off"])?;
        Some((server.url(), Some(server)))
    });
    shared.as_ref().map(|(url, _)| url.as_str())
}

/// A client of the server, for what tests do behind the store's back.
pub(crate) async fn client(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("connects");
    drop(tokio::spawn(connection));
    client
}

/// A new database on the shared server.
pub(crate) async fn database(name: &str) -> Option<String> {
    let shared = shared_url()?;
    let client = client(shared).await;
    let name = format!("{name}_{}", std::process::id());
    let create = format!("CREATE DATABASE {name}");
    client.batch_execute(&create).await.expect("it is made");
    let (server, _) = shared.rsplit_once('/').expect("it names a database");
    Some(format!("{server}/{name}"))
}

/// Loads, and returns how many rows that were.
pub(crate) async fn count_loaded(store: &Postgres, space: &Namespace, load: &Load) -> usize {
    let loaded = store.load(space, load.clone()).await.expect("it loads");
    loaded.rows.len()
}

/// Waits until something holds, for a minute at most.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..3_000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what} does not happen");
}

/// Waits until a statement in the database of that client waits for a lock.
pub(crate) async fn until_waits_for_lock(watcher: &tokio_postgres::Client) {
    let waiting = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    until("a statement waits for a lock", async || {
        let waiting = watcher.query_one(waiting, &[]).await.expect("it reads");
        waiting.get::<_, i64>(0) == 1
    })
    .await;
}
