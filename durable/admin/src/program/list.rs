//! Lists of timers.

use tickwheel_durable::store::{State, StoreTime, Stored};

use super::args::List;
use super::output::{print, print_json, table};
use super::records;
use crate::clock::from_now;
use crate::details::{details, due_name, state_text};
use crate::failure::Failure;
use crate::listing::{self, Filter, Rows};
use crate::operator::Operator;
use crate::shown::{line, text_line};

/// A key, value or error in a table has at most this many characters.
const KEY: usize = 48;
const VALUE: usize = 60;

/// Prints a page.
pub(super) async fn list(operator: &Operator, json: bool, which: List) -> Result<(), Failure> {
    let prefix = match which.prefix.filter(|prefix| !prefix.is_empty()) {
        Some(prefix) => Some(operator.prefix(&prefix, which.hex, which.state).await?),
        None => None,
    };
    let filter = Filter {
        state: which.state,
        prefix,
        error: which.error,
    };
    let (after, limit) = (which.after.as_deref(), which.limit);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let Rows { rows, next } = listing::page(operator, &filter, after, limit).await?;
    if json {
        return print_json(&records::timers(operator, &rows, next.as_deref()));
    }
    let now = operator.counts().await?.now;
    print(&page_text(&rows, next.as_deref(), now))
}

/// The timers of a page, and how to read on.
fn page_text(rows: &[Stored], next: Option<&str>, now: StoreTime) -> String {
    let shown = rows_table(rows, now);
    match next {
        // Others were looked at.
        Some(next) if rows.is_empty() => format!("none so far: more with --after {next}"),
        Some(next) => format!("{shown}\nmore with --after {next}"),
        None => shown,
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
            state_text(row.state).to_owned(),
            when,
            row.attempt.to_string(),
            token.unwrap_or_default(),
            text_line(row.error.as_deref().unwrap_or_default(), VALUE),
        ]);
    }
    shown.to_string()
}

/// Shows the timers with a key, the latest ones in each state.
pub(super) async fn show(
    operator: &Operator,
    json: bool,
    key: &str,
    is_hex: bool,
) -> Result<(), Failure> {
    let rows = operator.rows_of(operator.key(key, is_hex).await?).await?;
    if rows.is_empty() {
        return Err(Failure::NotFound(format!(
            "namespace {} has no timer with the key {}",
            operator.namespace,
            text_line(key, KEY)
        )));
    }
    if json {
        return print_json(&records::timers(operator, &rows, None));
    }
    let now = operator.counts().await?.now;
    let shown: Vec<_> = rows.iter().map(|row| all_of(row, now)).collect();
    print(&shown.join("\n\n"))
}

/// Everything about a timer, a line for each thing.
fn all_of(row: &Stored, now: StoreTime) -> String {
    let mut lines = vec![
        ("key", line(&row.key, usize::MAX)),
        ("state", state_text(row.state).to_owned()),
    ];
    lines.extend(details(row, now));
    let lines = lines.iter().map(|(name, text)| {
        let text = text.replace('\n', &format!("\n{:18}", ""));
        format!("{name:<18}{text}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tickwheel_durable::store::{InstanceId, Version};

    use super::*;
    use crate::details::STATES;

    /// It is due later than its deadline while it waits for its next attempt.
    #[test]
    fn table_has_the_time_that_matters_in_the_state_of_the_timer() {
        let now = StoreTime::from_micros(1_000_000_000);
        for (state, when) in STATES.into_iter().zip(["due", "lease ends", "died"]) {
            let due = now.before(Duration::from_secs(60));
            let (key, value) = (b"a".to_vec(), b"1".to_vec());
            let mut row = Stored::new(Version(17), state, key, value, due);
            row.deadline = now.before(Duration::from_secs(600));
            let table = rows_table(&[row], now);
            let when = format!("{when} 1 min ago");
            assert!(table.contains(&when), "{when}: {table}");
        }
    }

    #[test]
    fn table_names_who_has_claimed_a_timer_in_flight() {
        let now = StoreTime::from_micros(1_000_000_000);
        for state in STATES {
            let (key, value) = (b"a".to_vec(), b"1".to_vec());
            let mut row = Stored::new(Version(17), state, key, value, now);
            row.claimed_by = Some(InstanceId(5));
            let table = rows_table(&[row], now);
            let is_named = table.contains("claimed by 5");
            assert_eq!(is_named, state == State::InFlight, "{table}");
        }
    }

    #[test]
    fn empty_page_before_others_says_none_so_far() {
        let now = StoreTime::default();
        let text = page_text(&[], Some("17-1"), now);
        assert_eq!(text, "none so far: more with --after 17-1");
        let row = Stored::new(Version(1), State::Dead, b"a".to_vec(), b"1".to_vec(), now);
        let text = page_text(&[row], Some("17-1"), now);
        assert!(text.ends_with("\nmore with --after 17-1"), "{text}");
    }
}
