//! Durable timers and job queues, each on its own server of `PostgreSQL` or Redis or its own
//! `SQLite` file, one after the other:
//!
//! ```text
//! cargo run --release --manifest-path benches/queues/Cargo.toml [-- --only SIDE]...
//! ```
//!
//! The servers and files lie in the folder for temporary files: set `TMPDIR` to the disk that
//! counts. Every commit waits for it on `PostgreSQL` and `SQLite`, and on Redis with `--appendfsync
//! always`; usually that is `everysec`. The measuring process shares the cores with the server.

mod measure;
mod places;
mod sides;

use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;

use lexopt::prelude::*;

use measure::{Figure, METRICS};
use sides::Side;

struct Settings {
    /// The setting of Redis: when what it has appended to its file is on the disk.
    appendfsync: String,
    /// How many timers are due at once.
    storm: u64,
}

struct Arguments {
    chosen: Vec<Side>,
    rounds: usize,
    settings: Settings,
}

const USAGE: &str = "queues [--only SIDE]... [--rounds 3] [--storm 20000] [--appendfsync everysec]";

fn main() -> ExitCode {
    let arguments = match parse() {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            println!("{USAGE}\nsides:");
            for side in Side::all() {
                println!("  {}", side.name());
            }
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let chosen = arguments.chosen;
    let mut figures = BTreeMap::<(usize, usize), Vec<f64>>::new();
    for round in 0..arguments.rounds {
        for turn in 0..chosen.len() {
            // Each round begins with another side.
            let number = (turn + round) % chosen.len();
            let side = chosen[number];
            let mut measured = Vec::new();
            let run = || side.run(&arguments.settings, &mut measured);
            if panic::catch_unwind(AssertUnwindSafe(run)).is_err() {
                println!("{}\tfailed", side.name());
            }
            for Figure { metric, value } in measured {
                println!("{}\t{}\t{value:.3}", side.name(), METRICS[metric]);
                figures.entry((metric, number)).or_default().push(value);
            }
        }
    }
    println!("\n| | | median (least - most) |\n|---|---|---|");
    for ((metric, number), mut values) in figures {
        values.sort_by(f64::total_cmp);
        let (least, most) = (values[0], values[values.len() - 1]);
        let median = f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2]);
        println!(
            "| {} | {} | {median:.2} ({least:.2} - {most:.2}) |",
            METRICS[metric],
            chosen[number].name()
        );
    }
    ExitCode::SUCCESS
}

fn parse() -> Result<Option<Arguments>, lexopt::Error> {
    let mut arguments = Arguments {
        chosen: Vec::new(),
        rounds: 3,
        settings: Settings {
            appendfsync: "everysec".to_owned(),
            storm: 20_000,
        },
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("only") => {
                let name = parser.value()?.string()?;
                let side = Side::all().find(|side| side.name() == name);
                let side = side.ok_or("there is no such side; --help lists them")?;
                arguments.chosen.push(side);
            }
            Long("rounds") => arguments.rounds = parser.value()?.parse()?,
            Long("storm") => arguments.settings.storm = parser.value()?.parse()?,
            Long("appendfsync") => arguments.settings.appendfsync = parser.value()?.string()?,
            Long("help") | Short('h') => return Ok(None),
            other => return Err(other.unexpected()),
        }
    }
    if arguments.chosen.is_empty() {
        arguments.chosen.extend(Side::all());
    }
    Ok(Some(arguments))
}
