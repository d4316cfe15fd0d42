//! Lists of timers.

use tickwheel_durable::store::{State, StoreTime, Stored};

use super::output::{print, print_json, table};
use crate::args::KeyForm;
use crate::clock::{from_now, span};
use crate::failure::Failure;
use crate::listing::{self, Filter, Page};
use crate::operator::Operator;
use crate::records::{TimersRecord, due_name, state_name};
use crate::shown::{line, text_line, whole};

/// A key, value or error in a table has at most so many characters.
const KEY: usize = 48;
const VALUE: usize = 60;

/// Prints a page.
pub(super) async fn list(
    operator: &Operator,
    json: bool,
    filter: &Filter,
    limit: u32,
    after: Option<&str>,
) -> Result<(), Failure> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let Page { rows, next } = listing::page(operator, filter, after, limit).await?;
    if json {
        return print_json(&TimersRecord {
            namespace: operator.namespace.to_string(),
            timers: rows.iter().map(Into::into).collect(),
            next,
        });
    }
    let now = operator.counts().await?.now;
    print(&rows_table(&rows, now))?;
    match next {
        Some(next) => print(&format!("more with --after {next}")),
        None => Ok(()),
    }
}

fn rows_table(rows: &[Stored], now: StoreTime) -> String {
    let mut shown = table(&["key", "value", "state", "when", "attempt", "token", "error"]);
    for row in rows {
        let mut when = format!("{} {}", due_name(row.state), from_now(row.due, now));
        if let (State::InFlight, Some(id)) = (row.state, row.claimed_by) {
            when = format!("{when}, claimed by {}", id.0);
        }
        let token = (row.state != State::Waiting).then(|| row.version.0.to_string());
        shown.add_row([
            line(&row.key, KEY),
            line(&row.value, VALUE),
            state_name(row.state).replace('_', " "),
            when,
            row.attempt.to_string(),
            token.unwrap_or_default(),
            text_line(row.error.as_deref().unwrap_or_default(), VALUE),
        ]);
    }
    shown.to_string()
}

/// Shows all timers with a key.
pub(super) async fn show(
    operator: &Operator,
    json: bool,
    key: &str,
    form: KeyForm,
) -> Result<(), Failure> {
    let rows = operator.rows_of(operator.key(key, form).await?).await?;
    if rows.is_empty() {
        return Err(Failure::NotFound(format!(
            "namespace {} has no timer with the key {}",
            operator.namespace,
            text_line(key, KEY)
        )));
    }
    if json {
        return print_json(&TimersRecord {
            namespace: operator.namespace.to_string(),
            timers: rows.iter().map(Into::into).collect(),
            next: None,
        });
    }
    let now = operator.counts().await?.now;
    let shown: Vec<_> = rows.iter().map(|row| details(row, now)).collect();
    print(&shown.join("\n\n"))
}

/// Everything about a timer, a line for each thing.
fn details(row: &Stored, now: StoreTime) -> String {
    let mut lines = vec![("key", line(&row.key, usize::MAX - 1))];
    let at = |time: StoreTime| format!("{time} ({})", from_now(time, now));
    lines.push(("state", state_name(row.state).replace('_', " ")));
    lines.push(("deadline", at(row.deadline)));
    lines.push((due_name(row.state), at(row.due)));
    lines.push(("attempt", row.attempt.to_string()));
    if row.state != State::Waiting {
        lines.push(("token", row.version.0.to_string()));
    }
    if let Some(period) = row.period {
        lines.push(("every", span(period)));
    }
    if let Some(schedule) = &row.schedule {
        lines.push(("every", schedule.clone()));
    }
    if let Some(id) = row.claimed_by {
        lines.push(("claimed by", id.0.to_string()));
    }
    if let Some(id) = row.loaded_by {
        lines.push(("on the wheel of", id.0.to_string()));
    }
    if let Some(error) = &row.error {
        lines.push(("error", whole(error.as_bytes())));
    }
    lines.push(("value", whole(&row.value)));
    let lines = lines.iter().map(|(name, text)| {
        let text = text.replace('\n', &format!("\n{:18}", ""));
        format!("{name:<18}{text}")
    });
    lines.collect::<Vec<_>>().join("\n")
}
