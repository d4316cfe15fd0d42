//! Where the program finds URLs and passwords.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread::JoinHandle;

use super::support::{File, Run, ended, program};

/// Regression: a password was in the arguments, which all users of a machine see.
#[tokio::test]
async fn url_is_in_a_file_or_the_environment() {
    let file = File::new();
    let _instance = file.instance().await;
    let path = file.path();
    let path = path.to_str().expect("it is text");
    let url_file = file.path().with_extension("url");
    std::fs::write(&url_file, format!("{path}\n")).expect("it is written");
    let url_file = url_file.to_str().expect("it is text");
    let with_scheme = format!("sqlite://{path}");
    let stats = |arguments: &[&str], variable: Option<&str>| {
        let mut command = program();
        command.args(["stats", "--json"]).args(arguments);
        if let Some(url) = variable {
            command.env("TICKWHEEL_ADMIN_URL", url);
        }
        ended(&mut command)
    };
    for (arguments, variable) in [
        (&["--url", path][..], None),
        (&["--url", path], Some("elsewhere.db")),
        (&["--url", &with_scheme], None),
        (&["--url-file", url_file], None),
        (&["--url-file", url_file], Some("elsewhere.db")),
        (&[], Some(path)),
    ] {
        let stats = stats(arguments, variable).json();
        assert_eq!(stats["namespaces"][0]["namespace"], "orders");
    }
    for nothing in [None, Some("")] {
        let Run { code, errors, .. } = stats(&[], nothing);
        assert_eq!(code, 2, "{errors}");
        for way in ["--url", "--url-file", "TICKWHEEL_ADMIN_URL"] {
            assert!(errors.contains(way), "{errors}");
        }
    }
    assert_eq!(
        stats(&["--url", path, "--url-file", url_file], None).code,
        2
    );
    assert_eq!(stats(&["--url-file", "absent"], None).code, 2);
    // An error does not repeat a password.
    for url in [
        "mysql://me:s3cret@host/db",
        "postgres//me:s3cret@host/db",
        "host=db usr=me password=s3cret",
        "host=db usr=me password=s3cret://",
    ] {
        let secret = stats(&[], Some(url));
        assert!(
            secret.code == 2 && !secret.errors.contains("s3cret"),
            "{secret:?}"
        );
    }
}

/// A PostgreSQL server that asks for a password. Returns its port, and the password that it gets.
fn guarded_server() -> (u16, JoinHandle<Option<String>>) {
    fn message(client: &mut TcpStream) -> Option<Vec<u8>> {
        let mut length = [0; 4];
        client.read_exact(&mut length).ok()?;
        let mut message = vec![0; u32::from_be_bytes(length) as usize - 4];
        client.read_exact(&mut message).ok()?;
        Some(message)
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("it listens");
    let port = listener.local_addr().expect("it has one").port();
    let asked = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("it comes");
        message(&mut client)?;
        // AuthenticationCleartextPassword; the answer begins with a `p`.
        let ask = [b'R', 0, 0, 0, 8, 0, 0, 0, 3];
        client.write_all(&ask).expect("it reads");
        client.read_exact(&mut [0]).ok()?;
        let password = String::from_utf8(message(&mut client)?).ok()?;
        Some(password.trim_end_matches('\0').to_owned())
    });
    (port, asked)
}

/// The limit is for the way to the store, too.
#[test]
fn store_that_does_not_answer_is_told_after_the_time_limit() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("it listens");
    let address = silent.local_addr().expect("it has one");
    for scheme in ["postgres", "redis"] {
        let url = format!("{scheme}://worker:s3cret@{address}/0");
        let mut command = Command::new(program().get_program());
        let ran = ended(command.args(["stats", "--timeout", "100ms", "--url", &url]));
        assert_eq!(ran.code, 1, "{ran:?}");
        let words = "the store has not responded within 100ms";
        assert!(ran.errors.contains(words), "{ran:?}");
    }
}

/// Regression: they were taken for the path of a file, which an error repeated.
#[test]
fn settings_of_postgresql_lead_to_it() {
    let (port, asked) = guarded_server();
    let settings = format!(
        "host=127.0.0.1 port={port} user=worker password=s3cret dbname=orders sslmode=disable"
    );
    let ran = ended(program().args(["stats", "--url", &settings]));
    assert!(ran.code == 1 && !ran.errors.contains("s3cret"), "{ran:?}");
    let sent = asked.join().expect("it ends");
    assert_eq!(sent.as_deref(), Some("s3cret"), "{ran:?}");
}

/// A password that all may read is not used, and the program says why.
#[cfg(unix)]
#[test]
fn password_is_in_a_variable_or_a_private_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let file = File::new();
    let passwords = file.path().with_file_name(".pgpass");
    std::fs::write(&passwords, "*:*:orders:worker:of the file").expect("it is written");
    let named = passwords.to_str().expect("it is text");
    for (named, variable, mode, expected) in [
        (
            named,
            Some("of the variable"),
            0o600,
            Some("of the variable"),
        ),
        (named, None, 0o600, Some("of the file")),
        (named, Some(""), 0o600, Some("of the file")),
        (named, None, 0o644, None),
        // The file at home.
        ("", None, 0o600, Some("of the file")),
    ] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&passwords, mode).expect("it is ours");
        let (port, asked) = guarded_server();
        let url = format!("postgres://worker@127.0.0.1:{port}/orders?sslmode=disable");
        let mut command = program();
        command.args(["stats", "--url", &url]);
        command
            .env("PGPASSFILE", named)
            .env("HOME", passwords.with_file_name(""))
            .env_remove("PGPASSWORD");
        if let Some(password) = variable {
            command.env("PGPASSWORD", password);
        }
        let Run { code, errors, .. } = ended(&mut command);
        assert_eq!(code, 1, "{errors}");
        let sent = asked.join().expect("it ends");
        assert_eq!(sent.as_deref(), expected, "{errors}");
        for words in ["0600", "set the variable PGPASSWORD"] {
            assert_eq!(errors.contains(words), expected.is_none(), "{errors}");
        }
    }
}
