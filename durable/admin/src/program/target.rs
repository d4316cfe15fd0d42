//! From a URL to a store.

use std::io;
use std::path::Path;
use std::time::Duration;

use tickwheel_durable::store::{Store, StoreError};
use tickwheel_durable::{Postgres, PostgresOptions, Redis, SchemaVersion, Sqlite};
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

/// What a URL leads to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target<'a> {
    Postgres(&'a str),
    Redis(&'a str),
    /// The path of a file.
    Sqlite(&'a str),
}

pub(super) fn target(url: &str) -> Result<Target<'_>, Failure> {
    match scheme(url) {
        Some("postgres" | "postgresql") => Ok(Target::Postgres(url)),
        Some(scheme) if is_redis(scheme) => Ok(Target::Redis(url)),
        Some("sqlite") => {
            let path = url.strip_prefix("sqlite:").unwrap_or(url);
            Ok(Target::Sqlite(path.strip_prefix("//").unwrap_or(path)))
        }
        // The rest may contain a password.
        Some(scheme) => Err(Failure::Usage(format!(
            "the URL begins with {scheme}://; {KINDS}"
        ))),
        None if url.contains(['@', '=']) && !Path::new(url).is_file() => Err(Failure::Usage(
            format!("the URL has no scheme and is no file; {KINDS}"),
        )),
        None => Ok(Target::Sqlite(url)),
    }
}

/// Connects to the store at a URL, or opens an SQLite file that is there.
pub(super) async fn connect(url: &str, limit: Duration) -> Result<Box<dyn Store>, Failure> {
    let connecting = async {
        Ok(match target(url)? {
            Target::Postgres(url) => {
                let connected = Postgres::connect_with(postgres(url)?).await;
                connected.map_err(of_postgres)?.into()
            }
            Target::Redis(url) => Redis::connect(url).await?.into(),
            Target::Sqlite(path) => open(path)?,
        })
    };
    let connected = timeout(limit, connecting).await;
    connected.map_err(|_| Failure::timeout(limit))?
}

/// How to connect to PostgreSQL. To look must not make tables.
pub(super) fn postgres(url: &str) -> Result<PostgresOptions, Failure> {
    let options = PostgresOptions::new(url)?.create_tables(false);
    Ok(options.before_connect(|mut config| async move {
        if config.get_password().is_none() {
            if let Some(password) = passwords::find(&config)? {
                config.password(password);
            }
        }
        Ok::<_, io::Error>(config)
    }))
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
pub(super) fn of_postgres(error: StoreError) -> Failure {
    match error.into() {
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

/// Opens a file that has timers: to look must not make one, nor upgrade its tables.
fn open(path: &str) -> Result<Box<dyn Store>, Failure> {
    let file = file(path)?;
    let found = Sqlite::schema_version(file)?;
    if found.version == 0 {
        return Err(Failure::NotFound(format!("{path} has no timers")));
    }
    check_is_upgraded(&found, super::migrate::latest(Sqlite::MIGRATIONS))?;
    Ok(Sqlite::open(file)?.into())
}

fn check_is_upgraded(found: &SchemaVersion, latest: u32) -> Result<(), StoreError> {
    if found.version < latest {
        return Err(StoreError::schema(found.version, found.readable_by, latest));
    }
    Ok(())
}

/// A file that is there.
pub(super) fn file(path: &str) -> Result<&Path, Failure> {
    let file = Path::new(path);
    if !file.is_file() {
        return Err(Failure::NotFound(format!("there is no file {path}")));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look upgrades no tables: programs of the version before may need them as they are.
    #[test]
    fn look_needs_tables_that_are_upgraded() {
        let file = std::env::temp_dir().join(format!("tickwheel-look-{}.db", std::process::id()));
        drop(Sqlite::open(&file).expect("it opens"));
        let found = Sqlite::schema_version(&file).expect("it reads");
        std::fs::remove_file(&file).expect("it is there");
        assert_eq!(found.version, 1);
        assert_eq!(check_is_upgraded(&found, 1), Ok(()));
        let older = check_is_upgraded(&found, 2).expect_err("it is older");
        assert!(older.to_string().contains("migrate up"), "{older}");
    }

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
