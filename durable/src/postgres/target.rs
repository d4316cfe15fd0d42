//! Where a URL leads, without its password, and what went wrong there.

use std::error::Error as _;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::{Config, Error};

use crate::store::StoreError;

/// How long connecting may take, unless the URL says otherwise.
const CONNECT: Duration = Duration::from_secs(5);

/// A connection without a response for this time counts as broken, unless the URL says otherwise.
const UNANSWERED: Duration = Duration::from_secs(20);

/// The settings in a URL.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) config: Config,
    /// Whether connections are encrypted and the server's certificate is checked.
    pub(super) tls: bool,
    /// The roots that may have signed the certificate; the system's roots if it is `None`.
    pub(super) roots: Option<PathBuf>,
    name: String,
}

impl Target {
    /// Parses a URL or a list of `key=value`. The error never repeats it, because the
    /// password may be anywhere in it.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let (url, roots) = take_roots(url);
        // Certificates are always checked, which libpq calls so.
        let url = url.replace("sslmode=verify-full", "sslmode=require");
        let mut config: Config = url.parse().map_err(|_| {
            StoreError::refused(
                "the PostgreSQL URL cannot be parsed: it must be like \
                 postgres://user:password@host:5432/database?sslmode=require, with reserved characters percent-encoded",
            )
        })?;
        let tls = config.get_ssl_mode() == SslMode::Require;
        if !tls {
            config.ssl_mode(SslMode::Disable);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(UNANSWERED);
            config.keepalives_idle(UNANSWERED);
        }
        if config.get_application_name().is_none() {
            config.application_name("tickwheel-durable");
        }
        Ok(Target {
            name: name(&config),
            config,
            tls,
            roots,
        })
    }

    /// Says what has gone wrong, where, and whether it may pass.
    pub(super) fn describe(&self, error: Error) -> StoreError {
        let Some(code) = error.code() else {
            let message = format!("PostgreSQL {self}");
            let described = if is_lost(&error) {
                StoreError::unavailable(message)
            } else {
                StoreError::refused(message)
            };
            return described.because_of(error);
        };
        let mut message = format!("PostgreSQL {self}: SQLSTATE {}", code.code());
        if [
            SqlState::INVALID_SQL_STATEMENT_NAME,
            SqlState::DUPLICATE_PSTATEMENT,
        ]
        .contains(code)
        {
            message += ", is there a pooler of transactions between?";
        }
        let class = &code.code()[..2];
        // Connections, resources, operators, rollbacks; but a disk that is full stays full.
        let passes = matches!(class, "08" | "40" | "53" | "55" | "57" | "58");
        let described = if passes && *code != SqlState::DISK_FULL {
            StoreError::unavailable(message)
        } else {
            StoreError::refused(message)
        };
        described.because_of(error)
    }
}

/// Whether the connection is lost.
pub(super) fn is_lost(error: &Error) -> bool {
    match error.as_db_error() {
        Some(db) => matches!(
            db.parsed_severity(),
            Some(Severity::Fatal | Severity::Panic)
        ),
        // A message that this client cannot read ends the connection.
        None => {
            error.is_closed()
                || error.source().is_none_or(|source| {
                    source.is::<std::io::Error>() || source.to_string().contains("timed out")
                })
        }
    }
}

/// Whether the same call succeeds when it runs again: it has lost against another one, and nothing has happened.
pub(super) fn is_conflict(error: &Error) -> bool {
    [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::UNIQUE_VIOLATION,
    ]
    .iter()
    .any(|conflict| error.code() == Some(conflict))
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("name", &self.name)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

/// User, hosts, ports and database.
fn name(config: &Config) -> String {
    let ports = config.get_ports();
    let hosts = config.get_hosts().iter().enumerate().map(|(number, host)| {
        let port = ports.get(number).or(ports.first()).copied();
        let port = port.unwrap_or(5432);
        match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            #[cfg(unix)]
            Host::Unix(path) => format!("{}:{port}", path.display()),
        }
    });
    let hosts: Vec<_> = hosts.collect();
    let user = config.get_user().unwrap_or("default user");
    let database = config.get_dbname().unwrap_or(user);
    format!("at {}/{database} as {user}", hosts.join(","))
}

/// Takes `sslrootcert=path` out, which the client does not know.
fn take_roots(url: &str) -> (String, Option<PathBuf>) {
    const OPTION: &str = "sslrootcert=";
    let Some(begin) = url.find(OPTION) else {
        return (url.to_owned(), None);
    };
    let rest = &url[begin + OPTION.len()..];
    let end = rest.find(['&', ' ']).unwrap_or(rest.len());
    let before = url[..begin].trim_end_matches(['&', ' ']);
    let (path, after) = rest.split_at(end);
    let after = if before.ends_with('?') {
        after.trim_start_matches('&')
    } else {
        after
    };
    (format!("{before}{after}"), Some(PathBuf::from(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_repeats_a_url_that_does_not_parse() {
        for url in [
            "postgres://me:s3cret@host:notaport/db",
            "host=localhost s3cret",
            "mysql://me:s3cret@host/db",
        ] {
            let error = Target::parse(url).expect_err(url).to_string();
            assert!(!error.contains("s3cret"), "{error}");
            assert!(error.contains("postgres://user"), "{error}");
        }
    }

    #[test]
    fn shows_no_password() {
        let target = Target::parse("postgres://me:s3cret@db.example:6543/orders").expect("parses");
        assert_eq!(target.to_string(), "at db.example:6543/orders as me");
        assert!(!format!("{target:?}").contains("s3cret"));
        // Characters that should have been encoded.
        let target = Target::parse("postgres://me:s3?s3cret=x@host/db").expect("parses");
        assert_eq!(target.to_string(), "at host:5432/db as me");
        assert!(!format!("{target:?}").contains("s3cret"));
    }

    #[test]
    fn encrypts_when_the_url_asks_for_it() {
        let tls = |url: &str| {
            let target = Target::parse(url).expect("parses");
            (target.tls, target.roots)
        };
        assert_eq!(tls("postgres://a@b/c"), (false, None));
        assert_eq!(tls("postgres://a@b/c?sslmode=prefer"), (false, None));
        assert_eq!(tls("postgres://a@b/c?sslmode=require"), (true, None));
        let file = Some(PathBuf::from("/ca.pem"));
        for url in [
            "postgres://a@b/c?sslmode=verify-full&sslrootcert=/ca.pem",
            "postgres://a@b/c?sslrootcert=/ca.pem&sslmode=require",
            "host=b user=a sslrootcert=/ca.pem sslmode=require",
        ] {
            assert_eq!(tls(url), (true, file.clone()), "{url}");
        }
    }
}
