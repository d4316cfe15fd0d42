//! Lists of timers.

use tickwheel_durable::store::{List, PrefixCursor, PrefixRows, State, StoreTime, Stored, Version};

use super::output::{print, print_json, table};
use crate::args::{Chosen, Key};
use crate::clock::{from_now, span};
use crate::failure::Failure;
use crate::operator::{Operator, position};
use crate::records::{TimersRecord, due_name, state_name};
use crate::shown::{from_hex, hex, line, text_line, whole};

/// A key, value or error in a table has at most so many characters.
const KEY: usize = 48;
const VALUE: usize = 60;

pub(super) async fn list(
    operator: &Operator,
    json: bool,
    state: State,
    keys: &Chosen,
    limit: u32,
    after: Option<String>,
) -> Result<(), Failure> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let (rows, next) = match prefix_bytes(operator, keys)? {
        Some(prefix) => with_prefix(operator, state, prefix, limit, after).await?,
        None => by_time(operator, state, limit, after).await?,
    };
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

fn prefix_bytes(operator: &Operator, keys: &Chosen) -> Result<Option<Vec<u8>>, Failure> {
    let Some(text) = &keys.prefix else {
        return Ok(None);
    };
    if keys.hex {
        return hex_bytes(text).map(Some);
    }
    if keys.raw {
        return Ok(Some(text.as_bytes().to_vec()));
    }
    Ok(Some(operator.prefix(text)))
}

fn hex_bytes(digits: &str) -> Result<Vec<u8>, Failure> {
    from_hex(digits)
        .ok_or_else(|| Failure::Usage(format!("{digits:?} is not pairs of hexadecimal digits")))
}

fn wrong_after(after: &str) -> Failure {
    Failure::Usage(format!(
        "--after {after:?} is not what a list of this kind has shown"
    ))
}

async fn by_time(
    operator: &Operator,
    state: State,
    limit: usize,
    after: Option<String>,
) -> Result<(Vec<Stored>, Option<String>), Failure> {
    let parse = |text: &str| {
        let (due, version) = text.split_once('-')?;
        Some((
            StoreTime::from_micros(due.parse().ok()?),
            Version(version.parse().ok()?),
        ))
    };
    let mut after = match after {
        Some(text) => Some(parse(&text).ok_or_else(|| wrong_after(&text))?),
        None => None,
    };
    let mut rows: Vec<Stored> = Vec::new();
    while rows.len() < limit {
        let page = operator
            .list(List::new(state, after, limit - rows.len()))
            .await?;
        let Some(last) = page.last() else {
            return Ok((rows, None));
        };
        after = Some(position(last));
        rows.extend(page);
    }
    let next = after.map(|(due, version)| format!("{}-{}", due.as_micros(), version.0));
    Ok((rows, next))
}

async fn with_prefix(
    operator: &Operator,
    state: State,
    prefix: Vec<u8>,
    limit: usize,
    after: Option<String>,
) -> Result<(Vec<Stored>, Option<String>), Failure> {
    let mut request = PrefixRows::new(state, prefix, limit);
    request.after = match after {
        Some(text) => {
            let bytes = from_hex(&text).ok_or_else(|| wrong_after(&text))?;
            Some(PrefixCursor(bytes))
        }
        None => None,
    };
    let mut rows = Vec::new();
    loop {
        request.limit = limit - rows.len();
        let page = operator.with_prefix(request.clone()).await?;
        rows.extend(page.rows);
        let Some(next) = page.next else {
            return Ok((rows, None));
        };
        if rows.len() >= limit {
            return Ok((rows, Some(hex(&next.0))));
        }
        request.after = Some(next);
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
pub(super) async fn show(operator: &Operator, json: bool, key: &Key) -> Result<(), Failure> {
    let rows = if key.hex {
        operator.rows_of(hex_bytes(&key.key)?).await?
    } else {
        operator.find(&key.key).await?
    };
    if rows.is_empty() {
        return Err(Failure::NotFound(format!(
            "namespace {} has no timer with the key {}",
            operator.namespace,
            text_line(&key.key, KEY)
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
