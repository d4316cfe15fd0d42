//! Which change, and of which timers.

use std::time::Duration;

use tickwheel_durable::store::{Change, DeadChange, Settlement, State, Version};

use super::MAX_LOGGED;
use crate::failure::Failure;
use crate::shown::{key_line, line, separated};

/// At most ten keys or tokens of a change are named.
const MAX_NAMED: usize = 10;

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

impl Action {
    /// The action with this verb. A move has no delay yet.
    pub(crate) fn named(verb: &str) -> Option<Self> {
        let all = [
            Action::Remove,
            Action::MoveIn(Duration::ZERO),
            Action::Run,
            Action::Retry,
            Action::Discard,
            Action::Release,
            Action::Acknowledge,
            Action::Purge,
        ];
        all.into_iter().find(|action| action.verb() == verb)
    }

    /// Its verb, and the outcome for the timers.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Action::Remove => ("remove", "removed"),
            Action::MoveIn(_) => ("move", "moved"),
            Action::Run => ("run", "made due now"),
            Action::Retry => ("retry", "retried"),
            Action::Discard => ("discard", "discarded"),
            Action::Release => ("release", "released"),
            Action::Acknowledge => ("acknowledge", "acknowledged"),
            Action::Purge => ("purge", "deleted"),
        }
    }

    pub(crate) fn verb(self) -> &'static str {
        self.words().0
    }

    /// The outcome for the timers.
    pub(crate) fn past(self) -> &'static str {
        self.words().1
    }

    /// The state of the timers that it changes.
    pub(crate) fn state(self) -> Option<State> {
        match self.effect() {
            Effect::Waiting(_) => Some(State::Waiting),
            Effect::Token(effect) => Some(effect.state()),
            Effect::Purge => None,
        }
    }

    /// Whether it is asked first: nothing brings back what is deleted, or the deadlines of many.
    pub(crate) fn needs_confirmation(self, selection: &Selection) -> bool {
        match self {
            Action::Remove | Action::Discard | Action::Acknowledge | Action::Purge => true,
            // It is not known which timers it chooses.
            Action::MoveIn(_) | Action::Run | Action::Release => {
                matches!(selection, Selection::Prefix(_) | Selection::All)
            }
            Action::Retry => false,
        }
    }
}

/// What an action does to each timer.
#[derive(Debug, Clone)]
pub(super) enum Effect {
    /// To one that waits, by its key.
    Waiting(Change),
    /// To a claim or a dead timer, by its token.
    Token(TokenEffect),
    /// To all.
    Purge,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum TokenEffect {
    Claim(Settlement),
    Dead(DeadChange),
}

impl Action {
    pub(super) fn effect(self) -> Effect {
        match self {
            Action::Remove => Effect::Waiting(Change::Remove),
            Action::MoveIn(delay) => Effect::Waiting(Change::MoveIn(delay)),
            Action::Run => Effect::Waiting(Change::Run),
            Action::Retry => Effect::Token(TokenEffect::Dead(DeadChange::Retry)),
            Action::Discard => Effect::Token(TokenEffect::Dead(DeadChange::Discard)),
            // The attempt does not count, so it is never the last one.
            Action::Release => Effect::Token(TokenEffect::Claim(Settlement::Unfire)),
            Action::Acknowledge => Effect::Token(TokenEffect::Claim(Settlement::Ack)),
            Action::Purge => Effect::Purge,
        }
    }

    /// Refuses a selection that the action does not take.
    pub(super) fn check(self, selection: &Selection) -> Result<(), Failure> {
        let takes = match (self.state(), selection) {
            // An empty one would be all.
            (Some(_), Selection::Prefix(prefix)) => !prefix.is_empty(),
            (Some(State::Waiting), Selection::Tokens(_)) => false,
            (state, selection) => state.is_some() || *selection == Selection::All,
        };
        if takes {
            return Ok(());
        }
        let verb = self.verb();
        Err(Failure::Usage(match selection {
            Selection::Tokens(_) if self.state().is_some() => {
                format!("{verb} takes no token: tokens name claims and dead timers")
            }
            _ => format!("{verb} does not take that choice"),
        }))
    }
}

impl TokenEffect {
    pub(super) fn state(self) -> State {
        match self {
            TokenEffect::Claim(_) => State::InFlight,
            TokenEffect::Dead(_) => State::Dead,
        }
    }
}

impl Selection {
    /// What the keys begin with.
    pub(super) fn prefix(&self) -> &[u8] {
        match self {
            Selection::Prefix(prefix) => prefix,
            _ => &[],
        }
    }

    /// Which ones, as a text: the first of many.
    pub(crate) fn shown(&self) -> String {
        let first = |mut texts: Vec<String>, all: usize| {
            if all > MAX_NAMED {
                texts.push(format!("and {} more", separated((all - MAX_NAMED) as u64)));
            }
            texts.join(", ")
        };
        match self {
            Selection::Keys(keys) => {
                let named = keys
                    .iter()
                    .take(MAX_NAMED)
                    .map(|key| key_line(key, MAX_LOGGED));
                first(named.collect(), keys.len())
            }
            Selection::Tokens(tokens) => {
                let named = tokens.iter().take(MAX_NAMED);
                let named = named.map(|token| format!("token {}", token.0));
                first(named.collect(), tokens.len())
            }
            Selection::Prefix(prefix) => {
                format!("those that begin with {}", line(prefix, MAX_LOGGED))
            }
            Selection::All => "all".to_owned(),
        }
    }
}
