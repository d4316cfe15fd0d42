//! The table of promises in the design chapter: each row names the tests that hold it.

use super::{File, rust_files};

/// How many promises there are.
const PROMISES: usize = 17;

const CHAPTER: &str = include_str!("../../../src/guide/design.rs");

#[derive(Debug)]
struct Row {
    number: usize,
    tests: String,
}

/// The rows of the table of promises in a text.
fn rows(text: &str) -> Vec<Row> {
    let cells = |line: &str| -> Option<Row> {
        let line = line.trim_start_matches("//!").trim();
        let line = line.strip_prefix("| P")?.strip_suffix('|')?;
        let mut cells = line.splitn(3, " | ").map(str::trim);
        let number = cells.next()?.parse().ok()?;
        let _promise = cells.next()?;
        let tests = cells.next()?.to_owned();
        Some(Row { number, tests })
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
    let number = row.number;
    let named: Vec<&str> = row.tests.split('`').skip(1).step_by(2).collect();
    let mut complaints = Vec::new();
    for name in &named {
        if !tests.iter().any(|test| test == name) {
            complaints.push(format!("P{number}: there is no test `{name}` that runs"));
        }
    }
    let prefix = format!("p{number}_");
    if !named.iter().any(|name| name.starts_with(&prefix)) {
        complaints.push(format!("P{number}: no test is named for it"));
    }
    complaints
}

/// The number of the promise that a test is named for.
fn number(test: &str) -> Option<usize> {
    test.strip_prefix('p')?.split_once('_')?.0.parse().ok()
}

fn all_tests() -> Vec<String> {
    let files = [rust_files("src"), rust_files("tests")].concat();
    files.iter().flat_map(tests_in).collect()
}

#[test]
fn has_a_row_for_every_promise() {
    let numbers: Vec<usize> = rows(CHAPTER).iter().map(|row| row.number).collect();
    assert_eq!(numbers, (1..=PROMISES).collect::<Vec<_>>());
}

#[test]
fn names_tests_that_run_for_every_promise() {
    let tests = all_tests();
    let this = "names_tests_that_run_for_every_promise";
    assert!(tests.iter().any(|test| test == this), "tests are found");
    let rows = rows(CHAPTER);
    let complaints: Vec<String> = rows
        .iter()
        .flat_map(|row| complaints(row, &tests))
        .collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn complains_about_a_row_without_a_test_that_runs() {
    let table = "//! | P7 | it holds | `p7_it_does`, `and_more` |";
    let [row] = &rows(table)[..] else {
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
    let stray = |name: &String| number(name).is_some_and(|n| !(1..=PROMISES).contains(&n));
    let stray: Vec<String> = all_tests().into_iter().filter(stray).collect();
    assert_eq!(stray, Vec::<String>::new());
}
