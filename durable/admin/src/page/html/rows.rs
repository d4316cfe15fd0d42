//! Rows of timers, and the buttons for them.

use maud::{Markup, html};
use tickwheel_durable::store::{State, StoreTime, Stored};

use super::CELL;
use super::frame::Frame;
use crate::actions::{Action, Selection};
use crate::clock::from_now;
use crate::details::due_name;
use crate::shown::{hex, key_line, line, text_line};

/// The buttons for timers in a state: action and label.
fn actions(state: State) -> &'static [(Action, &'static str)] {
    match state {
        State::Waiting => &[(Action::Run, "Run now"), (Action::Remove, "Remove")],
        State::InFlight => &[
            (Action::Release, "Release"),
            (Action::Acknowledge, "Acknowledge"),
        ],
        State::Dead => &[(Action::Retry, "Retry"), (Action::Discard, "Discard")],
        _ => &[],
    }
}

/// Whether the action deletes even a single timer.
fn is_danger(action: Action) -> bool {
    action.needs_confirmation(&Selection::Keys(Vec::new()))
}

/// How a form names a row.
fn name(row: &Stored) -> String {
    match row.state {
        State::Waiting => format!("key-{}", hex(&row.key)),
        _ => format!("token-{}", row.version.0),
    }
}

/// A form that changes timers of this namespace and leads back to a page.
pub(super) fn form(frame: &Frame<'_>, back: &str, class: &str, content: &Markup) -> Markup {
    html! {
        form class=(class) method="post" action=(frame.here("/change")) {
            input type="hidden" name="back" value=(back);
            (content)
        }
    }
}

/// The buttons for timers in a state that are chosen otherwise, and a field for moves. Its button
/// comes first, since Enter in a field presses the first button of its form.
fn buttons(state: State) -> Markup {
    html! {
        @if state == State::Waiting {
            span.move {
                input name="in" size="6" placeholder="15m" aria-label="from now";
                button name="action" value="move" { "Move" }
            }
        }
        @for &(action, label) in actions(state) {
            button.danger[is_danger(action)] name="action" value=(action.verb()) { (label) }
        }
    }
}

/// Buttons for many timers, whichever the fields name.
pub(super) fn buttons_for_all(
    frame: &Frame<'_>,
    state: State,
    back: &str,
    field: (&str, &str),
    what: &str,
) -> Markup {
    let content = html! {
        input type="hidden" name=(field.0) value=(field.1);
        span { (what) }
        (buttons(state))
    };
    form(frame, back, "actions all", &content)
}

/// The buttons for one row, on the page of its key.
pub(super) fn buttons_for_one(frame: &Frame<'_>, row: &Stored, back: &str) -> Markup {
    let content = html! {
        input type="hidden" name="row" value=(name(row));
        (buttons(row.state))
    };
    form(frame, back, "actions", &content)
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
    let has_error = state != State::InFlight;
    let table = html! {
        table.rows {
            thead { tr {
                @if frame.allow_changes {
                    th.box { input type="checkbox" data-all="" aria-label="all rows"; }
                }
                th.key { "key" } th.value { "value" } th.time { (due_name(state)) }
                @if has_error { th { "error" } } @else { th { "claimed by" } }
                th.number { "attempt" }
                @if frame.allow_changes { th.one { "" } }
            } }
            tbody { @for row in rows { tr {
                @if frame.allow_changes {
                    td.box { input type="checkbox" name="row" value=(name(row)) aria-label={ "select " (key_line(&row.key, CELL)) }; }
                }
                td.key data-label="key" {
                    a.text href=(frame.here(&format!("/timer/{}", hex(&row.key)))) { bdi { (key_line(&row.key, CELL)) } }
                }
                td.value data-label="value" { span.text { bdi { (line(&row.value, CELL)) } } }
                td data-label=(due_name(state)) title=(row.due) { (from_now(row.due, now)) }
                @if !has_error {
                    td data-label="claimed by" { (row.claimed_by.map_or("-".to_owned(), |id| id.0.to_string())) }
                } @else if let Some(error) = &row.error {
                    td data-label="error" { span.text { bdi { (text_line(error, CELL)) } } }
                } @else { td.none { "-" } }
                td.number.none[row.attempt == 0] data-label="attempt" { (row.attempt) }
                @if frame.allow_changes { td.one {
                    @if let [(action, label), ..] = actions(state) {
                        button name="one" value={ (action.verb()) " " (name(row)) } { (label) }
                    }
                } }
            } } }
        }
    };
    html! {
        @if rows.is_empty() { p.empty { "None." } }
        @else if frame.allow_changes {
            (form(frame, back, "", &html! {
                div.actions.selected { span { "Selected:" } (buttons(state)) }
                (table)
            }))
        }
        @else { (table) }
    }
}
