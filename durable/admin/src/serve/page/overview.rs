//! The page of all namespaces, and that of one.

use std::time::Duration;

use maud::{Markup, html};
use tickwheel_durable::Counts;
use tickwheel_durable::store::{State, StoreTime, Stored, StoredInstance, StoredNamespace};

use super::CELL;
use super::frame::{Frame, page};
use super::rows::{hidden, table, target};
use crate::clock::{from_now, goes_on, span};
use crate::records::state_name;
use crate::serve::health::{Health, Word};
use crate::serve::picture::{Bar, columns, lines};
use crate::shown::{count, separated, text_line};

/// So many bars show what is due.
pub(in crate::serve) const BARS: u32 = 48;

/// The spans of time that can be looked at, in seconds.
pub(in crate::serve) const WINDOWS: [(u64, &str); 5] = [
    (60, "a minute"),
    (3_600, "an hour"),
    (86_400, "a day"),
    (604_800, "a week"),
    (2_592_000, "30 days"),
];

/// How long timers have been due, in seconds: where each bar of lateness ends, but for the last.
pub(in crate::serve) const LATE: [u64; 5] = [1, 10, 60, 600, 3_600];

/// How a namespace is doing.
pub(in crate::serve) struct Summary {
    pub(in crate::serve) namespace: StoredNamespace,
    pub(in crate::serve) counts: Counts,
    pub(in crate::serve) instances: Vec<StoredInstance>,
    pub(in crate::serve) health: Health,
}

/// The contents of the page of a namespace.
pub(in crate::serve) struct Overview {
    pub(in crate::serve) summary: Summary,
    pub(in crate::serve) window: u64,
    /// How many have been due for so long, from the longest on.
    pub(in crate::serve) late: Vec<u64>,
    pub(in crate::serve) due: Vec<u64>,
    pub(in crate::serve) in_flight: Vec<Stored>,
    pub(in crate::serve) dead: Vec<Stored>,
    pub(in crate::serve) waiting: Vec<Stored>,
}

fn class(word: Word) -> &'static str {
    match word {
        Word::Ok => "state ok",
        Word::Late => "state late",
        Word::Failing => "state failing",
    }
}

fn earliest(counts: &Counts) -> String {
    let earliest = counts.earliest.map(|due| from_now(due, counts.now));
    earliest.unwrap_or_else(|| "-".to_owned())
}

/// All namespaces.
pub(in crate::serve) fn home(frame: &Frame<'_>, summaries: &[Summary]) -> Markup {
    let content = html! {
        h1 { "Namespaces" }
        section #namespaces data-live="" {
            @if summaries.is_empty() {
                p.empty { "The store has no namespace. It has one once an instance has started." }
            } @else {
                table.rows {
                    thead { tr {
                        th.key { "namespace" } th { "state" } th.number { "waiting" } th.number { "in flight" }
                        th.number { "dead" } th { "earliest" }
                    } }
                    tbody { @for each in summaries { tr {
                        @let counts = &each.counts;
                        @let shown = |number| count(number, counts.is_estimate);
                        td.key data-label="namespace" { a.text href={ "/n/" (each.namespace.name) } { (each.namespace.name) } }
                        td data-label="state" {
                            span class=(class(each.health.word)) title=(each.health.text) { (each.health.word.text()) }
                        }
                        td.number data-label="waiting" { (shown(counts.waiting)) }
                        td.number data-label="in flight" { (shown(counts.in_flight)) }
                        td.number data-label="dead" { (shown(counts.dead)) }
                        td data-label="earliest" { (earliest(counts)) }
                    } } }
                }
            }
        }
    };
    page("Namespaces", frame, &content)
}

pub(in crate::serve) fn overview(frame: &Frame<'_>, shown: &Overview) -> Markup {
    let Summary {
        namespace,
        counts,
        health,
        ..
    } = &shown.summary;
    let name = &namespace.name;
    let now = counts.now;
    let content = html! {
        h1 { (name) }
        section #state data-live="" {
            p.line { span class=(class(health.word)) { (health.word.text()) } " " (health.text) "." }
            dl.figures {
                @for (label, number) in [("waiting", counts.waiting), ("in flight", counts.in_flight), ("dead", counts.dead)] {
                    div { dt { (label) } dd { (count(number, counts.is_estimate)) } }
                }
                div { dt { "earliest" } dd { (earliest(counts)) } }
            }
            p.note { "by the store's clock, " (now) ", codec " bdi { (text_line(&namespace.charter.codec, CELL)) } }
        }
        form.line.find method="get" action={ "/n/" (name) "/find" } {
            input #find name="key" aria-label="key" placeholder="key" required;
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
            (instances(&shown.summary.instances, now))
        }
        (section(frame, State::InFlight, "In flight", counts.in_flight, counts, &shown.in_flight))
        (section(frame, State::Dead, "Dead letters", counts.dead, counts, &shown.dead))
        (section(frame, State::Waiting, "Waiting", counts.waiting, counts, &shown.waiting))
    };
    page(name.as_str(), frame, &content)
}

/// The first rows of a state, and the way to the others.
fn section(
    frame: &Frame<'_>,
    state: State,
    title: &str,
    number: u64,
    counts: &Counts,
    rows: &[Stored],
) -> Markup {
    let state_name = state_name(state);
    let back = format!("/n/{}", frame.current);
    html! {
        section id=(state_name.replace('_', "-")) data-live="" {
            h2 { (title) }
            (table(frame, state, rows, counts.now, &back))
            @if !rows.is_empty() {
                p { a href={ "/n/" (frame.current) "/list/" (state_name) } {
                    "All " (count(number, counts.is_estimate)) ", with filters"
                } }
            }
            @if frame.allow_changes && state == State::Dead && !rows.is_empty() {
                form.actions.all method="post" action=(target(frame)) {
                    (hidden(frame, &back))
                    input type="hidden" name="all" value="1";
                    span { "All " (count(number, counts.is_estimate)) ":" }
                    button name="action" value="retry" { "Retry all" }
                    button.danger name="action" value="discard" { "Discard all" }
                }
            }
        }
    }
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
    html! {
        @if shown.due.iter().all(|count| *count == 0) { p.empty { "Nothing is due then." } }
        @else { (columns(&each.collect::<Vec<_>>(), &below.collect::<Vec<_>>())) }
    }
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
        @if shown.late.iter().all(|count| *count == 0) { p.empty { "Nothing is late." } }
        @else { (lines(&each.collect::<Vec<_>>())) }
    }
}

fn instances(instances: &[StoredInstance], now: StoreTime) -> Markup {
    html! {
        @if instances.is_empty() { p.empty { "No instance loads timers." } }
        @else {
            table.rows {
                thead { tr { th.key { "instance" } th { "alive" } th.number { "loaded" } th.number { "lacks" } } }
                tbody {
                    @for instance in instances {
                        tr {
                            td.key data-label="instance" { (instance.id.0) }
                            td data-label="alive" { (goes_on(instance.alive_until, now)) }
                            td.number data-label="loaded" { (separated(instance.loaded)) }
                            td.number data-label="lacks" { (separated(instance.lacks)) }
                        }
                    }
                }
            }
        }
    }
}
