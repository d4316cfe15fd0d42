//! The program for the terminal, for scripts, and as a server of the page.

mod args;
mod change;
mod list;
mod migrate;
mod output;
mod passwords;
mod records;
mod serve;
mod stats;
mod target;

use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use crate::failure::Failure;
use crate::operator::{Operator, StoreAccess, write_stderr};
use crate::shown::whole;
use args::{Args, Command, Common};

/// Runs the program with its arguments. Returns its exit code: 1 if the store or the machine has
/// failed, 2 for wrong arguments, as `clap` has it, 3 if something is not there.
pub fn main() -> ExitCode {
    let args = Args::parse();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build();
    let ran = runtime
        .map_err(Failure::from)
        .and_then(|runtime| runtime.block_on(run(args)));
    let (code, failure) = match ran {
        Ok(()) | Err(Failure::Unread) => return ExitCode::SUCCESS,
        Err(failure @ Failure::Failed(_)) => (1, failure),
        Err(failure @ Failure::Usage(_)) => (2, failure),
        Err(failure @ Failure::NotFound(_)) => (3, failure),
    };
    // The store's text may have what moves the cursor of a terminal.
    write_stderr(&format!("error: {}", whole(failure.to_string().as_bytes())));
    ExitCode::from(code)
}

async fn run(Args { common, command }: Args) -> Result<(), Failure> {
    match command {
        Command::Completions { shell } => {
            let mut program = Args::command();
            let name = program.get_name().to_owned();
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut program, name, &mut script);
            output::print(String::from_utf8_lossy(&script).trim_end())
        }
        Command::Man => {
            let page = clap_mangen::Man::new(Args::command());
            Ok(page.render(&mut std::io::stdout())?)
        }
        Command::Serve(options) => serve::serve(&common, options).await,
        Command::Migrate(what) => migrate::migrate(&common, what).await,
        command => {
            let access = access(&common).await?;
            let ran = run_on(&access, &common, command).await;
            access.close().await;
            ran
        }
    }
}

/// Runs a command that needs the store alone.
async fn run_on(access: &StoreAccess, common: &Common, command: Command) -> Result<(), Failure> {
    let operator = async || one(access, common).await;
    let json = common.json;
    match command {
        Command::Stats => stats::stats(access, common).await,
        Command::Watch { every, times } => stats::watch(access, common, every, times).await,
        Command::List(which) => list::list(&operator().await?, json, which).await,
        Command::Show { key, hex } => list::show(&operator().await?, json, &key, hex).await,
        Command::Instances => stats::instances(&operator().await?, json).await,
        Command::Change(change) => change::change(&operator().await?, json, change).await,
        Command::Completions { .. } | Command::Man | Command::Serve(_) | Command::Migrate(_) => {
            Ok(())
        }
    }
}

/// Reads a URL or a token from a file, or else from a variable.
fn given(what: &str, file: Option<&Path>, variable: &str) -> Result<Option<String>, Failure> {
    let given = match file {
        Some(file) => Some(std::fs::read_to_string(file).map_err(|error| {
            Failure::Usage(format!("the {what} file {}: {error}", file.display()))
        })?),
        None => std::env::var_os(variable).map(|text| text.to_string_lossy().into_owned()),
    };
    Ok(given.map(|text| text.trim().to_owned()))
}

/// The store that is named.
async fn access(common: &Common) -> Result<StoreAccess, Failure> {
    let store = target::connect(&target::url(common)?, common.timeout).await?;
    Ok(StoreAccess::new(store, common.timeout))
}

/// The namespace that is named, or the only one.
async fn one(access: &StoreAccess, common: &Common) -> Result<Operator, Failure> {
    let named = common.namespace.as_ref();
    let found = access.operators(named).await?;
    if let [only] = &found[..] {
        return Ok(only.clone());
    }
    let all = access.operators(None).await?;
    let all: Vec<_> = all.iter().map(|each| each.namespace.as_str()).collect();
    let names = all.join(", ");
    Err(match named {
        _ if all.is_empty() => Failure::NotFound("the store has no namespace".to_owned()),
        Some(name) => Failure::NotFound(format!("there is no namespace {name}, but {names}")),
        None => Failure::Usage(format!("name one with --namespace: the store has {names}")),
    })
}

/// Ends when the program is told to stop.
fn stop() -> Result<impl Future<Output = ()>, Failure> {
    #[cfg(unix)]
    let (mut terminate, mut hangup) = {
        use tokio::signal::unix::{SignalKind, signal};
        let hangup = (!ignores_hangups()).then(|| signal(SignalKind::hangup()));
        (signal(SignalKind::terminate())?, hangup.transpose()?)
    };
    Ok(async move {
        #[cfg(unix)]
        tokio::select! {
            _ = terminate.recv() => {}
            Some(()) = async { hangup.as_mut()?.recv().await } => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        #[cfg(not(unix))]
        let _ = tokio::signal::ctrl_c().await;
    })
}

/// Whether the program outlives its terminal, as under `nohup`. Where nothing tells, it is left as
/// it is.
#[cfg(unix)]
fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut ignored = status
        .lines()
        .filter_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.find_map(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_none_or(|mask| mask & 1 == 1)
}
