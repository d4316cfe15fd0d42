//! Errors of the client and the server, as errors of a store.

use ::redis::{ErrorKind, RedisError};

use super::scripts::SCHEMA;
use crate::store::{Namespace, StoreError, StoreTime};

/// Where a server is, for error texts: without user and password.
pub(super) fn without_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        // Whatever this is, it may contain a password.
        return "(not shown)".to_owned();
    };
    let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    // Unix sockets have theirs among the parameters.
    let place = place.split_once('?').map_or(place, |(place, _)| place);
    format!("{scheme}://{place}")
}

/// Whether a connection that gave this error is of no use any more.
pub(super) fn ends_connection(error: &RedisError) -> bool {
    // After a failover this server refuses writes, and another one that has its name takes them. A
    // node of a cluster that is cut off from the others says that the cluster is down.
    error.is_io_error()
        || error.is_unrecoverable_error()
        || matches!(error.code(), Some("READONLY" | "MOVED" | "CLUSTERDOWN"))
}

/// An error of the server at `place`, from a call on the namespace, if any.
pub(super) fn store_error(
    error: &RedisError,
    place: &str,
    namespace: Option<&Namespace>,
) -> StoreError {
    let namespace = namespace.map_or("", Namespace::as_str);
    let detail = error.detail().unwrap_or_default();
    let refused = |text: &str| StoreError::refused(format_args!("{place}: {text}"));
    match (error.kind(), error.code().unwrap_or_default()) {
        (_, "TICKWHEELCLOSED") => StoreError::NotOpened {
            namespace: namespace.to_owned(),
        },
        (_, "TICKWHEELSCHEMA") => {
            let mut versions = detail.split(' ').map(str::parse);
            match (versions.next(), versions.next()) {
                (Some(Ok(found)), Some(Ok(readable_by))) => {
                    StoreError::schema(found, readable_by, SCHEMA)
                }
                _ => refused(&format!(
                    "namespace {namespace} has schema version {detail}"
                )),
            }
        }
        (_, "TICKWHEELAMENDED") => StoreError::Amended {
            namespace: namespace.to_owned(),
        },
        (_, "TICKWHEELLATE") => {
            StoreError::late(StoreTime::from_micros(detail.parse().unwrap_or(0)))
        }
        (_, "TICKWHEELSUPERSEDED") => StoreError::unavailable(format_args!(
            "{place}: the call came late, on a connection that was given up, and changes nothing any more"
        )),
        (_, "OOM") => refused(
            "its memory is full (maxmemory); timers that are delivered and settled make room",
        ),
        _ if detail.contains("max number of clients") => StoreError::unavailable(format_args!(
            "{place}: it has as many clients as its setting maxclients allows"
        )),
        (_, "READONLY") => StoreError::unavailable(format_args!(
            "{place}: it is a read-only replica"
        )),
        (_, "MOVED" | "ASK" | "CROSSSLOT") => refused(&format!(
            "another node of the cluster may have namespace {namespace}; connect with redis+cluster://"
        ))
        .because_of(error.clone()),
        (
            _,
            "LOADING" | "BUSY" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" | "NOREPLICAS"
            | "NOSCRIPT",
        )
        | (ErrorKind::Io, _) => StoreError::unavailable(place).because_of(error.clone()),
        _ => StoreError::refused(place).because_of(error.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_may_pass_are_told_from_others() {
        for (codes, passes) in [
            (
                "LOADING BUSY TRYAGAIN CLUSTERDOWN MASTERDOWN NOREPLICAS NOSCRIPT",
                true,
            ),
            ("NOPERM WRONGTYPE", false),
        ] {
            for code in codes.split(' ') {
                let answer = ::redis::parse_redis_value(format!("-{code} why\r\n").as_bytes());
                let error = answer.expect("it parses").extract_error();
                let error = store_error(&error.expect_err("it is one"), "redis://host", None);
                assert_eq!(error.may_pass(), passes, "{code}");
            }
        }
    }

    #[test]
    fn shows_urls_without_credentials() {
        for (url, shown) in [
            ("redis://localhost:6379/0", "redis://localhost:6379/0"),
            ("redis://user:secret@host/0", "redis://host/0"),
            ("redis://:sec@ret@host", "redis://host"),
            (
                "unix:///run/redis.sock?pass=secret",
                "unix:///run/redis.sock",
            ),
            ("user:secret@host", "(not shown)"),
        ] {
            assert_eq!(without_credentials(url), shown);
        }
    }
}
