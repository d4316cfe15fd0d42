//! A headless Chromium, driven over a pair of pipes by the protocol of its developer tools.

#[path = "../../../tests/support/not_run.rs"]
mod not_run;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use not_run::not_run;
use serde_json::{Value, json};

/// A shell gives the browser its input and output as the descriptors 3 and 4, where it expects the
/// protocol.
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
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let names = ["chromium-headless-shell", "chromium"];
        let mut programs =
            std::env::split_paths(&path).flat_map(|folder| names.map(|name| folder.join(name)));
        let Some(program) = programs.find(|program| program.is_file()) else {
            not_run("no chromium is installed");
            return None;
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tickwheel-chromium-{}-{number}", std::process::id());
        let profile = std::env::temp_dir().join(name);
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
        let answer = self.try_call(method, params);
        answer.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    fn try_call(&mut self, method: &str, params: &Value) -> Result<Value, Value> {
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
                return match answer["error"].take() {
                    Value::Null => Ok(answer["result"].take()),
                    error => Err(error),
                };
            }
        }
    }

    pub(crate) fn open(&mut self, url: &str) {
        self.call("Page.navigate", &json!({ "url": url }));
    }

    /// The value of an expression in the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let evaluate = json!({ "expression": expression, "returnByValue": true });
        match self.try_call("Runtime.evaluate", &evaluate) {
            Ok(mut answer) => answer["result"]["value"].take(),
            Err(error) => {
                let text = error["message"].as_str().unwrap_or_default();
                assert!(text.contains("navigated"), "{expression}: {error}");
                Value::Null
            }
        }
    }

    /// Makes the window so wide, and light or dark.
    pub(crate) fn resize(&mut self, width: u32, is_dark: bool) {
        let size =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 700 });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let scheme = if is_dark { "dark" } else { "light" };
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.call(
            "Emulation.setEmulatedMedia",
            &json!({ "features": [feature] }),
        );
    }

    /// The whole page, as a PNG.
    pub(crate) fn screenshot(&mut self) -> Vec<u8> {
        let whole = json!({ "captureBeyondViewport": true });
        let shot = self.call("Page.captureScreenshot", &whole);
        base64(shot["data"].as_str().expect("it is text"))
    }

    /// Writes a text into the field that has the focus.
    pub(crate) fn write(&mut self, text: &str) {
        self.call("Input.insertText", &json!({ "text": text }));
    }

    /// Moves the pointer onto an element.
    pub(crate) fn point_at(&mut self, element: &str) {
        let place = self.value(&format!(
            "(() => {{
                const element = document.querySelector('{element}');
                element.scrollIntoView({{ block: 'center' }});
                const box = element.getBoundingClientRect();
                return {{ type: 'mouseMoved', x: box.x + box.width / 2, y: box.y + box.height / 2 }};
            }})()"
        ));
        self.call("Input.dispatchMouseEvent", &place);
    }

    /// Presses a key.
    pub(crate) fn press(&mut self, key: &str) {
        let text = if key == "Enter" { "\r" } else { key };
        let (code, number) = match key {
            "Enter" => ("Enter", 13),
            " " => ("Space", 32),
            _ => ("Slash", 191),
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event =
                json!({ "type": kind, "key": key, "code": code, "windowsVirtualKeyCode": number });
            if kind == "keyDown" {
                event["text"] = text.into();
            }
            self.call("Input.dispatchKeyEvent", &event);
        }
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

fn base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.bytes().filter(|digit| *digit != b'=');
    let (mut bytes, mut bits, mut left) = (Vec::new(), 0_u32, 0);
    for digit in digits {
        let value = DIGITS.iter().position(|known| *known == digit);
        bits = bits << 6 | u32::try_from(value.expect("it is a digit")).expect("it is small");
        left += 6;
        if left >= 8 {
            left -= 8;
            bytes.push(u8::try_from(bits >> left & 0xff).expect("it is a byte"));
        }
    }
    bytes
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}
