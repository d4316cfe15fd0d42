//! The pages show the code that the other tests run.

use std::fs;
use std::path::Path;

/// The pages lie in the guide, since a package cannot publish files of another one.
const PAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../src/guide/coming_from");

/// The pages, which are named after the modules.
fn pages() -> Vec<String> {
    let files = fs::read_dir(PAGES).expect("it is a folder");
    let names = files.map(|file| {
        file.expect("it can be read")
            .file_name()
            .into_string()
            .expect("it is text")
    });
    names
        .filter_map(|name| name.strip_suffix(".md").map(str::to_owned))
        .collect()
}

/// The code of a page, block by block.
fn blocks(page: &str) -> Vec<&str> {
    let blocks = page.split("```rust,ignore\n").skip(1);
    blocks
        .map(|rest| rest.split("```").next().expect("it has an end").trim())
        .collect()
}

#[test]
fn each_page_shows_code_that_runs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = pages();
    assert_eq!(pages.len(), 6, "{pages:?}");
    for page in pages {
        let text =
            fs::read_to_string(Path::new(PAGES).join(format!("{page}.md"))).expect("it is text");
        let files = fs::read_dir(folder.join("src").join(&page)).expect("it has a module");
        let code: Vec<String> = files
            .map(|file| {
                fs::read_to_string(file.expect("it can be read").path()).expect("it is text")
            })
            .collect();
        let blocks = blocks(&text);
        assert!(!blocks.is_empty(), "{page} shows no code");
        for block in blocks {
            assert!(
                code.iter().any(|code| code.contains(block)),
                "{page} shows code that is nowhere:\n{block}"
            );
        }
    }
}

#[test]
fn index_names_each_page() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let index = fs::read_to_string(folder.join("README.md")).expect("it is text");
    for page in pages() {
        assert!(index.contains(&format!("/{page}.md)")), "{page}");
    }
}
