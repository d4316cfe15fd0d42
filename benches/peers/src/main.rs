//! Runs every workload against every timer and shows them side by side:
//!
//! ```text
//! cargo run --release --manifest-path benches/peers/Cargo.toml [-- --quick] [--only S2] [--out DIR]
//! ```
//!
//! Each workload has its own process. Within it the sides take turns; where a side leaves
//! traces in the process, such as memory, the processes take turns. Exit code 0 also if a bar is
//! missed; 1 if a workload fails; 2 on a bad argument.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use lexopt::prelude::*;
use tickwheel_peers::coordinate::{self, Figures};
use tickwheel_peers::measure::Scale;
use tickwheel_peers::{plan, report};

#[derive(Debug, Default)]
struct Arguments {
    quick: bool,
    only: Vec<String>,
    out: Option<PathBuf>,
    /// Be the process of this job.
    job: Option<usize>,
}

fn parse() -> Result<Option<Arguments>, lexopt::Error> {
    let mut arguments = Arguments::default();
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("quick") => arguments.quick = true,
            Long("only") => arguments.only.push(parser.value()?.string()?),
            Long("out") => arguments.out = Some(parser.value()?.into()),
            Long("job") => arguments.job = Some(parser.value()?.parse()?),
            Long("help") | Short('h') => return Ok(None),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Some(arguments))
}

fn main() -> ExitCode {
    let arguments = match parse() {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            println!("peers [--quick] [--only ID]... [--out DIR]");
            println!(
                "IDs: S1 S2 S2a S2b S2c S2d S3 S4 S4a S5 S6 S6b S6c S7 S8 S9 S10 S11 S12 S12b S13 S14 S15 S16 S17 S18 threads actor idle allocations adapters service reconnects keepalive pings"
            );
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let scale = Scale {
        quick: arguments.quick,
    };
    let jobs = plan::jobs(scale);
    if let Some(number) = arguments.job {
        let Some(job) = jobs.get(number) else {
            eprintln!("there is no job {number}");
            return ExitCode::from(2);
        };
        job.workload.run(scale);
        return ExitCode::SUCCESS;
    }
    for id in &arguments.only {
        if !jobs.iter().any(|job| job.id.eq_ignore_ascii_case(id)) {
            eprintln!("--only {id}: there is no such workload; --help lists them");
            return ExitCode::from(2);
        }
    }
    let chosen: Vec<_> = (jobs.iter().enumerate())
        .filter(|(_, job)| {
            arguments.only.is_empty()
                || (arguments.only.iter()).any(|id| job.id.eq_ignore_ascii_case(id))
        })
        .collect();

    let begun = Instant::now();
    let mut broken = Vec::new();
    let mut programs = HashMap::new();
    for (_, job) in &chosen {
        if let Entry::Vacant(vacant) = programs.entry(job.program) {
            println!("building {:?}", job.program);
            vacant.insert(coordinate::build(job.program));
        }
    }
    let mut figures = Figures::default();
    for (turn, &(number, job)) in chosen.iter().enumerate() {
        let start = Instant::now();
        print!("[{:2}/{}] {}: {}", turn + 1, chosen.len(), job.id, job.what);
        flush();
        let done = programs[&job.program].clone();
        match done.and_then(|program| coordinate::run(scale, number, job, &program, &mut figures)) {
            Ok(()) => println!(", {:.1} s", start.elapsed().as_secs_f64()),
            Err(error) => {
                println!(", BROKEN: {error}");
                broken.push(format!("{} ({}): {error}", job.id, job.what));
            }
        }
    }
    println!("measured in {:.0} s\n", begun.elapsed().as_secs_f64());

    let out = arguments.out.unwrap_or_else(report::default_directory);
    if let Err(error) = report::write(&figures, scale, !arguments.only.is_empty(), &out) {
        broken.push(format!("the report: {error}"));
    }
    if broken.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("\nbroken:");
    for what in broken {
        eprintln!("  {what}");
    }
    ExitCode::FAILURE
}

fn flush() {
    use std::io::Write;
    let _ = std::io::stdout().flush();
}
