//! Which requests come from pages of this service, and what its answers forbid.
//!
//! A browser that has signed in sends its cookie with the forms of other sites, too. Each browser
//! of today says where a form comes from, in `Sec-Fetch-Site` or in `Origin`. A request that says
//! nothing is refused: scripts add the `Origin`.

use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Method, Response};

use crate::shown::text_line;

/// A header in a message or a log has at most this many characters.
pub(crate) const HEADER: usize = 120;

/// The headers of all answers. Scripts and styles come from this server only, and none is in a
/// page.
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

/// Adds the headers of all answers.
pub(crate) fn secure<B>(mut answer: Response<B>) -> Response<B> {
    for (name, value) in HEADERS {
        let value = HeaderValue::from_static(value);
        answer.headers_mut().insert(name, value);
    }
    answer
}

/// Whether an `Origin` or a `Referer` is of this host.
pub(crate) fn is_from(page: &str, host: &str) -> bool {
    let mut schemes = ["http://", "https://"].iter();
    let rest = schemes.find_map(|scheme| page.strip_prefix(scheme));
    rest.and_then(|rest| rest.split('/').next()) == Some(host)
}

/// Checks that a request that changes something comes from a page of this service.
pub(crate) fn check(method: &Method, headers: &HeaderMap) -> Result<(), String> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let (site, origin) = (text("sec-fetch-site"), text(ORIGIN.as_str()));
    let host = text(HOST.as_str()).unwrap_or_default();
    let is_own = match site {
        Some(site) => site == "same-origin",
        None => origin.is_some_and(|origin| is_from(origin, host)),
    };
    if is_own || method.is_safe() {
        return Ok(());
    }
    Err(format!(
        "the form is of the Origin {:?}, and the request for the Host {:?}: a proxy must pass the Host on, and a script the Origin",
        text_line(origin.or(site).unwrap_or_default(), HEADER),
        text_line(host, HEADER)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_of_another_site_is_refused() {
        let here = ("origin", "http://localhost:8017");
        for (pairs, is_own) in [
            (&[here][..], true),
            (&[("origin", "https://localhost:8017")], true),
            (&[("sec-fetch-site", "same-origin")], true),
            // A proxy that has not passed the Host on.
            (
                &[
                    ("sec-fetch-site", "same-origin"),
                    ("origin", "https://timers.example"),
                ],
                true,
            ),
            (&[], false),
            (&[("origin", "http://evil.example")], false),
            (&[("origin", "http://localhost:80170")], false),
            (&[("origin", "null")], false),
            (&[here, ("sec-fetch-site", "cross-site")], false),
            (&[here, ("sec-fetch-site", "same-site")], false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static("localhost:8017"));
            for (name, value) in pairs {
                headers.insert(*name, HeaderValue::from_static(value));
            }
            let checked = check(&Method::POST, &headers);
            assert_eq!(checked.is_ok(), is_own, "{pairs:?}");
            for method in [Method::GET, Method::HEAD] {
                assert_eq!(check(&method, &headers), Ok(()));
            }
            if let Err(text) = checked {
                assert!(text.contains("localhost:8017"), "{text}");
            }
        }
    }
}
