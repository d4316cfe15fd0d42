//! An operator's view of durable timers. The README says what it shows and does.

#![forbid(unsafe_code)]

mod actions;
mod args;
mod clock;
mod commands;
mod failure;
mod listing;
mod operator;
mod passwords;
mod records;
mod serve;
mod shown;
mod target;

use std::process::ExitCode;

use clap::Parser;

use args::Args;

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let ran = match runtime {
        Ok(runtime) => runtime.block_on(commands::run(args)),
        Err(error) => Err(error.into()),
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
