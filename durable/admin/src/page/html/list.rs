//! A page of a list, and the page of a key.

use maud::{Markup, html};
use tickwheel_durable::store::{State, StoreTime, Stored};

use super::frame::{Frame, page};
use super::rows::{buttons_for_all, buttons_for_one, table};
use crate::details::{STATES, details, state_name, state_text};
use crate::listing::{Filter, Rows};
use crate::page::ListQuery;
use crate::shown::{hex, key_line, line};

/// The way back has at most 4,096 bytes: a proxy takes some thousands in an address.
const PAGES: usize = 4_096;

/// Stands between the pages of the way back.
const SEPARATOR: char = '.';

/// A key on its own page has at most this many characters.
const KEY: usize = 4_096;

impl ListQuery {
    /// Where this page begins.
    pub(in crate::page) fn after(&self) -> Option<&str> {
        self.pages
            .rsplit(SEPARATOR)
            .next()
            .filter(|at| !at.is_empty())
    }

    /// The address of a page with the same filter.
    fn address(&self, frame: &Frame<'_>, state: State, pages: &str) -> String {
        let ListQuery { prefix, error, .. } = self;
        let mut query = vec![("prefix", &**prefix), ("error", error), ("pages", pages)];
        query.retain(|(_, text)| !text.is_empty());
        let list = frame.here(&format!("/list/{}", state_name(state)));
        match serde_urlencoded::to_string(query).unwrap_or_default() {
            query if query.is_empty() => list,
            query => format!("{list}?{query}"),
        }
    }

    /// The pages of the way back from the page that begins there.
    fn next(&self, at: &str) -> String {
        let pages = format!("{}{SEPARATOR}{at}", self.pages);
        let mut pages = pages.trim_start_matches(SEPARATOR);
        while let Some((_, rest)) = pages.split_once(SEPARATOR).filter(|_| pages.len() > PAGES) {
            pages = rest;
        }
        pages.to_owned()
    }

    /// The same for the page before this one.
    fn previous(&self) -> Option<&str> {
        self.after()?;
        Some(self.pages.rsplit_once(SEPARATOR).unwrap_or_default().0)
    }
}

/// The label of the link back. A way back that was cut ends with the first page, too.
fn previous_text(pages: &str) -> &'static str {
    if pages.is_empty() {
        "first"
    } else {
        "previous"
    }
}

/// One page of a list.
pub(in crate::page) fn list(
    frame: &Frame<'_>,
    query: &ListQuery,
    filter: &Filter,
    found: &Rows,
    now: StoreTime,
) -> Markup {
    let (state, ListQuery { prefix, error, .. }) = (filter.state, query);
    let here = query.address(frame, state, &query.pages);
    let whole = frame.here(&format!("/list/{}", state_name(state)));
    let previous = query
        .previous()
        .map(|pages| (query.address(frame, state, pages), previous_text(pages)));
    let next = found
        .next
        .as_ref()
        .map(|at| query.address(frame, state, &query.next(at)));
    let is_filtered = !prefix.is_empty() || !error.is_empty();
    let content = html! {
        h1 { a href=(frame.here("")) { (frame.current) } ": " (state_text(state)) }
        p.choices {
            @for other in STATES {
                @if other == state { strong { (state_text(other)) } }
                @else { a href=(query.address(frame, other, "")) { (state_text(other)) } }
                " "
            }
        }
        form.line.find method="get" action=(whole) {
            input #find name="prefix" aria-label="keys that begin with" placeholder="keys that begin with" value=(prefix);
            input name="error" aria-label="error contains" placeholder="error contains" value=(error);
            button { "Filter" }
            @if is_filtered { a href=(whole) { "Clear" } }
        }
        @if found.rows.is_empty() {
            p.empty {
                @if found.next.is_some() { "None so far: go on with next." }
                @else if is_filtered { "No timer fits the filter." }
                @else { "None." }
            }
        } @else {
            (table(frame, state, &found.rows, now, &here))
        }
        @if previous.is_some() || next.is_some() {
            nav.pages aria-label="pages" {
                @if let Some((previous, text)) = previous { a href=(previous) rel="prev" { (text) } }
                @if let Some(next) = next { a href=(next) rel="next" { "next" } }
            }
        }
        @if let Some(prefix) = &filter.prefix {
            @if frame.allow_changes && !found.rows.is_empty() && error.is_empty() {
                @let what = format!("All that begin with {}, on this page or not:", line(prefix, KEY));
                (buttons_for_all(frame, state, &here, ("prefix", &hex(prefix)), &what))
            }
        }
    };
    page(frame.current, frame, &content)
}

/// All timers with a key.
pub(in crate::page) fn timers(
    frame: &Frame<'_>,
    key: &[u8],
    found: &[Stored],
    now: StoreTime,
) -> Markup {
    let back = frame.here(&format!("/timer/{}", hex(key)));
    let content = html! {
        h1 { a href=(frame.here("")) { (frame.current) } ": " bdi { (key_line(key, KEY)) } }
        @if found.is_empty() { p.empty { "The key has no timer: none that waits, is in flight or dead." } }
        @for row in found {
            section {
                h2 { (super::capital(state_text(row.state))) }
                dl.details {
                    @for (label, text) in details(row, now) {
                        dt { (label) }
                        dd { @if matches!(label, "last error" | "value") { pre { (text) } } @else { (text) } }
                    }
                }
                @if frame.allow_changes { (buttons_for_one(frame, row, &back)) }
            }
        }
    };
    page(frame.current, frame, &content)
}

#[cfg(test)]
mod tests {
    use tickwheel_durable::MAX_KEY_BYTES;
    use tickwheel_durable::store::Version;

    use super::*;

    const FRAME: Frame<'_> = Frame {
        root: "/timers",
        namespaces: &[],
        current: "orders",
        allow_changes: true,
        log_out: false,
        notice: None,
        is_live: false,
    };

    fn at(pages: &str) -> ListQuery {
        ListQuery {
            prefix: "order 1&".to_owned(),
            error: String::new(),
            pages: pages.to_owned(),
        }
    }

    #[test]
    fn pages_lead_forth_and_back() {
        let query = "/timers/n/orders/list/dead?prefix=order+1%26";
        assert_eq!(at("").previous(), None);
        assert_eq!(at("").next("b"), "b");
        assert_eq!(at("").address(&FRAME, State::Dead, ""), query);
        let second = at("b");
        assert_eq!(second.previous(), Some(""));
        assert_eq!(second.next("c"), "b.c");
        let next = second.address(&FRAME, State::Dead, "b.c");
        assert_eq!(next, format!("{query}&pages=b.c"));
        let third = at("b.c");
        assert_eq!(third.after(), Some("c"));
        assert_eq!(third.previous(), Some("b"));
        // The way back is bounded, however long the keys are.
        let long = vec!["ab".repeat(MAX_KEY_BYTES); 9].join(".");
        let next = at(&long).next("z");
        assert!(next.ends_with("ab.z") && next.len() < 8_000, "{next}");
    }

    /// Regression: a page whose timers did not fit said that none does, with a link to the next.
    #[test]
    fn empty_page_before_others_says_none_so_far() {
        let filter = Filter {
            state: State::Dead,
            prefix: None,
            error: Some("rare".to_owned()),
        };
        let list = |pages: &str, next: Option<&str>| {
            let mut query = at(pages);
            query.error = "rare".to_owned();
            let (rows, next) = (Vec::new(), next.map(str::to_owned));
            let found = Rows { rows, next };
            list(&FRAME, &query, &filter, &found, StoreTime::default()).into_string()
        };
        let (so_far, none) = ("None so far: go on with next.", "No timer fits the filter.");
        let page = list("", Some("b"));
        assert!(page.contains(so_far) && !page.contains(none), "{page}");
        let page = list("b", None);
        assert!(page.contains(none) && !page.contains(so_far), "{page}");
        assert!(page.contains("rel=\"prev\">first<"), "{page}");
        let page = list("b.c", None);
        assert!(page.contains("rel=\"prev\">previous<"), "{page}");
    }

    /// A change of a prefix takes no error: it would change timers that the list does not show.
    #[test]
    fn list_of_an_error_offers_no_change_of_its_prefix() {
        let (key, value) = (b"\"order 1&\"".to_vec(), b"1".to_vec());
        let row = Stored::new(Version(17), State::Dead, key, value, StoreTime::default());
        let (rows, mut query) = (vec![row], at(""));
        let found = Rows { rows, next: None };
        let filter = Filter {
            state: State::Dead,
            prefix: Some(b"\"order 1&".to_vec()),
            error: None,
        };
        let offer = "All that begin with";
        let list = |query: &ListQuery| {
            list(&FRAME, query, &filter, &found, StoreTime::default()).into_string()
        };
        let page = list(&query);
        assert!(page.contains(offer), "{page}");
        query.error = "no route".to_owned();
        let page = list(&query);
        assert!(!page.contains(offer), "{page}");
        // The lists of other states have the same filter.
        for state in ["waiting", "in_flight"] {
            let query = "prefix=order+1%26&amp;error=no+route";
            let link = format!("href=\"/timers/n/orders/list/{state}?{query}\"");
            assert!(page.contains(&link), "{link}: {page}");
        }
    }
}
