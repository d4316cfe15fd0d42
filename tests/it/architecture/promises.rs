//! The tables of promises, in the design chapter and in the protocol of the durable timers: each
//! row names the tests that hold it.

use super::{File, rust_files};

/// The letter and the number of the promises of a table, its file, and the folders with its tests.
const TABLES: [(char, usize, &str, &[&str]); 2] = [
    ('P', 18, "src/guide/design.rs", &["src", "tests"]),
    ('D', 17, "durable/src/protocol.rs", &["durable"]),
];

/// The checks that it lists run as tests of each store.
const SUITE: &str = "durable/conformance/src/lib.rs";

#[derive(Debug)]
struct Row {
    letter: char,
    number: usize,
    tests: String,
}

/// The rows of the table of promises in a text.
fn rows(text: &str, letter: char) -> Vec<Row> {
    let cells = |line: &str| -> Option<Row> {
        let line = line.trim_start_matches("//!").trim();
        let line = line.strip_prefix("| ")?.strip_prefix(letter)?;
        let line = line.strip_suffix('|')?;
        let mut cells = line.splitn(3, " | ").map(str::trim);
        let number = cells.next()?.parse().ok()?;
        let _promise = cells.next()?;
        let tests = cells.next()?.to_owned();
        Some(Row {
            letter,
            number,
            tests,
        })
    };
    text.lines().filter_map(cells).collect()
}

/// The names of the functions in a file that run as tests.
fn tests_in(file: &File) -> Vec<String> {
    let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
    let mut tests = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let line = line.trim_start_matches("async ");
        let Some((name, _)) = line.strip_prefix("fn ").and_then(|l| l.split_once('(')) else {
            continue;
        };
        // The lines above, up to the end of the item before.
        let above = lines[..at].iter().rev();
        let above = above.take_while(|l| !l.is_empty() && !l.ends_with(['}', '{', ';']));
        let above: Vec<&str> = above.filter(|l| !l.starts_with("//")).copied().collect();
        let says = |what: &str| above.iter().any(|line| line.contains(what));
        if (says("test]") || says("test(")) && !says("#[ignore") {
            tests.push(name.to_owned());
        }
    }
    tests
}

/// The faults of a row, given the names of all tests.
fn complaints(row: &Row, tests: &[String]) -> Vec<String> {
    let Row { letter, number, .. } = row;
    let named: Vec<&str> = row.tests.split('`').skip(1).step_by(2).collect();
    let mut complaints = Vec::new();
    for name in &named {
        if !tests.iter().any(|test| test == name) {
            complaints.push(format!(
                "{letter}{number}: there is no test `{name}` that runs"
            ));
        }
    }
    let prefix = format!("{}{number}_", letter.to_ascii_lowercase());
    if !named.iter().any(|name| name.starts_with(&prefix)) {
        complaints.push(format!("{letter}{number}: no test is named for it"));
    }
    complaints
}

/// The number of the promise that a test is named for.
fn number(test: &str, letter: char) -> Option<usize> {
    let test = test.strip_prefix(letter.to_ascii_lowercase())?;
    test.split_once('_')?.0.parse().ok()
}

/// The checks that a suite lists, one on a line.
fn checks_in(suite: &File) -> Vec<String> {
    let names = suite
        .text
        .lines()
        .filter_map(|line| line.trim().strip_suffix(','));
    let is_name = |name: &&str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    names.filter(is_name).map(str::to_owned).collect()
}

fn tests_below(folders: &[&str]) -> Vec<String> {
    let files = folders.iter().flat_map(|folder| rust_files(folder));
    let tests = |file: File| {
        let checks = (file.path == SUITE).then(|| checks_in(&file));
        [tests_in(&file), checks.unwrap_or_default()].concat()
    };
    files.flat_map(tests).collect()
}

#[test]
fn names_tests_that_run_for_every_promise() {
    for (letter, promises, path, folders) in TABLES {
        let tests = tests_below(folders);
        let file = rust_files("").into_iter().find(|file| file.path == path);
        let rows = rows(&file.expect("it is there").text, letter);
        let numbers: Vec<usize> = rows.iter().map(|row| row.number).collect();
        assert_eq!(numbers, (1..=promises).collect::<Vec<_>>());
        let complaints = rows.iter().flat_map(|row| complaints(row, &tests));
        let complaints: Vec<String> = complaints.collect();
        assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    }
}

#[test]
fn complains_about_a_row_without_a_test_that_runs() {
    let table = "//! | P7 | it holds | `p7_it_does`, `and_more` |";
    let [row] = &rows(table, 'P')[..] else {
        panic!("one row");
    };
    let file = |text: &str| File {
        path: String::new(),
        text: text.to_owned(),
    };
    let complaints = |text: &str| complaints(row, &tests_in(&file(text))).len();
    let more = "\n#[tokio::test(\n    start_paused = true\n)]\nasync fn and_more() {}";
    assert_eq!(
        complaints(&format!("#[test]\nfn p7_it_does() {{}}\n{more}")),
        0
    );
    assert_eq!(complaints(&format!("fn p7_it_does() {{}}\n{more}")), 1);
    assert_eq!(
        complaints(&format!("#[test]\n#[ignore]\nfn p7_it_does() {{}}\n{more}")),
        1
    );
    assert_eq!(
        complaints("#[test]\nfn p7_it_does() {}\nfn and_more() {}"),
        1
    );
}

#[test]
fn names_no_test_for_a_promise_that_was_not_made() {
    for (letter, promises, _, folders) in TABLES {
        let stray = |name: &String| {
            number(name, letter).is_some_and(|number| !(1..=promises).contains(&number))
        };
        let stray: Vec<String> = tests_below(folders).into_iter().filter(stray).collect();
        assert_eq!(stray, Vec::<String>::new());
    }
}
