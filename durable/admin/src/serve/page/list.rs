//! A page of a list, and the page of a key.

use std::fmt::Write as _;

use maud::{Markup, html};
use tickwheel_durable::store::{State, StoreTime, Stored};

use super::frame::{Frame, page};
use super::rows::{buttons, hidden, of_one, table, target};
use crate::clock::{from_now, span};
use crate::listing::Page;
use crate::records::{due_name, state_name};
use crate::shown::{hex, line, whole};

/// The way back has so many pages.
const TRAIL: usize = 20;

/// Stands in the trail for the first page, and parts its pages.
const FIRST: &str = "first";
const PART: char = '~';

/// A key on its own page has at most so many characters.
const KEY: usize = 4_096;

/// One page of a list.
pub(in crate::serve) struct ListPage {
    pub(in crate::serve) state: State,
    pub(in crate::serve) prefix: String,
    pub(in crate::serve) prefix_bytes: Option<Vec<u8>>,
    pub(in crate::serve) error: String,
    pub(in crate::serve) after: Option<String>,
    pub(in crate::serve) trail: String,
    pub(in crate::serve) found: Page,
    pub(in crate::serve) now: StoreTime,
}

impl ListPage {
    /// The address of a page with the same filter.
    fn address(&self, namespace: &str, state: State, after: Option<&str>, trail: &str) -> String {
        let mut pairs = Vec::new();
        for (name, value) in [
            ("prefix", self.prefix.as_str()),
            ("error", self.error.as_str()),
            ("after", after.unwrap_or_default()),
            ("trail", trail),
        ] {
            if !value.is_empty() {
                pairs.push(format!("{name}={}", encoded(value)));
            }
        }
        let query = if pairs.is_empty() { "" } else { "?" };
        let state = state_name(state);
        format!("/n/{namespace}/list/{state}{query}{}", pairs.join("&"))
    }

    fn next(&self, namespace: &str) -> Option<String> {
        let next = self.found.next.as_deref()?;
        let here = self.after.as_deref().unwrap_or(FIRST);
        let mut trail: Vec<_> = self.trail.split(PART).filter(|at| !at.is_empty()).collect();
        trail.push(here);
        let from = trail.len().saturating_sub(TRAIL);
        let trail = trail[from..].join("~");
        Some(self.address(namespace, self.state, Some(next), &trail))
    }

    fn previous(&self, namespace: &str) -> Option<String> {
        self.after.as_ref()?;
        let (rest, last) = self.trail.rsplit_once(PART).unwrap_or(("", &self.trail));
        let after = Some(last).filter(|last| !last.is_empty() && *last != FIRST);
        Some(self.address(namespace, self.state, after, rest))
    }
}

/// A value in a query.
fn encoded(value: &str) -> String {
    let mut text = String::new();
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                text.push(char::from(byte));
            }
            _ => write!(text, "%{byte:02X}").expect("a string takes it"),
        }
    }
    text
}

pub(in crate::serve) fn list(frame: &Frame<'_>, shown: &ListPage) -> Markup {
    let namespace = frame.current;
    let state = shown.state;
    let here = shown.address(namespace, state, shown.after.as_deref(), &shown.trail);
    let (previous, next) = (shown.previous(namespace), shown.next(namespace));
    let is_filtered = !shown.prefix.is_empty() || !shown.error.is_empty();
    let content = html! {
        h1 { a href={ "/n/" (namespace) } { (namespace) } ": " (state_name(state).replace('_', " ")) }
        p.choices {
            @for other in [State::Waiting, State::InFlight, State::Dead] {
                @let label = state_name(other).replace('_', " ");
                @if other == state { strong { (label) } }
                @else { a href=(shown.address(namespace, other, None, "")) { (label) } }
                " "
            }
        }
        form.line.find method="get" action={ "/n/" (namespace) "/list/" (state_name(state)) } {
            input #find name="prefix" aria-label="keys that begin with" placeholder="keys that begin with" value=(shown.prefix);
            input name="error" aria-label="error contains" placeholder="error contains" value=(shown.error);
            button { "Filter" }
            @if is_filtered { a href={ "/n/" (namespace) "/list/" (state_name(state)) } { "Clear" } }
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
        @if frame.allow_changes && state != State::InFlight && !shown.found.rows.is_empty() && shown.error.is_empty() {
            @if let Some(prefix) = &shown.prefix_bytes {
                form.actions.all method="post" action=(target(frame)) {
                    (hidden(frame, &here))
                    input type="hidden" name="prefix" value=(hex(prefix));
                    span { "All that begin with " bdi { (line(prefix, KEY)) } ", on this page or not:" }
                    (buttons(state))
                }
            }
        }
    };
    page(namespace, frame, &content)
}

/// All timers with a key.
pub(in crate::serve) fn timers(
    frame: &Frame<'_>,
    key: &[u8],
    found: &[Stored],
    now: StoreTime,
) -> Markup {
    let back = format!("/n/{}/timer/{}", frame.current, hex(key));
    let time = |at: StoreTime| {
        html! { (from_now(at, now)) @if !at.is_never() { " " span.note { "(" (at) ")" } } }
    };
    let content = html! {
        h1 { a href={ "/n/" (frame.current) } { (frame.current) } ": " bdi { (line(key, KEY)) } }
        @if found.is_empty() { p.empty { "The key has no timer: none that waits, is in flight or dead." } }
        @for row in found {
            section {
                h2 { (state_name(row.state).replace('_', " ")) }
                dl.details {
                    dt { "deadline" } dd { (time(row.deadline)) }
                    dt { (due_name(row.state)) } dd { (time(row.due)) }
                    dt { "attempt" } dd { (row.attempt) }
                    dt { "last error" } dd {
                        @if let Some(error) = &row.error { pre { (whole(error.as_bytes())) } } @else { "none" }
                    }
                    @if let Some(period) = row.period { dt { "every" } dd { (span(period)) } }
                    @if let Some(schedule) = &row.schedule { dt { "every" } dd { (schedule) } }
                    @if row.state != State::Waiting { dt { "token" } dd { (row.version.0) } }
                    @if let Some(id) = row.claimed_by { dt { "claimed by" } dd { (id.0) } }
                    @if let Some(id) = row.loaded_by { dt { "on the wheel of" } dd { (id.0) } }
                    dt { "value" } dd { pre { (whole(&row.value)) } }
                }
                (of_one(frame, row, &back))
            }
        }
    };
    page(frame.current, frame, &content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(after: Option<&str>, trail: &str, next: Option<&str>) -> ListPage {
        ListPage {
            state: State::Dead,
            prefix: "order 1&".to_owned(),
            prefix_bytes: None,
            error: String::new(),
            after: after.map(str::to_owned),
            trail: trail.to_owned(),
            found: Page {
                rows: Vec::new(),
                next: next.map(str::to_owned),
            },
            now: StoreTime::default(),
        }
    }

    #[test]
    fn pages_lead_forth_and_back() {
        let query = "/n/orders/list/dead?prefix=order%201%26";
        let first = at(None, "", Some("b"));
        assert_eq!(first.previous("orders"), None);
        let next = format!("{query}&after=b&trail=first");
        assert_eq!(first.next("orders"), Some(next));
        let second = at(Some("b"), "first", Some("c"));
        assert_eq!(second.previous("orders"), Some(query.to_owned()));
        let next = format!("{query}&after=c&trail=first~b");
        assert_eq!(second.next("orders"), Some(next));
        let third = at(Some("c"), "first~b", None);
        assert_eq!(third.next("orders"), None);
        let previous = format!("{query}&after=b&trail=first");
        assert_eq!(third.previous("orders"), Some(previous));
        // Far from the start the way back is shorter, and leads to the start.
        let far = at(Some("z"), "", None);
        assert_eq!(far.previous("orders"), Some(query.to_owned()));
        let long = vec!["x"; 3 * TRAIL].join("~");
        let next = at(Some("z"), &long, Some("zz")).next("orders");
        assert!(next.expect("it goes on").len() < 200);
    }
}
