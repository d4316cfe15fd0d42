//! The parts of each crate have an order, and each imports only parts that stand before it. The
//! modules of each folder of the durable timers import each other in no circle.

use std::collections::{BTreeMap, BTreeSet};

use super::{File, code_of, part, path_in_crate};

/// The parts: each file or folder below `src`, those that import nothing first. The way of a keyed
/// timer lies in one folder, whose files for both sides are parts too.
const ORDER: [&str; 19] = [
    "collections",
    "wheel",
    "sync",
    "clock",
    "console",
    "panic",
    "error",
    "tick",
    "metrics",
    "keyed::set_key",
    "keyed::hint",
    "shared",
    "keyed::node",
    "actor",
    "sleep",
    "keyed",
    "idle",
    "timer_wheel",
    "time",
];

/// Files of a folder that are parts.
pub(super) const OF_BOTH_SIDES: [&str; 3] = ["keyed::set_key", "keyed::hint", "keyed::node"];

/// The parts of `tickwheel-durable`, likewise.
const ORDER_OF_DURABLE: [&str; 28] = [
    "opaque",
    "lock",
    "race",
    "silence",
    "jitter",
    "store",
    "migrations",
    "token",
    "error",
    "cron",
    "metrics",
    "backoff",
    "retry",
    "settings",
    "codec",
    "crypto",
    "instance",
    "claim",
    "claims",
    "admin",
    "outcomes",
    "timers",
    "reporter",
    "builder",
    "memory",
    "sqlite",
    "redis",
    "postgres",
];

/// The parts of `tickwheel-durable-conformance`, likewise.
const ORDER_OF_CONFORMANCE: [&str; 16] = [
    "random",
    "faulty",
    "handled",
    "steps",
    "world",
    "contract",
    "promises",
    "administration",
    "demand",
    "dead",
    "looking",
    "scripts",
    "races",
    "explorer",
    "crashes",
    "outages",
];

/// The root and pages of the documentation are no parts: they only name what there is.
const NAMING: [&str; 6] = [
    "lib",
    "guide",
    "protocol",
    "operating",
    "calendars",
    "backups",
];

/// The imports of a file from other parts of its crate.
fn imports(file: &File) -> Vec<String> {
    imports_from("", file)
}

/// The module of a folder that a file belongs to. The folder ends with a slash, or is empty.
fn module<'a>(folder: &str, file: &'a File) -> Option<&'a str> {
    let path = path_in_crate(file).strip_prefix(folder)?;
    path.split(['/', '.']).next().filter(|name| *name != "mod")
}

/// The imports of a file from other modules of a folder that it lies in, by their whole path or by
/// enough of `super::`.
fn imports_from(folder: &str, file: &File) -> Vec<String> {
    let path = path_in_crate(file)
        .trim_end_matches(".rs")
        .trim_end_matches("/mod");
    let depth = path.split('/').count() - folder.matches('/').count();
    let (to_folder, whole) = (
        "super::".repeat(depth),
        format!("crate::{}", folder.replace('/', "::")),
    );
    // A macro's names are for its users, and a module within a file takes in what is around it.
    let text = file
        .text
        .replace("$crate::", "")
        .replace("use super::*;", "");
    let text = text.replace(&to_folder, &whole);
    let mut names: Vec<String> = text.split(&whole).skip(1).flat_map(first_names).collect();
    names.retain(|name| Some(&**name) != module(folder, file) && name != part(file));
    names.sort();
    names.dedup();
    names
}

/// The first name of a path, or of each path of a group.
fn first_names(path: &str) -> Vec<String> {
    let first_name = |path: &str| -> String {
        let letters = path.trim_start().chars();
        let name: String = letters
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        let of_both_sides = OF_BOTH_SIDES
            .iter()
            .find(|part| path.trim_start().starts_with(**part));
        of_both_sides.map_or(name, |part| (*part).to_owned())
    };
    let Some(group) = path.strip_prefix('{') else {
        return vec![first_name(path)];
    };
    let mut depth = 1;
    let mut paths = String::new();
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ if depth == 1 => paths.push(c),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    let names = paths.split(',').map(first_name);
    names.filter(|name| !name.is_empty()).collect()
}

/// The imports in these files that violate the order.
fn against(order: &[&str], files: &[File]) -> Vec<String> {
    let place = |name: &str| order.iter().position(|part| *part == name);
    let mut found = Vec::new();
    for file in files {
        let Some(own) = place(part(file)) else {
            found.push(format!("{} belongs to no part", file.path));
            continue;
        };
        // An import that is no part is an item that the root exports.
        let wrong = imports(file).into_iter();
        let wrong = wrong.filter(|import| place(import).is_none_or(|place| place > own));
        found.extend(wrong.map(|import| format!("{} imports {import}", file.path)));
    }
    found
}

/// The modules of a folder that import each other in a circle, and those that import these.
fn in_circles(folder: &str, files: &[File]) -> Vec<String> {
    let mut left = BTreeMap::<&str, Vec<String>>::new();
    for file in files {
        if let Some(module) = module(folder, file) {
            left.entry(module)
                .or_default()
                .extend(imports_from(folder, file));
        }
    }
    loop {
        let imports_nothing_left =
            |name: &&str| !left[*name].iter().any(|n| left.contains_key(&**n));
        let free: Vec<_> = left.keys().copied().filter(imports_nothing_left).collect();
        if free.is_empty() {
            return left.keys().map(|name| format!("{folder}{name}")).collect();
        }
        left.retain(|name, _| !free.contains(name));
    }
}

/// The files of all parts of the crate in that folder.
fn parts(folder: &str) -> Vec<File> {
    let mut files = code_of(folder);
    files.retain(|file| !NAMING.contains(&part(file)));
    files
}

#[track_caller]
fn assert_in_order(folder: &str, order: &[&str]) {
    let files = parts(folder);
    for name in order {
        let exists = files.iter().any(|file| part(file) == *name);
        assert!(exists, "{folder} has no part {name}");
    }
    assert_eq!(against(order, &files), Vec::<String>::new());
}

#[test]
fn parts_import_only_parts_before_them() {
    assert_in_order("src", &ORDER);
}

#[test]
fn parts_of_durable_timers_import_only_parts_before_them() {
    assert_in_order("durable/src", &ORDER_OF_DURABLE);
}

#[test]
fn parts_of_the_suite_of_stores_import_only_parts_before_them() {
    assert_in_order("durable/conformance/src", &ORDER_OF_CONFORMANCE);
}

#[test]
fn modules_of_durable_timers_and_of_their_suite_import_each_other_in_no_circle() {
    for package in ["durable/src", "durable/conformance/src"] {
        let files = parts(package);
        let folders = files
            .iter()
            .filter_map(|file| path_in_crate(file).rsplit_once('/'));
        let folders: BTreeSet<_> = folders.map(|(folder, _)| format!("{folder}/")).collect();
        let circles = folders.iter().flat_map(|folder| in_circles(folder, &files));
        assert_eq!(circles.collect::<Vec<_>>(), Vec::<String>::new());
    }
}

#[test]
fn circle_is_found_in_every_form() {
    let file = |path: &str, text: &str| File {
        path: format!("durable/src/postgres/{path}"),
        text: text.to_owned(),
    };
    let files = [
        file("mod.rs", "use dial::dial; use hints::Hints;"),
        file("url.rs", "use super::Postgres;"),
        file("dial.rs", "use super::{hints::Hints, url};"),
        file("hints.rs", "use crate::postgres::sql::SET;"),
        file("sql/set.rs", "use super::super::dial::dial;"),
    ];
    let circle = ["postgres/dial", "postgres/hints", "postgres/sql"];
    assert_eq!(in_circles("postgres/", &files), circle);
    assert_eq!(in_circles("postgres/", &files[..4]), Vec::<String>::new());
}

#[test]
fn builder_alone_imports_the_actor() {
    let mut files = parts("src");
    files.retain(|file| imports(file).contains(&"actor".to_owned()));
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["src/timer_wheel/builder.rs"]);
}

#[test]
fn import_against_the_order_is_found_in_every_form() {
    let order = ["wheel", "shared", "actor"];
    let file = |path: &str, text: &str| File {
        path: path.to_owned(),
        text: text.to_owned(),
    };
    let cases = [
        ("src/wheel/level.rs", "use crate::actor::Actor;"),
        ("src/wheel/level.rs", "use super::super::actor::Actor;"),
        ("src/wheel/mod.rs", "use super::actor::Actor;"),
        ("src/wheel.rs", "use super::{actor::Actor};"),
        ("src/wheel.rs", "fn f() { crate::actor::g() }"),
        ("src/shared/entry.rs", "use crate::{wheel, actor::Actor};"),
        ("src/shared/entry.rs", "use crate::{wheel::{A, B}, actor};"),
        ("src/wheel.rs", "use crate::TimerWheel;"),
        ("src/stray.rs", ""),
    ];
    for (path, text) in cases {
        let found = against(&order, &[file(path, text)]);
        assert_eq!(found.len(), 1, "{path}: {text}: {found:?}");
    }
    let text = "use crate::{wheel::{actor, A}, shared}; use super::x; use crate::actor::y;";
    let right = file("src/actor/task.rs", text);
    assert_eq!(imports(&right), ["shared", "wheel"]);
    assert_eq!(against(&order, &[right]), Vec::<String>::new());
}
