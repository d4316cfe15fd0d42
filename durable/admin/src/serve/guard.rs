//! Decides which requests get a page, and which change something.
//!
//! 1. On the loopback each user of this machine may look. A page elsewhere that a browser was led to (DNS rebinding) is
//!    refused by its `Host`.
//! 2. With a token, a request needs it: in the header `Authorization: Bearer`, or in the cookie that the login sets.
//! 3. A form changes something only if changes are allowed, the browser says that it comes from this page, and it has the
//!    secret that only these pages show.

use std::net::{IpAddr, SocketAddr};

use axum::http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Response};

use crate::failure::Failure;
use crate::shown::hex;

const SESSION: &str = "tickwheel_admin";

/// The headers of all answers. Scripts and styles come from this server only, and none is in a page.
const HEADERS: [(&str, &str); 7] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
];

#[derive(Debug)]
pub(super) struct Guard {
    listen: SocketAddr,
    token: Option<String>,
    /// The secret in the cookie of a login.
    session: String,
    /// The secret in each form.
    pub(super) csrf: String,
}

impl Guard {
    pub(super) fn new(listen: SocketAddr, token: Option<String>) -> Result<Self, Failure> {
        Ok(Guard {
            listen,
            token,
            session: secret()?,
            csrf: secret()?,
        })
    }

    /// Whether the browser means this server.
    pub(super) fn is_meant(&self, headers: &HeaderMap) -> bool {
        if self.token.is_some() {
            return true;
        }
        let Some(host) = text(headers, HOST) else {
            return false;
        };
        let name = host.rsplit_once(':').map_or(host, |(name, port)| {
            if port.bytes().all(|digit| digit.is_ascii_digit()) {
                name
            } else {
                host
            }
        });
        let address = name
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse::<IpAddr>();
        name.eq_ignore_ascii_case("localhost")
            || address.is_ok_and(|address| address.is_loopback() || address == self.listen.ip())
    }

    /// Whether the caller may look.
    pub(super) fn lets_in(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else {
            return true;
        };
        let bearer = text(headers, AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
        let cookies = headers.get_all(COOKIE).into_iter();
        let cookies = cookies.filter_map(|value| value.to_str().ok());
        let mut cookies = cookies.flat_map(|value| value.split(';'));
        let name = format!("{SESSION}=");
        bearer.is_some_and(|bearer| is_same(bearer, token))
            || cookies.any(|cookie| {
                let value = cookie.trim().strip_prefix(&name);
                value.is_some_and(|value| is_same(value, &self.session))
            })
    }

    /// The cookie of a login with the right token.
    pub(super) fn login(&self, token: &str) -> Option<String> {
        let right = self.token.as_ref()?;
        is_same(token, right).then(|| {
            format!(
                "{SESSION}={}; Path=/; HttpOnly; SameSite=Strict",
                self.session
            )
        })
    }

    /// Whether the browser says that the request comes from a page of this server. One that says nothing is not a browser of
    /// today, and still needs the secret of a form.
    pub(super) fn is_from_here(headers: &HeaderMap) -> bool {
        if let Some(site) = text(headers, "sec-fetch-site") {
            if site != "same-origin" {
                return false;
            }
        }
        match (headers.get(ORIGIN), text(headers, HOST)) {
            (None, _) => true,
            (Some(origin), Some(host)) => {
                let origin = origin.to_str().unwrap_or_default();
                ["http://", "https://"]
                    .iter()
                    .any(|scheme| origin.strip_prefix(scheme) == Some(host))
            }
            (Some(_), None) => false,
        }
    }

    pub(super) fn knows(&self, csrf: &str) -> bool {
        is_same(csrf, &self.csrf)
    }
}

/// Adds the headers of all answers.
pub(super) fn secure<B>(mut answer: Response<B>) -> Response<B> {
    for (name, value) in HEADERS {
        answer
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    answer
}

fn text(headers: &HeaderMap, name: impl axum::http::header::AsHeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Compares without telling by its time where the difference is.
fn is_same(one: &str, other: &str) -> bool {
    let pairs = one.bytes().zip(other.bytes());
    let difference = pairs.fold(0, |difference, (a, b)| difference | (a ^ b));
    one.len() == other.len() && difference == 0
}

fn secret() -> Result<String, Failure> {
    let mut bytes = [0; 24];
    let filled = getrandom::fill(&mut bytes);
    filled.map_err(|error| Failure::Failed(format!("no random numbers: {error}")))?;
    Ok(hex(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter();
        let pairs = pairs.map(|(name, value)| {
            let value = HeaderValue::from_str(value).expect("it is a value");
            (axum::http::HeaderName::from_static(name), value)
        });
        pairs.collect()
    }

    fn guard(token: Option<&str>) -> Guard {
        let listen = "127.0.0.1:8017".parse().expect("it is an address");
        Guard::new(listen, token.map(str::to_owned)).expect("there is chance")
    }

    #[test]
    fn rebound_host_is_refused_without_a_token() {
        for (host, is_meant) in [
            ("localhost:8017", true),
            ("127.0.0.1:8017", true),
            ("[::1]:8017", true),
            ("evil.example:8017", false),
            ("localhost.evil.example", false),
        ] {
            let headers = headers(&[("host", host)]);
            assert_eq!(guard(None).is_meant(&headers), is_meant, "{host}");
            assert!(guard(Some("token")).is_meant(&headers));
        }
        assert!(!guard(None).is_meant(&HeaderMap::new()));
    }

    #[test]
    fn only_the_token_or_its_cookie_lets_in() {
        let guard = guard(Some("right token"));
        assert!(!guard.lets_in(&HeaderMap::new()));
        assert!(guard.lets_in(&headers(&[("authorization", "Bearer right token")])));
        assert!(!guard.lets_in(&headers(&[("authorization", "Bearer right toke")])));
        assert_eq!(guard.login("wrong"), None);
        let cookie = guard.login("right token").expect("it is right");
        let (cookie, _) = cookie.split_once(';').expect("it has attributes");
        assert!(guard.lets_in(&headers(&[("cookie", &format!("a=b; {cookie}"))])));
        assert!(!guard.lets_in(&headers(&[("cookie", "tickwheel_admin=right token")])));
    }

    #[test]
    fn form_of_another_site_is_refused() {
        let here = [
            ("host", "localhost:8017"),
            ("origin", "http://localhost:8017"),
        ];
        assert!(Guard::is_from_here(&headers(&here)));
        for (name, value) in [
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            let headers = headers(&[here[0], (name, value)]);
            assert!(!Guard::is_from_here(&headers), "{name}: {value}");
        }
    }
}
