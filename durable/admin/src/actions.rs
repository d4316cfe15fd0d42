//! What an operator changes, for the program and the page: each change is bounded, answers with
//! what was found, and is logged.

use std::time::{Duration, SystemTime};

use tickwheel_durable::store::{
    Change, DeadRows, PrefixChange, PrefixRows, Settlement, State, StoreTime, Stored, Version,
};
use tokio::time::Instant;

use crate::failure::Failure;
use crate::operator::{KeyChange, Operator, Step, all_steps};
use crate::shown::{line, text_line};

/// So many dead timers of a prefix are found at once.
const FOUND_AT_ONCE: usize = 100;

/// So many timers are counted before a question.
const COUNTED: usize = 10_000;

/// So many reasons are told.
const REASONS: usize = 10;

/// A key or prefix in a log line has at most so many characters.
const LOGGED: usize = 200;

/// A change of timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Remove,
    MoveIn(Duration),
    Run,
    Retry,
    Discard,
    Release,
    Acknowledge,
    Purge,
}

/// To which timers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Selection {
    Keys(Vec<Vec<u8>>),
    Tokens(Vec<Version>),
    Prefix(Vec<u8>),
    All,
}

/// The outcome of a change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) changed: u64,
    /// How many were not changed because they are in flight.
    pub(crate) in_flight: u64,
    /// How many were not changed because an open transaction has changed their keys.
    pub(crate) locked: u64,
    /// Why others were not changed: the first of them.
    pub(crate) reasons: Vec<String>,
}

impl Done {
    fn because(&mut self, reason: String) {
        if self.reasons.len() < REASONS {
            self.reasons.push(reason);
        }
    }
}

impl Action {
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Action::Remove => "remove",
            Action::MoveIn(_) => "move",
            Action::Run => "run",
            Action::Retry => "retry",
            Action::Discard => "discard",
            Action::Release => "release",
            Action::Acknowledge => "acknowledge",
            Action::Purge => "purge",
        }
    }

    /// The outcome for the timers.
    pub(crate) fn done(self) -> &'static str {
        match self {
            Action::Remove => "removed",
            Action::MoveIn(_) => "moved",
            Action::Run => "made due now",
            Action::Retry => "retried",
            Action::Discard => "discarded",
            Action::Release => "released",
            Action::Acknowledge => "acknowledged",
            Action::Purge => "deleted",
        }
    }

    /// The state of the timers that it changes.
    pub(crate) fn state(self) -> Option<State> {
        match self {
            Action::Remove | Action::MoveIn(_) | Action::Run => Some(State::Waiting),
            Action::Release | Action::Acknowledge => Some(State::InFlight),
            Action::Retry | Action::Discard => Some(State::Dead),
            Action::Purge => None,
        }
    }

    /// Whether it is asked first: nothing brings back what is deleted, or the deadlines of many.
    pub(crate) fn is_asked(self, selection: &Selection) -> bool {
        match self {
            Action::Remove | Action::Discard | Action::Acknowledge | Action::Purge => true,
            Action::MoveIn(_) | Action::Run => matches!(selection, Selection::Prefix(_)),
            Action::Retry | Action::Release => false,
        }
    }

    fn change(self) -> Option<Change> {
        match self {
            Action::Remove => Some(Change::Remove),
            Action::MoveIn(delay) => Some(Change::MoveIn(delay)),
            Action::Run => Some(Change::Run),
            _ => None,
        }
    }
}

impl Selection {
    /// The keys of rows that wait, or else their tokens.
    pub(crate) fn shown(&self) -> String {
        let few = |texts: Vec<String>| match &texts[..] {
            [only] => only.clone(),
            many => format!("{} of them", many.len()),
        };
        match self {
            Selection::Keys(keys) => few(keys.iter().map(|key| line(key, LOGGED)).collect()),
            Selection::Tokens(tokens) => few(tokens
                .iter()
                .map(|token| format!("token {}", token.0))
                .collect()),
            Selection::Prefix(prefix) => format!("those that begin with {}", line(prefix, LOGGED)),
            Selection::All => "all".to_owned(),
        }
    }
}

fn state_text(state: State) -> &'static str {
    match state {
        State::Waiting => "waiting",
        State::InFlight => "in flight",
        _ => "dead",
    }
}

/// How many timers it would change, as a text: `3 dead timers`. Counting stops at some thousands.
pub(crate) async fn count(
    operator: &Operator,
    action: Action,
    selection: &Selection,
) -> Result<(u64, String), Failure> {
    let counts = operator.counts().await?;
    let state = action.state();
    let (number, about) = match selection {
        Selection::Keys(keys) => (keys.len() as u64, ""),
        Selection::Tokens(tokens) => (tokens.len() as u64, ""),
        Selection::Prefix(prefix) => {
            let state = state.unwrap_or(State::Waiting);
            let mut request = PrefixRows::new(state, prefix.clone(), 1_000);
            let (mut found, mut more) = (0, true);
            while more && found < COUNTED {
                let page = operator.with_prefix(request.clone()).await?;
                found += page.rows.len();
                more = page.next.is_some();
                request.after = page.next;
            }
            (found as u64, if more { "over " } else { "" })
        }
        Selection::All => {
            let number = match state {
                Some(State::Dead) => counts.dead,
                _ => counts.waiting + counts.in_flight + counts.dead,
            };
            (number, if counts.is_estimate { "about " } else { "" })
        }
    };
    let state = state.map_or(String::new(), |state| format!("{} ", state_text(state)));
    let s = if number == 1 { "" } else { "s" };
    let digits = crate::shown::separated(number);
    Ok((number, format!("{about}{digits} {state}timer{s}")))
}

/// Does it, step by step, and logs it with who did it.
pub(crate) async fn act(
    operator: &Operator,
    who: &str,
    action: Action,
    selection: Selection,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Done, Failure> {
    let shown = selection.shown();
    let mut done = Done::default();
    let ended = change(operator, action, selection, progress, &mut done).await;
    let failed = ended.as_ref().err().map(ToString::to_string);
    log(operator, who, action, &shown, &done, failed.as_deref());
    ended?;
    if done.locked > 0 {
        return Err(Failure::Failed(format!(
            "{} {}, and {} not: open transactions have changed their keys",
            done.changed,
            action.done(),
            done.locked
        )));
    }
    Ok(done)
}

/// One line for each change.
fn log(
    operator: &Operator,
    who: &str,
    action: Action,
    which: &str,
    done: &Done,
    failed: Option<&str>,
) {
    let to = match action {
        Action::MoveIn(delay) => format!(" in={}", humantime::format_duration(delay)),
        _ => String::new(),
    };
    let error = failed.map_or(String::new(), |error| {
        format!(" error={:?}", text_line(error, LOGGED))
    });
    eprintln!(
        "change: time={} who={:?} namespace={} action={}{to} which={:?} changed={}{error}",
        StoreTime::from(SystemTime::now()),
        text_line(who, LOGGED),
        operator.namespace,
        action.verb(),
        text_line(which, LOGGED),
        done.changed,
    );
}

async fn change(
    operator: &Operator,
    action: Action,
    selection: Selection,
    progress: &(dyn Fn(u64) + Sync),
    done: &mut Done,
) -> Result<(), Failure> {
    let wrong = || Failure::Usage(format!("{} does not take that choice", action.verb()));
    match (action, selection) {
        (Action::Purge, Selection::All) => steps(done, progress, || operator.purge()).await,
        (Action::Remove | Action::MoveIn(_) | Action::Run, selection) => {
            let change = action.change().expect("these are changes");
            match selection {
                Selection::Keys(keys) => {
                    for key in keys {
                        change_key(operator, key, change, done).await?;
                        progress(1);
                    }
                    Ok(())
                }
                Selection::Prefix(prefix) => {
                    change_prefix(operator, prefix, change, progress, done).await
                }
                _ => Err(wrong()),
            }
        }
        (Action::Retry | Action::Discard, selection) => {
            let retries = action == Action::Retry;
            change_dead(operator, selection, retries, progress, done).await
        }
        (Action::Release | Action::Acknowledge, selection) => {
            let how = match action {
                Action::Release => Settlement::Release,
                _ => Settlement::Ack,
            };
            settle(operator, selection, how, done).await
        }
        (Action::Purge, _) => Err(wrong()),
    }
}

async fn steps<F, Fut>(
    done: &mut Done,
    progress: &(dyn Fn(u64) + Sync),
    step: F,
) -> Result<(), Failure>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Step, Failure>>,
{
    all_steps(step, |rows| {
        done.changed += rows;
        progress(rows);
    })
    .await
}

async fn change_key(
    operator: &Operator,
    key: Vec<u8>,
    change: Change,
    done: &mut Done,
) -> Result<(), Failure> {
    let rows = operator.rows_of(key.clone()).await?;
    if !rows.iter().any(|row| row.state == State::Waiting) {
        done.in_flight += u64::from(rows.iter().any(|row| row.state == State::InFlight));
        done.because(why_not(&key, &rows));
        return Ok(());
    }
    match operator.change_key(key.clone(), change).await? {
        KeyChange::Done => done.changed += 1,
        KeyChange::Locked => done.locked += 1,
        KeyChange::Absent => done.because(why_not(&key, &[])),
        KeyChange::InFlight(token) => {
            done.in_flight += 1;
            done.because(in_flight(&line(&key, LOGGED), token));
        }
    }
    Ok(())
}

fn in_flight(key: &str, token: Version) -> String {
    format!(
        "{key} is in flight with token {}: `release` delivers it again, `discard --in-flight` acknowledges it",
        token.0
    )
}

/// What a key has instead of what was asked for.
fn why_not(key: &[u8], rows: &[Stored]) -> String {
    let key = line(key, LOGGED);
    match rows.first() {
        None => format!("{key} has no timer"),
        Some(row) if row.state == State::Waiting => {
            format!("{key} is waiting: `remove` deletes it, `run` makes it due now")
        }
        Some(row) if row.state == State::InFlight => in_flight(&key, row.version),
        Some(_) => format!("{key} is dead: `retry` makes it due again, `discard` deletes it"),
    }
}

async fn change_prefix(
    operator: &Operator,
    prefix: Vec<u8>,
    change: Change,
    progress: &(dyn Fn(u64) + Sync),
    done: &mut Done,
) -> Result<(), Failure> {
    let mut changes = PrefixChange::new(prefix, change);
    loop {
        let began = Instant::now();
        let step = operator.change_prefix(&mut changes).await?;
        done.changed += step.rows;
        done.in_flight += step.in_flight;
        done.locked += step.locked;
        progress(step.rows);
        if !step.more {
            return Ok(());
        }
        crate::operator::pause_since(began).await;
    }
}

/// Changes the chosen dead timers, step by step. One that dies again meanwhile is left alone.
async fn change_dead(
    operator: &Operator,
    selection: Selection,
    retries: bool,
    progress: &(dyn Fn(u64) + Sync),
    done: &mut Done,
) -> Result<(), Failure> {
    let change = |which| operator.change_dead(retries, which);
    match selection {
        Selection::All => {
            let began = Instant::now();
            let step = || change(DeadRows::OlderThan(began.elapsed()));
            steps(done, progress, step).await
        }
        Selection::Keys(keys) => {
            for key in keys {
                let before = done.changed;
                steps(done, progress, || change(DeadRows::Key(key.clone()))).await?;
                if done.changed == before {
                    let rows = operator.rows_of(key.clone()).await?;
                    done.because(why_not(&key, &rows));
                }
            }
            Ok(())
        }
        Selection::Tokens(tokens) => {
            for token in tokens {
                let before = done.changed;
                steps(done, progress, || change(DeadRows::Token(token))).await?;
                if done.changed == before {
                    done.because(format!("no dead timer has the token {}", token.0));
                }
            }
            Ok(())
        }
        Selection::Prefix(prefix) => {
            let mut request = PrefixRows::new(State::Dead, prefix, FOUND_AT_ONCE);
            let now = operator.counts().await?.now;
            loop {
                let page = operator.with_prefix(request.clone()).await?;
                for row in page.rows.into_iter().filter(|row| row.due <= now) {
                    let token = DeadRows::Token(row.version);
                    steps(done, progress, || change(token.clone())).await?;
                }
                match page.next {
                    Some(next) => request.after = Some(next),
                    None => return Ok(()),
                }
            }
        }
    }
}

async fn settle(
    operator: &Operator,
    selection: Selection,
    how: Settlement,
    done: &mut Done,
) -> Result<(), Failure> {
    let tokens = match selection {
        Selection::Tokens(tokens) => tokens,
        Selection::Keys(keys) => {
            let mut tokens = Vec::new();
            for key in keys {
                let rows = operator.rows_of(key.clone()).await?;
                let claims = rows.iter().filter(|row| row.state == State::InFlight);
                let before = tokens.len();
                tokens.extend(claims.map(|row| row.version));
                if tokens.len() == before {
                    done.because(why_not(&key, &rows));
                }
            }
            tokens
        }
        Selection::Prefix(_) | Selection::All => {
            return Err(Failure::Usage(
                "claims are chosen by token or key".to_owned(),
            ));
        }
    };
    for token in tokens {
        if operator.settle(token, how).await? {
            done.changed += 1;
        } else {
            done.because(format!("no claim has the token {}", token.0));
        }
    }
    Ok(())
}
