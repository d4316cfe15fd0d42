//! Comments fit their width, and texts name files that exist.

use std::path::Path;

use super::{File, project_files};

/// Columns of a comment. Tables, code and words that are longer cannot be wrapped.
const MAX_WIDTH: usize = 100;

/// The numbers of the lines of prose that are too wide.
fn too_wide(file: &File) -> Vec<usize> {
    let mut is_code = false;
    let mut wide = Vec::new();
    for (number, line) in (1..).zip(file.text.lines()) {
        let comment = line.trim_start();
        let Some(text) = comment.strip_prefix("//") else {
            is_code = false;
            continue;
        };
        let text = text.trim_start_matches(['/', '!']).trim_start();
        is_code ^= text.starts_with("```");
        let is_prose = !is_code && !text.starts_with('|') && text.contains(' ');
        if is_prose && line.chars().count() > MAX_WIDTH {
            wide.push(number);
        }
    }
    wide
}

/// The paths in backticks, such as `src/lib.rs` or `tests/it/`.
fn paths(text: &str) -> Vec<&str> {
    let is_path = |word: &&str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
        let ends = [".rs", ".md", ".sql", ".lua", ".toml"];
        word.contains('/')
            && word.chars().all(allowed)
            && ends.iter().any(|end| word.ends_with(end))
    };
    text.split('`').skip(1).step_by(2).filter(is_path).collect()
}

/// Whether a file that lies there may be called so: by its path from the project, a package, the
/// folder of its sources or tests, or beside the text.
fn exists(text: &File, path: &str) -> bool {
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let beside = project.join(&text.path);
    let folders = [
        "",
        "adapters",
        "durable",
        "durable/admin",
        "durable/conformance",
    ];
    let below = ["", "src", "tests", "tests/it"];
    let folders = folders
        .iter()
        .flat_map(|folder| below.map(|b| project.join(folder).join(b)));
    let beside = beside.parent().into_iter().map(Path::to_path_buf);
    folders
        .chain(beside)
        .any(|folder| folder.join(path).exists())
}

#[test]
fn comments_have_at_most_100_columns() {
    let files = project_files(".rs");
    let wide = files.iter().flat_map(|file| {
        let lines = too_wide(file).into_iter();
        lines.map(|line| format!("{}:{line}", file.path))
    });
    assert_eq!(wide.collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn texts_name_files_that_exist() {
    let mut texts = project_files(".md");
    texts.extend(project_files(".rs"));
    // What has gone is told there, and stays.
    texts.retain(|text| !text.path.ends_with("CHANGELOG.md"));
    let gone = texts.iter().flat_map(|text| {
        let is_rust = text.path.rsplit('.').next() == Some("rs");
        let prose = move |line: &&str| !is_rust || line.trim_start().starts_with("//");
        let lines = text.text.lines().filter(prose);
        let paths = lines.flat_map(paths);
        let gone = paths.filter(|path| !exists(text, path));
        gone.map(|path| format!("{}: {path}", text.path))
    });
    assert_eq!(gone.collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn wide_comment_is_found_in_every_form() {
    let word = "word ".repeat(25);
    let file = |text: String| File {
        path: "x.rs".to_owned(),
        text,
    };
    for marker in ["//", "///", "//!", "    //"] {
        assert_eq!(
            too_wide(&file(format!("fn f() {{}}\n{marker} {word}"))),
            [2]
        );
    }
    let code = format!("/// ```\n/// {word}\n/// ```\n/// | {word} |\nlet x = 1; {word}");
    assert_eq!(too_wide(&file(code)), [0; 0]);
    let path = "`src/lib.rs`, `a b/c.rs`, `lib.rs` and `tests/it/gone.rs`";
    assert_eq!(paths(path), ["src/lib.rs", "tests/it/gone.rs"]);
}
