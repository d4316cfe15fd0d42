//! A headless Chromium, driven over a pair of pipes by the protocol of its developer tools.

#[path = "../../../tests/support/not_run.rs"]
mod not_run;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use not_run::not_run;
use serde_json::{Value, json};

/// A shell gives the browser its input and output as the descriptors 3 and 4, where it expects the protocol.
const START: &str = r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#;

/// An open page.
pub(crate) struct Browser {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    session: Value,
    last: u64,
    profile: PathBuf,
}

impl Browser {
    /// Opens an empty page. `None`, with a word, if there is no Chromium; in CI that is a failure.
    pub(crate) fn start() -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let names = ["chromium-headless-shell", "chromium"];
        let mut programs =
            std::env::split_paths(&path).flat_map(|folder| names.map(|name| folder.join(name)));
        let Some(program) = programs.find(|program| program.is_file()) else {
            not_run("no chromium is installed");
            return None;
        };
        let profile =
            std::env::temp_dir().join(format!("tickwheel-chromium-{}", std::process::id()));
        let mut command = Command::new("sh");
        command.args(["-c", START]).arg(program).args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            // The browser asks no server on the network.
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            "--remote-debugging-pipe",
            "--window-size=1100,900",
        ]);
        command.arg(format!("--user-data-dir={}", profile.display()));
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().expect("a shell starts");
        let mut browser = Browser {
            input: child.stdin.take().expect("it is piped"),
            output: BufReader::new(child.stdout.take().expect("it is piped")),
            child,
            session: Value::Null,
            last: 0,
            profile,
        };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        browser.session = browser.call("Target.attachToTarget", &attach)["sessionId"].clone();
        Some(browser)
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": params });
        if self.session.is_string() {
            message["sessionId"] = self.session.clone();
        }
        write!(self.input, "{message}\0").expect("the browser reads");
        self.input.flush().expect("the browser reads");
        loop {
            let mut answer = Vec::new();
            self.output
                .read_until(0, &mut answer)
                .expect("the browser writes");
            assert_eq!(answer.pop(), Some(0), "the browser has ended");
            let mut answer: Value = serde_json::from_slice(&answer).expect("it is JSON");
            // The others are events.
            if answer["id"] == self.last {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].take();
            }
        }
    }

    pub(crate) fn open(&mut self, url: &str) {
        self.call("Page.navigate", &json!({ "url": url }));
    }

    /// The value of an expression in the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let evaluate = json!({ "expression": expression, "returnByValue": true });
        let mut answer = self.call("Runtime.evaluate", &evaluate);
        answer["result"]["value"].take()
    }

    /// Waits until an expression is true. A page that is being left has no value.
    pub(crate) fn until(&mut self, expression: &str) {
        let began = Instant::now();
        while self.value(expression) != true {
            let page = self.value("document.body.innerText");
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "never: {expression}: {page}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}
