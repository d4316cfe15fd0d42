//! Takes URLs apart that name several servers, and sets what every connection has.

use std::collections::VecDeque;
use std::time::Duration;

use ::redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use ::redis::{
    ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisError, RedisResult,
};

/// A connection that carries nothing is probed after this time, and given up after three times as
/// long.
const PROBE: Duration = Duration::from_secs(5);

/// The connection ends when its data is not acknowledged for this time.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(15);

/// A host and a port.
pub(super) type Address = (String, u16);

/// The pieces of what follows `://` in a URL with several hosts.
pub(super) struct UrlPieces<'a> {
    /// With the `@`.
    pub(super) credentials: &'a str,
    pub(super) hosts: &'a str,
    pub(super) tail: &'a str,
}

impl<'a> UrlPieces<'a> {
    pub(super) fn of(rest: &'a str) -> Self {
        let at = rest.rfind('@').map_or(0, |at| at + 1);
        let (credentials, rest) = rest.split_at(at);
        let (hosts, tail) = split_before(rest, &['/', '?', '#']);
        UrlPieces {
            credentials,
            hosts,
            tail,
        }
    }

    /// How to connect to the first host. The tail has database, parameters and fragment.
    pub(super) fn info(&self, scheme: &str, tail: &str) -> RedisResult<ConnectionInfo> {
        let first = self.hosts.split(',').next().unwrap_or_default();
        let url = format!("{scheme}://{}{first}/{tail}", self.credentials);
        Ok(prepared(url.as_str().into_connection_info()?))
    }
}

/// Splits a text before the first of these letters.
pub(super) fn split_before<'a>(text: &'a str, letters: &[char]) -> (&'a str, &'a str) {
    text.split_at(text.find(letters).unwrap_or(text.len()))
}

/// Takes the credentials for Sentinels out of the parameters: as `user:password@`, and the other
/// parameters.
pub(super) fn sentinel_credentials(query: &str) -> (String, String) {
    let (mut user, mut password, mut rest) = ("", None, String::new());
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        match parameter.split_once('=') {
            Some(("sentinel_username", value)) => user = value,
            Some(("sentinel_password", value)) => password = Some(value),
            _ => {
                rest.push(if rest.is_empty() { '?' } else { '&' });
                rest.push_str(parameter);
            }
        }
    }
    let credentials = password.map(|password| format!("{user}:{password}@"));
    (credentials.unwrap_or_default(), rest)
}

/// Reads hosts with ports between commas.
pub(super) fn addresses(
    scheme: &str,
    hosts: &str,
    port: Option<u16>,
) -> RedisResult<VecDeque<Address>> {
    let read = |host: &str| {
        let has_port = host
            .rsplit_once(']')
            .map_or(host, |(_, port)| port)
            .contains(':');
        let info = format!("{scheme}://{host}")
            .as_str()
            .into_connection_info()?;
        match info.addr().clone() {
            ConnectionAddr::Tcp(host, own)
            | ConnectionAddr::TcpTls {
                host, port: own, ..
            } => Ok((host, port.filter(|_| !has_port).unwrap_or(own))),
            _ => Err(misused("a host is needed")),
        }
    };
    hosts.split(',').map(read).collect()
}

/// Sets what every connection has.
pub(super) fn prepared(info: ConnectionInfo) -> ConnectionInfo {
    let keepalive = TcpKeepalive::new().with_time(PROBE).with_interval(PROBE);
    let tcp = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let tcp = tcp.set_user_timeout(UNACKNOWLEDGED);
    info.set_tcp_settings(tcp)
}

pub(super) fn misused(what: &'static str) -> RedisError {
    (ErrorKind::InvalidClientConfig, what).into()
}
