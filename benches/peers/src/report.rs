//! The table on the terminal, and the files.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::chart;
use crate::coordinate::Figures;
use crate::measure::Scale;
use crate::table::{Row, Spread, rows};

/// `target/peers` of the crate.
pub fn default_directory() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers"))
}

/// Prints the table and writes `figures.md` and `lateness.svg`.
pub fn write(
    figures: &Figures,
    scale: Scale,
    partial: bool,
    directory: &Path,
) -> Result<(), String> {
    let rows = rows(figures);
    if rows.is_empty() {
        return Err("there is nothing to show".to_owned());
    }
    print(&rows);
    fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let path = directory.join("figures.md");
    fs::write(&path, markdown(&rows, scale, partial))
        .map_err(|error| format!("{}: {error}", path.display()))?;
    println!("\nwritten: {}", path.display());
    let about = about(scale);
    let path = directory.join("lateness.svg");
    if chart::lateness(figures, &about, &path)? {
        println!("written: {}", path.display());
    }
    Ok(())
}

/// Three significant digits.
fn number(value: f64) -> String {
    let size = value.abs();
    if size < 0.0005 {
        "0".to_owned()
    } else if size >= 99.95 {
        format!("{value:.0}")
    } else if size >= 9.995 {
        format!("{value:.1}")
    } else if size >= 0.0995 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

fn range(spread: Spread) -> String {
    let (least, most) = (number(spread.least), number(spread.most));
    if least == most {
        number(spread.median)
    } else {
        format!("{} ({least} - {most})", number(spread.median))
    }
}

fn with_unit(value: &str, unit: &str) -> String {
    format!("{value} {unit}").trim_end().to_owned()
}

/// The cells of a row: id, what, metric, ours, peer, theirs, ratio, bar, verdict.
fn cells(row: &Row) -> [String; 9] {
    let check = &row.check;
    let value = |spread: Spread| with_unit(&number(spread.median), check.unit);
    let bar = check.bar.map_or_else(String::new, |bar| {
        let unit = if row.ratio.is_some() { "x" } else { check.unit };
        format!("<= {}", with_unit(&number(bar), unit))
    });
    let verdict = match row.passes() {
        Some(true) => "met",
        Some(false) => "MISSED",
        None if row.is_noise() => "noise",
        None => "",
    };
    let ours = if row.ratio.is_none() {
        with_unit(&range(row.ours), check.unit)
    } else {
        value(row.ours)
    };
    [
        check.id.to_owned(),
        name_series(row),
        check.metric.to_owned(),
        ours,
        check
            .theirs
            .map_or_else(String::new, |theirs| theirs.1.to_owned()),
        row.theirs.map_or_else(String::new, value),
        row.ratio.map_or_else(String::new, range),
        bar,
        verdict.to_owned(),
    ]
}

/// The measured series. The timer is named where it is not ours.
fn name_series(row: &Row) -> String {
    let series = row.check.ours.1;
    let ours = series == "tickwheel" || row.check.id == "S5" || row.check.id == "S11";
    if ours {
        row.check.what.to_owned()
    } else {
        format!("{}: {series}", row.check.what)
    }
}

const HEADINGS: [&str; 9] = [
    "",
    "workload",
    "of which",
    "tickwheel",
    "peer",
    "peer's",
    "ratio",
    "bar",
    "",
];

fn print(rows: &[Row]) {
    let mut table = vec![HEADINGS.map(str::to_owned)];
    table.extend(rows.iter().map(cells));
    let widths: [usize; 9] = std::array::from_fn(|column| {
        (table.iter().map(|row| row[column].chars().count()).max()).unwrap_or(0)
    });
    for row in &table {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        println!("{}", line.trim_end());
    }
    let judged = rows.iter().filter_map(Row::passes);
    let (met, missed): (Vec<_>, Vec<_>) = judged.partition(|&met| met);
    println!("\n{} bars met, {} missed", met.len(), missed.len());
    if rows.iter().any(Row::is_noise) {
        println!("noise: a timeout seemed to cost less than nothing; the machine was busy");
    }
}

fn markdown(rows: &[Row], scale: Scale, partial: bool) -> String {
    let mut text = String::new();
    let date = jiff::Timestamp::now().strftime("%Y-%m-%d");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let _ = writeln!(
        text,
        "Measured on {date}, {cores} cores, {}, {} on {}: {}.\n",
        rustc(),
        std::env::consts::OS,
        std::env::consts::ARCH,
        versions().join(", "),
    );
    if scale.quick {
        text.push_str("This was a quick run, with smaller workloads: not to be compared.\n\n");
    }
    if partial {
        text.push_str("This was a run of some of the workloads.\n\n");
    }
    text.push_str(
        "Figures are medians of repetitions in which the sides take turns; in parentheses stand the least and the \
         greatest of one repetition. `wall` and `cpu` are for one operation; of timeouts, above the same loop without \
         one.\n\n",
    );
    // A workload has a name. What `--only` takes is on the terminal.
    let _ = writeln!(text, "| {} |", HEADINGS[1..].join(" | "));
    let _ = writeln!(text, "|{}", "---|".repeat(HEADINGS.len() - 1));
    for row in rows {
        let _ = writeln!(text, "| {} |", cells(row)[1..].join(" | "));
    }
    text.push_str(
        "\nNot among the peers: `kestrel-timer`, which switches on Tokio's `test-util` and so makes every clock \
         reading in the program more expensive, and the timer of `moka`, which is not public.\n",
    );
    text
}

/// Where and when: the subtitle of a chart.
fn about(scale: Scale) -> String {
    let date = jiff::Timestamp::now().strftime("%Y-%m-%d");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let n = if scale.quick { "1 to 3" } else { "3 to 10" };
    format!(
        "{cores} cores, {} on {}, {}, {date}; n = {n} repetitions of each side in turn, medians",
        std::env::consts::OS,
        std::env::consts::ARCH,
        rustc(),
    )
}

fn rustc() -> String {
    let program = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(program).arg("--version").output().ok();
    let version = output.and_then(|output| String::from_utf8(output.stdout).ok());
    // "rustc 1.95.0 (hash date)"
    let words = version.as_deref().unwrap_or("").split_whitespace();
    words.take(2).collect::<Vec<_>>().join(" ")
}

/// The versions of all that is compared, as locked.
fn versions() -> Vec<String> {
    const NAMES: [&str; 8] = [
        "tickwheel",
        "tokio",
        "tokio-util",
        "pingora-timeout",
        "hierarchical_hash_wheel_timer",
        "futures-timer",
        "async-io",
        "tokio-timerfd",
    ];
    let lock = include_str!("../Cargo.lock");
    NAMES
        .iter()
        .filter_map(|name| {
            let (_, rest) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
            let (version, _) = rest.split_once('"')?;
            Some(format!("{name} {version}"))
        })
        .collect()
}
