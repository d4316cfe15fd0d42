//! The processes of both versions, and what they say.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::worker;

/// Which version a process of another test runs, and on which store.
const VERSION: &str = "TICKWHEEL_TEST_VERSION";
const URL: &str = "TICKWHEEL_TEST_URL";
/// Set for one that sets no timers.
const DRAINS: &str = "TICKWHEEL_TEST_DRAINS";

/// Whatever is awaited comes sooner.
const LIMIT: Duration = Duration::from_secs(90);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Version {
    This,
    Next,
}

impl Version {
    pub(crate) fn other(self) -> Self {
        match self {
            Version::This => Version::Next,
            Version::Next => Version::This,
        }
    }
}

/// The process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it is a process of another test"]
async fn process() {
    let (Ok(version), Ok(url)) = (std::env::var(VERSION), std::env::var(URL)) else {
        return;
    };
    let drains = std::env::var_os(DRAINS).is_some();
    match &*version {
        "This" => worker::this::run(&url, drains).await,
        _ => worker::next::run(&url, drains).await,
    }
}

struct Process {
    child: Child,
    /// How many handlers have ended in it, and how many sets were refused.
    handled: usize,
    refused: usize,
}

/// The state of a timer.
#[derive(Default)]
struct Timer {
    set: bool,
    acked: bool,
    /// The processes, by their numbers, in which handlers have begun.
    begun: Vec<usize>,
}

/// The processes of a test, which end with it.
pub(crate) struct Processes {
    url: String,
    running: HashMap<Version, usize>,
    all: Vec<Process>,
    killed: HashSet<usize>,
    timers: HashMap<String, Timer>,
    says: Sender<(usize, String)>,
    said: Receiver<(usize, String)>,
}

impl Drop for Processes {
    fn drop(&mut self) {
        for process in &mut self.all {
            // Those that have ended are not there any more.
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}

impl Processes {
    pub(crate) fn on(url: &str) -> Self {
        let (says, said) = channel();
        Processes {
            url: url.to_owned(),
            running: HashMap::new(),
            all: Vec::new(),
            killed: HashSet::new(),
            timers: HashMap::new(),
            says,
            said,
        }
    }

    /// Starts a process.
    pub(crate) fn start(&mut self, version: Version) {
        self.start_as(version, false);
    }

    fn start_as(&mut self, version: Version, drains: bool) {
        let mut command = Command::new(std::env::current_exe().expect("it is a file"));
        command.args(["--exact", "processes::process", "--ignored", "--nocapture"]);
        command
            .env(VERSION, format!("{version:?}"))
            .env(URL, &self.url);
        if drains {
            command.env(DRAINS, "yes");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let number = self.all.len();
        let out = child.stdout.take().expect("it is piped");
        let says = self.says.clone();
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                // The test may have ended.
                let _ = says.send((number, line));
            }
            let _ = says.send((number, "ended".to_owned()));
        });
        self.all.push(Process {
            child,
            handled: 0,
            refused: 0,
        });
        self.running.insert(version, number);
        self.until("it starts", |_, line| line == (number, "ready"));
    }

    /// Ends a process as a deployment does: its handlers end before it.
    pub(crate) fn end(&mut self, version: Version) {
        let number = self.running.remove(&version).expect("it runs");
        drop(self.all[number].child.stdin.take());
        self.until("it ends", |_, line| line == (number, "ended"));
        let status = self.all[number].child.wait().expect("it has ended");
        assert!(status.success(), "{version:?}: {status}");
    }

    pub(crate) fn kill(&mut self, version: Version) {
        let number = self.running.remove(&version).expect("it runs");
        self.all[number].child.kill().expect("it runs");
        self.until("it is gone", |_, line| line == (number, "ended"));
        self.killed.insert(number);
    }

    /// Waits until a process has handled some more.
    pub(crate) fn until_handled(&mut self, version: Version) {
        let number = self.running[&version];
        let before = self.all[number].handled;
        self.until("it handles timers", |all, _| {
            all[number].handled >= before + 3
        });
    }

    /// Waits until a process was refused new work, and has ended the handlers that it had.
    pub(crate) fn until_refused(&mut self, version: Version) {
        let number = self.running[&version];
        let before = self.all[number].refused;
        self.until("it is refused", |all, _| all[number].refused >= before + 3);
    }

    fn until(&mut self, what: &str, is_so: impl Fn(&[Process], (usize, &str)) -> bool) {
        let limit = Instant::now() + LIMIT;
        loop {
            match self
                .said
                .recv_timeout(limit.saturating_duration_since(Instant::now()))
            {
                Ok((number, line)) => {
                    self.note(number, &line);
                    if is_so(&self.all, (number, &line)) {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("not within {LIMIT:?}: {what}"),
                Err(RecvTimeoutError::Disconnected) => unreachable!("there is a sender"),
            }
        }
    }

    fn note(&mut self, number: usize, line: &str) {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["set", key] => self.timer(key).set = true,
            ["begins", key, _] => {
                let timer = self.timer(key);
                timer.begun.push(number);
                assert!(!timer.acked, "{key} is handled after its acknowledgement");
            }
            ["acked", key] => {
                self.timer(key).acked = true;
                self.all[number].handled += 1;
            }
            ["refused", ..] => self.all[number].refused += 1,
            ["fails", ..] => panic!("process {number} {line}"),
            _ => {}
        }
    }

    fn timer(&mut self, key: &str) -> &mut Timer {
        self.timers.entry(key.to_owned()).or_default()
    }

    /// Each timer was handled once, but for those whose process was killed meanwhile.
    pub(crate) fn check(&self) {
        for (key, Timer { begun, .. }) in &self.timers {
            let others = begun.iter().rev().skip(1);
            for number in others {
                assert!(
                    self.killed.contains(number),
                    "{key} was begun by process {number}, which was not killed, and again: {begun:?}"
                );
            }
        }
    }

    /// Ends the processes, and has one that sets nothing handle what is left.
    pub(crate) fn finish(mut self) {
        self.end(Version::This);
        self.end(Version::Next);
        self.start_as(Version::This, true);
        self.until("nothing is left", |_, (_, line)| line == "left 0");
        self.end(Version::This);
        self.check();
        // One that was killed may have acknowledged a timer and not have come to say so.
        let lost = self.timers.iter().filter(|(_, timer)| {
            let by_killed = timer
                .begun
                .last()
                .is_some_and(|by| self.killed.contains(by));
            timer.set && !timer.acked && !by_killed
        });
        let lost: Vec<_> = lost.map(|(key, _)| key).collect();
        assert!(lost.is_empty(), "lost: {lost:?}");
        let again = self.timers.values().filter(|timer| timer.begun.len() > 1);
        let (timers, again, processes) = (self.timers.len(), again.count(), self.all.len());
        eprintln!("{timers} timers of {processes} processes, {again} of them again after a kill");
    }
}
