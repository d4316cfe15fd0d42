//! The password of a PostgreSQL URL that has none, as libpq finds it: in the variable `PGPASSWORD`,
//! else in the file that `PGPASSFILE` names, else in `~/.pgpass`.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::operator::write_stderr;

/// Where libpq expects sockets, as it was built for one system or another.
#[cfg(unix)]
const SOCKETS: [&str; 3] = ["/tmp", "/run/postgresql", "/var/run/postgresql"];

/// The password for one host of these settings. A file that others may read is ignored, with a
/// warning.
pub(super) fn find(config: &Config) -> io::Result<Option<String>> {
    // Empty, as for libpq, they are not set.
    let password = env::var("PGPASSWORD").unwrap_or_default();
    if !password.is_empty() {
        return Ok(Some(password));
    }
    let Some(file) = file() else { return Ok(None) };
    if !is_private(&file)? {
        write_stderr(&format!(
            "warning: the password file {} is ignored: its mode must be 0600 or less",
            file.display()
        ));
        return Ok(None);
    }
    Ok(password_in(&fs::read_to_string(&file)?, config))
}

/// The file, if it is there.
fn file() -> Option<PathBuf> {
    let named = env::var_os("PGPASSFILE").filter(|named| !named.is_empty());
    let file = (named.map(PathBuf::from))
        .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".pgpass")))?;
    file.is_file().then_some(file)
}

#[cfg(unix)]
fn is_private(file: &Path) -> io::Result<bool> {
    use std::os::unix::fs::PermissionsExt as _;
    // None of the six bits of the group and of others is set.
    Ok(fs::metadata(file)?.permissions().mode() % 0o100 == 0)
}

#[cfg(not(unix))]
#[allow(
    clippy::unnecessary_wraps,
    reason = "the other systems look at the file"
)]
fn is_private(_file: &Path) -> io::Result<bool> {
    Ok(true)
}

/// The password in the first line that fits: `host:port:database:user:password`, each but the last
/// `*` for any.
fn password_in(text: &str, config: &Config) -> Option<String> {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => host.clone(),
        #[cfg(unix)]
        Some(Host::Unix(folder)) if !SOCKETS.iter().any(|usual| folder == Path::new(usual)) => {
            folder.display().to_string()
        }
        // A usual folder of sockets, which the file names so.
        _ => "localhost".to_owned(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let user = config
        .get_user()
        .map_or_else(|| whoami::username().unwrap_or_default(), str::to_owned);
    let database = config.get_dbname().unwrap_or(&user).to_owned();
    let wanted = [host, port.to_string(), database, user];
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.find_map(|line| {
        let mut fields = fields(line);
        let password = (fields.len() == 5).then(|| fields.pop())??;
        let mut pairs = fields.iter().zip(&wanted);
        pairs
            .all(|(field, wanted)| field == "*" || field == wanted)
            .then_some(password)
    })
}

/// The fields of a line. A backslash makes a colon or a backslash part of a field.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c == ':' && fields.len() < 5 {
            fields.push(String::new());
            continue;
        }
        let c = if c == '\\' { chars.next() } else { Some(c) };
        fields.last_mut().expect("there is one at least").extend(c);
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn file_that_others_may_read_is_not_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let name = format!("tickwheel-pgpass-{}", std::process::id());
        let file = env::temp_dir().join(name);
        fs::write(&file, "*:*:*:*:secret").expect("it is written");
        for (mode, expected) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("it is set");
            assert_eq!(
                is_private(&file).expect("it is there"),
                expected,
                "{mode:o}"
            );
        }
        fs::remove_file(&file).expect("it is there");
    }

    #[test]
    fn password_is_of_the_first_line_that_fits() {
        let text = "# a comment\n\
            db-2:5432:orders:worker:other\n\
            db-1:5433:*:worker:pass\\:word\\\\:x\n\
            localhost:*:orders:worker:usual\n\
            /srv/db:*:orders:worker:socket\n\
            *:*:orders:worker:late\n\
            db-1:5432\n";
        for (url, expected) in [
            ("postgres://worker@db-1:5433/orders", Some("pass:word\\:x")),
            ("postgres://worker@db-2/orders", Some("other")),
            ("postgres://worker@db-3/orders", Some("late")),
            ("host=/tmp user=worker dbname=orders", Some("usual")),
            ("host=/srv/db user=worker dbname=orders", Some("socket")),
            ("postgres://admin@db-1:5433/orders", None),
        ] {
            let config = url.parse().expect("it is a URL");
            assert_eq!(password_in(text, &config).as_deref(), expected, "{url}");
        }
    }
}
