//! The commands of the page on backups.

use std::path::Path;
use std::process::Command;

const PAGE: &str = include_str!("../../src/backups.rs");

/// The commands of a section under a comment that begins with these words.
pub(crate) fn commands(section: &str, words: &str) -> String {
    let lines = PAGE.lines().filter_map(|line| line.strip_prefix("//!"));
    let page: Vec<_> = lines
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        .collect();
    let page = page.join("\n");
    let (_, rest) = page
        .split_once(&format!("\n# {section}\n"))
        .expect("there is the section");
    let mut blocks = rest
        .split("```sh\n")
        .skip(1)
        .map(|block| block.split("```").next());
    let head = format!("# {words}");
    let found = blocks.find(|block| block.is_some_and(|block| block.starts_with(&head)));
    let found = found
        .flatten()
        .unwrap_or_else(|| panic!("{section} says how to {words}"));
    found.to_owned()
}

/// Runs them in a folder. `None` if a program is not installed.
pub(crate) fn run(
    section: &str,
    words: &str,
    folder: &Path,
    variables: &[(&str, &str)],
) -> Option<()> {
    let commands = commands(section, words);
    let mut shell = Command::new("sh");
    shell.args(["-eu", "-c", &commands]).current_dir(folder);
    let ran = shell.envs(variables.iter().copied()).output();
    let ran = ran.expect("there is a shell");
    // The shell's code for a program that it does not find.
    if ran.status.code() == Some(127) {
        return None;
    }
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{commands}\n{said}");
    Some(())
}
