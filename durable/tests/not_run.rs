//! A test that lacks a server does not pass unseen: the last lines of the run count it, and it
//! fails where `CI` is set.

#[path = "support/not_run.rs"]
mod not_run;

use std::process::{Command, Output};

use not_run::not_run;

#[test]
#[ignore = "the test below runs it"]
fn lacks_a_server() {
    not_run("no server");
}

#[test]
#[ignore = "the test below runs it"]
fn lacks_the_same_server() {
    not_run("no server");
}

#[test]
#[ignore = "the test below runs it"]
fn lacks_another_server() {
    not_run("no other server");
}

/// Runs the tests above; what they say comes in one stream.
fn run(ci: Option<&str>) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" --ignored 2>&1"]);
    shell.arg(std::env::current_exe().expect("it is a file"));
    shell.env_remove("CI_LEFT_OUT").env_remove("CI");
    shell.envs(ci.map(|ci| ("CI", ci)));
    shell.output().expect("a shell starts")
}

#[test]
fn tests_without_a_server_are_counted_on_the_last_lines() {
    let run = run(None);
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}");
    let lines: Vec<&str> = said.trim_end().lines().collect();
    let expected = [
        "tests NOT RUN: 1 (no other server)",
        "tests NOT RUN: 2 (no server)",
    ];
    assert_eq!(lines[lines.len() - 2..], expected, "{said}");
}

#[test]
fn tests_without_a_server_fail_where_ci_is_set() {
    let run = run(Some("1"));
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(!run.status.success(), "{said}");
    assert!(said.contains("0 passed; 3 failed"), "{said}");
}
