//! Starts a process for each job and collects what it measured.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::measure::{FIGURE, Scale};
use crate::plan::{Job, Program};
use crate::workload::Workload;

/// How long one process may take before it counts as hanging.
const TIME_LIMIT: Duration = Duration::from_mins(5);

/// All figures: by group, series and metric, in the order in which they were measured.
#[derive(Debug, Default)]
pub struct Figures(BTreeMap<(String, String, String), Vec<f64>>);

impl Figures {
    pub fn get(&self, group: &str, series: &str, metric: &str) -> &[f64] {
        let key = (group.to_owned(), series.to_owned(), metric.to_owned());
        self.0.get(&key).map_or(&[], Vec::as_slice)
    }

    fn add(&mut self, group: &str, line: &str) -> Result<(), String> {
        let mut parts = line.split('\t');
        let (Some(series), Some(metric), Some(value)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(format!("not a figure: {line}"));
        };
        let value: f64 = value
            .parse()
            .map_err(|_| format!("not a number: {value}"))?;
        let key = (group.to_owned(), series.to_owned(), metric.to_owned());
        self.0.entry(key).or_default().push(value);
        Ok(())
    }
}

/// Another program of this package, built now, since only this one is built by `cargo run`.
pub fn build(program: Program) -> Result<PathBuf, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    // This program lies in <target>/<profile>.
    let profile = this.parent().and_then(Path::parent).zip(this.parent());
    let Some((target, (Some(profile), Some(this_name)))) =
        profile.map(|(target, profile)| (target, (profile.file_name(), this.file_name())))
    else {
        return Ok(this);
    };
    let (target, name) = match program {
        Program::Peers => return Ok(this.clone()),
        Program::Counted => (target.to_owned(), OsStr::new("counted")),
        // A build with other flags has its own directory.
        Program::Alternative => (target.join("alternative"), this_name),
    };
    let built = target.join(profile).join(name);
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--manifest-path", manifest]);
    command.arg("--bin").arg(name);
    command.arg("--target-dir").arg(target);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    if program == Program::Alternative {
        command.env("RUSTFLAGS", "--cfg tokio_unstable");
    }
    let status = command
        .stdin(Stdio::null())
        .status()
        .map_err(|error| format!("cargo could not be started: {error}"))?;
    if !status.success() || !built.exists() {
        return Err(format!("{} could not be built", built.display()));
    }
    Ok(built)
}

/// Runs one job to its end; its figures are added to the others only if it succeeds.
pub fn run(
    scale: Scale,
    number: usize,
    job: &Job,
    program: &Path,
    figures: &mut Figures,
) -> Result<(), String> {
    let mut command = Command::new(program);
    match job.workload {
        Workload::Bytes => command.arg("bytes"),
        Workload::Allocations => command.arg("allocations"),
        _ => command.arg("--job").arg(number.to_string()),
    };
    if job.workload == Workload::Turns {
        command.env("GLIBC_TUNABLES", "glibc.malloc.mxfast=0");
    }
    if scale.quick {
        command.arg("--quick");
    }
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("it could not be started: {error}"))?;
    let output = child.stdout.take().expect("it is piped");
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let deadline = Instant::now() + TIME_LIMIT;
    let mut measured = Vec::new();
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => match line.strip_prefix(FIGURE) {
                Some(figure) => measured.push(figure.to_owned()),
                None => println!("{line}"),
            },
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it took more than {} s", TIME_LIMIT.as_secs()));
            }
        }
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    if !status.success() {
        return Err(format!("it failed: {status}"));
    }
    if measured.is_empty() {
        return Err("it measured nothing".to_owned());
    }
    for figure in measured {
        figures.add(job.group, &figure)?;
    }
    Ok(())
}
