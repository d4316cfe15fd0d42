//! Changes: releases, retries, discards, purges.

use std::io::{BufRead as _, IsTerminal as _};

use indicatif::{ProgressBar, ProgressStyle};
use tickwheel_durable::store::{DeadRows, PrefixRows, Settlement, State, Version};
use tokio::time::Instant;

use super::output::{print, print_json};
use crate::args::{Claims, Dead};
use crate::failure::Failure;
use crate::operator::{Operator, Step, all_steps};
use crate::records::ChangedRecord;

/// So many dead timers of a prefix are found at once.
const FOUND_AT_ONCE: usize = 100;

/// Shows how far it is, on standard error, if that is a terminal.
fn progress(total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {human_pos}/{human_len} {eta}");
    ProgressBar::new(total).with_style(style.expect("the template is right"))
}

fn print_changed(operator: &Operator, changed: u64) -> Result<(), Failure> {
    print_json(&ChangedRecord {
        namespace: operator.namespace.to_string(),
        changed,
    })
}

/// Prints how many there were. None is a failure.
fn finish(operator: &Operator, json: bool, done: &str, changed: u64) -> Result<(), Failure> {
    if json {
        print_changed(operator, changed)?;
    } else if changed > 0 {
        print(&format!("{changed} {done}"))?;
    }
    if changed == 0 {
        return Err(Failure::NotFound(format!(
            "no timer was {done}: there is none"
        )));
    }
    Ok(())
}

async fn settle_all(
    operator: &Operator,
    tokens: Vec<Version>,
    how: Settlement,
) -> Result<u64, Failure> {
    let mut changed = 0;
    for token in tokens {
        changed += u64::from(operator.settle(token, how).await?);
    }
    Ok(changed)
}

pub(super) async fn release(operator: &Operator, json: bool, which: Claims) -> Result<(), Failure> {
    let tokens = match &which.key {
        Some(key) => operator.claims_of(key).await?,
        None => which.tokens,
    };
    let released = settle_all(operator, tokens, Settlement::Release).await?;
    finish(operator, json, "released", released)
}

pub(super) async fn retry(operator: &Operator, json: bool, which: Dead) -> Result<(), Failure> {
    let retried = change_dead(operator, which, async |which| operator.retry(which).await).await?;
    finish(operator, json, "retried", retried)
}

pub(super) async fn discard(
    operator: &Operator,
    json: bool,
    which: Dead,
    in_flight: bool,
) -> Result<(), Failure> {
    let discarded = if in_flight {
        settle_all(operator, which.tokens, Settlement::Ack).await?
    } else {
        change_dead(operator, which, async |which| operator.discard(which).await).await?
    };
    finish(operator, json, "discarded", discarded)
}

/// Changes the chosen dead timers, step by step.
async fn change_dead(
    operator: &Operator,
    which: Dead,
    change: impl AsyncFn(DeadRows) -> Result<Step, Failure>,
) -> Result<u64, Failure> {
    let bar = progress(operator.counts().await?.dead);
    let began = Instant::now();
    if which.all {
        // One that dies again meanwhile is left alone.
        let step = || change(DeadRows::OlderThan(began.elapsed()));
        return all_steps(step, |rows| bar.inc(rows)).await;
    }
    if let Some(prefix) = &which.prefix {
        return change_prefix(operator, operator.prefix(prefix), &bar, change).await;
    }
    let chosen = match &which.key {
        Some(key) => {
            let rows = operator.find(key).await?;
            let dead = rows.into_iter().find(|row| row.state == State::Dead);
            dead.map(|row| DeadRows::Key(row.key)).into_iter().collect()
        }
        None => which
            .tokens
            .into_iter()
            .map(DeadRows::Token)
            .collect::<Vec<_>>(),
    };
    let mut changed = 0;
    for which in chosen {
        changed += all_steps(|| change(which.clone()), |rows| bar.inc(rows)).await?;
    }
    Ok(changed)
}

async fn change_prefix(
    operator: &Operator,
    prefix: Vec<u8>,
    bar: &ProgressBar,
    change: impl AsyncFn(DeadRows) -> Result<Step, Failure>,
) -> Result<u64, Failure> {
    let mut request = PrefixRows::new(State::Dead, prefix, FOUND_AT_ONCE);
    // A timer that dies again meanwhile is left alone.
    let now = operator.counts().await?.now;
    let mut changed = 0;
    loop {
        let page = operator.with_prefix(request.clone()).await?;
        for row in page.rows.into_iter().filter(|row| row.due <= now) {
            let token = DeadRows::Token(row.version);
            changed += all_steps(|| change(token.clone()), |rows| bar.inc(rows)).await?;
        }
        match page.next {
            Some(next) => request.after = Some(next),
            None => return Ok(changed),
        }
    }
}

pub(super) async fn purge(operator: &Operator, json: bool, yes: bool) -> Result<(), Failure> {
    let counts = operator.counts().await?;
    let total = counts.waiting + counts.in_flight + counts.dead;
    if !yes && !is_meant(operator, total)? {
        return Err(Failure::Usage(
            "nothing was deleted: purge needs --yes".to_owned(),
        ));
    }
    let bar = progress(total);
    let purged = all_steps(|| operator.purge(), |rows| bar.inc(rows)).await?;
    bar.finish_and_clear();
    if json {
        return print_changed(operator, purged);
    }
    print(&format!("{purged} deleted"))
}

/// Asks at a terminal for the name of the namespace.
fn is_meant(operator: &Operator, total: u64) -> Result<bool, Failure> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Ok(false);
    }
    eprintln!(
        "{total} timers will be deleted. Type the name of the namespace, {}, to go on:",
        operator.namespace
    );
    let mut line = String::new();
    input.lock().read_line(&mut line)?;
    Ok(line.trim() == operator.namespace.as_str())
}
