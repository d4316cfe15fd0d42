//! The services, run as programs, and the recipe that the front page of the adapters shows.
//!
//! `cargo test -p tickwheel-services` builds the examples; with `--test it` it runs those of the
//! last build.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

#[cfg(unix)]
#[path = "../../../../tests/it/support/last_requests.rs"]
mod last_requests;

/// A test that waits for so long hangs.
pub(crate) const HANG_TIMEOUT: Duration = Duration::from_secs(120);

fn example(name: &str) -> Command {
    // This test lies in `deps`, and the examples beside that.
    let test = std::env::current_exe().expect("a test is a file");
    let profile = test.parent().and_then(|deps| deps.parent());
    let path: PathBuf = profile.expect("it lies deep enough").join("examples");
    let path = path.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    assert!(path.exists(), "{} is missing: see above", path.display());
    Command::new(path)
}

/// The output of a program that ends by itself; it must succeed.
pub(crate) fn said(name: &str) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = example(name).output().expect("the example runs");
    let said = String::from_utf8_lossy(&stdout) + String::from_utf8_lossy(&stderr);
    assert_eq!(status.code(), Some(0), "{said}");
    said.into_owned()
}

#[test]
fn http_service_holds_its_limits_under_load() {
    let said = said("http_service");
    for row in [
        "timed out             150",
        "100 reaped, 50 unread, 0 failed",
    ] {
        assert!(said.contains(row), "{said}");
    }
}

#[test]
fn axum_service_cuts_no_request() {
    assert!(said("axum_service").contains("that took two seconds"));
}

#[test]
fn quic_echo_ends_silent_connections_only() {
    let said = said("quic_echo");
    let row = "connections: 70 closed, 50 ended by idle timeout, 0 failed";
    // A busy machine that delays the clients also delays the control beside them.
    let is_excused = said.contains("Tokio's timers were up to");
    assert!(said.contains(row) || is_excused, "{said}");
}

#[test]
fn other_crates_sleep_on_the_wheel() {
    assert!(said("retry_backon").contains("3 sleeps of the wheel"));
    assert!(said("aws_sleep").contains("count: 1"));
}

#[test]
fn front_page_of_adapters_shows_the_recipe_for_axum() {
    let example = include_str!("../../axum_service.rs");
    let recipe = example
        .split_once("// --- the recipe ---\n")
        .expect("it begins");
    let recipe = recipe
        .1
        .split_once("// --- until here ---")
        .expect("it ends");
    let page = include_str!("../../../../adapters/src/lib.rs").lines();
    let page = page.filter_map(|line| line.strip_prefix("//!"));
    let page = page.map(|line| line.strip_prefix(' ').unwrap_or(line));
    let page = page.collect::<Vec<_>>().join("\n");
    assert!(
        page.contains(recipe.0.trim()),
        "adapters/src/lib.rs differs"
    );
}

/// An example that serves, which is killed when dropped.
pub(crate) struct Service {
    child: Child,
    lines: BufReader<ChildStdout>,
    pub(crate) address: SocketAddr,
}

impl Service {
    /// The HTTP service that closes connections without a request after so many seconds.
    fn http(idle: &str) -> Self {
        Self::start("http_service", &["--listen", "127.0.0.1:0", "--idle", idle])
    }

    pub(crate) fn start(name: &str, arguments: &[&str]) -> Self {
        let mut command = example(name);
        command.args(arguments);
        command.stdout(Stdio::piped()).stdin(Stdio::null());
        let mut child = command.spawn().expect("the example runs");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut first = String::new();
        lines.read_line(&mut first).expect("it says something");
        let address = first.strip_prefix("listening on ");
        let address = address.and_then(|rest| rest.split(';').next()?.parse().ok());
        Service {
            child,
            lines,
            address: address.unwrap_or_else(|| panic!("no address in {first:?}")),
        }
    }

    fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(self.address).expect("it listens");
        client
            .set_read_timeout(Some(HANG_TIMEOUT))
            .expect("not zero");
        client
    }

    /// The answer to one request on its own connection.
    fn ask(&self, request: &str) -> String {
        let mut client = self.connect();
        let head = " HTTP/1.1\r\nhost: x\r\nconnection: close\r\n";
        let request = request.replacen('\n', head, 1);
        client.write_all(request.as_bytes()).expect("it is open");
        let mut response = String::new();
        client.read_to_string(&mut response).expect("it is text");
        response
    }

    /// Sends a signal to it.
    #[cfg(unix)]
    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let killed = Command::new("kill").args([signal, &pid]).status();
        assert!(killed.expect("there is a kill").success());
    }

    #[cfg(unix)]
    fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_some()
    }

    /// Its exit code and its last words.
    #[cfg(unix)]
    pub(crate) fn end(&mut self) -> (Option<i32>, String) {
        let began = Instant::now();
        while !self.has_ended() {
            assert!(began.elapsed() < HANG_TIMEOUT, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        let status = self.child.wait().expect("it is our child");
        let mut said = String::new();
        self.lines.read_to_string(&mut said).expect("it is text");
        (status.code(), said)
    }
}

/// All that comes until the connection is closed.
fn read_all(mut client: TcpStream) -> String {
    let mut response = String::new();
    client.read_to_string(&mut response).expect("it is text");
    response
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn http_service_answers_and_limits() {
    let service = Service::http("60");
    let hello = service.ask("GET /\n\r\n");
    assert!(
        hello.starts_with("HTTP/1.1 200 ") && hello.ends_with("hello\n"),
        "{hello}"
    );
    let began = Instant::now();
    let stuck = service.ask("GET /slow/1e9\n\r\n");
    assert!(stuck.starts_with("HTTP/1.1 503 "), "{stuck}");
    assert!(began.elapsed() >= Duration::from_secs(2));
    let echo = service.ask("POST /echo\ncontent-length: 5\r\n\r\n12345");
    assert!(echo.ends_with("\r\n\r\n12345"), "{echo}");

    // Published every half a second.
    let published = Instant::now();
    let page = loop {
        let page = service.ask("GET /metrics\n\r\n");
        let fired = "tickwheel_lateness_seconds_count{wheel=\"tickwheel\"} ";
        let fired = page
            .split_once(fired)
            .and_then(|(_, rest)| rest.lines().next());
        if fired.is_some_and(|n| n.parse().is_ok_and(|n: u64| n >= 1)) {
            break page;
        }
        assert!(published.elapsed() < HANG_TIMEOUT, "{page}");
        std::thread::sleep(Duration::from_millis(50));
    };
    for line in [
        "# TYPE tickwheel_sleeps_made_total counter",
        "# TYPE tickwheel_sleeps_pending gauge",
        "# TYPE tickwheel_lateness_seconds histogram",
        "tickwheel_lateness_seconds_bucket{wheel=\"tickwheel\",le=\"0.001\"} ",
        "tickwheel_lateness_seconds_bucket{wheel=\"tickwheel\",le=\"+Inf\"} ",
        "tickwheel_sleeps_cancelled_total{wheel=\"tickwheel\"} ",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
}

#[test]
fn http_service_closes_idle_connections_only() {
    let service = Service::http("1");
    let mut client = service.connect();
    let request = b"GET /slow/1.5 HTTP/1.1\r\nhost: x\r\n\r\n";
    let began = Instant::now();
    client.write_all(request).expect("it is open");
    let mut response = String::new();
    client.read_to_string(&mut response).expect("it is text");
    assert!(response.ends_with("that took a while\n"), "{response}");
    assert!(
        began.elapsed() >= Duration::from_millis(2500),
        "closed too soon"
    );
}

#[test]
#[cfg(unix)]
fn http_service_answers_what_is_in_flight_before_it_stops() {
    for signal in ["-TERM", "-INT"] {
        let mut service = Service::http("60");
        let mut silent = service.connect();
        let mut asking = service.connect();
        let request = b"GET /slow/1.5 HTTP/1.1\r\nhost: x\r\n\r\n";
        asking.write_all(request).expect("it is open");
        std::thread::sleep(Duration::from_millis(500));
        service.signal(signal);

        let response = read_all(asking);
        assert!(response.ends_with("that took a while\n"), "{response}");
        let _ = silent.read(&mut [0]);
        let (code, said) = service.end();
        assert_eq!(code, Some(0), "{said}");
        assert!(said.starts_with("stopped; connections: 2 closed"), "{said}");
    }
}

/// The choice between a request in a socket and the signal was left to chance, and the listener was
/// closed with connections that waited to be accepted.
#[test]
#[cfg(unix)]
fn http_service_answers_what_was_sent_before_its_signal() {
    for round in 0..5 {
        let mut service = Service::http("60");
        let lost = last_requests::unanswered(service.address, |signal| service.signal(signal));
        assert_eq!(lost, 0, "requests of round {round} were cut");
        let (code, said) = service.end();
        assert_eq!(code, Some(0), "{said}");
    }
}

#[test]
fn http_service_cuts_no_pipelined_request() {
    let service = Service::http("1");
    let mut client = service.connect();
    let request = b"GET /slow/1.5 HTTP/1.1\r\nhost: x\r\n\r\n";
    client.write_all(&request.repeat(2)).expect("it is open");
    let responses = read_all(client);
    assert_eq!(responses.matches("a while\n").count(), 2, "{responses}");
}

#[test]
fn http_service_limits_the_pauses_of_a_body() {
    let service = Service::http("60");
    let head = b"POST /echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 4\r\n\r\n";
    // Longer than a response may take, by parts.
    let mut slow = service.connect();
    slow.write_all(head).expect("it is open");
    let mut stalled = service.connect();
    stalled.write_all(head).expect("it is open");
    for byte in b"body" {
        std::thread::sleep(Duration::from_millis(700));
        slow.write_all(&[*byte]).expect("it is open");
    }
    let response = read_all(slow);
    assert!(response.ends_with("\r\n\r\nbody"), "{response}");
    let response = read_all(stalled);
    assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
}

#[test]
#[cfg(unix)]
fn second_signal_ends_a_service_at_once() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let mut service = Service::http("60");
        let mut asking = service.connect();
        let head = b"POST /echo HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 1000\r\n\r\n";
        asking.write_all(head).expect("it is open");
        let mut asked_for_the_body = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
        asking
            .read_exact(&mut asked_for_the_body)
            .expect("it answers");
        service.signal("-TERM");
        // Signals that come at once may be taken for one. The body never stalls, so only a signal
        // ends the service.
        while !service.has_ended() {
            let _ = asking.write_all(b"b");
            std::thread::sleep(Duration::from_millis(300));
            service.signal(signal);
        }
        let (ended, said) = service.end();
        assert_eq!(ended, Some(code), "{said}");
    }
}

#[test]
#[cfg(unix)]
fn axum_service_answers_what_is_in_flight_before_it_stops() {
    let mut service = Service::start("axum_service", &["--listen", "127.0.0.1:0"]);
    let mut asking = service.connect();
    let request = b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n";
    asking.write_all(request).expect("it is open");
    std::thread::sleep(Duration::from_millis(500));
    service.signal("-TERM");
    let response = read_all(asking);
    assert!(response.ends_with("that took two seconds"), "{response}");
    let (code, said) = service.end();
    assert_eq!(code, Some(0), "{said}");
}

#[test]
#[cfg(unix)]
fn axum_service_answers_what_was_sent_before_its_signal() {
    for round in 0..5 {
        let arguments = ["--listen", "127.0.0.1:0", "--idle", "60"];
        let mut service = Service::start("axum_service", &arguments);
        let lost = last_requests::unanswered(service.address, |signal| service.signal(signal));
        assert_eq!(lost, 0, "requests of round {round} were cut");
        let (code, said) = service.end();
        assert_eq!(code, Some(0), "{said}");
    }
}

#[test]
fn services_reject_bad_arguments_in_one_line() {
    let bad = [
        ("axum_service", &["--listen", "nonsense"][..]),
        ("axum_service", &["127.0.0.1:0"]),
        ("aws_sleep", &["-x"]),
        ("retry_backon", &["nonsense"]),
        ("http_service", &["--listen", "nonsense"]),
        ("http_service", &["--idle", "3"]),
        ("http_service", &["-x"]),
        ("quic_echo", &["--listen", "nonsense"]),
        ("quic_echo", &["--idle", "3"]),
    ];
    for (name, arguments) in bad {
        let output = example(name).args(arguments).output();
        let output = output.expect("the example runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.starts_with(&format!("{name}: ")), "{said}");
    }
}

#[test]
fn services_and_recipes_print_their_usage() {
    let names = [
        "axum_service",
        "http_service",
        "quic_echo",
        "aws_sleep",
        "retry_backon",
    ];
    for (name, option) in names
        .iter()
        .flat_map(|name| [(name, "--help"), (name, "-h")])
    {
        let output = example(name).arg(option).output();
        let output = output.expect("the example runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.contains(&format!("\nUsage: {name}\n")), "{said}");
    }
}

#[test]
fn axum_service_knows_the_address_of_its_client() {
    let service = Service::start("axum_service", &["--listen", "127.0.0.1:0"]);
    let mut client = service.connect();
    let request = b"GET /peer HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    client.write_all(request).expect("it is open");
    let address = client.local_addr().expect("it is bound").to_string();
    let response = read_all(client);
    assert!(response.ends_with(&address), "{response}");
}
