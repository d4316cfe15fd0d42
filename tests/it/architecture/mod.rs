//! Dependencies point one way, and every promise names tests that exist.
//!
//! The checks read the sources as text: the code of a file up to its unit tests, without comments.

mod promises;

use std::fs;
use std::path::Path;

/// A source file of the project; its path is relative to the project, with `/` between the parts.
#[derive(Debug, Clone)]
struct File {
    path: String,
    text: String,
}

/// The callers' side: futures and handles.
const CALLERS: [&str; 4] = ["sleep", "keyed", "idle", "time"];

/// Every Rust file below a folder of the project.
fn rust_files(folder: &str) -> Vec<File> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    walk(&project.join(folder), project, &mut files);
    assert!(!files.is_empty(), "{folder} has no files");
    files
}

fn walk(folder: &Path, project: &Path, files: &mut Vec<File>) {
    for entry in fs::read_dir(folder).expect("it is a folder") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            walk(&path, project, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
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
    let mut files = rust_files("src");
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

/// The part of the crate that a file belongs to: the first folder below `src`, or the file itself.
fn part(file: &File) -> &str {
    let path = file.path.trim_start_matches("src/");
    path.split(['/', '.']).next().unwrap_or("")
}

/// The parts of the crate that a file names, its own excepted.
fn imports(file: &File) -> Vec<String> {
    let paths = file.text.split("crate::").skip(1);
    // `use crate::{a::A, b::B}` is written one line for each part; `super::super::a` does not occur.
    let name = |path: &str| -> String {
        let letters = path.chars();
        letters
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect()
    };
    let mut imports: Vec<String> = paths.map(name).filter(|name| name != part(file)).collect();
    imports.dedup();
    imports
}

/// Fails if a file of which `from` is true imports a part of which `forbidden` is true.
#[track_caller]
fn assert_no_import(from: impl Fn(&str) -> bool, forbidden: impl Fn(&str) -> bool) {
    let mut checked = 0;
    let mut found = Vec::new();
    for file in sources() {
        if from(part(&file)) {
            checked += 1;
            let imports = imports(&file);
            let wrong = imports.iter().filter(|import| forbidden(import));
            found.extend(wrong.map(|import| format!("{} imports {import}", file.path)));
        }
    }
    assert!(checked > 0, "there is no such part");
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn finds_the_parts_that_a_file_imports() {
    let file = |text: &str| File {
        path: "src/idle/timer.rs".to_owned(),
        text: text.to_owned(),
    };
    let text = "use crate::actor::Actor;\nuse crate::idle::X;\nfn f() { crate::sleep::g() }";
    assert_eq!(imports(&file(text)), ["actor", "sleep"]);
    let all: Vec<File> = sources();
    let builder = all.iter().find(|file| part(file) == "builder");
    let builder = builder.expect("there is a builder");
    assert!(imports(builder).iter().any(|import| import == "actor"));
}

#[test]
fn imports_nothing_into_the_wheel() {
    assert_no_import(|part| part == "wheel", |_| true);
}

#[test]
fn imports_the_actor_into_the_builder_only() {
    let others = |part: &str| !["actor", "builder"].contains(&part);
    assert_no_import(others, |import| import == "actor");
}

#[test]
fn imports_no_caller_into_the_actor_or_what_both_share() {
    let beneath = |part: &str| ["actor", "shared", "timer_set"].contains(&part);
    assert_no_import(beneath, |import| CALLERS.contains(&import));
}

#[test]
fn imports_nothing_internal_into_the_adapters() {
    let internal = ["actor", "keyed", "shared", "timer_set", "wheel"];
    assert_no_import(
        |part| part == "adapters",
        |import| internal.contains(&import),
    );
    assert_no_import(|part| part != "adapters", |import| import == "adapters");
}

/// Without features the crate does not depend on them.
#[test]
fn names_the_peers_of_adapters_in_the_adapters_only() {
    let peers = [
        "http",
        "http_body",
        "hyper",
        "quinn",
        "tower_layer",
        "tower_service",
    ];
    // As the beginning of a path: a `cfg` may name a feature.
    let names = |file: &File, peer: &str| {
        let mut paths = file
            .text
            .split(|c: char| !c.is_alphanumeric() && !"_:".contains(c));
        paths.any(|path| {
            path.trim_start_matches(':')
                .starts_with(&format!("{peer}::"))
        })
    };
    let (adapters, others): (Vec<File>, Vec<File>) = sources()
        .into_iter()
        .partition(|file| part(file) == "adapters");
    for peer in peers {
        assert!(adapters.iter().any(|file| names(file, peer)), "{peer}");
        let stray = others.iter().find(|file| names(file, peer));
        assert!(stray.is_none(), "{stray:?} names {peer}");
    }
}

#[test]
fn reads_no_clock_in_the_wheel() {
    let wheel = sources().into_iter().filter(|file| part(file) == "wheel");
    for file in wheel {
        for clock in ["Instant", "SystemTime", "Duration"] {
            assert!(!file.text.contains(clock), "{} knows {clock}", file.path);
        }
    }
}

#[test]
fn reads_the_clock_in_one_place() {
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
