//! The page in a browser, and over HTTP.

#[path = "support/browser.rs"]
mod browser;
#[allow(dead_code, reason = "another test uses the rest")]
mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use browser::Browser;
use support::File;
use tickwheel_durable::Retry;

const HOUR: Duration = Duration::from_secs(3_600);

/// A text that would be an element, or turn the page around, if it was not escaped.
const HOSTILE: &str =
    "\"'><script>window.hostile = 1</script><img src=x onerror='window.hostile = 1'>\u{202e}&lt;";

/// The program, which serves the page.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(file: &File, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tickwheel-admin"));
        command
            .arg("--url")
            .arg(file.path())
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let output = child.stdout.take().expect("it is piped");
        let mut line = String::new();
        BufReader::new(output)
            .read_line(&mut line)
            .expect("it writes");
        let address = line
            .trim()
            .trim_start_matches("http://")
            .trim_end_matches('/')
            .to_owned();
        Server { child, address }
    }

    /// The whole response to a request with these further headers.
    fn ask(&self, request: &str, headers: &[&str], body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let host = format!("Host: {}", self.address);
        let host = if headers.iter().any(|header| header.starts_with("Host")) {
            "X: y"
        } else {
            &host
        };
        let headers = headers.join("\r\n");
        let end = if headers.is_empty() { "" } else { "\r\n" };
        let length = body.len();
        let text = format!(
            "{request} HTTP/1.1\r\n{host}\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n{headers}{end}\r\n{body}"
        );
        stream.write_all(text.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it writes");
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The page shows thousands of timers and hostile ones, follows what changes, and its button retries a dead timer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_is_live_in_a_browser() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let file = File::new();
    let (timers, mut claims) = file.instance().await;
    let large = HOSTILE.repeat(8_000);
    let set = timers.set_timer(HOSTILE, &large, Duration::ZERO).await;
    set.expect("it is set");
    let claim = claims.recv().await.expect("it comes");
    claim.fail(Retry::never(HOSTILE)).await.expect("it is held");
    let keys: Vec<String> = (0..10_000).map(|key| format!("{key} {HOSTILE}")).collect();
    let value = HOSTILE.to_owned();
    let many = keys.iter().map(|key| (key.as_str(), &value, HOUR / 2));
    timers.set_many(many).await.expect("they are set");

    let server = Server::start(&file, &["--allow-changes"]);
    browser.open(&format!("http://{}/", server.address));
    browser.until("document.querySelectorAll('#waiting tbody tr').length === 50");
    assert_eq!(
        browser.value("document.querySelectorAll('#dead tbody tr').length"),
        1
    );
    assert_eq!(
        browser.value("document.querySelector('#counts dd').textContent"),
        "10000"
    );
    assert_eq!(
        browser.value("document.querySelectorAll('#due rect').length"),
        48
    );
    assert_eq!(
        browser.value("document.querySelectorAll('img, main script').length"),
        0
    );
    assert_eq!(browser.value("typeof window.hostile"), "undefined");
    assert_eq!(
        browser.value("document.body.innerText.includes('\\u202e')"),
        false
    );

    // Another one is shown without the page being loaded again.
    browser.value("window.mark = 1");
    let set = timers.set_timer("new", &value, HOUR).await;
    set.expect("it is set");
    browser.until("document.querySelector('#counts dd').textContent === '10001'");
    assert_eq!(browser.value("window.mark"), 1, "it is the same page");

    browser.value("document.querySelector('#dead tbody button').click()");
    let again = claims.recv().await.expect("it comes again");
    assert_eq!((again.key.as_str(), again.attempt), (HOSTILE, 1));
    browser.until("document.body.innerText.includes('Done.')");
    browser.until("document.querySelectorAll('#in-flight tbody tr').length === 1");
    browser.open(&format!("http://{}/n/orders/find?key=new", server.address));
    browser.until("document.querySelectorAll('dl.details').length === 1");
    assert_eq!(
        browser.value("document.querySelectorAll('img, main script').length"),
        0
    );
}

#[tokio::test]
async fn form_changes_something_only_with_all_that_it_needs() {
    let file = File::new();
    let (timers, mut claims) = file.instance().await;
    let set = timers.set_timer("a", &"v".to_owned(), Duration::ZERO).await;
    set.expect("it is set");
    let claim = claims.recv().await.expect("it comes");
    let token = claim.token();
    claim
        .fail(Retry::never("poison"))
        .await
        .expect("it is held");
    let retry = "POST /n/orders/retry";

    let reading = Server::start(&file, &[]);
    let page = reading.ask("GET /n/orders", &[], "");
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    assert!(
        page.contains("poison") && !page.contains("<button>Retry"),
        "{page}"
    );
    assert!(
        page.contains("content-security-policy: default-src 'none'"),
        "{page}"
    );
    let refused = reading.ask(retry, &[], &format!("csrf=x&token={token}"));
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    let rebound = reading.ask("GET /n/orders", &["Host: evil.example"], "");
    assert!(rebound.starts_with("HTTP/1.1 421"), "{rebound}");

    let server = Server::start(&file, &["--allow-changes"]);
    let page = server.ask("GET /n/orders", &[], "");
    let csrf = page
        .split("name=\"csrf\" value=\"")
        .nth(1)
        .expect("a form has it");
    let (csrf, _) = csrf.split_once('"').expect("it ends");
    let body = format!("csrf={csrf}&token={token}");
    for (headers, body, expected) in [
        (&[][..], format!("csrf=x&token={token}"), "HTTP/1.1 403"),
        (
            &["Origin: http://evil.example"],
            body.clone(),
            "HTTP/1.1 403",
        ),
        (
            &["Sec-Fetch-Site: cross-site"],
            body.clone(),
            "HTTP/1.1 403",
        ),
        (&[], body.clone(), "HTTP/1.1 303"),
    ] {
        assert_eq!(timers.counts().await.expect("it counts").dead, 1);
        let answer = server.ask(retry, headers, &body);
        assert!(answer.starts_with(expected), "{headers:?}: {answer}");
    }
    assert_eq!(timers.counts().await.expect("it counts").dead, 0);
}

#[tokio::test]
async fn token_is_needed_for_every_page() {
    let file = File::new();
    let _instance = file.instance().await;
    let secret = file.path().with_extension("token");
    std::fs::write(&secret, "a token of some length\n").expect("it is written");
    let secret = secret.to_str().expect("it is text");
    let server = Server::start(&file, &["--token-file", secret]);
    for path in ["/", "/n/orders", "/n/orders/list/dead"] {
        let answer = server.ask(&format!("GET {path}"), &[], "");
        assert!(answer.starts_with("HTTP/1.1 303"), "{answer}");
        assert!(answer.contains("location: /login"), "{answer}");
    }
    let right = ["Authorization: Bearer a token of some length"];
    let answer = server.ask("GET /n/orders", &right, "");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let wrong = server.ask("POST /login", &[], "token=another+token+of+a+length");
    assert!(wrong.starts_with("HTTP/1.1 401"), "{wrong}");
    let login = server.ask("POST /login", &[], "token=a+token+of+some+length");
    let cookie = login
        .split("set-cookie: ")
        .nth(1)
        .expect("it sets a cookie");
    let (cookie, _) = cookie.split_once(';').expect("it has attributes");
    let answer = server.ask("GET /n/orders", &[&format!("Cookie: {cookie}")], "");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
