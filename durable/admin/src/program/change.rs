//! Changes: removes, moves, runs, releases, acknowledges, retries, discards, purges.

use std::io::{BufRead as _, IsTerminal as _};
use std::pin::pin;

use indicatif::{ProgressBar, ProgressStyle};
use tickwheel_durable::store::State;

use super::args::{Change, Which};
use super::output::{print, print_json};
use super::{records, stop};
use crate::actions::{Action, Outcome, Selection, Work, question, sum};
use crate::failure::Failure;
use crate::operator::{Operator, write_stderr};

/// The user that runs the program.
pub(super) fn who() -> String {
    let name = whoami::username().unwrap_or_else(|_| "unknown".to_owned());
    match std::env::var("SUDO_USER") {
        Ok(real) => format!("{real} as {name}"),
        Err(_) => name,
    }
}

pub(super) async fn change(operator: &Operator, json: bool, change: Change) -> Result<(), Failure> {
    let (action, which) = change.parts();
    let yes = which.yes;
    // Keys and tokens are of one part; the others may be in all.
    let parts = if which.all || which.prefix.is_some() {
        operator.all_parts()
    } else {
        vec![operator.clone()]
    };
    let mut questions = Vec::new();
    for part in &parts {
        let selection = select(part, action, which.clone()).await?;
        questions.push(question(part, action, selection).await?);
    }
    let (number, what) = sum(&questions);
    let first = &questions[0].selection;
    if action.needs_confirmation(first) && !yes {
        let which = match first {
            Selection::All => String::new(),
            selection => format!(", {}", selection.shown()),
        };
        let what = format!("{} {what}{which}", action.verb());
        let namespace = operator.namespace.clone();
        // The connection to the store goes on meanwhile.
        let asked = tokio::task::spawn_blocking(move || ask(namespace.as_str(), &what)).await;
        asked.map_err(|error| Failure::Failed(error.to_string()))??;
    }
    // On standard error, if that is a terminal.
    let style = ProgressStyle::with_template("{bar:40} {human_pos}/{human_len} {eta}");
    let bar = ProgressBar::new(number).with_style(style.expect("the template is right"));
    let (who, progress, stop) = (who(), |rows| bar.inc(rows), stop()?);
    let mut done = Outcome::default();
    let mut stop = pin!(stop);
    for (part, question) in parts.iter().zip(&questions) {
        let mut work = Work::new(part, &who, question, &progress);
        tokio::select! {
            () = work.run() => {}
            () = &mut stop => {}
        }
        done.add(work.outcome.clone());
        if done.failure.is_some() {
            break;
        }
    }
    bar.finish_and_clear();
    finish(operator, json, action, done)
}

/// Prints how many were changed, and why others were left, also if it has failed. None is a
/// failure, but for a purge.
fn finish(operator: &Operator, json: bool, action: Action, done: Outcome) -> Result<(), Failure> {
    let mut left = done.left();
    let printed = if json {
        print_json(&records::changed(operator, &done))
    } else if done.changed > 0 || done.failure.is_some() || action == Action::Purge {
        let mut lines = vec![format!("{} {}", done.changed, action.past())];
        lines.extend(left.iter().cloned());
        print(&lines.join("\n"))
    } else {
        Ok(())
    };
    // Its reader may have gone, and it has failed all the same.
    if let Some(failure) = done.failure {
        return Err(failure);
    }
    printed?;
    if done.changed > 0 || action == Action::Purge {
        return Ok(());
    }
    if left.is_empty() {
        left.push("there is none".to_owned());
    }
    let (done, why) = (action.past(), left.join("\n"));
    Err(Failure::NotFound(format!("no timer was {done}: {why}")))
}

/// Asks at a terminal for the name of the namespace.
fn ask(namespace: &str, what: &str) -> Result<(), Failure> {
    let nothing = |why: &str| Failure::Usage(format!("nothing was changed: to {what} {why}"));
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err(nothing("needs --yes"));
    }
    write_stderr(&format!(
        "{what}, in namespace {namespace}. This cannot be undone. Type the name of the namespace to go on:"
    ));
    let mut line = String::new();
    input.lock().read_line(&mut line)?;
    if line.trim() != namespace {
        return Err(nothing("needs the name of the namespace"));
    }
    Ok(())
}

async fn select(operator: &Operator, action: Action, which: Which) -> Result<Selection, Failure> {
    if let Some(prefix) = which.prefix {
        let state = action.state().unwrap_or(State::Waiting);
        let prefix = operator.prefix(&prefix, which.hex, state).await?;
        return Ok(Selection::Prefix(prefix));
    }
    if which.all {
        return Ok(Selection::All);
    }
    if !which.tokens.is_empty() {
        return Ok(Selection::Tokens(which.tokens));
    }
    let mut keys = Vec::new();
    for key in &which.keys {
        let key = operator.key(key, which.hex).await?;
        // Named twice, it is changed once.
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    Ok(Selection::Keys(keys))
}
