//! What the buttons do. A button sends its action, and which timers: those of its row, those that
//! are selected, all with a prefix, or all. What cannot be undone leads to a page that asks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::Form;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::Markup;
use tickwheel_durable::store::{State, Version};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::jobs::Job;
use super::{Visit, html, refusal};
use crate::actions::{Action, Outcome, Question, Selection, Work, question};
use crate::failure::Failure;
use crate::listing::{at, from_at};
use crate::shown::{from_hex, separated};

/// The fields of a form: some come several times.
type Fields = Vec<(String, String)>;

/// A browser waits for a change for so long. Then it is led to a page of its progress.
const WAIT: Duration = Duration::from_secs(1);

fn field<'a>(fields: &'a Fields, name: &str) -> Option<&'a str> {
    let mut found = fields.iter().filter(|(field, _)| field == name);
    found.next().map(|(_, value)| value.as_str())
}

/// What a form asks for: an action, and to which timers.
fn parse_form(fields: &Fields) -> Result<(Action, Selection), Failure> {
    let wrong = |what: &str| Failure::Usage(format!("the form {what}"));
    // The button of a row asks for that row, whichever are selected.
    if let Some((action, row)) = field(fields, "one").and_then(|one| one.split_once(' ')) {
        let one = [("action", action), ("row", row)];
        let one = one.map(|(name, value)| (name.to_owned(), value.to_owned()));
        return parse_form(&one.into());
    }
    let action = field(fields, "action").and_then(Action::named);
    let mut action = action.ok_or_else(|| wrong("names no action"))?;
    if action == Action::Purge {
        let text = "the page does not purge: `tickwheel-admin purge` does";
        return Err(Failure::Usage(text.to_owned()));
    }
    if let Action::MoveIn(delay) = &mut action {
        let text = field(fields, "in").unwrap_or_default();
        *delay = humantime::parse_duration(text.trim()).map_err(|error| {
            Failure::Usage(format!(
                "to move needs how long from now, such as 90s, 15m or 2h, and not {text:?}: {error}"
            ))
        })?;
    }
    if let Some(prefix) = field(fields, "prefix") {
        let prefix = from_hex(prefix).ok_or_else(|| wrong("has a wrong prefix"))?;
        return Ok((action, Selection::Prefix(prefix)));
    }
    if field(fields, "all").is_some() {
        if action.state() != Some(State::Dead) {
            let verb = action.verb();
            return Err(Failure::Usage(format!(
                "the page changes all timers only if they are dead: `tickwheel-admin {verb}` has --all"
            )));
        }
        return Ok((action, Selection::All));
    }
    let rows = fields.iter().filter(|(name, _)| name == "row");
    let rows: Vec<_> = rows.map(|(_, row)| row.as_str()).collect();
    if rows.is_empty() {
        return Err(Failure::Usage("no timer is selected".to_owned()));
    }
    // Keys of timers that wait, or tokens of claims or dead timers.
    let key = |row: &&str| from_hex(row.strip_prefix("key-")?);
    let token = |row: &&str| row.strip_prefix("token-")?.parse().ok().map(Version);
    let keys = rows.iter().map(key).collect::<Option<_>>();
    let tokens = || rows.iter().map(token).collect::<Option<_>>();
    let selection = keys
        .map(Selection::Keys)
        .or_else(|| tokens().map(Selection::Tokens));
    Ok((action, selection.ok_or_else(|| wrong("has a wrong row"))?))
}

/// Where a change leads back to: a page of the namespace with that one.
fn back(fields: &Fields, home: String) -> String {
    let back = field(fields, "back").unwrap_or(&home);
    let rest = back.strip_prefix(&home);
    let is_own = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']));
    if is_own && back.bytes().all(|byte| byte.is_ascii_graphic()) {
        return back.to_owned();
    }
    home
}

pub(super) async fn change(
    visit: Visit,
    Form(mut fields): Form<Fields>,
) -> Result<Response, Failure> {
    let (frame, operator) = (visit.frame(), &visit.operator);
    if !frame.allow_changes {
        let text = "changes are not allowed here: tickwheel-admin serve has --allow-changes";
        return Ok(refusal(&visit.root, StatusCode::FORBIDDEN, text));
    }
    let (action, selection) = parse_form(&fields)?;
    let back = back(&fields, frame.here(""));
    let mut question = question(operator, action, selection).await?;
    let title = format!("{} {}", html::capital(action.verb()), question.what);
    if action.needs_confirmation(&question.selection) && field(&fields, "confirmed").is_none() {
        fields.push(("as_of".to_owned(), at(question.as_of)));
        let which = question.selection.shown();
        let page = html::confirm(&frame, &title, &which, &fields, &back);
        return Ok(page.into_response());
    }
    let job = Arc::new(Job {
        title,
        back,
        total: question.number,
        changed: AtomicU64::new(0),
        result: OnceLock::new(),
    });
    if let Some(as_of) = field(&fields, "as_of").and_then(from_at) {
        question.as_of = as_of;
    }
    let mut acting = start(&visit, question, &job);
    let Ok(acted) = timeout(WAIT, &mut acting).await else {
        let number = visit.site.jobs.add(job);
        let page = frame.here(&format!("/change/{number}"));
        return Ok(Redirect::to(&page).into_response());
    };
    let done = acted.map_err(|error| Failure::Failed(error.to_string()))?;
    if done.is_all() && done.changed > 0 {
        let query = format!("did={}&done={}", action.verb(), done.changed);
        let joint = if job.back.contains('?') { '&' } else { '?' };
        return Ok(Redirect::to(&format!("{}{joint}{query}", job.back)).into_response());
    }
    let status = done
        .failure
        .as_ref()
        .map_or(StatusCode::OK, Failure::status);
    Ok((status, html::job(&frame, &job)).into_response())
}

/// Starts a change, which goes on, and is logged, if the browser leaves.
fn start(visit: &Visit, question: Question, job: &Arc<Job>) -> JoinHandle<Outcome> {
    let (operator, who) = (visit.operator.clone(), visit.user.clone());
    let job = Arc::clone(job);
    tokio::spawn(async move {
        let progress = |rows| _ = job.changed.fetch_add(rows, Ordering::Relaxed);
        let mut work = Work::new(&operator, &who, &question, &progress);
        work.run().await;
        let _ = job.result.set(result(question.action, &work.outcome));
        work.outcome.clone()
    })
}

/// The result of a change.
fn result(action: Action, done: &Outcome) -> (&'static str, Vec<String>) {
    let mut lines = vec![format!("{} {}.", separated(done.changed), action.past())];
    let left = done.left();
    if done.changed == 0 && left.is_empty() && done.failure.is_none() {
        lines.push("There was no such timer.".to_owned());
    }
    lines.extend(done.failure.as_ref().map(ToString::to_string));
    lines.extend(left);
    let title = match done.changed {
        _ if done.failure.is_some() => "The change has failed",
        0 => "Nothing was changed",
        _ if done.is_all() => "Done",
        _ => "Not all were changed",
    };
    (title, lines)
}

/// The page of a change that takes long.
pub(super) async fn job(visit: Visit) -> Result<Markup, Failure> {
    let mut frame = visit.frame();
    let number = visit.path["number"].parse().ok();
    let job = number.and_then(|number| visit.site.jobs.get(number));
    let job = job.ok_or_else(|| {
        Failure::NotFound(
            "this process does not know of that change any more: the log says what became of it"
                .to_owned(),
        )
    })?;
    frame.is_live = job.result.get().is_none();
    Ok(html::job(&frame, &job))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn form_chooses_action_and_timers() {
        let key = |key: &str| Selection::Keys(vec![key.into()]);
        let token = |token| Selection::Tokens(vec![Version(token)]);
        for (form, action, selection) in [
            (
                &[("one", "run key-61"), ("row", "key-62"), ("all", "1")][..],
                Action::Run,
                key("a"),
            ),
            (
                &[("action", "remove"), ("row", "key-62")],
                Action::Remove,
                key("b"),
            ),
            (
                &[("action", "retry"), ("row", "token-17")],
                Action::Retry,
                token(17),
            ),
            (
                &[("action", "discard"), ("all", "1")],
                Action::Discard,
                Selection::All,
            ),
            (
                &[("action", "move"), ("prefix", "61"), ("in", " 2h ")],
                Action::MoveIn(Duration::from_secs(7_200)),
                Selection::Prefix(b"a".to_vec()),
            ),
        ] {
            let asked = parse_form(&fields(form)).expect("it is right");
            assert_eq!(asked, (action, selection), "{form:?}");
        }
        for wrong in [
            &[("action", "burn"), ("all", "1")][..],
            &[("action", "remove"), ("all", "1")],
            &[("action", "release"), ("all", "1")],
            &[("action", "purge"), ("all", "1")],
            &[("action", "purge"), ("prefix", "61")],
            &[("action", "run")],
            &[("action", "run"), ("row", "61")],
            &[("action", "run"), ("row", "key-6")],
            &[("action", "run"), ("row", "key-61"), ("row", "token-17")],
            &[("action", "move"), ("row", "key-61"), ("in", "soon")],
        ] {
            parse_form(&fields(wrong)).expect_err("it is wrong");
        }
    }

    #[test]
    fn timers_that_were_left_alone_are_told() {
        let done = Outcome {
            changed: 1_234,
            in_flight: 2,
            ..Outcome::default()
        };
        let result = result(Action::Remove, &done);
        assert_eq!(result.0, "Not all were changed");
        assert_eq!(result.1, ["1,234 removed.", "2 in flight: left alone"]);
    }

    /// Regression: the page said that there was no timer.
    #[test]
    fn timers_in_flight_are_told_if_nothing_was_changed() {
        let done = Outcome {
            in_flight: 2,
            ..Outcome::default()
        };
        let result = result(Action::Remove, &done);
        assert_eq!(result.0, "Nothing was changed");
        assert_eq!(result.1, ["0 removed.", "2 in flight: left alone"]);
    }

    /// Regression: a change that failed half-way looked as if it had done nothing.
    #[test]
    fn failure_says_what_was_changed_before_it() {
        let done = Outcome {
            changed: 1_234,
            failure: Some(Failure::timeout(Duration::from_secs(5))),
            ..Outcome::default()
        };
        let result = result(Action::Remove, &done);
        assert_eq!(result.0, "The change has failed");
        let why = "the store has not responded within 5s";
        assert_eq!(result.1, ["1,234 removed.", why]);
    }

    #[test]
    fn change_leads_back_to_its_namespace_only() {
        for (given, expected) in [
            (
                "/n/orders/list/dead?prefix=a",
                "/n/orders/list/dead?prefix=a",
            ),
            ("/n/orders", "/n/orders"),
            ("/n/orders2", "/n/orders"),
            ("//evil.example", "/n/orders"),
            ("/n/orders?\r\nx: y", "/n/orders"),
        ] {
            let fields = fields(&[("back", given)]);
            assert_eq!(back(&fields, "/n/orders".to_owned()), expected, "{given}");
        }
    }
}
