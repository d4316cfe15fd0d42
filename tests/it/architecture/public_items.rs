//! The page on stability lists every public item, so an item becomes public by a decision only.

use super::code_of;

const PAGE: &str = include_str!("../../../docs/stability.md");

/// The public modules that have items, and their files.
const MODULES: [(&str, &str); 10] = [
    ("tickwheel", "src/lib.rs"),
    ("tickwheel::time", "src/time.rs"),
    ("tickwheel::time::ext", "src/time/ext.rs"),
    ("tickwheel::wheel", "src/wheel/mod.rs"),
    ("tickwheel_adapters::axum", "adapters/src/axum/mod.rs"),
    ("tickwheel_adapters::hyper", "adapters/src/hyper.rs"),
    ("tickwheel_adapters::metrics", "adapters/src/metrics.rs"),
    ("tickwheel_adapters::quinn", "adapters/src/quinn.rs"),
    ("tickwheel_adapters::tower", "adapters/src/tower/mod.rs"),
    ("tickwheel_durable", "durable/src/lib.rs"),
];

/// The names that a file makes public, in order: items, modules, and what it exports again.
fn public_names(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (at, _) in code.match_indices("\npub ") {
        let item = &code[at + "\npub ".len()..];
        if let Some(exported) = item.strip_prefix("use ") {
            let exported = exported.split(';').next().unwrap_or("");
            // A path ends in a name, or in a group of paths.
            let paths = exported.split(['{', '}', ',']).map(str::trim);
            let last = paths.filter_map(|path| path.rsplit("::").next());
            names.extend(last.filter(|name| !name.is_empty()).map(str::to_owned));
        } else {
            let mut words = item.split(|c: char| !(c.is_alphanumeric() || c == '_'));
            names.extend(words.nth(1).map(str::to_owned));
        }
    }
    names.sort();
    names.dedup();
    names
}

/// The names in the row of a module.
fn listed(module: &str) -> Vec<String> {
    let row = format!("| `{module}` |");
    let row = PAGE.lines().find_map(|line| line.strip_prefix(&row));
    let names = row.unwrap_or("").split('`').skip(1).step_by(2);
    names.map(str::to_owned).collect()
}

#[test]
fn page_on_stability_lists_every_public_item() {
    let files = ["src", "adapters/src", "durable/src"].map(code_of).concat();
    for (module, path) in MODULES {
        let file = files.iter().find(|file| file.path == path);
        let code = &file.expect("it is there").text;
        let names = public_names(code);
        assert!(!names.is_empty(), "{module} is empty");
        assert_eq!(listed(module), names, "`{}`", names.join("`, `"));
    }
}

#[test]
fn public_name_is_found_in_every_form() {
    let code = "\nmod a;\npub mod b;\npub(crate) use c::D;\npub use {\n    e::{F, G},\n    h::I,\n};\n\
        pub use crate::j::K;\npub use l;\npub fn m() {}\npub struct N<T>(T);\npub const O: u8 = 1;";
    let expected = ["F", "G", "I", "K", "N", "O", "b", "l", "m"];
    assert_eq!(public_names(code), expected);
}
