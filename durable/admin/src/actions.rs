//! What an operator changes, for the program and the page: each change is bounded, answers with
//! what was found, and is logged.

mod choice;

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use tickwheel_durable::store::{
    ANSWER_BYTES, Change, DeadRows, MAX_KEY_ROWS, PrefixChange, PrefixRows, Settled, State,
    StoreTime, Stored, Version, WriteOutcome,
};
use tokio::time::{Instant, sleep};

use crate::details::state_text;
use crate::failure::Failure;
use crate::operator::{Bulk, Operator};
use crate::shown::{key_line, separated, text_line};
pub(crate) use choice::{Action, Selection};
use choice::{Effect, TokenEffect};

/// Timers of a prefix are found by the thousand.
const FOUND_AT_ONCE: usize = 1_000;

/// The shortest pause between two steps, which is for other calls.
const PAUSE: Duration = Duration::from_millis(2);

/// Counting for a question stops after about 10,000 timers.
const MAX_COUNTED: usize = 10_000;

/// At most ten reasons are told.
const MAX_REASONS: usize = 10;

/// A key or prefix in a log line has at most this many characters.
const MAX_LOGGED: usize = 200;

/// The outcome of a change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) changed: u64,
    /// How many were not changed because they are in flight.
    pub(crate) in_flight: u64,
    /// How many were not changed because an open transaction has changed their keys.
    pub(crate) locked: u64,
    /// How many keys and tokens were found to have no such timer, and why the first of them have
    /// not. A key whose timer is in flight counts here and there.
    pub(crate) unchanged: u64,
    pub(crate) reasons: Vec<String>,
    /// Why it has ended before its end, or has failed there.
    pub(crate) failure: Option<Failure>,
}

impl Outcome {
    /// Whether it has left none alone.
    pub(crate) fn is_all(&self) -> bool {
        self.reasons.is_empty() && self.in_flight == 0 && self.failure.is_none()
    }

    /// What it has left, line by line. A reason says it of a key.
    pub(crate) fn left(&self) -> Vec<String> {
        match self.reasons[..] {
            [] if self.in_flight > 0 => {
                vec![format!(
                    "{} in flight: left alone",
                    separated(self.in_flight)
                )]
            }
            _ => {
                let more = self.unchanged - self.reasons.len() as u64;
                let more = (more > 0).then(|| format!("and {} more", separated(more)));
                self.reasons.iter().cloned().chain(more).collect()
            }
        }
    }

    /// Timers that are locked are a failure: they can be changed later.
    fn locked_failure(&self) -> Option<Failure> {
        (self.locked > 0).then(|| {
            let number = separated(self.locked);
            Failure::Failed(format!(
                "{number} left alone: open transactions have changed their keys"
            ))
        })
    }

    /// Adds the outcome of the same change in another part of the namespace.
    #[cfg(feature = "program")]
    pub(crate) fn add(&mut self, part: Outcome) {
        self.changed += part.changed;
        self.in_flight += part.in_flight;
        self.locked += part.locked;
        self.unchanged += part.unchanged;
        let room = MAX_REASONS.saturating_sub(self.reasons.len());
        self.reasons.extend(part.reasons.into_iter().take(room));
        self.failure = self.failure.take().or(part.failure);
    }

    fn because(&mut self, reason: String) {
        self.unchanged += 1;
        if self.reasons.len() < MAX_REASONS {
            self.reasons.push(reason);
        }
    }
}

/// What a change is about, before it is made. [`question`] makes it, if the action takes the
/// choice.
pub(crate) struct Question {
    pub(crate) action: Action,
    pub(crate) selection: Selection,
    /// How many timers it would change. Counting stops at some thousands.
    pub(crate) number: u64,
    /// The same as a text: `3 dead timers`.
    pub(crate) what: String,
    /// Whether that is less or about as many: a word before the number.
    #[cfg_attr(not(feature = "program"), allow(dead_code))] // the page asks part by part
    about: &'static str,
    pub(crate) as_of: AsOf,
    /// The claims that it counted.
    claims: BTreeSet<Version>,
}

/// The time of a question, by the store's clock, and the greatest version of the claims that it
/// counted. The change leaves timers that died later, and claims with greater versions.
///
/// A form brings no more than that back to a new question. Versions grow under each key, not from
/// key to key: a claim made between the two is meant, too, if its version was drawn before.
pub(crate) type AsOf = (StoreTime, Version);

impl Question {
    /// Whether it was about this timer.
    fn is_about(&self, row: &Stored) -> bool {
        let (time, newest) = self.as_of;
        match row.state {
            State::Dead => row.due <= time,
            State::InFlight => row.version <= newest && self.claims.contains(&row.version),
            _ => true,
        }
    }
}

/// Counts the timers that it would change.
pub(crate) async fn question(
    operator: &Operator,
    action: Action,
    selection: Selection,
) -> Result<Question, Failure> {
    let state = action.state();
    action.check(&selection)?;
    let counts = operator.counts().await?;
    let looked_at = state.unwrap_or(State::Waiting);
    // All claims: the change takes none that is newer.
    let most = match looked_at {
        State::InFlight => usize::MAX,
        _ => MAX_COUNTED,
    };
    let is_there = |row: &Stored| row.state != State::Dead || row.due <= counts.now;
    let (mut found, mut about) = (Vec::new(), "");
    let number = match &selection {
        Selection::Keys(keys) => {
            for key in keys {
                let rows = operator.rows_of(key.clone()).await?;
                let (some, more) =
                    versions_of_key(operator, looked_at, key, &rows, is_there, most).await?;
                found.extend(some);
                about = if more { "over " } else { about };
            }
            found.len() as u64
        }
        Selection::Tokens(tokens) => tokens.len() as u64,
        Selection::All if looked_at != State::InFlight => {
            about = if counts.is_estimate { "about " } else { "" };
            match state {
                Some(State::Waiting) => counts.waiting,
                Some(_) => counts.dead,
                None => counts.waiting + counts.in_flight + counts.dead,
            }
        }
        Selection::Prefix(_) | Selection::All => {
            let more;
            let prefix = selection.prefix();
            (found, more) = find(operator, looked_at, prefix, |_| true, most).await?;
            about = if more { "over " } else { "" };
            found.len() as u64
        }
    };
    let newest = found.iter().max().copied().unwrap_or(Version(0));
    let claims = match looked_at {
        State::InFlight => found.into_iter().collect(),
        _ => BTreeSet::new(),
    };
    Ok(Question {
        action,
        selection,
        number,
        what: what(action, about, number),
        about,
        as_of: (counts.now, newest),
        claims,
    })
}

/// How many timers an action would change, as a text.
fn what(action: Action, about: &str, number: u64) -> String {
    let state = action.state();
    let state = state.map_or(String::new(), |state| format!("{} ", state_text(state)));
    let s = if number == 1 { "" } else { "s" };
    format!("{about}{} {state}timer{s}", separated(number))
}

/// How many timers the questions before one action are about, and the same as a text.
#[cfg(feature = "program")]
pub(crate) fn sum(questions: &[Question]) -> (u64, String) {
    let number = questions.iter().map(|question| question.number).sum();
    let about = questions.iter().map(|question| question.about).max();
    let action = questions.first().map(|question| question.action);
    let text = action.map(|action| what(action, about.unwrap_or_default(), number));
    (number, text.unwrap_or_default())
}

/// The versions of the timers of a key in a state, the oldest first, and whether there may be more
/// than so many. A key has any number of claims and of dead timers, of which `rows` are the latest.
async fn versions_of_key(
    operator: &Operator,
    state: State,
    key: &[u8],
    rows: &[Stored],
    is_meant: impl Fn(&Stored) -> bool,
    most: usize,
) -> Result<(Vec<Version>, bool), Failure> {
    let bytes: usize = rows.iter().map(|row| row.key.len() + row.value.len()).sum();
    let fits = |row: &Stored| row.key == key && is_meant(row);
    let in_state: Vec<_> = rows.iter().filter(|row| row.state == state).collect();
    let may_be_more = in_state.len() >= MAX_KEY_ROWS || bytes >= ANSWER_BYTES;
    let found = in_state.iter().rev().filter(|row| fits(row));
    let found: Vec<_> = found.map(|row| row.version).collect();
    if !may_be_more || found.len() >= most {
        return Ok((found, may_be_more));
    }
    find(operator, state, key, fits, most).await
}

/// The versions of the timers in a state whose keys begin with that and that fit, and whether there
/// are more than so many.
async fn find(
    operator: &Operator,
    state: State,
    prefix: &[u8],
    fits: impl Fn(&Stored) -> bool,
    most: usize,
) -> Result<(Vec<Version>, bool), Failure> {
    let mut request = PrefixRows::new(state, prefix.to_vec(), FOUND_AT_ONCE);
    let mut found = Vec::new();
    loop {
        let page = operator.with_prefix(request.clone()).await?;
        let rows = page.rows.iter().filter(|row| fits(row));
        found.extend(rows.map(|row| row.version));
        request.after = page.next;
        if request.after.is_none() || found.len() >= most {
            return Ok((found, request.after.is_some()));
        }
    }
}

/// A change with who makes it. Its drop logs it: also one that is cut off, as by the end of the
/// process, has changed some timers.
pub(crate) struct Work<'a> {
    operator: &'a Operator,
    who: &'a str,
    question: &'a Question,
    progress: &'a (dyn Fn(u64) + Sync),
    /// The outcome so far: it was cut off.
    pub(crate) outcome: Outcome,
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        let question = self.question;
        let to = match question.action {
            Action::MoveIn(delay) => format!(" in={}", humantime::format_duration(delay)),
            _ => String::new(),
        };
        let error = self
            .outcome
            .failure
            .as_ref()
            .map_or(String::new(), |failure| {
                format!(" error={:?}", text_line(&failure.to_string(), MAX_LOGGED))
            });
        (self.operator.access.log)(&format!(
            "change: time={} who={:?} namespace={} action={}{to} which={:?} changed={}{error}",
            StoreTime::from(SystemTime::now()),
            text_line(self.who, MAX_LOGGED),
            self.operator.namespace,
            question.action.verb(),
            question.selection.shown(),
            self.outcome.changed,
        ));
    }
}

impl<'a> Work<'a> {
    pub(crate) fn new(
        operator: &'a Operator,
        who: &'a str,
        question: &'a Question,
        progress: &'a (dyn Fn(u64) + Sync),
    ) -> Self {
        let failure = Some(Failure::Failed("it was cut off".to_owned()));
        let outcome = Outcome {
            failure,
            ..Outcome::default()
        };
        Work {
            operator,
            who,
            question,
            progress,
            outcome,
        }
    }

    /// Does it, step by step.
    pub(crate) async fn run(&mut self) {
        let ended = self.change().await;
        self.outcome.failure = ended.err().or_else(|| self.outcome.locked_failure());
    }

    async fn change(&mut self) -> Result<(), Failure> {
        let question = self.question;
        let prefix = question.selection.prefix();
        match (question.action.effect(), &question.selection) {
            // Purges take no choice but all.
            (Effect::Purge, _) => self.bulk(Bulk::Purge).await,
            (Effect::Waiting(change), Selection::Keys(keys)) => {
                for key in keys {
                    self.waiting_key(key, change.clone()).await?;
                }
                Ok(())
            }
            (Effect::Token(effect), Selection::Keys(keys)) => {
                for key in keys {
                    self.key(key, effect).await?;
                }
                Ok(())
            }
            (Effect::Token(effect), Selection::Tokens(tokens)) => {
                self.tokens(tokens, effect, true).await
            }
            (Effect::Token(TokenEffect::Dead(change)), Selection::All) => {
                let until = DeadRows::Until(question.as_of.0);
                self.bulk(Bulk::Dead(until, change)).await
            }
            (Effect::Waiting(change), _) => {
                // Later, those that are due now may be among them.
                let state = State::InFlight;
                let found = find(self.operator, state, prefix, |_| true, usize::MAX).await?;
                self.outcome.in_flight += found.0.len() as u64;
                let limit = self.operator.access.limit;
                let changes = PrefixChange::new(prefix.to_vec(), change).within(limit);
                self.bulk(Bulk::Waiting(changes)).await
            }
            // All are found before the first is changed: it may come back.
            (Effect::Token(effect), _) => {
                let (state, fits) = (effect.state(), |row: &Stored| question.is_about(row));
                let (found, _) = find(self.operator, state, prefix, fits, usize::MAX).await?;
                self.tokens(&found, effect, false).await
            }
        }
    }

    fn has_changed(&mut self, rows: u64) {
        self.outcome.changed += rows;
        (self.progress)(rows);
    }

    /// Makes steps until there are no more, with pauses as long as the steps: half of the time is
    /// for other calls.
    async fn bulk(&mut self, mut bulk: Bulk) -> Result<(), Failure> {
        loop {
            let began = Instant::now();
            let step = self.operator.step(&mut bulk).await?;
            self.outcome.in_flight += step.in_flight;
            self.outcome.locked += step.locked;
            self.has_changed(step.rows);
            if !step.more {
                return Ok(());
            }
            sleep(began.elapsed().max(PAUSE)).await;
        }
    }

    /// The versions of the timers of a key in a state that the question was about. Says why, if
    /// there is none.
    async fn found(
        &mut self,
        key: &[u8],
        state: State,
        most: usize,
    ) -> Result<Vec<Version>, Failure> {
        let rows = self.operator.rows_of(key.to_vec()).await?;
        let is_meant = |row: &Stored| self.question.is_about(row);
        let (found, _) = versions_of_key(self.operator, state, key, &rows, is_meant, most).await?;
        if found.is_empty() {
            // As the reason says it.
            let first = rows.first();
            let is_in_flight = first.is_some_and(|row| row.state == State::InFlight);
            self.outcome.in_flight += u64::from(is_in_flight);
            self.outcome.because(why_not(key, &rows));
        }
        Ok(found)
    }

    /// Changes the timer of a key that waits.
    async fn waiting_key(&mut self, key: &[u8], change: Change) -> Result<(), Failure> {
        if self.found(key, State::Waiting, 1).await?.is_empty() {
            return Ok(());
        }
        match self.operator.change_key(key.to_vec(), change).await? {
            WriteOutcome::Armed { .. } | WriteOutcome::Removed { .. } => self.has_changed(1),
            WriteOutcome::Locked(_) => self.outcome.locked += 1,
            WriteOutcome::Absent | WriteOutcome::Present => {
                self.outcome.because(why_not(key, &[]));
            }
            WriteOutcome::InFlight(token) => {
                self.outcome.in_flight += 1;
                let key = key_line(key, MAX_LOGGED);
                self.outcome.because(in_flight(&key, token));
            }
        }
        Ok(())
    }

    /// Changes the claims or dead timers of a key. All are found before the first is changed: it
    /// may come back.
    async fn key(&mut self, key: &[u8], effect: TokenEffect) -> Result<(), Failure> {
        let found = self.found(key, effect.state(), usize::MAX).await?;
        self.tokens(&found, effect, true).await
    }

    /// Changes claims or dead timers. Those that have gone are told, if the operator has named
    /// them.
    async fn tokens(
        &mut self,
        tokens: &[Version],
        effect: TokenEffect,
        are_named: bool,
    ) -> Result<(), Failure> {
        for &token in tokens {
            let before = (self.outcome.changed, self.outcome.locked);
            let what = match effect {
                TokenEffect::Claim(settlement) => {
                    match self.operator.settle(token, settlement).await? {
                        Settled::Lost => {}
                        Settled::Locked => self.outcome.locked += 1,
                        Settled::Done | Settled::Armed(_) => self.has_changed(1),
                    }
                    "claim"
                }
                TokenEffect::Dead(change) => {
                    self.bulk(Bulk::Dead(DeadRows::Token(token), change))
                        .await?;
                    "dead timer"
                }
            };
            if are_named && (self.outcome.changed, self.outcome.locked) == before {
                let text = format!("no {what} has the token {}", token.0);
                self.outcome.because(text);
            }
        }
        Ok(())
    }
}

fn in_flight(key: &str, token: Version) -> String {
    format!(
        "{key} is in flight with token {}: `release` delivers it again, `acknowledge` ends it",
        token.0
    )
}

/// What a key has instead of what was asked for.
fn why_not(key: &[u8], rows: &[Stored]) -> String {
    let key = key_line(key, MAX_LOGGED);
    match rows.first() {
        None => format!("{key} has no timer"),
        Some(row) if row.state == State::Waiting => {
            format!("{key} is waiting: `remove` deletes it, `run` makes it due now")
        }
        Some(row) if row.state == State::InFlight => in_flight(&key, row.version),
        Some(_) => format!("{key} is dead: `retry` makes it due again, `discard` deletes it"),
    }
}

#[cfg(test)]
mod tests;
