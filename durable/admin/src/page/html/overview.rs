//! The page of all namespaces, and that of one.

use std::time::Duration;

use maud::{Markup, html};
use tickwheel_durable::store::{MAX_DUE_COUNT, State, StoreTime, Stored, StoredInstance};

use super::CELL;
use super::frame::{Frame, page};
use super::rows::{buttons_for_all, table};
use crate::clock::span;
use crate::details::{INSTANCE, STATES, instance_cells, state_name, state_text};
use crate::health::{Health, NONE, Summary};
use crate::shown::{separated, text_line};

/// How many bars show what is due.
pub(in crate::page) const BARS: u32 = 48;

/// The size of the picture, in its own units.
const LENGTH: u64 = 960;
const HEIGHT: u64 = 96;

/// The spans of time that can be looked at, in seconds.
pub(in crate::page) const WINDOWS: [(u64, &str); 5] = [
    (60, "a minute"),
    (3_600, "an hour"),
    (86_400, "a day"),
    (604_800, "a week"),
    (2_592_000, "30 days"),
];

/// The contents of the page of a namespace.
pub(in crate::page) struct Overview {
    pub(in crate::page) summary: Summary,
    pub(in crate::page) now: StoreTime,
    /// The first rows in each of [`STATES`].
    pub(in crate::page) rows: Vec<Vec<Stored>>,
    /// How many are late.
    pub(in crate::page) late: u64,
    pub(in crate::page) window: u64,
    pub(in crate::page) due: Vec<u64>,
}

/// A word in its colour, and why.
fn state(health: &Health) -> Markup {
    let word = health.word;
    html! { span class={ "state " (word) } { (word) } " " (health.text) "." }
}

/// A number of which no more are counted.
fn bounded(number: u64) -> String {
    let more = if number >= MAX_DUE_COUNT as u64 {
        "+"
    } else {
        ""
    };
    format!("{}{more}", separated(number))
}

/// All namespaces.
pub(in crate::page) fn home(frame: &Frame<'_>, summaries: &[Summary]) -> Markup {
    let content = html! {
        h1 { "Namespaces" }
        section #namespaces data-live="" {
            @if summaries.is_empty() {
                p.empty { (NONE) }
            } @else {
                table.rows {
                    thead { tr {
                        th.key { "namespace" } th { "state" } th.number { "waiting" } th.number { "in flight" }
                        th.number { "dead" } th.time { "earliest" }
                    } }
                    tbody { @for each in summaries { tr {
                        @let name = &each.operator.namespace;
                        @let [waiting, in_flight, dead, earliest] = each.figures();
                        td.key data-label="namespace" { a.text href=(frame.address(name.as_str())) { (name) } }
                        td data-label="state" { span { (state(&each.health)) } }
                        td.number data-label="waiting" { (waiting) }
                        td.number data-label="in flight" { (in_flight) }
                        td.number data-label="dead" { (dead) }
                        td data-label="earliest" { (earliest) }
                    } } }
                }
            }
        }
    };
    page("Namespaces", frame, &content)
}

pub(in crate::page) fn overview(frame: &Frame<'_>, shown: &Overview) -> Markup {
    let (operator, now) = (&shown.summary.operator, shown.now);
    let name = &operator.namespace;
    let [waiting, in_flight, dead, earliest] = &shown.summary.figures();
    let numbers = [waiting, in_flight, dead];
    let late = bounded(shown.late);
    let figures = STATES.map(state_text).into_iter().zip(numbers);
    let figures = figures.chain([("late", &late), ("earliest", earliest)]);
    let sections = STATES.into_iter().zip(numbers).zip(&shown.rows).rev();
    let content = html! {
        h1 { (name) }
        section #state data-live="" {
            p.line { (state(&shown.summary.health)) }
            dl.figures { @for (label, figure) in figures { div { dt { (label) } dd { (figure) } } } }
            p.note { "by the store's clock, " (now) ", codec " bdi { (text_line(&operator.codec, CELL)) } }
        }
        form.line.find method="get" action=(frame.here("/find")) {
            input #find name="key" aria-label="key" placeholder="key" required;
            button { "Show" }
        }
        @for ((state, all), rows) in sections { (section(frame, state, now, all, rows)) }
        section #due data-live="" {
            h2 { "Due" }
            p.choices {
                @for (window, label) in WINDOWS {
                    @if window == shown.window { strong { (label) } }
                    @else { a href={ (frame.here("?window=")) (window) } { (label) } }
                    " "
                }
            }
            (due_picture(shown))
        }
        section #instances data-live="" {
            h2 { "Instances" }
            (instances(&shown.summary.instances, now))
        }
    };
    page(name.as_str(), frame, &content)
}

/// The first rows of a state, and the way to the others.
fn section(frame: &Frame<'_>, state: State, now: StoreTime, all: &str, rows: &[Stored]) -> Markup {
    let (name, back) = (state_name(state), frame.here(""));
    html! {
        section id=(name) data-live="" {
            h2 { (super::capital(state_text(state))) }
            (table(frame, state, rows, now, &back))
            @if !rows.is_empty() {
                p { a href=(frame.here(&format!("/list/{name}"))) { "All " (all) ", with filters" } }
                @if frame.allow_changes && state == State::Dead {
                    (buttons_for_all(frame, state, &back, ("all", "1"), &format!("All {all}:")))
                }
            }
        }
    }
}

/// Bars side by side, the highest as high as the picture, and times below them.
fn due_picture(shown: &Overview) -> Markup {
    let step = shown.window * 1_000 / u64::from(BARS);
    let at = |bar: u64| match bar {
        0 => "now".to_owned(),
        bar => format!("in {}", span(Duration::from_millis(bar * step))),
    };
    let most = shown.due.iter().copied().max().unwrap_or(0);
    let pitch = LENGTH / u64::from(BARS);
    html! {
        @if most == 0 { p.empty { "Nothing is due then." } }
        @else {
            svg viewBox={ "0 0 " (LENGTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label="timers by when they are due" {
                @for (bar, &number) in (0..).zip(&shown.due).filter(|(_, number)| **number > 0) {
                    // One timer among thousands shows, too.
                    @let height = (number * HEIGHT / most).max(2);
                    rect x=(bar * pitch + 1) y=(HEIGHT - height) width=(pitch - 2) height=(height) {
                        title { (at(bar)) " to " (at(bar + 1)) ": " (bounded(number)) }
                    }
                }
            }
            div.axis { @for quarter in 0..4 { span { (at(quarter * u64::from(BARS) / 4)) } } }
            p.note { "highest: " (bounded(most)) }
        }
    }
}

fn instances(all: &[StoredInstance], now: StoreTime) -> Markup {
    let is_number = |column: &str| matches!(column, "loaded" | "lacks");
    html! {
        @if all.is_empty() { p.empty { "No instance loads timers." } }
        @else {
            table.rows {
                thead { tr { @for column in INSTANCE { th.key[column == "name"].number[is_number(column)] { (column) } } } }
                tbody { @for instance in all { tr {
                    @for (column, cell) in INSTANCE.iter().zip(instance_cells(instance, now)) {
                        td.number[is_number(column)] data-label=(column) { bdi { (cell) } }
                    }
                } } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_which_no_more_are_counted_has_a_plus() {
        assert_eq!([9_999, 10_000].map(bounded), ["9,999", "10,000+"]);
    }

    #[tokio::test]
    async fn one_timer_among_thousands_has_a_bar() {
        let case = crate::case::Case::new().await;
        let counts = case.operator.counts().await.expect("it counts");
        let summary = Summary::of(&case.operator, counts.clone()).await;
        let mut due = vec![0; 48];
        (due[0], due[1]) = (10_000, 1);
        let shown = Overview {
            summary: summary.expect("it reads"),
            now: counts.now,
            rows: Vec::new(),
            late: 0,
            window: WINDOWS[0].0,
            due,
        };
        let picture = due_picture(&shown).into_string();
        for height in ["height=\"96\"", "height=\"2\""] {
            assert!(picture.contains(height), "{height}: {picture}");
        }
    }
}
