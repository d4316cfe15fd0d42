//! Decides which requests get a page, and which change something.
//!
//! 1. Without a token each user of this machine may look, and with `--allow-changes` also change
//!    timers, and no one else: a request that shows a proxy is refused, and so is a page elsewhere
//!    that a browser was led to (DNS rebinding), by its `Host`.
//! 2. With a token, a request needs it: in the header `Authorization: Bearer`, or as the cookie of
//!    a login, which ends.
//! 3. A form changes something only if changes are allowed, and the browser says that it comes from
//!    this page.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN, REFERER};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode, Version};
use cookie::{Cookie, SameSite};
use subtle::ConstantTimeEq as _;

use super::sessions::Sessions;
use crate::page::{HEADER, HEALTH, METRICS, is_from};
use crate::shown::text_line;

/// Most proxies add at least one of these.
const FORWARDED: [&str; 6] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
    "via",
];

#[derive(Debug)]
pub(super) struct Guard {
    listen: SocketAddr,
    token: Option<String>,
    sessions: Sessions,
    /// The name of the cookie. Cookies of a host are for all of its ports.
    cookie: String,
}

impl Guard {
    pub(super) fn new(listen: SocketAddr, token: Option<String>, session: Duration) -> Self {
        Guard {
            listen,
            token,
            sessions: Sessions::new(session),
            cookie: format!("tickwheel_admin_{}", listen.port()),
        }
    }

    /// Checks that the request means this server, and came to it as it should.
    pub(super) fn check_way<B>(&self, request: &Request<B>) -> Result<(), (StatusCode, String)> {
        if self.token.is_some() {
            return Ok(());
        }
        let headers = request.headers();
        let forwarded = |sign: &str| {
            let text = format!(
                "the request came through a proxy, as its {sign} says: that needs --token-file"
            );
            Err((StatusCode::FORBIDDEN, text))
        };
        if let Some(name) = FORWARDED.iter().find(|name| headers.contains_key(**name)) {
            return forwarded(&format!("header {name}"));
        }
        // Browsers and scripts of today speak 1.1, and nginx 1.0 unless it is told otherwise.
        if request.version() < Version::HTTP_11 {
            return forwarded(&format!("version {:?}", request.version()));
        }
        let host = text(headers, HOST).unwrap_or_default();
        if !is_own_name(host) {
            return Err((
                StatusCode::MISDIRECTED_REQUEST,
                format!(
                    "the request is for the Host {:?}, and this server is {}: other names need --token-file",
                    text_line(host, HEADER),
                    self.listen
                ),
            ));
        }
        // A browser that follows a link of another site says so. Behind a proxy the pages of this
        // one would be of another Host.
        let is_link = text(headers, "sec-fetch-site")
            .is_some_and(|site| ["cross-site", "same-site"].contains(&site));
        for name in [ORIGIN, REFERER] {
            if is_link && name == REFERER {
                continue;
            }
            let page = headers.get(&name).map(|page| page.to_str().unwrap_or("?"));
            if let Some(page) = page.filter(|page| !is_from(page, host)) {
                let page = text_line(page, HEADER);
                return Err((
                    StatusCode::FORBIDDEN,
                    format!(
                        "the request is for the Host {host:?}, and its {name} is {page:?}: that needs --token-file, as behind a proxy"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Whether the caller may look.
    pub(super) fn lets_in(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else {
            return true;
        };
        let sent = text(headers, AUTHORIZATION).and_then(|sent| sent.split_once(' '));
        let is_right = |(scheme, sent): (&str, &str)| {
            scheme.eq_ignore_ascii_case("Bearer") && is_same(sent, token)
        };
        sent.is_some_and(is_right)
            || self
                .cookies(headers)
                .any(|secret| self.sessions.is_open(&secret))
    }

    /// The cookie of a login with the right token. Browsers send it over TLS only if that is how
    /// this one came.
    pub(super) fn login(&self, headers: &HeaderMap, token: &str) -> Option<String> {
        let right = self.token.as_ref();
        if !right.is_some_and(|right| is_same(token, right)) {
            return None;
        }
        let cookie = Cookie::build((self.cookie.clone(), self.sessions.begin()));
        Some(attributes(cookie, headers))
    }

    /// Ends the login of this caller. Returns the cookie that takes its place.
    pub(super) fn logout(&self, headers: &HeaderMap) -> String {
        for secret in self.cookies(headers) {
            self.sessions.end(&secret);
        }
        let cookie = Cookie::build((self.cookie.clone(), "")).max_age(cookie::time::Duration::ZERO);
        attributes(cookie, headers)
    }

    /// The secrets of logins that the request brings.
    fn cookies(&self, headers: &HeaderMap) -> impl Iterator<Item = String> {
        let texts = headers.get_all(COOKIE).into_iter();
        let texts = texts.filter_map(|value| value.to_str().ok());
        let cookies = texts.flat_map(|text| Cookie::split_parse(text.to_owned()));
        cookies
            .filter_map(Result::ok)
            .filter(|cookie| cookie.name() == self.cookie)
            .map(|cookie| cookie.value().to_owned())
    }
}

/// Whether a browser on this machine names this server so: it listens on the loopback.
fn is_own_name(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else {
        return false;
    };
    let name = authority.host();
    let address = name.trim_matches(['[', ']']).parse::<IpAddr>();
    let is_own = |address: IpAddr| address.is_loopback();
    // A name before an @ is of a user.
    !host.contains('@') && (name.eq_ignore_ascii_case("localhost") || address.is_ok_and(is_own))
}

/// Whether a script has sent something for a token. A password is for a proxy.
pub(super) fn is_tried(headers: &HeaderMap) -> bool {
    let sent = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    sent.is_some_and(|sent| !sent.to_ascii_lowercase().starts_with(b"basic "))
}

/// Whether a page needs no token: it has nothing of the store.
pub(super) fn is_open(path: &str) -> bool {
    path == "/login" || path.starts_with("/static/")
}

/// Whether no browser asks for it. A monitor would take the way to the login for a success.
pub(super) fn is_for_monitor(path: &str) -> bool {
    [METRICS, HEALTH].contains(&path)
}

/// The sender of a request, for the log: the address, and what a proxy says.
pub(super) fn who(peer: SocketAddr, headers: &HeaderMap) -> String {
    let mut who = peer.to_string();
    for name in ["x-forwarded-for", "x-forwarded-user", "remote-user"] {
        if let Some(value) = text(headers, name) {
            who = format!("{who} {name}={}", text_line(value, HEADER));
        }
    }
    who
}

fn attributes(cookie: cookie::CookieBuilder<'_>, headers: &HeaderMap) -> String {
    let cookie = cookie
        .path("/")
        .http_only(true)
        .same_site(SameSite::Strict)
        .secure(is_over_tls(headers));
    cookie.to_string()
}

/// Whether a proxy says that its client has used TLS.
fn is_over_tls(headers: &HeaderMap) -> bool {
    let forwarded = text(headers, "forwarded").unwrap_or_default();
    let forwarded = forwarded.to_ascii_lowercase();
    text(headers, "x-forwarded-proto").is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"))
        || forwarded.contains("proto=https")
        || forwarded.contains("proto=\"https\"")
}

fn text(headers: &HeaderMap, name: impl axum::http::header::AsHeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Compares without telling by its time where the difference is.
fn is_same(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter();
        let pairs = pairs.map(|(name, value)| {
            let value = axum::http::HeaderValue::from_str(value).expect("it is a value");
            (axum::http::HeaderName::from_static(name), value)
        });
        pairs.collect()
    }

    fn request(headers: HeaderMap) -> Request<()> {
        let mut request = Request::new(());
        *request.headers_mut() = headers;
        request
    }

    fn guard(token: Option<&str>) -> Guard {
        let listen = "127.0.0.1:8017".parse().expect("it is an address");
        Guard::new(listen, token.map(str::to_owned), Duration::from_secs(60))
    }

    #[test]
    fn rebound_host_is_refused_without_a_token() {
        for (host, is_meant) in [
            ("localhost:8017", true),
            ("LocalHost:8017", true),
            ("127.0.0.1:8017", true),
            ("[::1]:8017", true),
            ("evil.example:8017", false),
            ("192.0.2.1:8017", false),
            ("localhost.evil.example", false),
            ("localhost:8017@evil.example", false),
            ("evil.example@localhost:8017", false),
        ] {
            let request = request(headers(&[("host", host)]));
            let way = guard(None).check_way(&request);
            assert_eq!(way.is_ok(), is_meant, "{host}");
            if let Err((_, text)) = way {
                assert!(text.contains(host), "{text}");
            }
            assert_eq!(guard(Some("token")).check_way(&request), Ok(()));
        }
        let none = request(HeaderMap::new());
        guard(None).check_way(&none).expect_err("it has no host");
    }

    /// Regression: a proxy let all clients in, as if they were users of its machine.
    #[test]
    fn forwarded_request_is_refused_without_a_token() {
        let signs = [
            "forwarded",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-proto",
            "x-real-ip",
            "via",
        ];
        let signs = signs.map(|name| (name, "for=192.0.2.1"));
        let pages = ["https://timers.example", "http://localhost:80170", "null"];
        let pages = pages.map(|page| [("origin", page), ("referer", page)]);
        for (name, value) in signs.into_iter().chain(pages.into_iter().flatten()) {
            let request = request(headers(&[("host", "localhost:8017"), (name, value)]));
            let refused = guard(None).check_way(&request);
            let (status, text) = refused.expect_err("it was forwarded");
            assert_eq!(status, StatusCode::FORBIDDEN);
            assert!(text.contains(name), "{text}");
            assert_eq!(guard(Some("token")).check_way(&request), Ok(()));
        }
        let own = [
            ("host", "localhost:8017"),
            ("origin", "http://localhost:8017"),
        ];
        let own = [&own[..], &[("referer", "http://localhost:8017/n/orders")]].concat();
        let mut request = request(headers(&own));
        assert_eq!(guard(None).check_way(&request), Ok(()));
        *request.version_mut() = Version::HTTP_10;
        let (_, text) = guard(None)
            .check_way(&request)
            .expect_err("it was forwarded");
        assert!(text.contains("HTTP/1.0"), "{text}");
        assert_eq!(guard(Some("token")).check_way(&request), Ok(()));
    }

    #[test]
    fn log_has_all_that_a_proxy_says_of_the_sender() {
        let said = headers(&[
            ("x-forwarded-for", "192.0.2.1"),
            ("x-forwarded-user", "anna"),
            ("remote-user", "bea"),
        ]);
        let who = who("127.0.0.1:17".parse().expect("it is an address"), &said);
        let expected =
            "127.0.0.1:17 x-forwarded-for=192.0.2.1 x-forwarded-user=anna remote-user=bea";
        assert_eq!(who, expected);
    }

    /// A page of a wiki on this machine may have a link.
    #[test]
    fn link_of_another_page_is_followed() {
        for (site, is_link) in [
            ("cross-site", true),
            ("same-site", true),
            ("same-origin", false),
        ] {
            let link = request(headers(&[
                ("host", "localhost:8017"),
                ("referer", "http://localhost:3000/runbook"),
                ("sec-fetch-site", site),
            ]));
            assert_eq!(guard(None).check_way(&link).is_ok(), is_link, "{site}");
        }
    }

    #[test]
    fn password_for_a_proxy_is_no_token() {
        for (sent, tries) in [("Basic YTpi", false), ("bearer t", true), ("t", true)] {
            assert_eq!(is_tried(&headers(&[("authorization", sent)])), tries);
        }
    }

    #[test]
    fn only_the_token_or_its_cookie_lets_in() {
        let guard = guard(Some("right token"));
        let none = HeaderMap::new();
        assert!(!guard.lets_in(&none));
        assert!(guard.lets_in(&headers(&[("authorization", "Bearer right token")])));
        assert!(guard.lets_in(&headers(&[("authorization", "bearer right token")])));
        assert!(!guard.lets_in(&headers(&[("authorization", "Bearer right toke")])));
        assert!(!guard.lets_in(&headers(&[("authorization", "Token right token")])));
        assert_eq!(guard.login(&none, "wrong"), None);
        let cookie = guard.login(&none, "right token");
        let cookie = cookie.expect("it is right");
        let (cookie, _) = cookie.split_once(';').expect("it has attributes");
        let with_cookie = headers(&[("cookie", &format!("a=b; {cookie}"))]);
        assert!(guard.lets_in(&with_cookie));
        assert!(!guard.lets_in(&headers(&[("cookie", "tickwheel_admin_8017=right token")])));
        assert!(!guard.lets_in(&headers(&[("cookie", "tickwheel_admin_8017=")])));
        let gone = guard.logout(&with_cookie);
        assert!(gone.contains("Max-Age=0"), "{gone}");
        assert!(!guard.lets_in(&with_cookie));
    }

    #[test]
    fn pages_of_the_store_need_the_token_whatever_their_names_are() {
        for path in ["/login", "/static/style.css"] {
            assert!(is_open(path), "{path}");
        }
        for path in [
            "/",
            "/n/static/find",
            "/n/login",
            "/login/n/orders",
            "/logout",
        ] {
            assert!(!is_open(path), "{path}");
        }
    }

    #[test]
    fn cookie_is_secure_behind_tls() {
        let guard = guard(Some("right token"));
        for (name, value, is_secure) in [
            ("x-forwarded-proto", "https", true),
            ("forwarded", "for=192.0.2.1;Proto=https", true),
            ("x-forwarded-proto", "http", false),
            ("x-forwarded-for", "192.0.2.1", false),
        ] {
            let cookie = guard.login(&headers(&[(name, value)]), "right token");
            let cookie = cookie.expect("it is right");
            assert_eq!(cookie.contains("Secure"), is_secure, "{cookie}");
            for attribute in ["HttpOnly", "SameSite=Strict", "Path=/"] {
                assert!(cookie.contains(attribute), "{cookie}");
            }
        }
    }
}
