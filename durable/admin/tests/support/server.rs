//! The program as it serves the page.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{File, program};

pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
    log: Arc<Mutex<String>>,
}

impl Server {
    pub(crate) fn start(file: &File, arguments: &[&str]) -> Self {
        let mut command = program();
        command
            .arg("--url")
            .arg(file.path())
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(arguments);
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("it starts");
        let output = child.stdout.take().expect("it is piped");
        let errors = child.stderr.take().expect("it is piped");
        let log = Arc::new(Mutex::new(String::new()));
        std::thread::spawn({
            let log = Arc::clone(&log);
            move || {
                for line in BufReader::new(errors).lines().map_while(Result::ok) {
                    log.lock().expect("it is free").push_str(&(line + "\n"));
                }
            }
        });
        let mut line = String::new();
        BufReader::new(output)
            .read_line(&mut line)
            .expect("it writes");
        let address = line
            .trim()
            .trim_start_matches("http://")
            .trim_end_matches('/')
            .to_owned();
        assert!(!address.is_empty(), "{:?}", log.lock());
        Server {
            child,
            address,
            log,
        }
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().expect("it is free").clone()
    }

    /// What it has logged, once that is so many lines.
    pub(crate) fn log_of(&self, lines: usize) -> String {
        let began = Instant::now();
        while self.log().lines().count() < lines && began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.log()
    }

    /// Asks it to stop.
    pub(crate) fn terminate(&self) {
        let mut kill = Command::new("kill");
        let killed = kill.args(["-TERM", &self.child.id().to_string()]).status();
        assert!(killed.expect("it runs").success());
    }

    /// Waits until it has ended by itself. Returns its exit code.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it is a child") {
                return status.code();
            }
            assert!(began.elapsed() < Duration::from_secs(60), "it ends");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).expect("it listens")
    }

    /// The whole response to a request with these further headers. Its `Origin` is that of the
    /// page, unless they say something else.
    pub(crate) fn ask(&self, request: &str, headers: &[&str], body: &str) -> String {
        let mut stream = self.connect();
        let host = format!("Host: {}", self.address);
        let host = if headers.iter().any(|header| header.starts_with("Host")) {
            "X: y"
        } else {
            &host
        };
        let says = |name: &str| headers.iter().any(|header| header.starts_with(name));
        let own = format!("Origin: http://{}", self.address);
        let origin = if says("Origin") || says("Sec-Fetch") {
            "Y: z"
        } else {
            &own
        };
        let headers = headers.join("\r\n");
        let end = if headers.is_empty() { "" } else { "\r\n" };
        let length = body.len();
        let text = format!(
            "{request} HTTP/1.1\r\n{host}\r\n{origin}\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n{headers}{end}\r\n{body}"
        );
        stream.write_all(text.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it writes");
        answer
    }

    /// A page that is there.
    pub(crate) fn page(&self, path: &str) -> String {
        let page = self.ask(&format!("GET {path}"), &[], "");
        assert!(page.starts_with("HTTP/1.1 200"), "{path}: {page}");
        page
    }

    /// Sends a form of a namespace, with these fields.
    pub(crate) fn change(&self, namespace: &str, fields: &str) -> String {
        self.ask(&format!("POST /n/{namespace}/change"), &[], fields)
    }
}

/// The text between two others.
pub(crate) fn between(text: &str, before: &str, after: &str) -> Option<String> {
    let (_, rest) = text.split_once(before)?;
    Some(rest.split_once(after)?.0.to_owned())
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
