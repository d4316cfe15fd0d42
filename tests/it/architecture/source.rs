//! Reads the project's files, and tells code from comments and strings.

use std::fs;
use std::path::Path;

/// A file of the project; its path is relative to the project, with `/` between the parts.
#[derive(Debug, Clone)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// What is not the project's: built, downloaded, or the version control's own.
const NOT_OURS: &[&str] = &[
    "target",
    ".git",
    "mutants.out",
    "mutants.out.old",
    "node_modules",
];

/// Every file below a folder of the project, by path. None if there is no such folder.
pub(crate) fn files(folder: &str) -> Vec<File> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    walk(&project.join(folder), project, &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

pub(crate) fn rust_files(folder: &str) -> Vec<File> {
    let mut files = files(folder);
    files.retain(|file| Path::new(&file.path).extension().is_some_and(|e| e == "rs"));
    files
}

fn walk(folder: &Path, project: &Path, found: &mut Vec<File>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if NOT_OURS.contains(&&*name) {
            continue;
        }
        if path.is_dir() {
            walk(&path, project, found);
        } else if let (Ok(bytes), Ok(relative)) = (fs::read(&path), path.strip_prefix(project)) {
            found.push(File {
                path: relative.to_string_lossy().replace('\\', "/"),
                text: String::from_utf8_lossy(&bytes).into_owned(),
            });
        }
    }
}

/// The text with its comments, strings and character literals blanked out.
pub(crate) fn code(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = blank_length(rest, code.chars().next_back());
        if length == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            let blank = |c: char| if c == '\n' { '\n' } else { ' ' };
            code.extend(rest[..length].chars().map(blank));
            rest = &rest[length..];
        }
    }
    code
}

/// How much of the text, from its beginning, is a comment or a literal.
fn blank_length(text: &str, before: Option<char>) -> usize {
    let up_to = |end: &str, from: usize| {
        text[from..]
            .find(end)
            .map_or(text.len(), |at| from + at + end.len())
    };
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return up_to("*/", 2);
    }
    let in_a_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if text.starts_with('r') && !in_a_word {
        let hashes = text[1..].chars().take_while(|&c| c == '#').count();
        if text[1 + hashes..].starts_with('"') {
            return up_to(&format!("\"{}", "#".repeat(hashes)), hashes + 2);
        }
    }
    if text.starts_with('"') {
        return closed_by('"', text);
    }
    if text.starts_with('\'') {
        // A character literal; anything else is a lifetime.
        let mut chars = text.chars().skip(1);
        let (first, second) = (chars.next(), chars.next());
        if first == Some('\\') || (first.is_some() && second == Some('\'')) {
            return closed_by('\'', text);
        }
    }
    0
}

/// The length of a literal that begins and ends with `quote`.
fn closed_by(quote: char, text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// The words of a piece of code.
pub(crate) fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
}

#[test]
fn separates_code_from_comments_and_literals() {
    let text = r##"
        let a = "in a \" string // and"; // in a comment
        /* in a
           block */ let b: &'static str = r#"raw " one"#;
        let c = ('"', '\'', 'x'); // "
    "##;
    let code = code(text);
    let found: Vec<_> = words(&code).collect();
    assert_eq!(found, ["let", "a", "let", "b", "static", "str", "let", "c"]);
    assert_eq!(code.lines().count(), text.lines().count());
}
