//! Durable timers and job queues, each on its own `PostgreSQL` server, one after the other:
//!
//! ```text
//! cargo run --release --manifest-path benches/queues/Cargo.toml [-- --only SIDE]... [--rounds N]
//! ```
//!
//! The servers have their usual settings and lie in the folder for temporary files: every commit
//! waits for the disk. Set `TMPDIR` to the disk that counts. The measuring process shares the cores
//! with the server.

mod measure;
mod probe;
#[allow(
    dead_code,
    unreachable_pub,
    clippy::pedantic,
    reason = "it is shared with the tests"
)]
#[path = "../../../durable/tests/postgres/server.rs"]
mod server;
mod sides;

use std::collections::BTreeMap;
use std::process::ExitCode;

use lexopt::prelude::*;

use measure::{Figure, METRICS};
use sides::Side;

fn main() -> ExitCode {
    let (chosen, rounds) = match parse() {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            println!("queues [--only SIDE]... [--rounds N]\nsides:");
            for side in Side::ALL {
                println!("  {}", side.name());
            }
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let mut figures = BTreeMap::<(usize, usize), Vec<f64>>::new();
    for round in 0..rounds {
        for turn in 0..chosen.len() {
            // Each round begins with another side.
            let number = (turn + round) % chosen.len();
            for Figure { metric, value } in sides::run(chosen[number]) {
                println!("{}\t{}\t{value:.3}", chosen[number].name(), METRICS[metric]);
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

fn parse() -> Result<Option<(Vec<Side>, usize)>, lexopt::Error> {
    let (mut chosen, mut rounds) = (Vec::new(), 3);
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("only") => {
                let name = parser.value()?.string()?;
                let side = Side::ALL.into_iter().find(|side| side.name() == name);
                chosen.push(side.ok_or("there is no such side; --help lists them")?);
            }
            Long("rounds") => rounds = parser.value()?.parse()?,
            Long("help") | Short('h') => return Ok(None),
            other => return Err(other.unexpected()),
        }
    }
    if chosen.is_empty() {
        chosen.extend(Side::ALL);
    }
    Ok(Some((chosen, rounds)))
}
