//! Draws the charts of the READMEs from the table in `benches/README.md`, which has the recorded
//! figures:
//!
//! ```text
//! cargo run --manifest-path benches/charts/Cargo.toml
//! ```
//!
//! A chart names rows of the table, and a row that is not there is an error.

mod chart;
mod table;

use std::path::Path;
use std::process::ExitCode;

use chart::{Bar, Chart};
use table::Table;

const BENCHES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// A row of the table: its workload and peer, and what the chart calls the workload.
type Choice = (&'static str, &'static str, &'static str);

/// The chart of the first page.
const FRONT: [Choice; 5] = [
    (
        "timeout, two workers",
        "tokio::time",
        "A timeout armed and cancelled, two threads",
    ),
    (
        "keyed timer set, moved and removed, one task",
        "DelayQueue",
        "A keyed timer set, moved and removed",
    ),
    (
        "a million sleepers, mean lateness",
        "tokio::time",
        "Lateness of a million sleepers",
    ),
    (
        "the same with `precise`, mean lateness",
        "tokio::time",
        "Lateness of 20 ms sleeps, precise wheel",
    ),
    (
        "hyper, two timers a request, CPU time",
        "tokio::time",
        "CPU time of a whole HTTP request",
    ),
];

/// The chart of the benchmarks, by subject.
const FIGURES: [(&str, &[Choice]); 5] = [
    (
        "Timeouts: time to arm and cancel one",
        &[
            ("timeout, one thread", "tokio::time", "one thread"),
            ("timeout, two workers", "tokio::time", "two threads"),
            ("timeout, two workers", "pingora-timeout", "two threads"),
        ],
    ),
    (
        "Keyed timers: time to set, move and remove one",
        &[
            (
                "keyed timer set, moved and removed, one task",
                "DelayQueue",
                "one task",
            ),
            (
                "keyed timer set, moved and removed, two tasks",
                "DelayQueue",
                "two tasks",
            ),
        ],
    ),
    (
        "Mean lateness",
        &[
            (
                "a million sleepers, mean lateness",
                "tokio::time",
                "a million sleepers",
            ),
            (
                "a hundred sleepers of 20 ms, mean lateness",
                "tokio::time",
                "a hundred sleepers of 20 ms",
            ),
            (
                "the same with `precise`, mean lateness",
                "tokio::time",
                "the same with precise",
            ),
        ],
    ),
    (
        "CPU time where timers fire",
        &[
            (
                "a million sleepers, CPU time",
                "tokio::time",
                "a million sleepers",
            ),
            (
                "10,000 sleeps a second, CPU time of each",
                "tokio::time",
                "10,000 sleeps a second",
            ),
            (
                "the same with `precise`",
                "tokio::time",
                "the same with precise",
            ),
            (
                "hyper, two timers a request, CPU time",
                "tokio::time",
                "a whole HTTP request",
            ),
        ],
    ),
    (
        "Memory",
        &[(
            "memory of a pending `Sleep`",
            "tokio::time",
            "a pending sleep",
        )],
    ),
];

fn bars(table: &Table, choices: &[Choice]) -> Result<Vec<Bar>, String> {
    choices
        .iter()
        .map(|&(workload, peer, label)| {
            Ok(Bar {
                label,
                peer,
                ratio: table.ratio(workload, peer)?,
            })
        })
        .collect()
}

/// The charts, by file name.
fn draw(readme: &str) -> Result<[(&'static str, String); 2], String> {
    let table = Table::parse(readme)?;
    let front = Chart {
        title: "The cost or lateness of each, relative to the timer that is named",
        about: &table.about,
        groups: vec![(None, bars(&table, &FRONT)?)],
    };
    let groups = FIGURES.iter().map(|(subject, choices)| {
        let bars = bars(&table, choices)?;
        Ok((Some(*subject), bars))
    });
    let figures = Chart {
        title: "Relative to the timer that is named: further left is better",
        about: &table.about,
        groups: groups.collect::<Result<_, String>>()?,
    };
    Ok([("front.svg", front.svg()), ("figures.svg", figures.svg())])
}

fn run() -> Result<(), String> {
    let failed = |path: &Path, error| format!("{}: {error}", path.display());
    let readme = Path::new(BENCHES).join("README.md");
    let text = std::fs::read_to_string(&readme).map_err(|error| failed(&readme, error))?;
    for (name, svg) in draw(&text)? {
        let path = Path::new(BENCHES).join(name);
        std::fs::write(&path, svg).map_err(|error| failed(&path, error))?;
        println!("written: {}", path.display());
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_show_the_table() {
        let read = |name| std::fs::read_to_string(Path::new(BENCHES).join(name));
        let readme = read("README.md").expect("it is there");
        for (name, svg) in draw(&readme).expect("the rows are there") {
            let recorded = read(name).expect("it is there");
            assert!(recorded == svg, "draw {name} again: see `main.rs`");
        }
    }
}
