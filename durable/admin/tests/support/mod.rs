//! A file with timers, and the program.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use tickwheel::TimerWheel;
use tickwheel_durable::{Claims, DurableTimers, Retry, Sqlite, builder};

/// How long a call waits for a file that a busy machine writes.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The name of each instance.
pub(crate) const NAME: &str = "mailer on host-7";

/// An SQLite file in a folder that goes with it.
pub(crate) struct File {
    folder: PathBuf,
}

impl File {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tickwheel-admin-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("the folder is made");
        File { folder }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join("timers.db")
    }

    /// Starts an instance on the file.
    pub(crate) async fn instance(&self) -> Instance {
        self.instance_of("orders").await
    }

    /// Starts an instance of a namespace on the file.
    pub(crate) async fn instance_of(&self, namespace: &str) -> Instance {
        let store = Sqlite::open(self.path()).expect("it opens");
        let builder = builder(namespace).call_timeout(TIME_LIMIT).name(NAME);
        let started = builder.start(&TimerWheel::new(), store).await;
        started.expect("it starts")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // A file that is left over is harmless.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub(crate) type Instance = (DurableTimers<String, String>, Claims<String, String>);

/// Sets timers of these keys that are due after a delay.
pub(crate) async fn set(timers: &DurableTimers<String, String>, keys: &[&str], delay: Duration) {
    let value = "v".to_owned();
    let many = keys.iter().map(|key| (*key, &value, delay));
    timers.set_many(many).await.expect("they are set");
}

/// Makes a timer of each of these keys dead, by this error.
pub(crate) async fn kill_timers((timers, claims): &mut Instance, keys: &[&str], error: &str) {
    set(timers, keys, Duration::ZERO).await;
    for _ in keys {
        let claim = claims.recv().await.expect("it comes");
        claim.fail(Retry::never(error)).await.expect("it is held");
    }
}

/// How many timers are waiting, in flight and dead.
pub(crate) async fn counted(timers: &DurableTimers<String, String>) -> [u64; 3] {
    let counts = timers.counts().await.expect("it counts");
    [counts.waiting, counts.in_flight, counts.dead]
}

/// The program has ended.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) output: String,
    pub(crate) errors: String,
}

impl Run {
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{self:?}");
        serde_json::from_str(&self.output).expect("it is JSON")
    }
}

/// The program, without what the environment tells it.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tickwheel-admin"));
    for name in ["URL", "TOKEN"] {
        command.env_remove(format!("TICKWHEEL_ADMIN_{name}"));
    }
    command.env_remove("SUDO_USER");
    // A busy machine may take long to write a file.
    command.args(["--timeout", "60s"]);
    command
}

/// Runs the program on the file.
pub(crate) fn run(file: &File, arguments: &[&str]) -> Run {
    ended(program().arg("--url").arg(file.path()).args(arguments))
}

/// Runs it to its end. It cannot ask.
pub(crate) fn ended(command: &mut Command) -> Run {
    let ran = command.stdin(Stdio::null()).output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it is text");
    Run {
        code: ran.status.code().expect("no signal ends it"),
        output: text(ran.stdout),
        errors: text(ran.stderr),
    }
}
