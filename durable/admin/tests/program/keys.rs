//! Keys of several codecs, and how they are given.

use std::time::Duration;

use tickwheel_durable::store::{Action, Due, LoadWindow, Namespace, Store as _, Write};
use tickwheel_durable::{Charter, Sqlite};

use super::each;
use super::support::{File, run};

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
        let written = store.write(&space, writes.into(), LoadWindow::NONE).await;
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
