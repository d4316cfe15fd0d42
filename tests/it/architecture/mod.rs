//! Dependencies point one way, every promise names tests that exist, and the clock is read in one
//! place.
//!
//! The checks read the sources as text: the code of a file up to its unit tests, without comments.

mod order;
mod promises;
mod public_items;
mod texts;

use std::fs;
use std::path::Path;

/// A source file of the project; its path is relative to the project, with `/` between the parts.
#[derive(Debug, Clone)]
struct File {
    path: String,
    text: String,
}

/// Every Rust file below a folder of the project.
fn rust_files(folder: &str) -> Vec<File> {
    files(folder, ".rs")
}

/// Every file of the project with a name that ends like this.
fn project_files(end: &str) -> Vec<File> {
    files("", end)
}

fn files(folder: &str, end: &str) -> Vec<File> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    walk(&project.join(folder), project, end, &mut files);
    assert!(!files.is_empty(), "{folder} has no files");
    files
}

fn walk(folder: &Path, project: &Path, end: &str, files: &mut Vec<File>) {
    for entry in fs::read_dir(folder).expect("it is a folder") {
        let path = entry.expect("it can be read").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            // What was built, and what is hidden, such as the repository.
            if name != "target" && !name.starts_with('.') {
                walk(&path, project, end, files);
            }
        } else if name.ends_with(end) {
            let relative = path.strip_prefix(project).expect("it lies in the project");
            files.push(File {
                path: relative.to_string_lossy().replace('\\', "/"),
                text: fs::read_to_string(&path).expect("it is text"),
            });
        }
    }
}

/// The files of the library, without comments, unit tests and models.
fn sources() -> Vec<File> {
    code_of("src")
}

/// The files of a crate in that folder, likewise.
fn code_of(folder: &str) -> Vec<File> {
    let mut files = rust_files(folder);
    files.retain(|file| {
        let mut parts = file.path.split('/');
        !parts.any(|part| matches!(part, "tests" | "tests.rs" | "model" | "model.rs"))
    });
    for file in &mut files {
        let code = file.text.split("\nmod tests {").next().unwrap_or("");
        let code = code
            .lines()
            .map(|line| line.split("//").next().unwrap_or(""));
        file.text = code.collect::<Vec<_>>().join("\n");
    }
    files
}

/// The path of a file below the folder `src` of its crate.
fn path_in_crate(file: &File) -> &str {
    file.path.split_once("src/").map_or("", |(_, path)| path)
}

/// The part of the crate that a file belongs to: the first folder below `src`, or the file itself.
fn part(file: &File) -> &str {
    let path = path_in_crate(file);
    let is_itself = |part: &&&str| path.strip_suffix(".rs") == Some(&*part.replace("::", "/"));
    match order::OF_BOTH_SIDES.iter().find(is_itself) {
        Some(part) => part,
        None => path.split(['/', '.']).next().unwrap_or(""),
    }
}

/// A breaking version of a peer is one of `tickwheel-adapters` only.
#[test]
fn names_no_peer_of_the_adapters() {
    let manifest = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.contains(" = { version"));
        let names = lines.filter_map(|line| line.split_once(" = "));
        names.map(|(name, _)| name.to_owned()).collect()
    };
    let adapters = include_str!("../../../adapters/Cargo.toml");
    let optional = adapters.lines().filter(|l| l.contains("optional = true"));
    let mut peers = manifest(&optional.collect::<Vec<_>>().join("\n"));
    peers.retain(|peer| !["pin-project-lite", "slab"].contains(&peer.as_str()));
    assert_eq!(peers.len(), 8, "{peers:?}");
    let dependencies = manifest(include_str!("../../../Cargo.toml"));
    let named = dependencies.iter().find(|name| peers.contains(name));
    assert_eq!(named, None);
}

#[test]
fn wheel_knows_no_clock_runtime_thread_or_logger() {
    let parts = ["wheel", "collections"];
    let files = sources()
        .into_iter()
        .filter(|file| parts.contains(&part(file)));
    for file in files {
        for stranger in [
            "tokio", "tracing", "time::", "Instant", "Duration", "sync::", "thread",
        ] {
            assert!(
                !file.text.contains(stranger),
                "{} knows {stranger}",
                file.path
            );
        }
    }
}

#[test]
fn only_one_file_reads_the_clock() {
    for file in sources() {
        let reads = file.text.contains("Instant::now()") || file.text.contains(".elapsed()");
        assert!(!reads || part(&file) == "clock", "{} reads it", file.path);
    }
}

#[test]
fn shows_the_quick_start_example_on_front_page_and_readme() {
    let example = include_str!("../../../examples/quickstart.rs");
    // `say!` is a `println!` that ignores a closed pipe.
    let printing = "#[path = \"support/say.rs\"]\n#[macro_use]\nmod say;\n\n";
    let example = example.replace(printing, "").replace("say!", "println!");
    let is_shown = |line: &&str| !line.starts_with("//!") && !line.contains("takes_no_arguments");
    let body = example.lines().filter(is_shown);
    let body = body.collect::<Vec<_>>().join("\n");
    let front = include_str!("../../../src/lib.rs").lines();
    let front = front.filter_map(|line| line.strip_prefix("//!"));
    let front = front.map(|line| line.strip_prefix(' ').unwrap_or(line));
    let front = front.collect::<Vec<_>>().join("\n");
    assert!(front.contains(body.trim()), "src/lib.rs differs");
    let readme = include_str!("../../../README.md");
    assert!(readme.contains(body.trim()), "README.md differs");
}
