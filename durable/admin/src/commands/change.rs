//! Changes: removes, moves, runs, releases, retries, discards, purges.

use std::io::{BufRead as _, IsTerminal as _};

use indicatif::{ProgressBar, ProgressStyle};

use super::output::{print, print_json};
use crate::actions::{Action, Done, Selection, act, count};
use crate::args::{Claims, Dead, KeyForm, Waiting};
use crate::failure::Failure;
use crate::operator::Operator;
use crate::records::ChangedRecord;

/// Shows how far it is, on standard error, if that is a terminal.
fn progress(total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {human_pos}/{human_len} {eta}");
    ProgressBar::new(total).with_style(style.expect("the template is right"))
}

/// The user that runs the program.
fn who() -> String {
    let name = whoami::username().unwrap_or_else(|_| "unknown".to_owned());
    match std::env::var("SUDO_USER") {
        Ok(real) => format!("{real} as {name}"),
        Err(_) => name,
    }
}

pub(super) async fn change(
    operator: &Operator,
    json: bool,
    action: Action,
    selection: Selection,
    yes: bool,
) -> Result<(), Failure> {
    let is_one = matches!(&selection, Selection::Keys(keys) if keys.len() == 1);
    let (total, what) = count(operator, action, &selection).await?;
    if action.is_asked(&selection) && !yes {
        let which = match &selection {
            Selection::All => String::new(),
            selection => format!(", {}", selection.shown()),
        };
        ask(operator, &format!("{} {what}{which}", action.verb()))?;
    }
    let bar = progress(total);
    let done = act(operator, &who(), action, selection, &|rows| bar.inc(rows)).await;
    bar.finish_and_clear();
    finish(operator, json, action, is_one, &done?)
}

/// Prints how many there were, and why others were left. None is a failure, but for a purge.
fn finish(
    operator: &Operator,
    json: bool,
    action: Action,
    is_one: bool,
    done: &Done,
) -> Result<(), Failure> {
    if json {
        print_json(&ChangedRecord::new(operator.namespace.as_str(), done))?;
    } else if done.changed > 0 || action == Action::Purge {
        print(&format!("{} {}", done.changed, action.done()))?;
        for reason in &done.reasons {
            print(reason)?;
        }
        if done.in_flight > 0 && done.reasons.is_empty() {
            print(&format!("{} in flight were left alone", done.in_flight))?;
        }
    }
    if done.changed > 0 || action == Action::Purge {
        return Ok(());
    }
    let why = match &done.reasons[..] {
        [] => "there is none".to_owned(),
        reasons if is_one => reasons.join("; "),
        reasons => reasons.join("\n"),
    };
    Err(Failure::NotFound(format!(
        "no timer was {}: {why}",
        action.done()
    )))
}

/// Asks at a terminal for the name of the namespace.
fn ask(operator: &Operator, what: &str) -> Result<(), Failure> {
    let nothing = |why: &str| Failure::Usage(format!("nothing was changed: to {what} {why}"));
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err(nothing("needs --yes"));
    }
    let namespace = operator.namespace.as_str();
    eprintln!(
        "{what}, in namespace {namespace}. This cannot be undone. Type the name of the namespace to go on:"
    );
    let mut line = String::new();
    input.lock().read_line(&mut line)?;
    if line.trim() != namespace {
        return Err(nothing("needs the name of the namespace"));
    }
    Ok(())
}

/// The waiting timers that were chosen.
pub(super) async fn waiting(operator: &Operator, which: Waiting) -> Result<Selection, Failure> {
    if let Some(prefix) = &which.prefix {
        return Ok(Selection::Prefix(operator.prefix(prefix, which.form)?));
    }
    let mut keys = Vec::new();
    for key in &which.keys {
        keys.push(operator.key(key, which.form).await?);
    }
    Ok(Selection::Keys(keys))
}

pub(super) async fn claims(
    operator: &Operator,
    which: Claims,
    form: KeyForm,
) -> Result<Selection, Failure> {
    Ok(match which.key {
        Some(key) => Selection::Keys(vec![operator.key(&key, form).await?]),
        None => Selection::Tokens(which.tokens),
    })
}

pub(super) async fn dead(
    operator: &Operator,
    which: Dead,
    form: KeyForm,
) -> Result<Selection, Failure> {
    Ok(match (which.key, which.prefix) {
        (Some(key), _) => Selection::Keys(vec![operator.key(&key, form).await?]),
        (_, Some(prefix)) => Selection::Prefix(operator.prefix(&prefix, form)?),
        _ if which.all => Selection::All,
        _ => Selection::Tokens(which.tokens),
    })
}
