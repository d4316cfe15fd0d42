//! From a URL to a store.

use std::io;
use std::path::Path;
use std::time::Duration;

use tickwheel_durable::rusqlite::{Connection, OpenFlags};
use tickwheel_durable::store::Store;
use tickwheel_durable::{Postgres, PostgresOptions, Redis, Sqlite};
use tokio::time::timeout;

use super::args::Common;
use super::{given, passwords};
use crate::failure::Failure;

/// The variable that has the URL.
const VARIABLE: &str = "TICKWHEEL_ADMIN_URL";

/// The URL that is given: by an argument, in a file, or by the environment.
pub(super) fn url(common: &Common) -> Result<String, Failure> {
    let given = match &common.url {
        Some(url) => Some(url.clone()),
        None => given("URL", common.url_file.as_deref(), VARIABLE)?,
    };
    given.filter(|url| !url.is_empty()).ok_or_else(|| {
        Failure::Usage(format!(
            "no store is named: use --url, --url-file or the variable {VARIABLE}"
        ))
    })
}

const KINDS: &str = "it must begin with postgres://, redis://, rediss://, redis+sentinel://, redis+cluster://, valkey://, valkeys://, unix:// or sqlite://, or be a path, or PostgreSQL settings";

/// Connects to the store at a URL, or opens an SQLite file that is there.
pub(super) async fn connect(url: &str, limit: Duration) -> Result<Box<dyn Store>, Failure> {
    let connecting = async {
        Ok(match scheme(url) {
            Some("postgres" | "postgresql") => {
                // To look must not make tables.
                let options = PostgresOptions::new(url)?.create_tables(false);
                let options = options.before_connect(|mut config| async move {
                    if config.get_password().is_none() {
                        if let Some(password) = passwords::find(&config)? {
                            config.password(password);
                        }
                    }
                    Ok::<_, io::Error>(config)
                });
                let connected = Postgres::connect_with(options).await;
                connected
                    .map_err(|error| needs_password(error.into()))?
                    .into()
            }
            Some(scheme) if is_redis(scheme) => Redis::connect(url).await?.into(),
            Some("sqlite") => {
                let path = url.strip_prefix("sqlite:").unwrap_or(url);
                open(path.strip_prefix("//").unwrap_or(path))?
            }
            // The rest may contain a password.
            Some(scheme) => {
                return Err(Failure::Usage(format!(
                    "the URL begins with {scheme}://; {KINDS}"
                )));
            }
            None if url.contains(['@', '=']) && !Path::new(url).is_file() => {
                return Err(Failure::Usage(format!(
                    "the URL has no scheme and is no file; {KINDS}"
                )));
            }
            None => open(url)?,
        })
    };
    let connected = timeout(limit, connecting).await;
    connected.map_err(|_| Failure::timeout(limit))?
}

/// The scheme of a URL. Settings such as `host=db user=worker` are of PostgreSQL.
fn scheme(url: &str) -> Option<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '+';
    match url.split_once("://") {
        Some((scheme, _)) if scheme.chars().all(is_part) => Some(scheme),
        _ if url.starts_with("sqlite:") => Some("sqlite"),
        _ if Path::new(url).is_file() => None,
        _ => PostgresOptions::new(url).is_ok().then_some("postgres"),
    }
}

/// Says where a password is looked for, if the client has found none.
fn needs_password(failure: Failure) -> Failure {
    match failure {
        Failure::Failed(text) if text.ends_with("password missing") => Failure::Failed(format!(
            "{text}: set the variable PGPASSWORD, or write it into the file that PGPASSFILE names or into ~/.pgpass"
        )),
        other => other,
    }
}

fn is_redis(scheme: &str) -> bool {
    let mut kinds = ["+sentinel", "+cluster"].into_iter();
    let base = kinds.find_map(|kind| scheme.strip_suffix(kind));
    matches!(
        base.unwrap_or(scheme),
        "redis" | "rediss" | "unix" | "redis+unix" | "valkey" | "valkeys"
    )
}

/// Opens a file that has timers: to look must not make one.
fn open(path: &str) -> Result<Box<dyn Store>, Failure> {
    let file = Path::new(path);
    if !file.is_file() {
        return Err(Failure::NotFound(format!("there is no file {path}")));
    }
    let has_tables = |file: Connection| {
        let tables = "SELECT 1 FROM sqlite_schema WHERE name = 'tickwheel_meta'";
        file.prepare(tables)?.exists(())
    };
    match Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).and_then(has_tables) {
        Ok(true) => Ok(Sqlite::open(file)?.into()),
        Ok(false) => Err(Failure::NotFound(format!("{path} has no timers"))),
        Err(error) => Err(Failure::Failed(format!("SQLite file {path}: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_is_meant_by_its_schemes_only() {
        for scheme in [
            "redis",
            "rediss",
            "redis+sentinel",
            "rediss+sentinel",
            "redis+cluster",
            "rediss+cluster",
            "unix",
            "redis+unix",
            "valkey",
            "valkeys",
        ] {
            assert!(is_redis(scheme), "{scheme}");
        }
        for scheme in [
            "",
            "http",
            "http+cluster",
            "+sentinel",
            "redis+cluster+sentinel",
            "redis+sentinel+cluster",
            "redis+cluster+cluster",
            "redisx",
            "sqlite",
        ] {
            assert!(!is_redis(scheme), "{scheme:?}");
        }
    }

    #[tokio::test]
    async fn url_of_a_file_has_its_path() {
        for (url, path) in [
            ("sqlite:///absent/timers.db", "/absent/timers.db"),
            ("sqlite://absent/timers.db", "absent/timers.db"),
            ("sqlite:absent/timers.db", "absent/timers.db"),
            ("sqlite:absent@b/a=1.db", "absent@b/a=1.db"),
            ("sqlite:sqlite:absent.db", "sqlite:absent.db"),
            ("absent/timers.db", "absent/timers.db"),
        ] {
            let Err(failure) = connect(url, Duration::from_secs(60)).await else {
                panic!("{url} is there");
            };
            assert_eq!(failure.to_string(), format!("there is no file {path}"));
        }
    }
}
