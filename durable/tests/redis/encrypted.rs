//! Encrypted connections.

use std::env;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use tickwheel_durable::Redis;
use tickwheel_durable::store::{Namespace, Store};

use crate::server::{Server, not_run};

/// Set in a separate process, which trusts the authority: where it connects.
const INNER: &str = "TICKWHEEL_REDIS_TEST_ENCRYPTED";

/// An authority, and a certificate for this host. `false` if there is no `openssl`.
fn certify(folder: &Path) -> bool {
    std::fs::create_dir_all(folder).expect("the folder is made");
    std::fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1").expect("it is written");
    [
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.crt",
        "req -newkey rsa:2048 -nodes -subj /CN=server -keyout server.key -out server.csr",
        "x509 -req -days 2 -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -extfile names -out server.crt",
    ]
    .iter()
    .all(|words| {
        let mut command = Command::new("openssl");
        command.args(words.split(' ')).current_dir(folder);
        command.output().is_ok_and(|output| output.status.success())
    })
}

async fn opens(url: &str) {
    let store = Redis::connect(url).await.expect("the certificate is good");
    let space = Namespace::new("encrypted").expect("it is a name");
    store.open(&space, &"json".into()).await.expect("it opens");
}

#[tokio::test]
async fn checks_the_certificate_of_the_server() {
    if let Ok(url) = env::var(INNER) {
        return opens(&url).await;
    }
    let folder = env::temp_dir().join(format!("tickwheel-redis-tls-{}", std::process::id()));
    if !certify(&folder) {
        return not_run("no openssl is installed");
    }
    let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = free.local_addr().expect("it has one").port().to_string();
    drop(free);
    let file = |name: &str| folder.join(name).display().to_string();
    let (certificate, key, authority) = (file("server.crt"), file("server.key"), file("ca.crt"));
    let options = [
        ["--tls-port", &port],
        ["--tls-cert-file", &certificate],
        ["--tls-key-file", &key],
        ["--tls-ca-cert-file", &authority],
        ["--tls-auth-clients", "no"],
    ];
    let Some(_server) = Server::start(options.as_flattened()) else {
        return;
    };
    let url = format!("rediss://user:s3cret@127.0.0.1:{port}");
    let refused = Redis::connect(&url).await;
    let error = refused.expect_err("the authority is unknown here");
    let text = format!("{error:#}");
    assert!(
        text.contains("certificate") && !text.contains("s3cret"),
        "{text}"
    );

    // The authorities of the system are read once in a process.
    let test = env::current_exe().expect("it has a name");
    let mut inner = Command::new(test);
    inner.args(["--exact", "encrypted::checks_the_certificate_of_the_server"]);
    inner.env(INNER, format!("rediss://127.0.0.1:{port}"));
    inner.env("SSL_CERT_FILE", &authority);
    let output = inner.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
    // A file that is left over is harmless.
    let _ = std::fs::remove_dir_all(&folder);
}
