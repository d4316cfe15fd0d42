//! Encrypted connections, and certificates.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tickwheel_durable::{Postgres, PostgresOptions};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::faults::{FAR, SECOND, refused, start_within};
use super::server::{Server, client, missing, not_run, until};

/// A key and a certificate for 127.0.0.1, if there is a program to make them.
fn certificate(folder: &std::path::Path) -> bool {
    let made = std::process::Command::new("openssl")
        .args([
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
        ])
        .args([
            "-subj",
            "/CN=test",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
        ])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(folder.join("server.key"))
        .arg("-out")
        .arg(folder.join("server.crt"))
        .stderr(std::process::Stdio::null())
        .status();
    made.is_ok_and(|status| status.success())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encrypts_and_checks_the_certificate() {
    let Some(server) = Server::start(&["fsync=off"]) else {
        return missing();
    };
    let without = refused(&format!("{}?sslmode=require", server.url())).await;
    assert!(
        format!("{without:#}").contains("does not support TLS"),
        "{without:#}"
    );
    if !certificate(server.folder()) {
        return not_run("no openssl is installed");
    }
    let data = server.folder().join("data");
    for name in ["server.key", "server.crt"] {
        // The file of the server's user, with its rights, and another content.
        let to = data.join(name);
        std::fs::copy(data.join("PG_VERSION"), &to).expect("it is copied");
        std::fs::copy(server.folder().join(name), &to).expect("it is copied");
        #[cfg(unix)]
        {
            use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
            let owner = std::fs::metadata(&data).expect("it is there").uid();
            chown(&to, Some(owner), None).expect("it is given away");
            let mode = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(&to, mode).expect("it is closed");
        }
    }
    let options = PostgresOptions::new(&server.url()).expect("it parses");
    let options = options.tls(connector(&server.folder().join("server.crt")));
    let plain = Postgres::connect_with(options).await;
    let plain = format!("{:#}", plain.expect_err("the server does not encrypt"));
    assert!(plain.contains("does not support TLS"), "{plain}");
    let admin = client(&server.url()).await;
    for sql in ["ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()"] {
        admin.batch_execute(sql).await.expect("it is set");
    }
    until("TLS", async || {
        client(&server.url())
            .await
            .query_one("SHOW ssl", &[])
            .await
            .is_ok_and(|row| row.get::<_, &str>(0) == "on")
    })
    .await;
    let error = refused(&format!("{}?sslmode=require", server.url())).await;
    assert!(format!("{error:#}").contains("certificate"), "{error}");
    let roots = server.folder().join("server.crt");
    let trusted = format!(
        "{}?sslmode=verify-full&sslrootcert={}",
        server.url(),
        roots.display()
    );
    let (timers, claims) = start_within(&trusted, "tls", 10 * SECOND).await;
    timers.set_timer("a", &1, FAR).await.expect("it is set");
    let encrypted = async || -> i64 {
        let sql = "SELECT count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid)
            WHERE s.ssl AND a.application_name = 'tickwheel-durable'";
        admin.query_one(sql, &[]).await.expect("it reads").get(0)
    };
    let by_url = encrypted().await;
    assert!(by_url >= 2, "{by_url} connections");
    // A connector of the user's encrypts, whatever the URL says.
    timers.shutdown().await;
    drop((timers, claims));
    until("the end of the connections", async || {
        encrypted().await == 0
    })
    .await;
    let options = PostgresOptions::new(&server.url()).expect("it parses");
    let own = Postgres::connect_with(options.tls(connector(&roots))).await;
    let _own = own.expect("it connects");
    assert_eq!(encrypted().await, 2);
}

/// Trusts this certificate alone.
fn connector(certificate: &std::path::Path) -> MakeRustlsConnect {
    let certificate = CertificateDer::from_pem_file(certificate).expect("it is there");
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("it is a root");
    let provider = rustls::crypto::ring::default_provider();
    let config = ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .expect("it has them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    MakeRustlsConnect::new(config)
}
