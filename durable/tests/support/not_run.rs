//! Tests that cannot run here, for lack of a server or another program.

use std::env;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Its input ends when the test process does, after libtest's last line. Then it counts the tests
/// that lack the same thing, on standard error and, for `.ci/run`, in a file.
const COUNT: &str = r#"
sort -u | cut -f 1 | uniq -c | sed 's/^ *\([0-9]*\) \(.*\)/tests NOT RUN: \1 (\2)/' |
    tee -a "${CI_LEFT_OUT:-/dev/null}" >&2
"#;

/// Ends a test that lacks what `why` says. The run counts such tests on its last lines. Where `CI`
/// is set the test fails.
pub(crate) fn not_run(why: &str) {
    static COUNTING: Mutex<Option<Child>> = Mutex::new(None);
    assert!(env::var_os("CI").is_none(), "NOT RUN: {why}");
    let mut counting = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    let shell = counting.get_or_insert_with(|| {
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", COUNT]).stdin(Stdio::piped());
        shell.spawn().expect("a shell starts")
    });
    let input = shell.stdin.as_mut().expect("it is piped");
    // libtest names a thread after its test.
    let thread = thread::current();
    let line = format!("{why}\t{}\n", thread.name().unwrap_or_default());
    input.write_all(line.as_bytes()).expect("the shell reads");
}
