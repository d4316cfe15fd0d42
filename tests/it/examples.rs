//! The examples, run as programs. Clients of the tests talk to the servers. The short examples end
//! with an exit code that says whether their checks held.
//!
//! `cargo test` builds the examples; `cargo test --test it` alone does not, and runs those of the
//! last build.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

#[cfg(unix)]
use crate::support::last_requests;

/// How long a test waits for a program before it fails.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// The examples that take `--listen`.
const SERVERS: &[&str] = &["idle_reaper", "http_keepalive"];

/// The examples that take no arguments.
const WITHOUT_ARGUMENTS: &[&str] = &[
    "quickstart",
    "cache",
    "rpc_deadline",
    "retry_backoff",
    "delayed_tasks",
    "graceful_close",
    "other_runtime",
];

/// The examples that print more than one line and end by themselves within seconds.
const SHORT: [&str; 8] = [
    "quickstart",
    "cache",
    "rpc_deadline",
    "retry_backoff",
    "delayed_tasks",
    "graceful_close",
    "other_runtime",
    "http_keepalive",
];

fn example(name: &str) -> Command {
    // This test lies in `deps`, and the examples beside that.
    let test = std::env::current_exe().expect("a test is a file");
    let profile = test.parent().and_then(|deps| deps.parent());
    let path: PathBuf = profile.expect("it lies deep enough").join("examples");
    let path = path.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    assert!(
        path.exists(),
        "{} is missing: run `cargo build --examples`, or `cargo test` without `--test`",
        path.display()
    );
    Command::new(path)
}

fn wait(child: &mut Child) -> ExitStatus {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            return status;
        }
        if began.elapsed() > TIME_LIMIT {
            child.kill().expect("it is our child");
            panic!("the example does not end");
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// The output of a program that ends by itself. It must fit into a pipe.
fn output(mut command: Command) -> Output {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the example runs");
    wait(&mut child);
    child.wait_with_output().expect("it has ended")
}

/// An example with `--listen`, which is killed when dropped.
struct Server {
    child: Child,
    lines: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Server {
    fn start(idle: &str) -> Self {
        Self::start_example("idle_reaper", idle)
    }

    fn start_example(name: &str, idle: &str) -> Self {
        let mut command = example(name);
        command.args(["--listen", "127.0.0.1:0", "--idle", idle]);
        command.stdout(Stdio::piped()).stdin(Stdio::null());
        let mut child = command.spawn().expect("the example runs");
        let stdout = child.stdout.take().expect("it is piped");
        let mut lines = BufReader::new(stdout);
        let mut first = String::new();
        lines.read_line(&mut first).expect("it says something");
        let address = first.strip_prefix("listening on ");
        let address = address.and_then(|rest| rest.split(';').next());
        let address = address.and_then(|address| address.parse().ok());
        Server {
            child,
            lines,
            address: address.unwrap_or_else(|| panic!("no address in {first:?}")),
        }
    }

    fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(self.address).expect("it listens");
        client
            .set_read_timeout(Some(TIME_LIMIT))
            .expect("that is not zero");
        client
    }

    /// Sends SIGTERM, and returns the output after that.
    #[cfg(unix)]
    fn stop(mut self) -> (ExitStatus, String) {
        self.signal("-TERM");
        self.wait_until_stopped()
    }

    #[cfg(unix)]
    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let killed = Command::new("kill").args([signal, &pid]).status();
        assert!(killed.expect("there is a kill").success());
    }

    /// Returns the rest of its output.
    #[cfg(unix)]
    fn wait_until_stopped(&mut self) -> (ExitStatus, String) {
        let status = wait(&mut self.child);
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).expect("it is text");
        (status, rest)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a message and reads it back; false when the server has closed the connection.
fn chat(client: &mut TcpStream) -> bool {
    let mut echo = [0; 5];
    client.write_all(b"hello").is_ok() && client.read_exact(&mut echo).is_ok() && &echo == b"hello"
}

/// Waits until the server closes the connection. Returns how long that is after `active`.
fn closed_after(active: Instant, mut client: TcpStream) -> Duration {
    let read = client.read(&mut [0]);
    assert_eq!(
        read.expect("closed within the time limit"),
        0,
        "it sends nothing"
    );
    active.elapsed()
}

#[test]
fn rejects_bad_arguments_with_one_line_and_exit_code_2() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let taken = taken.local_addr().map(|a| (a.to_string(), taken));
    let (taken, _listener) = taken.expect("it is bound");
    let any = "127.0.0.1:0";
    let cases: &[(&[&str], &str)] = &[
        (&["--listen", &taken], "cannot listen on"),
        (&["--listen", "nonsense"], "cannot listen on \"nonsense\""),
        (&["--listen", ""], "cannot listen on \"\""),
        (&["--listen", "127.0.0.1:99999"], "cannot listen on"),
        (&["--listen"], "'--listen'"),
        (&["--listen", any, "--idle"], "'--idle'"),
        (&["--listen", any, "--idle", "0"], "from 1e-9 to 1.8e19"),
        (&["--listen", any, "--idle", "1e-12"], "from 1e-9 to"),
        (&["--listen", any, "--idle", "-1"], "from 1e-9 to"),
        (&["--listen", any, "--idle", "1.9e19"], "to 1.8e19"),
        (&["--listen", any, "--idle", "soon"], "not \"soon\""),
        (&["--listen", any, "--idle", "inf"], "not \"inf\""),
        (&["--listen", any, "--idle", "NaN"], "not \"NaN\""),
        (&["--listen", any, "--idle", "1e300"], "not \"1e300\""),
        (&["--listen", any, "--idle", ""], "not \"\""),
        (&["--idle", "3"], "only with --listen"),
        (&["--lisen", any], "'--lisen'"),
        (&["-x"], "'-x'"),
        (&["nonsense"], "\"nonsense\""),
    ];
    let nothing: &[(&[&str], &str)] = &[
        (&["--lisen", any], "unexpected argument \"--lisen\""),
        (&["nonsense"], "\"nonsense\""),
        (&[""], "\"\""),
    ];
    let servers = SERVERS.iter().map(|server| (server, cases));
    let others = WITHOUT_ARGUMENTS.iter().map(|name| (name, nothing));
    for (server, cases) in servers.chain(others) {
        for (arguments, complaint) in cases {
            let mut command = example(server);
            command.args(*arguments);
            let output = output(command);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
            assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
            assert!(said.contains(complaint), "{arguments:?}: {said}");
            assert!(said.starts_with(server), "{arguments:?}: {said}");
            let names_usage = said.contains(&format!("; usage: {server}"));
            assert!(names_usage || said.contains("cannot listen"), "{said}");
            assert!(output.stdout.is_empty(), "{arguments:?}");
        }
    }
}

#[test]
fn help_names_the_options_and_succeeds() {
    let options = ["--help", "-h"];
    for (server, option) in SERVERS.iter().flat_map(|s| options.map(|o| (s, o))) {
        let mut command = example(server);
        command.arg(option);
        let output = output(command);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0));
        assert!(said.contains("--listen ADDRESS") && said.contains("--idle SECONDS"));
    }
    for name in WITHOUT_ARGUMENTS {
        let mut command = example(name);
        command.arg("--help");
        let output = output(command);
        assert_eq!(output.status.code(), Some(0));
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(&format!("\nUsage: {name}\n")), "{said}");
    }
}

#[test]
fn closes_a_silent_client_and_keeps_a_chatting_one() {
    // On a machine that stops for longer than the idle time a chatting client seems silent; then a
    // longer time is tried.
    let kept = [1, 4, 16, 64].into_iter().any(chatting_is_kept);
    assert!(kept, "the chatting client was never kept");
}

/// Returns `false` if this thread was paused for longer than the idle time, and its client was
/// closed for that.
fn chatting_is_kept(seconds: u64) -> bool {
    let idle = Duration::from_secs(seconds);
    let server = Server::start(&seconds.to_string());
    let began = Instant::now();
    let mut chatting = server.connect();
    let silent = thread::spawn({
        let active = Instant::now();
        let client = server.connect();
        move || closed_after(active, client)
    });
    let one_message = thread::spawn({
        let opened = Instant::now();
        let mut client = server.connect();
        move || {
            thread::sleep(idle / 2);
            let active = Instant::now();
            if chat(&mut client) {
                closed_after(active, client)
            } else {
                opened.elapsed()
            }
        }
    });

    let mut active = began;
    while began.elapsed() < idle * 7 / 2 {
        let now = Instant::now();
        if !chat(&mut chatting) {
            let silent = active.elapsed();
            assert!(silent >= idle, "closed {silent:?} after its last word");
            return false;
        }
        active = now;
        thread::sleep(idle / 10);
    }
    for closed in [silent, one_message] {
        let took = closed.join().expect("it was closed");
        assert!(took >= idle, "{took:?}");
    }

    // A client that falls silent later is closed too.
    let took = closed_after(active, chatting);
    assert!(took >= idle, "{took:?}");
    true
}

#[test]
fn accepts_an_idle_time_with_a_fraction() {
    let server = Server::start("0.25");
    let took = closed_after(Instant::now(), server.connect());
    assert!(took >= Duration::from_millis(250), "{took:?}");
}

#[test]
fn closes_a_client_that_never_reads() {
    let server = Server::start("0.5");
    let mut client = server.connect();
    let timeout = Some(TIME_LIMIT);
    client.set_write_timeout(timeout).expect("that is not zero");
    let flood = vec![7; 1 << 16];
    let error = loop {
        if let Err(error) = client.write_all(&flood) {
            break error;
        }
    };
    let kind = error.kind();
    let timed_out = kind == std::io::ErrorKind::WouldBlock || kind == std::io::ErrorKind::TimedOut;
    assert!(!timed_out, "the server does not close: {error}");
}

/// Promise P18.
#[test]
#[cfg(unix)]
fn p18_stopped_process_closes_no_healthy_connection() {
    // A busy machine may stop the clients too. Then a longer time is tried.
    let closed = [300, 1200, 4800].into_iter().find_map(closed_after_a_stop);
    assert_eq!(closed, Some(0), "healthy connections are closed");
}

/// Stops the server for longer than its idle time, while clients go on sending. Returns how many of
/// them it closes then; `None` if they were silent for as long themselves.
#[cfg(unix)]
fn closed_after_a_stop(millis: u32) -> Option<usize> {
    let idle = Duration::from_millis(millis.into());
    let server = Server::start(&idle.as_secs_f64().to_string());
    let mut healthy: Vec<_> = (0..40).map(|_| server.connect()).collect();
    let mut silent = server.connect();
    let mut longest = Duration::ZERO;
    let mut send_for = |duration| {
        let began = Instant::now();
        while began.elapsed() < duration {
            let sent = Instant::now();
            for client in &mut healthy {
                // An error means that it was closed, which is counted below.
                let _ = client.write_all(b"x");
            }
            thread::sleep(idle / 10);
            longest = longest.max(sent.elapsed());
        }
    };
    send_for(idle / 2);
    assert!(chat(&mut silent), "it is open");
    server.signal("-STOP");
    send_for(idle * 3);
    server.signal("-CONT");
    send_for(idle * 3);
    let closed = healthy.iter_mut().filter_map(|client| {
        client.set_nonblocking(true).expect("it is a socket");
        let mut echo = Vec::new();
        client.read_to_end(&mut echo).ok()
    });
    let closed = closed.count();
    assert_eq!(
        silent.read(&mut [0]).ok(),
        Some(0),
        "the silent one is closed"
    );
    (longest < idle / 2).then_some(closed)
}

#[test]
#[cfg(unix)]
fn closes_open_connections_when_stopped() {
    let server = Server::start("60");
    let clients = [server.connect(), server.connect()];
    let names = clients.each_ref().map(|c| c.local_addr().expect("bound"));
    let mut gone = server.connect();
    for mut client in &clients {
        client.write_all(b"hello").expect("it is open");
        client.read_exact(&mut [0; 5]).expect("it is echoed");
    }
    assert!(chat(&mut gone));
    gone.shutdown(std::net::Shutdown::Write)
        .expect("it is open");
    closed_after(Instant::now(), gone);

    let (status, said) = server.stop();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("3 served, 0 reaped, 2 still open"), "{said}");
    for name in names {
        assert!(said.contains(&format!("  {name}, ")), "{said}");
    }
    for client in clients {
        closed_after(Instant::now(), client);
    }
}

#[test]
#[cfg(unix)]
fn runs_fewer_clients_when_few_files_are_allowed() {
    let mut command = Command::new("sh");
    let path = example("idle_reaper").get_program().to_owned();
    let script = "ulimit -n 256 && exec \"$0\"";
    command.args(["-c", script]).arg(path);
    let output = output(command);
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}{complaint}");
    assert!(said.contains("only 256 files"), "{said}");
    assert!(said.contains("ulimit -n"), "{said}");
    let table: Vec<String> = (said.lines())
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    // The status says whether all silent ones were reaped.
    let row = "chatting connections reaped 0 of 39";
    assert!(table.iter().any(|line| line == row), "{said}");
}

#[test]
fn runs_the_short_examples_successfully() {
    let running = SHORT.map(|name| (name, thread::spawn(move || output(example(name)))));
    for (name, output) in running {
        let Output {
            status,
            stdout,
            stderr,
        } = output.join().expect("it ends");
        let said = String::from_utf8_lossy(&stdout) + String::from_utf8_lossy(&stderr);
        assert_eq!(status.code(), Some(0), "{name} says:\n{said}");
        assert!(!stdout.is_empty(), "{name} shows nothing");
    }
}

/// `example | head -1` must end without a panic or a message when the reader has ended.
#[test]
fn ends_quietly_when_output_is_closed() {
    let running = SHORT.map(|name| {
        let ending = move || {
            let mut command = example(name);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().expect("the example runs");
            drop(child.stdout.take());
            wait(&mut child);
            child.wait_with_output().expect("it has ended")
        };
        (name, thread::spawn(ending))
    });
    for (name, output) in running {
        let output = output.join().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{name}: {said}");
        assert_eq!(said, "", "{name}");
    }
}

#[test]
#[cfg(unix)]
fn http_server_answers_requests_in_flight_before_it_stops() {
    for signal in ["-TERM", "-INT"] {
        let mut server = Server::start_example("http_keepalive", "60");
        let mut silent = server.connect();
        let mut asking = server.connect();
        // Answered before the next one: the server has accepted both.
        for client in [&mut silent, &mut asking] {
            client
                .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
                .expect("it is open");
            let mut response = Vec::new();
            while !response.ends_with(b"hello\n") {
                let mut byte = [0];
                client.read_exact(&mut byte).expect("it answers");
                response.extend(byte);
            }
        }
        let began = Instant::now();
        asking
            .write_all(b"GET /slow/2 HTTP/1.1\r\nhost: x\r\n\r\n")
            .expect("it is open");
        thread::sleep(Duration::from_millis(500));
        server.signal(signal);
        closed_after(began, silent);
        let mut response = String::new();
        asking.read_to_string(&mut response).expect("it is text");
        assert!(
            response.contains("that took a while\n"),
            "{signal}: {response:?}"
        );
        let (status, said) = server.wait_until_stopped();
        assert_eq!(status.code(), Some(0), "{said}");
        assert!(said.ends_with("stopped\n"), "{said}");
    }
}

/// The body of each response was wrapped into one of unknown length, so clients of HTTP/1.0 found
/// no end.
#[test]
fn http_server_says_how_long_a_response_is() {
    let server = Server::start_example("http_keepalive", "60");
    let mut client = server.connect();
    for _ in 0..3 {
        client
            .write_all(b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
            .expect("it is open");
        let mut response = Vec::new();
        while !response.ends_with(b"hello\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).expect("it answers");
            response.extend(byte);
        }
        let response = String::from_utf8_lossy(&response).to_lowercase();
        assert!(response.contains("\r\ncontent-length: 6\r\n"), "{response}");
    }
}

/// The rest of a response that did not fit into any buffer kept its connection from being idle.
#[test]
fn http_server_closes_connection_of_client_that_takes_no_response() {
    let server = Server::start_example("http_keepalive", "0.5");
    let mut client = server.connect();
    let limit = Some(Duration::from_millis(200));
    client.set_write_timeout(limit).expect("not zero");
    let requests = b"GET /trickle/0 HTTP/1.1\r\nhost: x\r\n\r\n".repeat(1_000);
    let began = Instant::now();
    let error = loop {
        assert!(began.elapsed() < TIME_LIMIT, "it is still open");
        match client.write(&requests) {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => break error,
        }
    };
    let closed = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
    assert!(closed.contains(&error.kind()), "{error}");
}

/// The choice between a request in a socket and the signal was left to chance, and the listener was
/// closed with connections that waited to be accepted.
#[test]
#[cfg(unix)]
fn http_server_answers_what_was_sent_before_its_signal() {
    for round in 0..5 {
        let mut server = Server::start_example("http_keepalive", "60");
        let lost = last_requests::unanswered(server.address, |signal| server.signal(signal));
        assert_eq!(lost, 0, "requests of round {round} were cut");
        let (status, said) = server.wait_until_stopped();
        assert_eq!(status.code(), Some(0), "{said}");
    }
}
