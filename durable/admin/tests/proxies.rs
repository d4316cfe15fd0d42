//! The page behind nginx and Caddy, set up as the README says, with TLS.

#[path = "../../tests/support/not_run.rs"]
mod not_run;
#[allow(dead_code, reason = "another test uses the rest")]
#[path = "support/server.rs"]
mod server;
#[allow(dead_code, reason = "another test uses the rest")]
mod support;

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use not_run::not_run;
use server::{Server, between};
use support::{File, counted, set};

const README: &str = include_str!("../README.md");
const TOKEN: &str = "a token of some length";

/// The address that clients of the proxy have.
const CLIENT: &str = "127.0.0.2";

/// A proxy before the server, which ends with this.
struct Proxy {
    child: Child,
    url: String,
    folder: PathBuf,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Proxy {
    /// Runs `command` with a configuration, and waits until it listens.
    fn start(name: &str, arguments: &[&str], port: u16, folder: &Path, config: &str) -> Self {
        let file = folder.join("proxy.conf");
        std::fs::write(&file, config).expect("it is written");
        let mut command = Command::new(name);
        command.args(arguments).arg(&file).current_dir(folder);
        let child = command.env("HOME", folder).stderr(Stdio::null()).spawn();
        let mut proxy = Proxy {
            child: child.expect("it starts"),
            url: format!("https://127.0.0.1:{port}"),
            folder: folder.to_owned(),
        };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = proxy.child.try_wait().expect("it can be asked");
            assert!(ended.is_none(), "{name} has ended: {ended:?}: {config}");
            assert!(began.elapsed() < Duration::from_secs(60), "{config}");
            std::thread::sleep(Duration::from_millis(10));
        }
        proxy
    }

    /// The head and body of the response to a request through the proxy.
    fn ask(&self, path: &str, arguments: &[&str]) -> String {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--include", "--noproxy", "*"]);
        curl.args(["--interface", CLIENT]);
        curl.arg("--cacert").arg(self.folder.join("cert.pem"));
        let output = curl.args(arguments).arg(format!("{}{path}", self.url));
        let output = output.output().expect("curl runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{path}: {said}");
        let answer = String::from_utf8_lossy(&output.stdout).into_owned();
        // nginx speaks HTTP/1.1, Caddy HTTP/2.
        answer.replace("HTTP/2 ", "HTTP/1.1 ").replace("\r\n", "\n")
    }
}

fn is_installed(program: &str) -> bool {
    let mut help = Command::new(program);
    help.arg("-h").stdout(Stdio::null()).stderr(Stdio::null());
    let is_installed = help.status().is_ok();
    if !is_installed {
        not_run(&format!("no {program} is installed"));
    }
    is_installed
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("one is free");
    listener.local_addr().expect("it has one").port()
}

/// The block of the README in that language whose text has these words, with the server's address.
fn documented(words: &str, server: &Server) -> String {
    let mut blocks = README.split("```").skip(1).step_by(2);
    let block = blocks.find(|block| block.contains(words));
    let (_, config) = block
        .and_then(|block| block.split_once('\n'))
        .expect("it is there");
    assert!(config.contains("127.0.0.1:8017"), "{config}");
    config.replace("127.0.0.1:8017", &server.address)
}

/// The certificate of the proxy, for its address.
fn make_certificate(folder: &Path) {
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-nodes", "-days", "2", "-newkey", "ec"]);
    openssl.args([
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-subj",
        "/CN=proxy",
    ]);
    openssl.args(["-addext", "subjectAltName=IP:127.0.0.1"]);
    openssl.args(["-keyout", "key.pem", "-out", "cert.pem"]);
    let made = openssl.current_dir(folder).output().expect("openssl runs");
    assert!(made.status.success(), "{made:?}");
}

fn nginx(server: &Server, folder: &Path) -> Proxy {
    nginx_with(&documented("proxy_pass", server), folder)
}

fn nginx_with(location: &str, folder: &Path) -> Proxy {
    let port = free_port();
    let config = format!(
        "daemon off; master_process off; pid nginx.pid; error_log error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    server {{
        listen 127.0.0.1:{port} ssl;
        ssl_certificate {folder}/cert.pem;
        ssl_certificate_key {folder}/key.pem;
        {location}
    }}
}}
",
        folder = folder.display()
    );
    let prefix = folder.to_str().expect("it is text");
    Proxy::start("nginx", &["-p", prefix, "-c"], port, folder, &config)
}

fn caddy(server: &Server, folder: &Path) -> Proxy {
    let (port, site) = (free_port(), documented("reverse_proxy", server));
    let here = format!(
        "https://127.0.0.1:{port} {{\n    tls {folder}/cert.pem {folder}/key.pem",
        folder = folder.display()
    );
    let site = site.replace("timers.example {", &here);
    let config = format!("{{\n    admin off\n    auto_https disable_redirects\n}}\n{site}");
    let run = ["run", "--adapter", "caddyfile", "--config"];
    Proxy::start("caddy", &run, port, folder, &config)
}

/// What a browser does behind a proxy: it logs in, reads, and changes something.
async fn works_behind(proxy: impl Fn(&Server, &Path) -> Proxy) {
    let file = File::new();
    let folder = file.path().parent().expect("it has one").to_owned();
    make_certificate(&folder);
    let secret = file.path().with_extension("token");
    std::fs::write(&secret, TOKEN).expect("it is written");
    let (timers, _claims) = file.instance().await;
    set(&timers, &["a", "b"], Duration::from_secs(3_600)).await;
    let secret = secret.to_str().expect("it is text");
    let server = Server::start(&file, &["--token-file", secret, "--allow-changes"]);
    let behind = proxy(&server, &folder);

    let answer = behind.ask("/n/orders", &[]);
    assert!(answer.starts_with("HTTP/1.1 303"), "{answer}");
    let form = format!("token={}", TOKEN.replace(' ', "+"));
    let origin = format!("Origin: {}", behind.url);
    let login = behind.ask("/login", &["--header", &origin, "--data", &form]);
    let cookie = between(&login.to_lowercase(), "set-cookie: ", "\n").expect("it sets a cookie");
    assert!(cookie.contains("secure"), "{cookie}");
    let cookie = between(&login, "ookie: ", ";").expect("it has attributes");

    let page = behind.ask("/n/orders", &["--cookie", &cookie]);
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    // The key is "a" as JSON, in hexadecimal digits.
    let fields = "action=run&row=key-226122";
    let change = |origin: &str| {
        let origin = format!("Origin: {origin}");
        let arguments = ["--cookie", &cookie, "--header", &origin, "--data", fields];
        behind.ask("/n/orders/change", &arguments)
    };
    let foreign = change("https://evil.example");
    assert!(foreign.starts_with("HTTP/1.1 403"), "{foreign}");
    assert_eq!(counted(&timers).await, [2, 0, 0]);
    let own = change(&behind.url);
    assert!(own.starts_with("HTTP/1.1 303"), "{own}");
    let due = timers.deadline("a").await.expect("it can be asked");
    assert!(due.expect("it is there") <= std::time::SystemTime::now());
    let log = server.log_of(1);
    assert!(log.contains(CLIENT), "{log}");

    // Without a token no proxy lets clients in.
    let open = Server::start(&file, &[]);
    drop(behind);
    let refused = proxy(&open, &folder).ask("/n/orders", &[]);
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    assert!(refused.contains("--token-file"), "{refused}");
}

#[tokio::test]
async fn page_works_behind_nginx_as_documented() {
    if is_installed("nginx") {
        works_behind(nginx).await;
    }
}

/// Regression: behind a proxy that says nothing of its clients, all of them were let in without a
/// token.
#[tokio::test]
async fn page_without_a_token_refuses_clients_of_a_proxy_that_adds_no_header() {
    if !is_installed("nginx") {
        return;
    }
    let file = File::new();
    let folder = file.path().parent().expect("it has one").to_owned();
    make_certificate(&folder);
    let (timers, _claims) = file.instance().await;
    set(&timers, &["a"], Duration::from_secs(3_600)).await;
    let server = Server::start(&file, &["--allow-changes"]);
    for (version, reads) in [("1.0", false), ("1.1", true)] {
        let location = format!(
            "location / {{ proxy_pass http://{}; proxy_http_version {version}; }}",
            server.address
        );
        let behind = nginx_with(&location, &folder);
        let origin = format!("Origin: {}", behind.url);
        let referer = format!("Referer: {}/", behind.url);
        let own = ["--header", "Sec-Fetch-Site: same-origin", "--header"];
        let fields = "action=remove&row=key-226122&confirmed=1";
        let change = [&own[..], &[&origin, "--data", fields]].concat();
        let refused = [
            behind.ask("/n/orders", &[&own[..], &[&referer]].concat()),
            behind.ask("/n/orders/change", &change),
        ];
        for answer in refused {
            assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
            assert!(answer.contains("--token-file"), "{answer}");
        }
        assert_eq!(counted(&timers).await, [1, 0, 0]);
        // A typed address has no sign but the version.
        let typed = behind.ask("/n/orders", &[]);
        assert_eq!(typed.starts_with("HTTP/1.1 200"), reads, "{typed}");
    }
}

#[tokio::test]
async fn page_works_behind_caddy_as_documented() {
    if is_installed("caddy") {
        works_behind(caddy).await;
    }
}
