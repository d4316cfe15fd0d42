//! A Redis or Valkey server that the tests start for themselves.

#[path = "../support/not_run.rs"]
mod not_run;

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(crate) use not_run::not_run;
use tickwheel_durable::Redis;
use tickwheel_durable::store::{Namespace, Store as _};

/// A server to use instead of a new one, by tests that leave it as it was.
const URL: &str = "TICKWHEEL_REDIS_URL";

/// Runs a server until standard input ends, however the tests have ended: then it is killed, and
/// its folder goes. A word on standard input keeps the folder.
const GUARD: &str = r#"
"$@" >/dev/null 2>&1 &
echo $!
read -r keep
kill -9 $! 2>/dev/null
wait
[ "$keep" ] || rm -rf "$FOLDER"
"#;

/// A server with a new folder. Both go with it.
pub(crate) struct Server {
    port: u16,
    _held: UdpSocket,
    folder: PathBuf,
    options: Vec<String>,
    environment: Vec<(&'static str, String)>,
    is_sentinel: bool,
    running: Option<(Child, u32)>,
}

/// Where the program is.
fn program() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"].map(PathBuf::from);
    let folders: Vec<_> = env::split_paths(&path).chain(usual).collect();
    let programs = ["redis-server", "valkey-server"].into_iter();
    let mut programs =
        programs.flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    programs.find(|program| program.is_file())
}

/// The URL of the server that such tests share. `None` if there is none.
pub(crate) fn shared() -> Option<String> {
    static SHARED: OnceLock<Option<Mutex<Server>>> = OnceLock::new();
    if let Ok(url) = env::var(URL) {
        return Some(url);
    }
    // Only instances die in those tests, which nothing that the server has said depends on.
    let quick = ["--appendfsync", "everysec"];
    let server = SHARED.get_or_init(|| Server::start(&quick).map(Mutex::new));
    let server = server
        .as_ref()?
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    Some(server.url())
}

impl Server {
    /// Starts a server with these options besides those that a durable one has. `None` if there is
    /// no such program.
    pub(crate) fn start(options: &[&str]) -> Option<Server> {
        let mut server = Server::new()?;
        server.options = options.iter().map(|&option| option.to_owned()).collect();
        server.run();
        Some(server)
    }

    /// Starts a server that sorts texts as English does, as one may in the locale of its host.
    /// `None` if there is no such program, or no such locale can be made.
    pub(crate) fn start_in_english() -> Option<Server> {
        let mut server = Server::new()?;
        let locale = server.folder.join("en_US.UTF-8");
        let mut made = Command::new("localedef");
        made.args(["-i", "en_US", "-f", "UTF-8"]).arg(&locale);
        if !made.output().is_ok_and(|made| made.status.success()) {
            not_run("no localedef, or no source of the locale en_US, is installed");
            return None;
        }
        let folder = server.folder.display().to_string();
        server.environment = vec![("LOCPATH", folder), ("LC_ALL", "en_US.UTF-8".to_owned())];
        server.run();
        Some(server)
    }

    /// Starts a Sentinel for a primary at this port. `None` if there is no such program.
    pub(crate) fn start_sentinel(name: &str, primary: u16, quorum: usize) -> Option<Server> {
        let mut server = Server::new()?;
        server.is_sentinel = true;
        let config = format!(
            "port {}\nbind 127.0.0.1\nsentinel monitor {name} 127.0.0.1 {primary} {quorum}\n\
             sentinel down-after-milliseconds {name} 2000\nsentinel failover-timeout {name} 3000\n",
            server.port
        );
        std::fs::write(server.config(), config).expect("the folder is there");
        server.run();
        Some(server)
    }

    /// The configuration, which a Sentinel rewrites.
    fn config(&self) -> PathBuf {
        self.folder.join("sentinel.conf")
    }

    /// A server that does not run yet. `None` if there is no such program.
    fn new() -> Option<Server> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if program().is_none() {
            not_run(&format!(
                "no redis-server or valkey-server is installed, and {URL} is not set"
            ));
            return None;
        }
        let (port, held) = free_port();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tickwheel-redis-{}-{number}", std::process::id());
        let folder = env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("the folder is made");
        Some(Server {
            port,
            _held: held,
            folder,
            options: Vec::new(),
            environment: Vec::new(),
            is_sentinel: false,
            running: None,
        })
    }

    /// Starts it, or starts it again after it was killed.
    pub(crate) fn run(&mut self) {
        let mut command = Command::new("sh");
        command
            .args(["-c", GUARD, "guard"])
            .env("FOLDER", &self.folder)
            .envs(self.environment.clone());
        command.arg(program().expect("it was there"));
        if self.is_sentinel {
            command.arg(self.config()).arg("--sentinel");
        } else {
            self.add_arguments(&mut command);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut guard = command.spawn().expect("a shell starts");
        let mut line = String::new();
        let output = guard.stdout.take().expect("it is piped");
        BufReader::new(output)
            .read_line(&mut line)
            .expect("the shell says the process");
        let process = line.trim().parse().expect("it is a number");
        self.running = Some((guard, process));
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(
                began.elapsed() < Duration::from_secs(20),
                "the server does not start"
            );
            sleep(Duration::from_millis(10));
        }
    }

    fn add_arguments(&self, command: &mut Command) {
        command.args([
            "--port",
            &self.port.to_string(),
            "--bind",
            "127.0.0.1",
            "--dir",
        ]);
        command.arg(&self.folder);
        command.args([
            "--save",
            "",
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
        ]);
        command.args(&self.options);
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some((mut guard, _)) = self.running.take() {
            let mut input = guard.stdin.take().expect("it is piped");
            input.write_all(b"keep\n").expect("the shell reads");
            drop(input);
            guard.wait().expect("the shell ends");
        }
    }

    /// Sends it a signal: `STOP` or `CONT`.
    pub(crate) fn signal(&self, name: &str) {
        let (_, process) = self.running.as_ref().expect("it runs");
        let mut command = Command::new("kill");
        command.args(["-s", name, &process.to_string()]);
        assert!(command.status().expect("there is such a command").success());
    }

    /// Where it keeps its data.
    pub(crate) fn folder(&self) -> &PathBuf {
        &self.folder
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        self.url_as("")
    }

    /// The URL with `user:password@` in it.
    pub(crate) fn url_as(&self, credentials: &str) -> String {
        format!("redis://{credentials}127.0.0.1:{}", self.port)
    }

    /// Connects to it, which may load its data first.
    pub(crate) async fn connect(&self) -> Redis {
        connect(&self.url()).await
    }

    /// Connects to it, and opens a namespace.
    pub(crate) async fn open(&self, name: &str) -> (Redis, Namespace) {
        let store = self.connect().await;
        let space = Namespace::new(name).expect("it is a name");
        store.open(&space, &"json".into()).await.expect("it opens");
        (store, space)
    }

    /// Sends it a command, in words.
    pub(crate) async fn command(&self, words: &[&str]) -> redis::Value {
        let answer = self.try_command(words).await;
        answer.expect("the server does as it is told")
    }

    pub(crate) async fn try_command(&self, words: &[&str]) -> redis::RedisResult<redis::Value> {
        let mut connection = self.client().await?;
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]).query_async(&mut connection).await
    }

    /// A plain client of it, which has patience with a busy machine.
    pub(crate) async fn client(&self) -> redis::RedisResult<redis::aio::MultiplexedConnection> {
        let client = redis::Client::open(self.url())?;
        let limit = Some(Duration::from_secs(20));
        let config = redis::AsyncConnectionConfig::new()
            .set_connection_timeout(limit)
            .set_response_timeout(limit);
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        connecting.await
    }

    /// A field of what it says about itself, such as `role`. `None` if it does not answer, or has
    /// no such field.
    pub(crate) async fn info(&self, section: &str, field: &str) -> Option<String> {
        let words: &[&str] = match section {
            "cluster" => &["CLUSTER", "INFO"],
            section => &["INFO", section],
        };
        let text = match self.try_command(words).await.ok()? {
            redis::Value::BulkString(text) => String::from_utf8_lossy(&text).into_owned(),
            redis::Value::VerbatimString { text, .. } => text,
            other => panic!("{other:?}"),
        };
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = fields.find(|(name, _)| *name == field)?;
        Some(value.trim().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        // A file that is left over is harmless.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A port that is free, as is that of the cluster's bus, which is greater by 10,000. The system
/// gives neither to a client: those begin at 32,768. The UDP port of the same number is held: the
/// server may start later, or again, and no other test takes the port meanwhile.
fn free_port() -> (u16, UdpSocket) {
    loop {
        let port = fastrand::u16(15_000..22_000);
        let address = ("127.0.0.1", port);
        let bus = TcpListener::bind(("127.0.0.1", port + 10_000));
        if let (Ok(held), Ok(_), Ok(_)) =
            (UdpSocket::bind(address), TcpListener::bind(address), bus)
        {
            return (port, held);
        }
    }
}

/// Waits until that is so.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Connects to a server, which may load its data first.
pub(crate) async fn connect(url: &str) -> Redis {
    let mut failed = None;
    for _ in 0..100 {
        match Redis::connect(url).await {
            Ok(redis) => return redis,
            Err(error) => failed = Some(error),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not connected: {failed:?}");
}
