//! Rows of timers, and the buttons for them.

use maud::{Markup, html};
use tickwheel_durable::store::{State, StoreTime, Stored};

use super::CELL;
use super::frame::Frame;
use crate::clock::from_now;
use crate::records::due_name;
use crate::shown::{hex, line, text_line};

/// The buttons for timers in a state: action, label, whether it deletes.
fn actions(state: State) -> &'static [(&'static str, &'static str, bool)] {
    match state {
        State::Waiting => &[("run", "Run now", false), ("remove", "Remove", true)],
        State::InFlight => &[
            ("release", "Release", false),
            ("acknowledge", "Acknowledge", true),
        ],
        State::Dead => &[("retry", "Retry", false), ("discard", "Discard", true)],
        _ => &[],
    }
}

/// How a form names a row.
fn name(row: &Stored) -> String {
    match row.state {
        State::Waiting => format!("key-{}", hex(&row.key)),
        _ => format!("token-{}", row.version.0),
    }
}

/// The fields of each form that changes something.
pub(super) fn hidden(frame: &Frame<'_>, back: &str) -> Markup {
    html! {
        input type="hidden" name="csrf" value=(frame.csrf);
        input type="hidden" name="back" value=(back);
    }
}

/// Where forms of this namespace are sent.
pub(super) fn target(frame: &Frame<'_>) -> String {
    format!("/n/{}/change", frame.current)
}

/// The buttons for timers in a state that are chosen otherwise, and a field for moves.
pub(super) fn buttons(state: State) -> Markup {
    html! {
        @for (action, label, is_danger) in actions(state) {
            button.danger[*is_danger] name="action" value=(action) { (label) }
        }
        @if state == State::Waiting {
            span.move {
                input name="in" size="6" placeholder="15m" aria-label="from now";
                button name="action" value="move" { "Move" }
            }
        }
    }
}

/// Rows of a state in a table. If changes are allowed, each has a box to select it, and there are
/// buttons.
pub(super) fn table(
    frame: &Frame<'_>,
    state: State,
    rows: &[Stored],
    now: StoreTime,
    back: &str,
) -> Markup {
    let table = html! {
        table.rows {
            thead { tr {
                @if frame.allow_changes {
                    th.box { input type="checkbox" data-all="" aria-label="all rows"; }
                }
                th.key { "key" } th.value { "value" } th.time { (due_name(state)) }
                @if state == State::InFlight { th { "claimed by" } }
                th.number { "attempt" }
                @if state != State::InFlight { th { "error" } }
                @if frame.allow_changes { th.one { "" } }
            } }
            tbody { @for row in rows { tr {
                @if frame.allow_changes {
                    td.box { input type="checkbox" name="row" value=(name(row)) aria-label={ "select " (line(&row.key, CELL)) }; }
                }
                td.key data-label="key" {
                    a.text href={ "/n/" (frame.current) "/timer/" (hex(&row.key)) } { bdi { (line(&row.key, CELL)) } }
                }
                td.value data-label="value" { span.text { bdi { (line(&row.value, CELL)) } } }
                td data-label=(due_name(state)) title=(row.due) { (from_now(row.due, now)) }
                @if state == State::InFlight {
                    td data-label="claimed by" { @if let Some(id) = row.claimed_by { (id.0) } @else { "-" } }
                }
                td.number data-label="attempt" { (row.attempt) }
                @if state != State::InFlight {
                    @if let Some(error) = &row.error {
                        td data-label="error" { span.text { bdi { (text_line(error, CELL)) } } }
                    }
                    @else { td.none { "-" } }
                }
                @if frame.allow_changes { td.one {
                    @for (action, label, is_danger) in actions(state).iter().take(1) {
                        button.danger[*is_danger] name="one" value={ (action) " " (name(row)) } { (label) }
                    }
                } }
            } } }
        }
    };
    html! {
        @if rows.is_empty() { p.empty { "None." } }
        @else if frame.allow_changes {
            form method="post" action=(target(frame)) {
                (hidden(frame, back))
                div.actions { span { "Selected:" } (buttons(state)) }
                (table)
            }
        }
        @else { (table) }
    }
}

/// The buttons for one row, on the page of its key.
pub(super) fn of_one(frame: &Frame<'_>, row: &Stored, back: &str) -> Markup {
    html! {
        @if frame.allow_changes {
            form.actions method="post" action=(target(frame)) {
                (hidden(frame, back))
                input type="hidden" name="row" value=(name(row));
                (buttons(row.state))
            }
        }
    }
}
