//! The program on an SQLite file that an instance uses at the same time.

#![allow(clippy::duplicate_mod, reason = "each server says that it is missing")]

#[path = "program/changes.rs"]
mod changes;
#[path = "program/figures.rs"]
mod figures;
#[path = "program/keys.rs"]
mod keys;
#[path = "program/locked.rs"]
mod locked;
#[path = "program/migrations.rs"]
mod migrations;
#[path = "program/parts.rs"]
mod parts;
#[path = "../../tests/postgres/server.rs"]
#[allow(dead_code, reason = "another test uses the rest")]
mod postgres;
#[path = "../../tests/redis/server.rs"]
#[allow(dead_code, reason = "another test uses the rest")]
mod redis;
#[path = "program/secrets.rs"]
mod secrets;
mod support;
#[path = "program/versions.rs"]
mod versions;

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use support::{File, NAME, Run, counted, ended, kill_timers, program, run, set};
use tickwheel_durable::rusqlite::Connection;
use tickwheel_durable::{Retry, Sqlite};

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn lists_and_shows_timers_of_each_state() {
    let file = File::new();
    let (timers, mut claims) = file.instance().await;
    for key in ["order 1", "order 2", "other"] {
        let set = timers.set_timer(key, &"<b>".to_owned(), HOUR).await;
        set.expect("it is set");
    }
    let set = timers
        .set_timer("now", &"v".to_owned(), Duration::ZERO)
        .await;
    set.expect("it is set");
    let claim = claims.recv().await.expect("it comes");

    let stats = run(&file, &["stats", "--json"]).json();
    let orders = &stats["namespaces"][0];
    let reason = orders["reason"].as_str().expect("it is text");
    // On a busy machine the last load may be some polls ago, which it adds.
    assert!(reason.starts_with("nothing is late"), "{reason}");
    assert_eq!(orders["state"], "ok");
    assert_eq!(orders["namespace"], "orders");
    assert_eq!(
        (&orders["waiting"], &orders["in_flight"]),
        (&3.into(), &1.into())
    );
    let listed = run(&file, &["list", "--json", "--prefix", "order "]).json();
    let keys: Vec<_> = each(&listed["timers"])
        .map(|timer| &timer["key"]["data"])
        .collect();
    assert_eq!(keys, ["order 1", "order 2"]);
    let page = run(&file, &["list", "--json", "--limit", "2"]).json();
    let next = page["next"].as_str().expect("there are more");
    // It is no prefix: the order is that of the deadlines.
    let options = ["list", "--json", "--limit", "2", "--prefix", ""];
    assert_eq!(run(&file, &options).json()["next"], next);
    let more = format!("more with --after {next}");
    for (option, leads_on) in [(["--limit", "2"], true), (["--after", next], false)] {
        let table = run(&file, &[&["list"], &option[..]].concat()).output;
        assert_eq!(table.contains(&more), leads_on, "{table}");
    }
    let rest = run(&file, &["list", "--json", "--after", next]).json();
    assert_eq!(
        (each(&rest["timers"]).count(), &rest["next"]),
        (1, &Value::Null)
    );
    let in_flight = run(&file, &["list", "--json", "--state", "in-flight"]).json();
    assert_eq!(in_flight["timers"][0]["token"], claim.token().get());
    let instances = run(&file, &["instances", "--json"]).json();
    let members = timers.admin().instances().await.expect("they are listed");
    assert!(members[0].is_own, "{members:?}");
    assert_eq!(instances["instances"][0]["id"], members[0].instance.id.0);
    assert_eq!(instances["instances"][0]["name"], NAME);
    let claimed_by = &in_flight["timers"][0]["claimed_by"];
    assert_eq!(claimed_by, members[0].instance.id.0);
    assert_eq!(members[0].instance.name.as_deref(), Some(NAME));

    let shown = run(&file, &["show", "order 1"]);
    assert!(shown.output.contains("<b>"), "{shown:?}");
    // The fields that scripts rely on.
    let shown = run(&file, &["show", "\"order 1\"", "--json"]).json();
    let timer = shown["timers"][0].as_object().expect("it is one");
    let fields: Vec<_> = timer.keys().map(String::as_str).collect();
    let expected = "attempt claimed_by deadline died due error key key_hex lease_until loaded_by period_seconds schedule state token value value_hex";
    assert_eq!(fields, expected.split(' ').collect::<Vec<_>>());
}

#[tokio::test]
async fn dead_timer_is_retried_by_key_and_discarded_by_prefix() {
    let file = File::new();
    let (timers, mut claims) = file.instance().await;
    for key in ["a", "b"] {
        let set = timers.set_timer(key, &"v".to_owned(), Duration::ZERO).await;
        set.expect("it is set");
        let claim = claims.recv().await.expect("it comes");
        claim
            .fail(Retry::never("poison"))
            .await
            .expect("it is held");
    }
    assert_eq!(run(&file, &["retry", "a"]).code, 0);
    let again = claims.recv().await.expect("it comes again");
    assert_eq!((again.key.as_str(), again.attempt), ("a", 1));
    assert_eq!(run(&file, &["retry", "a"]).code, 3, "it is not dead");
    // No waiting timer has that prefix.
    let discarded = run(&file, &["discard", "--prefix", "\"b", "--json", "--yes"]).json();
    assert_eq!(discarded["changed"], 1);
    assert_eq!(run(&file, &["discard", "--all", "--yes"]).code, 3);
}

/// A namespace that is named is the only one that is shown and changed, although another one has
/// the same keys.
#[tokio::test]
async fn namespace_option_leaves_other_namespaces_alone() {
    let file = File::new();
    let (mut orders, mut mails) = (file.instance().await, file.instance_of("mails").await);
    for instance in [&mut orders, &mut mails] {
        kill_timers(instance, &["dead 1", "dead 2"], "poison").await;
        set(&instance.0, &["a", "b"], HOUR).await;
    }
    set(&mails.0, &["only mails"], HOUR).await;
    let in_mails = |arguments: &[&str]| {
        let named = [arguments, &["--namespace", "mails", "--json"]].concat();
        run(&file, &named)
    };
    for arguments in [
        &["list"][..],
        &["show", "a"],
        &["purge", "--yes"],
        &["instances"],
    ] {
        let Run { code, errors, .. } = run(&file, arguments);
        assert_eq!(code, 2, "{arguments:?}");
        assert!(errors.contains("mails, orders"), "{errors}");
    }
    let both = run(&file, &["stats", "--json"]).json();
    assert_eq!(each(&both["namespaces"]).count(), 2);
    for command in [&["stats"][..], &["watch", "--times", "1"]] {
        let shown = in_mails(command).json();
        let shown: Vec<_> = each(&shown["namespaces"]).collect();
        assert_eq!(shown.len(), 1, "{shown:?}");
        assert_eq!(
            (&shown[0]["namespace"], &shown[0]["waiting"]),
            (&"mails".into(), &3.into())
        );
    }
    let listed = in_mails(&["list"]).json();
    assert_eq!(each(&listed["timers"]).count(), 3);
    let listed = in_mails(&["list", "--prefix", "a"]).json();
    assert_eq!(each(&listed["timers"]).count(), 1);
    let shown = in_mails(&["show", "a"]).json();
    assert_eq!(each(&shown["timers"]).count(), 1);
    let instances = in_mails(&["instances"]).json();
    assert_eq!(each(&instances["instances"]).count(), 1);

    assert_eq!(in_mails(&["retry", "--all"]).json()["changed"], 2);
    assert_eq!(counted(&orders.0).await, [2, 0, 2]);
    for _ in 0..2 {
        let claim = mails.1.recv().await.expect("it comes again");
        claim.fail(Retry::never("again")).await.expect("it is held");
    }
    let discard = ["discard", "--prefix", "dead 1", "--yes"];
    assert_eq!(in_mails(&discard).json()["changed"], 1);
    assert_eq!(
        in_mails(&["discard", "--all", "--yes"]).json()["changed"],
        1
    );
    assert_eq!(in_mails(&["purge", "--yes"]).json()["changed"], 3);
    assert_eq!(counted(&mails.0).await, [0, 0, 0]);
    assert_eq!(counted(&orders.0).await, [2, 0, 2]);
}

/// The last page of a filtered list leads on to no empty one.
#[tokio::test]
async fn filtered_page_leads_on_only_if_a_timer_follows() {
    let file = File::new();
    let mut instance = file.instance().await;
    kill_timers(&mut instance, &["a", "b"], "no route to host").await;
    kill_timers(&mut instance, &["c"], "timeout").await;
    for (limit, leads_on) in [("1", true), ("2", false)] {
        let filter = ["--state", "dead", "--error", "route", "--limit", limit];
        let list = [&["list", "--json"], &filter[..]].concat();
        let page = run(&file, &list).json();
        assert_eq!(page["next"].is_string(), leads_on, "{page}");
    }
}

/// Either the release of a claim takes effect or its acknowledgement, not both.
#[tokio::test]
async fn released_claim_is_lost_to_its_worker() {
    let file = File::new();
    let (timers, mut claims) = file.instance().await;
    let set = timers.set_timer("a", &"v".to_owned(), Duration::ZERO).await;
    set.expect("it is set");
    let claim = claims.recv().await.expect("it comes");
    let token = claim.token().to_string();
    assert_eq!(run(&file, &["release", "--token", &token]).code, 0);
    assert_eq!(run(&file, &["release", "--token", &token]).code, 3);
    claim.ack().await.expect_err("it was released");
    let again = claims.recv().await.expect("it comes again");
    let token = again.token().to_string();
    assert_eq!(
        run(&file, &["acknowledge", "--token", &token, "--yes"]).code,
        0
    );
    again.ack().await.expect_err("it was acknowledged");
    assert_eq!(run(&file, &["show", "a"]).code, 3);
}

/// Regression: it answered "there is no namespace mails, but none".
#[tokio::test]
async fn store_without_a_namespace_says_so() {
    let file = File::new();
    drop(Sqlite::open(file.path()).expect("it opens"));
    for arguments in [&["list"][..], &["list", "--namespace", "mails"]] {
        let Run { code, errors, .. } = run(&file, arguments);
        assert_eq!(code, 3, "{errors}");
        assert_eq!(errors, "error: the store has no namespace\n");
    }
}

#[tokio::test]
async fn exit_code_tells_what_is_wrong() {
    let file = File::new();
    let Run { code, errors, .. } = run(&file, &["stats"]);
    assert_eq!(code, 3, "{errors}");
    assert!(!file.path().exists(), "to look makes no file");
    let foreign = Connection::open(file.path()).expect("it opens");
    let made = foreign.execute("CREATE TABLE orders (id INTEGER)", ());
    made.expect("it is made");
    for (expected, error) in [(3, "has no timers"), (1, "not a database")] {
        let before = std::fs::read(file.path()).expect("it is read");
        let Run { code, errors, .. } = run(&file, &["stats"]);
        assert_eq!(code, expected, "{errors}");
        assert!(errors.contains(error), "{errors}");
        let after = std::fs::read(file.path()).expect("it is read");
        assert!(before == after, "to look changes nothing");
        std::fs::write(file.path(), "no database".repeat(99)).expect("it is written");
    }
    std::fs::remove_file(file.path()).expect("it is removed");
    drop(Sqlite::open(file.path()).expect("it opens"));
    for command in [&["stats"][..], &["watch", "--times", "1"]] {
        let empty = run(&file, command);
        assert!(empty.output.contains("no namespace to show"), "{empty:?}");
    }
    assert_eq!(run(&file, &["list"]).code, 3);
    let (timers, _claims) = file.instance().await;
    let set = timers.set_timer("a", &"v".to_owned(), HOUR).await;
    set.expect("it is set");
    for (arguments, expected) in [
        (&["show", "b"][..], 3),
        (&["show", "a"], 0),
        (&["show", "226122", "--hex"], 0),
        (&["list", "--namespace", "other"], 3),
        (&["list", "--after", "nonsense"], 2),
        (&["list", "--prefix", "a", "--after", "nonsense"], 2),
        (&["list", "--prefix", "zz", "--hex"], 2),
        (&["retry"], 2),
        (&["release", "--token", "0"], 2),
        (&["purge"], 2),
        (&["remove", "a"], 2),
        (&["remove", "--prefix", "a"], 2),
        (&["remove", "--prefix", "", "--yes"], 2),
        (&["remove", "--prefix", "0x", "--hex", "--yes"], 2),
        (&["run", "--prefix", "a"], 2),
        (&["move", "--prefix", "a", "--in", "1h"], 2),
        (&["move", "a"], 2),
        (&["move", "a", "--in", "soon"], 2),
        (&["remove", "a", "--prefix", "a", "--yes"], 2),
        (&["remove", "a", "--all", "--yes"], 2),
        (&["remove", "--prefix", "a", "--all", "--yes"], 2),
        (&["release", "--token", "17", "--all", "--yes"], 2),
        (&["discard", "--all"], 2),
        (&["acknowledge", "--token", "17"], 2),
        (&["release", "--all"], 2),
        (&["run", "--token", "17"], 2),
        (&["watch", "--every", "5"], 2),
        (&["serve", "--listen", "0.0.0.0:0"], 2),
        (&["serve", "--listen", "192.0.2.1:0"], 2),
        (&["watch", "--times", "1", "--json"], 0),
        (&["purge", "--yes"], 0),
        (&["show", "a"], 3),
    ] {
        let ran = run(&file, arguments);
        assert_eq!(ran.code, expected, "{arguments:?}: {ran:?}");
        let is_told = ran.errors.contains("error:");
        assert_eq!(is_told, expected != 0, "{arguments:?}: {ran:?}");
    }
    let (errors, reader) = UnixStream::pair().expect("there is a pair");
    drop(reader);
    let mut unread = program();
    unread.arg("--url").arg(file.path()).args(["show", "a"]);
    let unread = unread.stderr(OwnedFd::from(errors)).status();
    assert_eq!(
        unread.expect("it starts").code(),
        Some(3),
        "its reader has gone"
    );
}

/// Its user may not be allowed to make them.
#[tokio::test]
async fn look_at_an_empty_database_makes_no_tables() {
    let Some(url) = postgres::database("admin_empty").await else {
        return postgres::missing();
    };
    let looked = ended(program().args(["--url", &url, "stats"]));
    assert_eq!(looked.code, 1, "{looked:?}");
    let tables = "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'tickwheel%'";
    let user = postgres::client(&url).await;
    let row = user.query_one(tables, &[]).await.expect("it reads");
    assert_eq!(row.get::<_, i64>(0), 0);
}

/// Regression: a timer that waits could be looked at only, and `discard` said that it was not
/// there.
#[tokio::test]
async fn change_says_what_it_has_found() {
    let file = File::new();
    let mut instance = file.instance().await;
    kill_timers(&mut instance, &["dead"], "poison").await;
    let (timers, mut claims) = instance;
    set(&timers, &["waiting", "other"], HOUR).await;
    set(&timers, &["flying"], Duration::ZERO).await;
    let claim = claims.recv().await.expect("it comes");
    let token = claim.token().to_string();
    for (arguments, words) in [
        (
            &["remove", "absent", "--yes"][..],
            &["absent", "has no timer"][..],
        ),
        (&["remove", "dead", "--yes"], &["dead", "discard"]),
        (&["run", "flying"], &["flying", "in flight", &token]),
        (&["move", "flying", "--in", "1h"], &["in flight", &token]),
        (&["discard", "waiting", "--yes"], &["is waiting", "remove"]),
        (&["retry", "flying"], &["in flight", &token]),
        (
            &["retry", "--token", "17"],
            &["no dead timer has the token 17"],
        ),
        (&["release", "waiting"], &["is waiting"]),
        (
            &["release", "--token", "17"],
            &["no claim has the token 17"],
        ),
        (&["remove", "--prefix", "none", "--yes"], &["there is none"]),
        (&["run", "--prefix", "fly", "--yes"], &["1 in flight"]),
    ] {
        let Run { code, errors, .. } = run(&file, arguments);
        assert_eq!(code, 3, "{arguments:?}: {errors}");
        for word in words {
            assert!(errors.contains(word), "{arguments:?}: {errors}");
        }
    }
    assert_eq!(counted(&timers).await, [2, 1, 1], "nothing was changed");
    let nothing = run(&file, &["remove", "absent", "--yes", "--json"]);
    assert_eq!(nothing.code, 3, "{nothing:?}");
    let record: Value = serde_json::from_str(&nothing.output).expect("it is JSON");
    assert_eq!(
        (&record["changed"], &record["unchanged"]),
        (&0.into(), &1.into())
    );

    let moved = run(&file, &["move", "waiting", "--in", "2h", "--json"]).json();
    assert_eq!(
        (&moved["changed"], &moved["in_flight"]),
        (&1.into(), &0.into())
    );
    let deadline = timers.deadline("waiting").await.expect("it reads");
    let left = deadline
        .expect("it waits")
        .duration_since(SystemTime::now());
    assert!(left.expect("it is far") > HOUR + HOUR / 2);
    let ran = run(&file, &["run", "waiting"]);
    assert_eq!((ran.code, ran.output.trim()), (0, "1 made due now"));
    let again = claims.recv().await.expect("it is due now");
    assert_eq!(again.key, "waiting");
    again.ack().await.expect("it is held");
    let both = run(&file, &["remove", "other", "flying", "--yes", "--json"]).json();
    assert_eq!(
        (&both["changed"], &both["in_flight"]),
        (&1.into(), &1.into())
    );
    let all = run(&file, &["remove", "--all", "--yes"]);
    assert!(
        all.code == 3 && all.errors.contains("1 in flight"),
        "{all:?}"
    );
    assert_eq!(counted(&timers).await, [0, 1, 1]);
}

/// Timers of a prefix are changed together, and no others.
#[tokio::test]
async fn prefix_chooses_what_is_changed() {
    let file = File::new();
    let (timers, mut claims) = file.instance().await;
    set(&timers, &["order 1", "order 17", "other"], HOUR).await;
    let prefix = |arguments: &[&str], prefix: &str| {
        let all = [arguments, &["--prefix", prefix, "--yes", "--json"]].concat();
        run(&file, &all).json()["changed"].clone()
    };
    assert_eq!(prefix(&["move", "--in", "30min"], "order"), 2);
    for key in ["order 1", "order 17"] {
        let deadline = timers.deadline(key).await.expect("it reads");
        assert!(deadline.expect("it waits") < SystemTime::now() + HOUR * 3 / 4);
    }
    assert_eq!(prefix(&["run"], "order 17"), 1);
    let claim = claims.recv().await.expect("it is due");
    assert_eq!(claim.key, "order 17");
    claim.ack().await.expect("it is held");
    assert_eq!(prefix(&["remove"], "order"), 1);
    assert_eq!(counted(&timers).await, [1, 0, 0]);
    let hex = run(&file, &["remove", "--hex", "226f7468657222", "--yes"]);
    assert_eq!(hex.code, 0, "{hex:?}");
    assert_eq!(counted(&timers).await, [0, 0, 0]);
}

/// Regression: a change left no trace.
#[tokio::test]
async fn change_is_logged_in_one_line_with_its_user() {
    let file = File::new();
    let (timers, _claims) = file.instance().await;
    set(&timers, &["a\nb", "c"], HOUR).await;
    let user = Command::new("id").arg("-un").output().expect("it runs");
    let user = String::from_utf8(user.stdout).expect("it is text");
    for (arguments, changed) in [
        (&["move", "a\nb", "--in", "90s"][..], "changed=1"),
        (&["remove", "a\nb", "c", "--yes"], "changed=2"),
        (&["purge", "--yes"], "changed=0"),
    ] {
        let errors = run(&file, arguments).errors;
        let lines: Vec<_> = errors.lines().collect();
        assert_eq!(lines.len(), 1, "{errors}");
        let who = format!("who=\"{}", user.trim());
        let action = format!("action={}", arguments[0]);
        for part in ["change: time=", &who, "namespace=orders", &action, changed] {
            assert!(errors.contains(part), "{part}: {errors}");
        }
    }
    let mut command = program();
    command
        .arg("--url")
        .arg(file.path())
        .args(["purge", "--yes"]);
    let errors = ended(command.env("SUDO_USER", "anna")).errors;
    let who = format!("who=\"anna as {}", user.trim());
    assert!(errors.contains(&who), "{errors}");
    for looks in [&["list"][..], &["show", "a"], &["stats"]] {
        assert!(!run(&file, looks).errors.contains("change:"));
    }
}

/// Regression: what cannot be undone was done at once. A terminal is asked for the name of the
/// namespace.
#[tokio::test]
async fn question_is_asked_at_a_terminal() {
    let file = File::new();
    let (timers, _claims) = file.instance().await;
    set(&timers, &["a 1", "a 2", "b"], HOUR).await;
    let answer = |arguments: &str, text: &str| {
        let program = env!("CARGO_BIN_EXE_tickwheel-admin");
        let path = file.path();
        let line = format!(
            "{program} --timeout 60s --url {} {arguments}",
            path.display()
        );
        let mut command = Command::new("script");
        command.args(["-q", "-e", "-c", &line, "/dev/null"]);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().expect("it starts");
        let mut input = child.stdin.take().expect("it is piped");
        writeln!(input, "{text}").expect("it reads");
        let ended = child.wait_with_output().expect("it ends");
        drop(input);
        let output = String::from_utf8_lossy(&ended.stdout).into_owned();
        (ended.status.code(), output)
    };
    for refusal in ["yes", "mails", ""] {
        let (code, output) = answer("remove --prefix a", refusal);
        assert_eq!(code, Some(2), "{output}");
        let asked = "remove 2 waiting timers, those that begin with \"a, in namespace orders";
        assert!(output.contains(asked), "{output}");
        assert_eq!(counted(&timers).await[0], 3);
    }
    let (code, output) = answer("remove --prefix a", "orders");
    assert_eq!(code, Some(0), "{output}");
    assert_eq!(counted(&timers).await[0], 1);
    let (code, output) = answer("purge", "orders");
    assert!(
        output.contains("purge 1 timer, in namespace orders"),
        "{output}"
    );
    assert_eq!(code, Some(0), "{output}");
    assert_eq!(counted(&timers).await[0], 0);
}

#[test]
fn completions_and_manual_name_the_commands() {
    for arguments in [
        &["completions", "bash"][..],
        &["completions", "zsh"],
        &["completions", "fish"],
        &["man"],
    ] {
        let ran = ended(program().args(arguments));
        assert_eq!(ran.code, 0, "{ran:?}");
        for command in ["remove", "move", "run", "serve"] {
            assert!(ran.output.contains(command), "{arguments:?}: {command}");
        }
        let (output, reader) = UnixStream::pair().expect("there is a pair");
        drop(reader);
        let unread = program()
            .args(arguments)
            .stdout(OwnedFd::from(output))
            .status()
            .expect("it starts");
        assert!(unread.success(), "{arguments:?} into a closed pipe");
    }
}

fn each(array: &Value) -> impl Iterator<Item = &Value> {
    array.as_array().expect("it is an array").iter()
}

/// A look at a file that nobody has open left its log beside it.
#[tokio::test]
async fn command_leaves_one_whole_file() {
    let file = File::new();
    let (timers, claims) = file.instance().await;
    drop(claims);
    timers.shutdown().await;
    for arguments in [
        &["stats"][..],
        &["list"],
        &["show", "absent"],
        &["remove", "absent", "--yes"],
    ] {
        run(&file, arguments);
        for end in ["-wal", "-shm"] {
            let mut beside = file.path().into_os_string();
            beside.push(end);
            assert!(
                !std::path::Path::new(&beside).exists(),
                "{arguments:?} leaves {end}"
            );
        }
    }
}
