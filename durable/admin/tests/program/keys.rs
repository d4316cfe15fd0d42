//! Keys of several codecs, and how they are given.

use std::time::Duration;

use tickwheel_durable::store::{Action, Due, Namespace, Store as _, Terms, Write};
use tickwheel_durable::{Charter, Sqlite};

use super::support::{File, Run, ended, program, run, set};
use super::{HOUR, each};

/// Only JSON has quotes around its strings.
#[tokio::test]
async fn key_is_given_as_it_is_shown() {
    let file = File::new();
    let store = Sqlite::open(file.path()).expect("it opens");
    for (codec, keys) in [
        ("json", ["\"a 1\"", "\"a 2\"", "\"b\""]),
        ("text", ["a 1", "a 2", "b"]),
    ] {
        let space = Namespace::new(codec).expect("it is a name");
        let opened = store.open(&space, &Charter::new(codec)).await;
        opened.expect("it opens");
        let due = Due::In(Duration::from_secs(3_600));
        let set = Action::set(b"1".to_vec(), due, None, false);
        let writes = keys.map(|key| Write::new(key.into(), set.clone()));
        let written = store.write(&space, writes.into(), Terms::NONE).await;
        written.expect("they are written");
    }
    let in_space = |space: &str, arguments: &[&str]| {
        run(
            &file,
            &[arguments, &["--namespace", space, "--json"]].concat(),
        )
    };
    for (space, prefix, number) in [
        ("json", &["a"][..], 2),
        ("json", &["\"a"], 2),
        ("json", &["2261", "--hex"], 2),
        ("text", &["a"], 2),
        ("text", &["\"a"], 0),
        ("text", &["61", "--hex"], 2),
    ] {
        let list = [&["list", "--prefix"], prefix].concat();
        let listed = in_space(space, &list).json();
        let listed: Vec<_> = each(&listed["timers"]).collect();
        assert_eq!(listed.len(), number, "{space} {prefix:?}: {listed:?}");
    }
    for (space, key, code) in [
        ("json", &["\"a 1\""][..], 0),
        ("json", &["a 2"], 0),
        ("text", &["a 1"], 0),
        ("text", &["a 2"], 0),
    ] {
        let remove = [&["remove", "--yes"], key].concat();
        let removed = in_space(space, &remove);
        assert_eq!(removed.code, code, "{space} {key:?}: {removed:?}");
    }
    for space in ["json", "text"] {
        let listed = in_space(space, &["list"]).json();
        let keys: Vec<_> = each(&listed["timers"])
            .map(|timer| &timer["key"]["data"])
            .collect();
        assert_eq!(keys, ["b"], "{space}");
    }
}

/// Regression: a terminal that shows an error did what its text said.
#[test]
fn error_hides_nothing() {
    let Run { code, errors, .. } = ended(program().args(["stats", "--url", "absent\u{1b}[2J"]));
    assert_eq!(code, 3, "{errors}");
    assert_eq!(errors, "error: there is no file absent\\u{1b}[2J\n");
}

/// Regression: a terminal that shows the JSON did what a key said.
#[tokio::test]
async fn json_has_the_codes_of_characters_that_do_not_show() {
    let key = "a\u{9b}2J\u{7f}\u{202e}\u{e0041}";
    let file = File::new();
    let (timers, _claims) = file.instance().await;
    set(&timers, &[key], HOUR).await;
    let listed = run(&file, &["list", "--json"]);
    assert_eq!(listed.json()["timers"][0]["key"]["data"], key);
    let code = r"a\u009b2J\u007f\u202e\udb40\udc41";
    assert!(listed.output.contains(code), "{listed:?}");
    assert!(
        !listed.output.trim_end().contains(char::is_control),
        "{listed:?}"
    );
}
