//! Where connections lead, without the password, and what went wrong there.

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::{Config, Error, NoTls};

use super::connector::{Dial, Prepare, by_connector, by_system};
use super::hosts;
use super::migrations::SCHEMA;
use super::options::PostgresOptions;
use crate::store::{BoxError, StoreError, StoreTime};

/// How long connecting to a host may take, unless the settings say otherwise.
const CONNECT: Duration = Duration::from_secs(5);

/// A connection without a response for this time counts as broken, unless the settings say
/// otherwise.
const UNANSWERED: Duration = Duration::from_secs(20);

/// The hosts of a store, and how to connect to one.
#[derive(Clone)]
pub(super) struct Target {
    /// Each with the settings for it alone, in the order of the URL.
    pub(super) hosts: Vec<Config>,
    pub(super) dial: Arc<Dial>,
    pub(super) prepare: Option<Arc<Prepare>>,
    /// Whether tables are made and upgraded.
    pub(super) creates_tables: bool,
    name: String,
}

impl Target {
    pub(super) fn new(options: PostgresOptions) -> Result<Self, StoreError> {
        let mut config = options.config;
        let dial = options.dial.unwrap_or_else(|| {
            if config.get_ssl_mode() == SslMode::Require {
                return by_system(options.roots);
            }
            config.ssl_mode(SslMode::Disable);
            by_connector(NoTls)
        });
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
            hosts: hosts::split(&config)?,
            dial,
            prepare: options.before_connect,
            creates_tables: options.create_tables,
            name: name(&config),
        })
    }

    /// The same, with one of the hosts.
    pub(super) fn only(&self, host: &Config) -> Target {
        Target {
            hosts: vec![host.clone()],
            name: name(host),
            ..self.clone()
        }
    }

    /// Says what has gone wrong while connecting, with the client or with a function of the user's.
    pub(super) fn blame(&self, error: BoxError) -> StoreError {
        match error.downcast::<Error>() {
            Ok(error) => self.describe(*error),
            Err(error) => match error.downcast::<StoreError>() {
                Ok(error) => *error,
                Err(error) => (self.unavailable("no connection was made")).because_of(error),
            },
        }
    }

    /// An error that lasts.
    pub(super) fn refused(&self, why: impl fmt::Display) -> StoreError {
        StoreError::refused(format_args!("PostgreSQL {self}: {why}"))
    }

    /// An error that may pass.
    pub(super) fn unavailable(&self, why: impl fmt::Display) -> StoreError {
        StoreError::unavailable(format_args!("PostgreSQL {self}: {why}"))
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
        if let Some(broken) = broken_terms(&error) {
            return broken;
        }
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
        // Connections, resources, operators, rollbacks, a server that only reads, and the limit of
        // `session::SETTINGS`; but a disk that is full stays full.
        let passes = matches!(class, "08" | "25" | "40" | "53" | "55" | "57" | "58");
        let described = if passes && *code != SqlState::DISK_FULL {
            StoreError::unavailable(message)
        } else {
            StoreError::refused(message)
        };
        described.because_of(error)
    }
}

/// The error of a statement whose [terms](super::statements) do not hold: a text that is no number.
fn broken_terms(error: &Error) -> Option<StoreError> {
    let error = error.as_db_error()?;
    if *error.code() != SqlState::INVALID_TEXT_REPRESENTATION {
        return None;
    }
    read_terms(error.message())
}

/// Reads the text in a message. The server may write the rest of it, quotes included, in any
/// language.
fn read_terms(message: &str) -> Option<StoreError> {
    let (_, broken) = message.split_once("tickwheel|")?;
    let (term, broken) = broken.split_once('|')?;
    let (value, _) = broken.rsplit_once('|')?;
    match term {
        "schema" => {
            let (version, readable_by) = value.split_once(' ')?;
            let (version, readable_by) = (version.parse().ok()?, readable_by.parse().ok()?);
            Some(StoreError::schema(version, readable_by, SCHEMA))
        }
        // The name of one that is gone is not known.
        "amended" if value.is_empty() => Some(StoreError::NotOpened {
            namespace: String::new(),
        }),
        "amended" => Some(StoreError::Amended {
            namespace: value.to_owned(),
        }),
        "late" => Some(StoreError::late(StoreTime::from_micros(
            value.parse().ok()?,
        ))),
        _ => None,
    }
}

/// Whether the server only reads: it was a primary, and is a standby now. Another connection may
/// lead to the new primary.
fn is_read_only(error: &Error) -> bool {
    error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
}

/// Whether the connection is lost, or of no use any more.
pub(super) fn is_lost(error: &Error) -> bool {
    match error.as_db_error() {
        Some(db) => {
            is_read_only(error)
                || matches!(
                    db.parsed_severity(),
                    Some(Severity::Fatal | Severity::Panic)
                )
        }
        // A message that this client cannot read ends the connection.
        None => {
            error.is_closed()
                || error.source().is_none_or(|source| {
                    source.is::<std::io::Error>() || source.to_string().contains("timed out")
                })
        }
    }
}

/// Whether the same call succeeds when it runs again: it has lost against another one, or has
/// waited for it as long as the role's `lock_timeout` allows, and nothing has happened.
pub(super) fn is_conflict(error: &Error) -> bool {
    [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::UNIQUE_VIOLATION,
        SqlState::LOCK_NOT_AVAILABLE,
    ]
    .iter()
    .any(|conflict| error.code() == Some(conflict))
}

/// Whether the server may have refused a call because its queue of hints is full: this is one of
/// its limits, and no call of ours reaches another one.
pub(super) fn may_be_for_a_hint(error: &Error) -> bool {
    error.code() == Some(&SqlState::PROGRAM_LIMIT_EXCEEDED)
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

opaque!(Target, |target| name: target.name);

/// User, hosts, ports and database.
fn name(config: &Config) -> String {
    let ports = config.get_ports();
    let hosts = (0..hosts::count(config)).map(|number| {
        let port = ports.get(number).or(ports.first()).copied();
        let port = port.unwrap_or(5432);
        match (
            config.get_hosts().get(number),
            config.get_hostaddrs().get(number),
        ) {
            (Some(Host::Tcp(name)), _) => format!("{name}:{port}"),
            #[cfg(unix)]
            (Some(Host::Unix(path)), _) => format!("{}:{port}", path.display()),
            (None, Some(address)) => format!("{address}:{port}"),
            (None, None) => String::new(),
        }
    });
    let hosts: Vec<_> = hosts.collect();
    let user = config.get_user().unwrap_or("default user");
    let database = config.get_dbname().unwrap_or(user);
    format!("at {}/{database} as {user}", hosts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leading_to(url: &str) -> Target {
        let options = PostgresOptions::new(url).expect("parses");
        Target::new(options).expect("leads somewhere")
    }

    #[test]
    fn shows_no_password() {
        let target = leading_to("postgres://me:s3cret@db.example:6543/orders");
        assert_eq!(target.to_string(), "at db.example:6543/orders as me");
        assert!(!format!("{target:?}").contains("s3cret"));
        // Characters that should have been encoded.
        let target = leading_to("postgres://me:s3?s3cret=x@host/db");
        assert_eq!(target.to_string(), "at host:5432/db as me");
        assert!(!format!("{target:?}").contains("s3cret"));
    }

    /// Where messages were not English, no instance saw that a charter or a schema had changed.
    #[test]
    fn broken_terms_are_read_in_any_language() {
        for (begin, end) in [
            ("invalid input syntax for type integer: \"", "\""),
            ("ungültige Eingabesyntax für Typ integer: »", "«"),
            ("syntaxe en entrée invalide pour le type integer : « ", " »"),
            ("型integerの入力構文が不正です: \"", "\""),
        ] {
            let read = |text| read_terms(&format!("{begin}{text}{end}"));
            let later = StoreError::schema(7, 6, SCHEMA);
            assert_eq!(read("tickwheel|schema|7 6|"), Some(later));
            let namespace = "a|b \"c\"".to_owned();
            let amended = StoreError::Amended { namespace };
            assert_eq!(read("tickwheel|amended|a|b \"c\"|"), Some(amended));
            let namespace = String::new();
            let gone = StoreError::NotOpened { namespace };
            assert_eq!(read("tickwheel|amended||"), Some(gone));
            let late = StoreError::late(StoreTime::from_micros(17));
            assert_eq!(read("tickwheel|late|17|"), Some(late));
            assert_eq!(read("17"), None);
        }
    }

    #[test]
    fn names_every_host() {
        let target = leading_to("postgres://me:s3cret@one:1,two,three:3/orders");
        assert_eq!(target.to_string(), "at one:1,two:5432,three:3/orders as me");
        let names: Vec<_> = target
            .hosts
            .iter()
            .map(|host| target.only(host).to_string())
            .collect();
        let all = [
            "at one:1/orders as me",
            "at two:5432/orders as me",
            "at three:3/orders as me",
        ];
        assert_eq!(names, all);
    }
}
