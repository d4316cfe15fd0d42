//! The URL of a database.

use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;

use crate::store::StoreError;

/// Parses a URL or a list of `key=value`: the settings, and the file of roots that `sslrootcert`
/// names. The error never repeats it, because the password may be anywhere in it.
pub(super) fn parse(url: &str) -> Result<(Config, Option<PathBuf>), StoreError> {
    let (url, roots) = take_roots(url);
    // Certificates are always checked, which libpq calls so.
    let url = url.replace("sslmode=verify-full", "sslmode=require");
    let config: Config = url.parse().map_err(|_| {
        StoreError::refused(
            "the PostgreSQL URL cannot be parsed: it must be like \
             postgres://user:password@host:5432/database?sslmode=require, with reserved characters percent-encoded, \
             and only with options that `tokio_postgres::Config` knows",
        )
    })?;
    Ok((config, roots))
}

/// Takes `sslrootcert=path` out, which the client does not know.
fn take_roots(url: &str) -> (String, Option<PathBuf>) {
    const OPTION: &str = "sslrootcert=";
    let Some(begin) = url.find(OPTION) else {
        return (url.to_owned(), None);
    };
    let rest = &url[begin + OPTION.len()..];
    let quoted = rest.strip_prefix('\'').and_then(|rest| rest.find('\''));
    let unquoted = || rest.find(['&', ' ']).unwrap_or(rest.len());
    let end = quoted.map_or_else(unquoted, |quote| quote + 2);
    let before = url[..begin].trim_end_matches(['&', ' ']);
    let (path, after) = rest.split_at(end);
    let after = if before.ends_with('?') {
        after.trim_start_matches('&')
    } else {
        after
    };
    let path = if url.contains("://") {
        percent_decode_str(path).decode_utf8_lossy()
    } else {
        path.trim_matches('\'').into()
    };
    (
        format!("{before}{after}"),
        Some(PathBuf::from(path.as_ref())),
    )
}

#[cfg(test)]
mod tests {
    use tokio_postgres::config::SslMode;

    use super::*;

    #[test]
    fn never_repeats_a_url_that_does_not_parse() {
        for url in [
            "postgres://me:s3cret@host:notaport/db",
            "host=localhost s3cret",
            "mysql://me:s3cret@host/db",
        ] {
            let error = parse(url).expect_err(url).to_string();
            assert!(!error.contains("s3cret"), "{error}");
            assert!(error.contains("postgres://user"), "{error}");
        }
    }

    #[test]
    fn encrypts_when_the_url_asks_for_it() {
        let tls = |url: &str| {
            let (config, roots) = parse(url).expect("parses");
            (config.get_ssl_mode() == SslMode::Require, roots)
        };
        assert_eq!(tls("postgres://a@b/c"), (false, None));
        assert_eq!(tls("postgres://a@b/c?sslmode=prefer"), (false, None));
        assert_eq!(tls("postgres://a@b/c?sslmode=require"), (true, None));
        let file = Some(PathBuf::from("/ca.pem"));
        for url in [
            "postgres://a@b/c?sslmode=verify-full&sslrootcert=/ca.pem",
            "postgres://a@b/c?sslrootcert=/ca.pem&sslmode=require",
            "postgres://a@b/c?sslrootcert=%2Fca.pem&sslmode=require",
            "host=b user=a sslrootcert=/ca.pem sslmode=require",
            "host=b sslrootcert='/ca.pem' user=a sslmode=require",
            "host=b user=a sslmode=require sslrootcert=/ca.pem",
        ] {
            assert_eq!(tls(url), (true, file.clone()), "{url}");
        }
    }
}
