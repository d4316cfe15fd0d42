//! Reminders that survive their processes.
//!
//! Sets 20,000 reminders and runs three worker processes on them. It kills one with SIGKILL about
//! every second, starts another, and moves and removes some reminders meanwhile. Exits with code 1
//! if a reminder is lost, early, delivered again although its worker is alive and has acknowledged
//! it, or delivered again before its lease had ended or later than a poll after that. The store's
//! server may be killed too, and started again within 20 s, or replaced by its standby; with Redis
//! Sentinel, or in a cluster, also without.
//!
//! ```sh
//! cargo run --release -p tickwheel-durable --example reminders
//! cargo run --release -p tickwheel-durable --example reminders -- --timers 5000 --store orders.db
//! cargo run --release -p tickwheel-durable --features postgres --example reminders -- --store postgres://me@localhost/orders
//! cargo run --release -p tickwheel-durable --features postgres --example reminders -- --store postgres://me@db-1,db-2/orders
//! cargo run --release -p tickwheel-durable --features redis --example reminders -- --store redis+cluster://localhost:7000
//! ```

use std::error::Error;
use std::process::ExitCode;

use lexopt::Arg::Long;
use lexopt::ValueExt;

#[path = "reminders/redelivery.rs"]
mod redelivery;
#[path = "reminders/stage.rs"]
mod stage;
#[path = "reminders/store.rs"]
mod store;
#[path = "reminders/totals.rs"]
mod totals;
#[path = "reminders/worker.rs"]
mod worker;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The options of the command line.
struct Arguments {
    timers: u32,
    /// Where the timers lie; a file in a new folder by default.
    store: Option<String>,
    /// Be a worker. Only the program itself starts one.
    worker: bool,
}

fn arguments() -> Result<Option<Arguments>, lexopt::Error> {
    let mut arguments = Arguments {
        timers: 20_000,
        store: None,
        worker: false,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("timers") => arguments.timers = parser.value()?.parse()?,
            Long("store") => arguments.store = Some(parser.value()?.string()?),
            Long("worker") => arguments.worker = true,
            Long("help") => return Ok(None),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Some(arguments))
}

fn main() -> ExitCode {
    let run = || -> Outcome<bool> {
        let Some(arguments) = arguments()? else {
            println!(
                "reminders [--timers <number>] [--store <file of SQLite, or URL of PostgreSQL or Redis>]"
            );
            return Ok(true);
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        match (arguments.worker, arguments.store) {
            (true, store) => runtime.block_on(worker::run(&store.unwrap_or_default())),
            (false, store) => runtime.block_on(stage::run(arguments.timers, store)),
        }
    };
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("reminders: {error}");
            ExitCode::from(2)
        }
    }
}
