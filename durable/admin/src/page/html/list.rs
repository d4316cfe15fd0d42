//! A page of a list, and the page of a key.

use maud::{Markup, html};
use tickwheel_durable::store::{State, StoreTime, Stored};

use super::frame::{Frame, page};
use super::rows::{of_all, of_one, table};
use crate::details::{STATES, details, state_name, state_text};
use crate::listing::Page;
use crate::page::Listed;
use crate::shown::{hex, line};

/// The way back has so many bytes: a proxy takes some thousands in an address.
const PAGES: usize = 4_096;

/// Parts the pages of the way back.
const PART: char = '.';

/// A key on its own page has at most so many characters.
const KEY: usize = 4_096;

/// One page of a list.
pub(in crate::page) struct ListPage {
    pub(in crate::page) state: State,
    pub(in crate::page) query: Listed,
    pub(in crate::page) prefix_bytes: Option<Vec<u8>>,
    pub(in crate::page) found: Page,
    pub(in crate::page) now: StoreTime,
}

impl ListPage {
    /// The address of a page with the same filter.
    fn address(&self, frame: &Frame<'_>, state: State, pages: &str) -> String {
        let Listed { prefix, error, .. } = &self.query;
        let mut query = vec![("prefix", &**prefix), ("error", error), ("pages", pages)];
        query.retain(|(_, text)| !text.is_empty());
        let list = frame.here(&format!("/list/{}", state_name(state)));
        match serde_urlencoded::to_string(query).unwrap_or_default() {
            query if query.is_empty() => list,
            query => format!("{list}?{query}"),
        }
    }

    fn next(&self, frame: &Frame<'_>) -> Option<String> {
        let next = self.found.next.as_deref()?;
        let pages = format!("{}{PART}{next}", self.query.pages);
        let mut pages = pages.trim_start_matches(PART);
        while let Some((_, rest)) = pages.split_once(PART).filter(|_| pages.len() > PAGES) {
            pages = rest;
        }
        Some(self.address(frame, self.state, pages))
    }

    fn previous(&self, frame: &Frame<'_>) -> Option<String> {
        self.query.after()?;
        let (pages, _) = self.query.pages.rsplit_once(PART).unwrap_or_default();
        Some(self.address(frame, self.state, pages))
    }
}

impl Listed {
    /// Where this page begins.
    pub(in crate::page) fn after(&self) -> Option<&str> {
        self.pages.rsplit(PART).next().filter(|at| !at.is_empty())
    }
}

pub(in crate::page) fn list(frame: &Frame<'_>, shown: &ListPage) -> Markup {
    let state = shown.state;
    let Listed { prefix, error, .. } = &shown.query;
    let here = shown.address(frame, state, &shown.query.pages);
    let whole = frame.here(&format!("/list/{}", state_name(state)));
    let (previous, next) = (shown.previous(frame), shown.next(frame));
    let is_filtered = !prefix.is_empty() || !error.is_empty();
    let content = html! {
        h1 { a href=(frame.here("")) { (frame.current) } ": " (state_text(state)) }
        p.choices {
            @for other in STATES {
                @if other == state { strong { (state_text(other)) } }
                @else { a href=(shown.address(frame, other, "")) { (state_text(other)) } }
                " "
            }
        }
        form.line.find method="get" action=(whole) {
            input #find name="prefix" aria-label="keys that begin with" placeholder="keys that begin with" value=(prefix);
            input name="error" aria-label="error contains" placeholder="error contains" value=(error);
            button { "Filter" }
            @if is_filtered { a href=(whole) { "Clear" } }
        }
        @if shown.found.rows.is_empty() {
            p.empty {
                @if is_filtered { "No timer fits the filter." } @else { "None." }
            }
        } @else {
            (table(frame, state, &shown.found.rows, shown.now, &here))
        }
        @if previous.is_some() || next.is_some() {
            nav.pages aria-label="pages" {
                @if let Some(previous) = previous { a href=(previous) rel="prev" { "previous" } }
                @if let Some(next) = next { a href=(next) rel="next" { "next" } }
            }
        }
        @if let Some(prefix) = &shown.prefix_bytes {
            @if frame.allow_changes && !shown.found.rows.is_empty() && error.is_empty() {
                @let what = format!("All that begin with {}, on this page or not:", line(prefix, KEY));
                (of_all(frame, state, &here, ("prefix", &hex(prefix)), &what))
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
        h1 { a href=(frame.here("")) { (frame.current) } ": " bdi { (line(key, KEY)) } }
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
                @if frame.allow_changes { (of_one(frame, row, &back)) }
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

    fn at(pages: &str, next: Option<&str>) -> ListPage {
        ListPage {
            state: State::Dead,
            query: Listed {
                prefix: "order 1&".to_owned(),
                error: String::new(),
                pages: pages.to_owned(),
            },
            prefix_bytes: None,
            found: Page {
                rows: Vec::new(),
                next: next.map(str::to_owned),
            },
            now: StoreTime::default(),
        }
    }

    #[test]
    fn pages_lead_forth_and_back() {
        let frame = Frame {
            root: "/timers",
            current: "orders",
            ..Frame::default()
        };
        let frame = &frame;
        let query = "/timers/n/orders/list/dead?prefix=order+1%26";
        let first = at("", Some("b"));
        assert_eq!(first.previous(frame), None);
        let next = format!("{query}&pages=b");
        assert_eq!(first.next(frame), Some(next));
        let second = at("b", Some("c"));
        assert_eq!(second.previous(frame), Some(query.to_owned()));
        let next = format!("{query}&pages=b.c");
        assert_eq!(second.next(frame), Some(next));
        let third = at("b.c", None);
        assert_eq!(third.query.after(), Some("c"));
        assert_eq!(third.next(frame), None);
        let previous = format!("{query}&pages=b");
        assert_eq!(third.previous(frame), Some(previous));
        // The way back is bounded, however long the keys are.
        let long = vec!["ab".repeat(MAX_KEY_BYTES); 9].join(".");
        let next = at(&long, Some("z")).next(frame).expect("it goes on");
        assert!(next.ends_with("ab.z") && next.len() < 8_000, "{next}");
    }

    /// A change of a prefix takes no error: it would change timers that the list does not show.
    #[test]
    fn list_of_an_error_offers_no_change_of_its_prefix() {
        let frame = Frame {
            root: "/timers",
            current: "orders",
            allow_changes: true,
            ..Frame::default()
        };
        let (key, value) = (b"\"order 1&\"".to_vec(), b"1".to_vec());
        let mut shown = at("", None);
        shown.prefix_bytes = Some(b"\"order 1&".to_vec());
        let row = Stored::new(Version(17), State::Dead, key, value, StoreTime::default());
        shown.found.rows.push(row);
        let offer = "All that begin with";
        let page = list(&frame, &shown).into_string();
        assert!(page.contains(offer), "{page}");
        shown.query.error = "no route".to_owned();
        let page = list(&frame, &shown).into_string();
        assert!(!page.contains(offer), "{page}");
        // The lists of other states have the same filter.
        for state in ["waiting", "in_flight"] {
            let query = "prefix=order+1%26&amp;error=no+route";
            let link = format!("href=\"/timers/n/orders/list/{state}?{query}\"");
            assert!(page.contains(&link), "{link}: {page}");
        }
    }
}
