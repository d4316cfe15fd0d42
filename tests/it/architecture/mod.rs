//! What the sources say about themselves: which part knows which, what is absent, and that every promise of the front
//! page names tests that exist.
//!
//! The checks read code, not comments or strings, and leave out tests and models where they are about the crate alone.
//! Each is a function from text to complaints, and is tried on text that it has to complain about.

mod promises;
mod source;

use self::source::{File, code, files, rust_files, words};

/// What a check has to say against a file; nothing when all is well.
type Complaints = Vec<String>;

/// Runs a check on every file and fails with all it has to say.
#[track_caller]
fn expect_none(files: &[File], check: impl Fn(&File) -> Complaints) {
    assert!(!files.is_empty(), "no files to check");
    let complaints: Complaints = files.iter().flat_map(check).collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

fn file(path: &str, text: &str) -> File {
    File {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

/// The crate's own sources, without its tests and models.
fn sources() -> Vec<File> {
    let is_test = |path: &str| {
        path.split('/')
            .any(|part| matches!(part, "tests" | "tests.rs" | "model" | "model.rs"))
    };
    let mut sources = rust_files("src");
    sources.retain(|file| !is_test(&file.path));
    for file in &mut sources {
        // Unit tests stand at the end of their file.
        if let Some(at) = file.text.find("\nmod tests {") {
            file.text.truncate(at);
        }
    }
    sources
}

// --- what is absent ---

fn words_not_allowed(file: &File, forbidden: &[&str]) -> Complaints {
    words(&code(&file.text))
        .filter(|word| forbidden.contains(word))
        .map(|word| format!("{} knows `{word}`", file.path))
        .collect()
}

const UNKNOWN_TO_THE_WHEEL: &[&str] = &[
    "Instant",
    "SystemTime",
    "Duration",
    "tokio",
    "tracing",
    "atomic",
    "Mutex",
    "Arc",
    "thread",
    "unsafe",
];

#[test]
fn keeps_clock_runtime_logger_and_thread_out_of_the_wheel() {
    let mut wheel = sources();
    wheel.retain(|file| file.path.starts_with("src/wheel/"));
    expect_none(&wheel, |file| words_not_allowed(file, UNKNOWN_TO_THE_WHEEL));

    let guilty = file("src/wheel/x.rs", "// tokio\nuse std::time::Instant;");
    assert_eq!(words_not_allowed(&guilty, UNKNOWN_TO_THE_WHEEL).len(), 1);
}

#[test]
fn has_no_unsafe_code() {
    let unsafe_code = |file: &File| words_not_allowed(file, &["unsafe"]);
    for place in ["src", "tests", "examples", "benches"] {
        let files = rust_files(place);
        assert!(files.is_empty() || files.iter().all(|f| !f.text.is_empty()));
        let complaints: Complaints = files.iter().flat_map(unsafe_code).collect();
        assert_eq!(complaints, Complaints::new());
    }
    assert_eq!(unsafe_code(&file("x.rs", "unsafe { 1 }")).len(), 1);

    let manifest = include_str!("../../../Cargo.toml");
    let lints = manifest
        .split("\n[")
        .find(|s| s.starts_with("workspace.lints.rust]"));
    assert!(lints.is_some_and(|lints| lints.contains("\nunsafe_code = \"forbid\"")));
    assert!(include_str!("../../../src/lib.rs").contains("\n#![forbid(unsafe_code)]"));
}

// --- which part knows which ---

/// The parts of the crate that a file uses.
fn uses(file: &File) -> Vec<String> {
    let code = code(&file.text);
    let after = code.split("crate::").skip(1);
    after
        .map(|rest| words(rest).next().unwrap_or("").to_owned())
        .collect()
}

/// The parts at the bottom, and all that each of them may know.
const BOTTOM: &[(&str, &[&str])] = &[
    ("wheel", &["wheel"]),
    ("tick", &[]),
    ("sync", &[]),
    ("shield", &[]),
    ("error", &[]),
    ("entry", &["sync", "tick"]),
    ("advance", &["wheel"]),
    ("sleeps", &["advance", "entry", "wheel"]),
    ("submit", &["sync", "tick"]),
];

fn arrows_that_point_up(file: &File) -> Complaints {
    let part = file.path.trim_start_matches("src/");
    let part = part.split(['/', '.']).next().unwrap_or("");
    let Some((_, known)) = BOTTOM.iter().find(|(name, _)| *name == part) else {
        return Complaints::new();
    };
    let unknown = |used: &String| !known.contains(&used.as_str());
    uses(file)
        .into_iter()
        .filter(unknown)
        .map(|used| format!("{} knows `{used}`", file.path))
        .collect()
}

#[test]
fn keeps_the_bottom_parts_from_knowing_those_above() {
    let sources = sources();
    for (part, _) in BOTTOM {
        let file = format!("src/{part}.rs");
        let folder = format!("src/{part}/");
        let exists = |f: &File| f.path == file || f.path.starts_with(&folder);
        assert!(sources.iter().any(exists), "{part} is gone");
    }
    expect_none(&sources, arrows_that_point_up);

    let guilty = file(
        "src/entry.rs",
        "use crate::tick::NEVER; use crate::actor::Actor;",
    );
    assert_eq!(arrows_that_point_up(&guilty).len(), 1);
}

fn knows_the_actor(file: &File) -> Complaints {
    let may = ["src/actor.rs", "src/builder.rs"].contains(&file.path.as_str())
        || file.path.starts_with("src/actor/");
    let code = code(&file.text);
    let names = code.contains("actor::") || uses(file).iter().any(|used| used == "actor");
    if names && !may {
        vec![format!("{} knows the actor", file.path)]
    } else {
        Complaints::new()
    }
}

#[test]
fn lets_only_the_builder_know_the_actor() {
    expect_none(&sources(), knows_the_actor);

    for guilty in [
        "use crate::actor::Actor;",
        "use super::{actor::Actor};",
        "use crate::actor;",
    ] {
        assert_eq!(knows_the_actor(&file("src/sleep.rs", guilty)).len(), 1);
    }
}

// --- time ---

/// Whoever takes a duration apart or puts one together could convert to ticks on the way.
const TAKES_TIME_APART: &[&str] = &[
    "as_nanos",
    "as_micros",
    "as_millis",
    "as_secs",
    "subsec_nanos",
    "from_nanos",
    "from_micros",
    "from_millis",
    "nanos_per_tick",
    "origin",
];

/// The files that do so for another purpose, and what they may say.
const OTHER_PURPOSE: &[(&str, &[&str])] = &[
    // The bounds and the defaults of a wheel.
    (
        "src/builder.rs",
        &["from_micros", "from_millis", "from_secs"],
    ),
    // The length of a turn, and lateness, as they are counted.
    ("src/turn.rs", &["as_nanos"]),
    ("src/metrics.rs", &["as_nanos", "from_nanos"]),
    // How far into a period a missed tick is, and how much of one is missed.
    (
        "src/interval.rs",
        &["as_nanos", "from_nanos", "from_millis"],
    ),
    // Activity is recorded in nanoseconds, rounded up to a tick; it does not become one.
    ("src/idle/activity.rs", &["nanos_per_tick"]),
    ("src/idle/timer.rs", &["nanos_per_tick"]),
    // The same, and how long something may be idle.
    (
        "src/idle/clock.rs",
        &["nanos_per_tick", "as_nanos", "from_nanos"],
    ),
    ("src/idle/reaper.rs", &["nanos_per_tick", "as_nanos"]),
    // The period of a repeating timer.
    ("src/keyed/timers.rs", &["as_nanos"]),
];

fn converts(file: &File) -> Complaints {
    if file.path == "src/tick.rs" {
        return Complaints::new();
    }
    let other = OTHER_PURPOSE.iter().find(|(path, _)| *path == file.path);
    let allowed = other.map_or(&[] as &[&str], |(_, allowed)| allowed);
    let forbidden: Vec<&str> = (TAKES_TIME_APART.iter().copied())
        .filter(|word| !allowed.contains(word))
        .collect();
    words_not_allowed(file, &forbidden)
}

#[test]
fn converts_between_instants_and_ticks_in_tick_only() {
    expect_none(&sources(), converts);

    let guilty = file("src/actor.rs", "let tick = delay.as_millis() / length;");
    assert_eq!(converts(&guilty).len(), 1);
}

// --- what the actor waits for ---

/// Everything it awaits, as the end of the expression before the `.await`.
const AWAITED: &[&str] = &[
    // The rest of the runtime, when there is more to do.
    "self.yield_to_others()",
    "notifier.yield_to_others()",
    // A notification or its sleep.
    "self.wait()",
    // The two polls in `wait`, see `POLLED`.
    "None=>Poll::Pending,}})",
    // All of the above.
    "}.instrument(span)",
];

const POLLED: &[&str] = &["notified.as_mut()", "timer.as_mut()"];

/// Other ways to wait.
const WAITS: &[&str] = &[
    "select",
    "join",
    "join_all",
    "block_on",
    "recv",
    "blocking_recv",
    "park",
];

fn awaits_something_else(file: &File) -> Complaints {
    let code: String = code(&file.text).split_whitespace().collect();
    let ends_well = |before: &str, ends: &[&str]| ends.iter().any(|end| before.ends_with(end));
    let mut complaints = Complaints::new();
    for (at, _) in code.match_indices(".await") {
        if !ends_well(&code[..at], AWAITED) {
            let from = code[..at]
                .char_indices()
                .rev()
                .nth(40)
                .map_or(0, |(i, _)| i);
            complaints.push(format!("{} awaits ..{}", file.path, &code[from..at]));
        }
    }
    for (at, _) in code.match_indices(".poll(") {
        if !ends_well(&code[..at], POLLED) {
            complaints.push(format!("{} polls something else", file.path));
        }
    }
    // To park the mailbox is to say that one is going to wait, see `mailbox`.
    // And an actor that has a thread of its own waits as a thread does, for the same two things.
    let code = code
        .replace("mailbox.park(", "")
        .replace("None=>thread::park(),", "");
    complaints.extend(
        words(&code)
            .filter(|word| WAITS.contains(word))
            .map(|word| format!("{} calls `{word}`", file.path)),
    );
    complaints
}

#[test]
fn awaits_only_signal_sleep_and_next_turn_in_the_actor() {
    let mut actor = sources();
    actor.retain(|file| file.path == "src/actor.rs" || file.path.starts_with("src/actor/"));
    expect_none(&actor, awaits_something_else);
    let text: String = actor.iter().map(|file| code(&file.text)).collect();
    assert!(
        text.contains("yield_to_others().await"),
        "the check reads something else"
    );

    for guilty in [
        "stream.send(x).await;",
        "consumer.poll(cx)",
        "rx.blocking_recv()",
    ] {
        assert_eq!(
            awaits_something_else(&file("src/actor.rs", guilty)).len(),
            1
        );
    }
}

// --- the project speaks of the project alone ---

/// Places on the machine somebody works on. In two halves, so that this file does not hold them.
const PLACES: &[(&str, &str)] = &[
    ("/wo", "rk/"),
    ("/tm", "p/"),
    ("/ro", "ot/"),
    ("/ho", "me/"),
    ("/Use", "rs/"),
    ("\\Use", "rs\\"),
    (".cargo/regi", "stry"),
];

fn mentions_a_machine(file: &File) -> Complaints {
    let mut complaints = Complaints::new();
    for (number, line) in file.text.lines().enumerate() {
        let found = |(a, b): &&(&str, &str)| line.contains(&[*a, *b].concat());
        if PLACES.iter().any(|place| found(&place)) {
            complaints.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
        }
    }
    complaints
}

#[test]
fn mentions_no_path_of_the_machine_it_was_written_on() {
    expect_none(&files(""), mentions_a_machine);

    let place = [PLACES[0].0, PLACES[0].1].concat();
    assert_eq!(
        mentions_a_machine(&file("x", &format!("see {place}x"))).len(),
        1
    );
}

#[test]
fn takes_every_locked_dependency_from_the_public_registry() {
    let lock = files("").into_iter().find(|file| file.path == "Cargo.lock");
    let lock = lock.expect("it is kept with the sources");
    let sources = lock
        .text
        .lines()
        .filter(|line| line.starts_with("source = "));
    let elsewhere: Vec<_> = sources
        .filter(|line| !line.contains("registry+https://github.com/rust-lang/crates.io-index"))
        .collect();
    assert_eq!(elsewhere, Vec::<&str>::new());
}

#[test]
fn shows_the_quick_start_example_on_front_page_and_readme() {
    let Some(example) = rust_files("examples")
        .into_iter()
        .find(|file| file.path == "examples/quickstart.rs")
    else {
        panic!("examples/quickstart.rs is gone");
    };
    let body = example.text.lines().filter(|line| !line.starts_with("//!"));
    let body = body.collect::<Vec<_>>().join("\n");
    let front: Vec<_> = (include_str!("../../../src/lib.rs").lines())
        .filter_map(|line| line.strip_prefix("//!"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        .collect();
    assert!(front.join("\n").contains(body.trim()), "src/lib.rs differs");
    assert!(
        include_str!("../../../README.md").contains(body.trim()),
        "README.md differs"
    );
    assert!(body.trim().lines().count() < 40);
}
