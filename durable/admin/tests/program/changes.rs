//! Changes of all timers in a state.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use tickwheel_durable::rusqlite::Connection;

use super::HOUR;
use super::support::{File, counted, kill_timers, program, run, set};

/// A change of all is of all in its state: none of the others, dead ones least of all.
#[tokio::test]
async fn all_chooses_the_timers_in_the_state_that_is_changed() {
    let file = File::new();
    let mut instance = file.instance().await;
    kill_timers(&mut instance, &["dead"], "poison").await;
    let (timers, mut claims) = instance;
    set(&timers, &["a", "b"], HOUR).await;
    let changed = |arguments: &[&str]| {
        let all = [arguments, &["--all", "--yes", "--json"]].concat();
        run(&file, &all).json()["changed"].clone()
    };
    assert_eq!(changed(&["move", "--in", "2h"]), 2);
    for key in ["a", "b"] {
        let deadline = timers.deadline(key).await.expect("it reads");
        assert!(deadline.expect("it waits") > SystemTime::now() + HOUR * 3 / 2);
    }
    assert_eq!(changed(&["run"]), 2);
    let mut both = [claims.recv().await, claims.recv().await].map(|claim| claim.expect("it comes"));
    both.sort_by(|one, other| one.key.cmp(&other.key));
    let [a, b] = both;
    assert_eq!((a.key.as_str(), b.key.as_str()), ("a", "b"));
    assert_eq!(counted(&timers).await, [0, 2, 1]);

    // Claims are chosen by key, too.
    let released = run(&file, &["release", "a"]);
    assert_eq!(released.code, 0, "{released:?}");
    let again = claims.recv().await.expect("it comes again");
    assert_eq!((again.key.as_str(), again.attempt), ("a", 1));
    a.ack().await.expect_err("it was released");
    let acknowledged = run(&file, &["acknowledge", "b", "--yes"]);
    assert_eq!(acknowledged.code, 0, "{acknowledged:?}");
    b.ack().await.expect_err("it was acknowledged");
    assert_eq!(counted(&timers).await, [0, 1, 1]);

    set(&timers, &["c"], HOUR).await;
    assert_eq!(changed(&["remove"]), 1);
    assert_eq!(counted(&timers).await, [0, 1, 1]);
    again.ack().await.expect("it is held");
    let shown = run(&file, &["show", "dead", "--json"]).json();
    assert_eq!(shown["timers"][0]["state"], "dead");
}

/// How long a process has run, of which the system counts hundredths of a second.
#[cfg(target_os = "linux")]
fn cpu_time(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
    let stat = stat.expect("it is there");
    let (_, fields) = stat.rsplit_once(") ").expect("a name comes first");
    let fields = fields.split(' ').skip(11).take(2);
    let ticks = fields.map(|ticks| ticks.parse::<u64>().expect("it is a number"));
    Duration::from_millis(10 * ticks.sum::<u64>())
}

/// The end of its terminal ended the program in the middle of a change, which no log told, and none
/// was in flight. Under `nohup` the program goes on.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn change_that_is_interrupted_or_ends_with_its_terminal_is_logged() {
    const TERMINATE: u64 = 1 << 14;
    let file = File::new();
    let (timers, mut claims) = file.instance().await;
    set(&timers, &["a in flight"], Duration::ZERO).await;
    let _claim = claims.recv().await.expect("it comes");
    let other = Connection::open(file.path()).expect("it opens");
    // A removal takes a second, and two where it is cut off. The tests themselves may ignore
    // hang-ups, as under `nohup`.
    for (signal, start, rounds, code, words) in [
        (
            "-HUP",
            r#"exec env --default-signal=HUP "$0" "$@""#,
            5,
            1,
            "it was cut off",
        ),
        (
            "-INT",
            r#"exec env --default-signal=INT "$0" "$@""#,
            5,
            1,
            "it was cut off",
        ),
        ("-HUP", r#"trap "" HUP; exec "$0" "$@""#, 2, 0, "changed=1"),
    ] {
        set(&timers, &["a"], HOUR).await;
        let slow = format!(
            "DROP TRIGGER IF EXISTS slow;
            CREATE TRIGGER slow AFTER DELETE ON tickwheel_timers BEGIN
            SELECT (
                WITH RECURSIVE n (x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM n WHERE x < {rounds}000000)
                SELECT max(x) FROM n);
            END"
        );
        other.execute_batch(&slow).expect("it is made");
        let mut command = Command::new("sh");
        command.args(["-c", start]).arg(program().get_program());
        command.args(["--timeout", "60s", "--url"]).arg(file.path());
        command.args(["remove", "--prefix", "a", "--yes", "--json"]);
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("it starts");
        let is_ready = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
            let status = status.expect("it runs");
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let caught = u64::from_str_radix(caught.expect("it is there").trim(), 16);
            caught.expect("it is a number") & TERMINATE != 0
        };
        let began = Instant::now();
        while !is_ready() {
            assert!(began.elapsed() < HOUR / 60, "it has not begun");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // It looks for the timers, and the trigger alone takes so long.
        let before = cpu_time(child.id());
        while cpu_time(child.id()) < before + Duration::from_millis(200) {
            assert!(began.elapsed() < HOUR / 60, "it changes nothing");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let mut kill = Command::new("kill");
        let killed = kill.args([signal, &child.id().to_string()]).status();
        assert!(killed.expect("it runs").success());
        let mut errors = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut log = String::new();
        errors.read_line(&mut log).expect("it is text");
        assert!(
            log.contains("change: time=") && log.contains(words),
            "{log}"
        );
        errors.read_to_string(&mut log).expect("it is text");
        let ended = child.wait_with_output().expect("it ends");
        assert_eq!(ended.status.code(), Some(code), "{log}");
        let record: Value = serde_json::from_slice(&ended.stdout).expect("it is JSON");
        assert_eq!(record["in_flight"], 1, "{record}");
    }
}
