//! A file with timers, and the program.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use tickwheel::TimerWheel;
use tickwheel_durable::{Claims, DurableTimers, Sqlite, builder};

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
    pub(crate) async fn instance(&self) -> (DurableTimers<String, String>, Claims<String, String>) {
        let store = Sqlite::open(self.path()).expect("it opens");
        let started = builder("orders").start(&TimerWheel::new(), store).await;
        started.expect("it starts")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // A file that is left over is harmless.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
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

/// Runs the program on the file.
pub(crate) fn run(file: &File, arguments: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tickwheel-admin"));
    let ran = command.arg(file.path()).args(arguments).output();
    let ran = ran.expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it is text");
    Run {
        code: ran.status.code().expect("no signal ends it"),
        output: text(ran.stdout),
        errors: text(ran.stderr),
    }
}
