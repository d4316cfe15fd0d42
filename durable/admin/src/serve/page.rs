//! The pages. Every text goes through the template, which escapes it.

use std::time::Duration;

use maud::{DOCTYPE, Markup, html};
use tickwheel_durable::Counts;
use tickwheel_durable::store::{State, StoreTime, Stored, StoredInstance, StoredNamespace};

use super::picture::{Bar, bars};
use crate::clock::{from_now, goes_on, span};
use crate::records::{due_name, state_name};
use crate::shown::{count, hex, line, text_line, whole};

/// A key, value or error in a table has at most so many characters.
const CELL: usize = 120;

/// So many bars show what is due.
pub(super) const BARS: u32 = 48;

/// The spans of time that can be looked at, in seconds.
pub(super) const WINDOWS: [(u64, &str); 5] = [
    (60, "a minute"),
    (3_600, "an hour"),
    (86_400, "a day"),
    (604_800, "a week"),
    (2_592_000, "30 days"),
];

/// How long timers have been due, in seconds: where each bar of lateness ends, but for the last.
pub(super) const LATE: [u64; 5] = [1, 10, 60, 600, 3_600];

/// The parts of every page.
pub(super) struct Frame<'a> {
    pub(super) namespaces: &'a [StoredNamespace],
    pub(super) csrf: &'a str,
    pub(super) allow_changes: bool,
    pub(super) notice: Option<&'a str>,
}

/// The contents of the page of a namespace.
pub(super) struct Overview {
    pub(super) namespace: StoredNamespace,
    pub(super) counts: Counts,
    pub(super) window: u64,
    /// How many have been due for so long, from the longest on.
    pub(super) late: Vec<u64>,
    pub(super) due: Vec<u64>,
    pub(super) instances: Vec<StoredInstance>,
    pub(super) in_flight: Vec<Stored>,
    pub(super) dead: Vec<Stored>,
    pub(super) waiting: Vec<Stored>,
}

pub(super) fn page(title: &str, frame: &Frame<'_>, content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " - tickwheel" }
                link rel="stylesheet" href="/static/style.css";
                script src="/static/refresh.js" defer {}
                noscript { meta http-equiv="refresh" content="5"; }
            }
            body {
                header {
                    strong { "tickwheel" }
                    nav {
                        @for found in frame.namespaces {
                            a href={ "/n/" (found.name) } { (found.name) }
                        }
                    }
                    span #live-state {}
                }
                @if let Some(notice) = frame.notice { p.notice role="status" { (notice) } }
                main { (content) }
            }
        }
    }
}

pub(super) fn message(title: &str, text: &str) -> Markup {
    let frame = Frame {
        namespaces: &[],
        csrf: "",
        allow_changes: false,
        notice: None,
    };
    page(
        title,
        &frame,
        &html! { h1 { (title) } p { (text) } p { a href="/" { "Back" } } },
    )
}

pub(super) fn login(csrf: &str) -> Markup {
    let frame = Frame {
        namespaces: &[],
        csrf,
        allow_changes: false,
        notice: None,
    };
    let form = html! {
        h1 { "Token" }
        form method="post" action="/login" {
            input type="password" name="token" aria-label="token" autocomplete="current-password" required;
            button { "Log in" }
        }
    };
    page("Token", &frame, &form)
}

pub(super) fn overview(frame: &Frame<'_>, shown: &Overview) -> Markup {
    let name = &shown.namespace.name;
    let counts = &shown.counts;
    let now = counts.now;
    let content = html! {
        h1 { (name) }
        section #counts data-live="" {
            dl.figures {
                @for (label, number) in [("waiting", counts.waiting), ("in flight", counts.in_flight), ("dead", counts.dead)] {
                    div { dt { (label) } dd { (count(number, counts.is_estimate)) } }
                }
                div { dt { "earliest" } dd { (counts.earliest.map_or("-".to_owned(), |due| from_now(due, now))) } }
            }
            p.note { "by the store's clock, " (now) ", codec " bdi { (text_line(&shown.namespace.codec, CELL)) } }
        }
        form.find method="get" action={ "/n/" (name) "/find" } {
            input name="key" aria-label="key" placeholder="key" required;
            button { "Show" }
        }
        section #due data-live="" {
            h2 { "Due" }
            p.choices {
                @for (window, label) in WINDOWS {
                    @if window == shown.window { strong { (label) } }
                    @else { a href={ "/n/" (name) "?window=" (window) } { (label) } }
                    " "
                }
            }
            (due_picture(shown))
        }
        section #lateness data-live="" {
            h2 { "Lateness of what is due and has not fired" }
            (late_picture(shown))
        }
        section #instances data-live="" {
            h2 { "Instances" }
            (instances(&shown.instances, now))
        }
        section #in-flight data-live="" {
            h2 { "In flight" }
            (rows(frame, name.as_str(), State::InFlight, &shown.in_flight, now))
        }
        section #dead data-live="" {
            h2 { "Dead letters" }
            @if frame.allow_changes && !shown.dead.is_empty() {
                div.actions {
                    (button(frame, name.as_str(), "retry-all", None, "Retry all"))
                    (button(frame, name.as_str(), "discard-all", None, "Discard all"))
                }
            }
            (rows(frame, name.as_str(), State::Dead, &shown.dead, now))
        }
        section #waiting data-live="" {
            h2 { "Waiting" }
            (rows(frame, name.as_str(), State::Waiting, &shown.waiting, now))
        }
    };
    page(name.as_str(), frame, &content)
}

fn due_picture(shown: &Overview) -> Markup {
    let step = shown.window * 1_000 / u64::from(BARS);
    let at = |bar: u64| format!("in {}", span(Duration::from_millis(bar * step)));
    let each = (0..).zip(&shown.due).map(|(number, &count)| Bar {
        count,
        label: format!("from {} to {}", at(number), at(number + 1)),
    });
    let below = (0..4_u64).map(|quarter| match quarter {
        0 => "now".to_owned(),
        quarter => at(quarter * u64::from(BARS) / 4),
    });
    bars(&each.collect::<Vec<_>>(), &below.collect::<Vec<_>>())
}

fn late_picture(shown: &Overview) -> Markup {
    let long = |seconds: u64| span(Duration::from_secs(seconds));
    let mut labels = vec![format!("under {}", long(LATE[0]))];
    labels.extend(
        LATE.windows(2)
            .map(|late| format!("{} to {}", long(late[0]), long(late[1]))),
    );
    labels.push(format!("over {}", long(LATE[LATE.len() - 1])));
    // The store has counted from the longest on.
    let each = labels.iter().zip(shown.late.iter().rev());
    let each = each.map(|(label, &count)| Bar {
        count,
        label: label.clone(),
    });
    html! {
        @if shown.late.iter().all(|count| *count == 0) { p { "Nothing is late." } }
        @else { (bars(&each.collect::<Vec<_>>(), &labels)) }
    }
}

fn instances(instances: &[StoredInstance], now: StoreTime) -> Markup {
    html! {
        @if instances.is_empty() { p { "No instance loads timers." } }
        @else {
            table {
                thead { tr { th { "instance" } th { "alive" } th { "loaded" } th { "lacks" } } }
                tbody {
                    @for instance in instances {
                        tr {
                            td { (instance.id.0) }
                            td { (goes_on(instance.alive_until, now)) }
                            td { (instance.loaded) }
                            td { (instance.lacks) }
                        }
                    }
                }
            }
        }
    }
}

/// The first rows of a state, with buttons if changes are allowed.
fn rows(
    frame: &Frame<'_>,
    namespace: &str,
    state: State,
    rows: &[Stored],
    now: StoreTime,
) -> Markup {
    html! {
        @if rows.is_empty() { p { "None." } }
        @else {
            table {
                thead { tr {
                    th { "key" } th { "value" } th { (due_name(state)) }
                    @if state == State::InFlight { th { "claimed by" } }
                    th { "attempt" } th { "error" } th {}
                } }
                tbody { @for row in rows { tr {
                    td { a href={ "/n/" (namespace) "/timer/" (hex(&row.key)) } { bdi { (line(&row.key, CELL)) } } }
                    td { bdi { (line(&row.value, CELL)) } }
                    td title=(row.due) { (from_now(row.due, now)) }
                    @if state == State::InFlight { td { @if let Some(id) = row.claimed_by { (id.0) } } }
                    td { (row.attempt) }
                    td { @if let Some(error) = &row.error { bdi { (text_line(error, CELL)) } } }
                    td { (buttons(frame, namespace, row)) }
                } } }
            }
            @if let Some(last) = rows.last() {
                @let (due, version) = (last.due, last.version);
                p { a href={ "/n/" (namespace) "/list/" (state_name(state)) "?due=" (due.as_micros()) "&version=" (version.0) } { "next" } }
            }
        }
    }
}

fn buttons(frame: &Frame<'_>, namespace: &str, row: &Stored) -> Markup {
    let token = Some(row.version.0);
    html! {
        @if frame.allow_changes {
            @match row.state {
                State::Dead => {
                    (button(frame, namespace, "retry", token, "Retry"))
                    (button(frame, namespace, "discard", token, "Discard"))
                }
                State::InFlight => {
                    (button(frame, namespace, "release", token, "Release"))
                }
                _ => {}
            }
        }
    }
}

fn button(
    frame: &Frame<'_>,
    namespace: &str,
    action: &str,
    token: Option<i64>,
    label: &str,
) -> Markup {
    html! {
        form method="post" action={ "/n/" (namespace) "/" (action) } {
            input type="hidden" name="csrf" value=(frame.csrf);
            @if let Some(token) = token { input type="hidden" name="token" value=(token); }
            button { (label) }
        }
    }
}

/// One page of a list.
pub(super) fn list(
    frame: &Frame<'_>,
    namespace: &str,
    state: State,
    listed: &[Stored],
    now: StoreTime,
) -> Markup {
    let content = html! {
        h1 { a href={ "/n/" (namespace) } { (namespace) } ": " (state_name(state).replace('_', " ")) }
        (rows(frame, namespace, state, listed, now))
    };
    page(namespace, frame, &content)
}

/// All timers with a key.
pub(super) fn timers(
    frame: &Frame<'_>,
    namespace: &str,
    found: &[Stored],
    now: StoreTime,
) -> Markup {
    let content = html! {
        h1 { a href={ "/n/" (namespace) } { (namespace) } }
        @for row in found {
            section {
                h2 { (state_name(row.state).replace('_', " ")) }
                dl.details {
                    dt { "key" } dd { bdi { (line(&row.key, 4_096)) } }
                    dt { "deadline" } dd { (row.deadline) " (" (from_now(row.deadline, now)) ")" }
                    dt { (due_name(row.state)) } dd { (from_now(row.due, now)) }
                    dt { "attempt" } dd { (row.attempt) }
                    @if let Some(period) = row.period { dt { "every" } dd { (span(period)) } }
                    @if let Some(schedule) = &row.schedule { dt { "every" } dd { (schedule) } }
                    @if let Some(id) = row.claimed_by { dt { "claimed by" } dd { (id.0) } }
                    @if let Some(id) = row.loaded_by { dt { "on the wheel of" } dd { (id.0) } }
                    @if let Some(error) = &row.error { dt { "error" } dd { pre { (whole(error.as_bytes())) } } }
                    dt { "value" } dd { pre { (whole(&row.value)) } }
                }
                (buttons(frame, namespace, row))
            }
        }
    };
    page(namespace, frame, &content)
}
