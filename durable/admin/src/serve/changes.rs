//! What the buttons do. A button sends its action, and which timers: those of its row, those that
//! are selected, all with a prefix, or all. What cannot be undone leads to a page that asks.

use std::time::Duration;

use axum::extract::{Extension, Form, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, IntoResponse, Redirect, Response};
use tickwheel_durable::store::Version;

use super::connections::Peer;
use super::{Shared, page, refusal, who};
use crate::actions::{Action, Selection, act, count};
use crate::failure::Failure;
use crate::shown::{from_hex, separated};

/// The fields of a form: some come several times.
pub(super) type Fields = Vec<(String, String)>;

/// The action with this name. Moves say when.
pub(super) fn known(name: &str) -> Option<Action> {
    Some(match name {
        "remove" => Action::Remove,
        "move" => Action::MoveIn(Duration::ZERO),
        "run" => Action::Run,
        "retry" => Action::Retry,
        "discard" => Action::Discard,
        "release" => Action::Release,
        "acknowledge" => Action::Acknowledge,
        "purge" => Action::Purge,
        _ => return None,
    })
}

fn field<'a>(fields: &'a Fields, name: &str) -> Option<&'a str> {
    let mut found = fields.iter().filter(|(field, _)| field == name);
    found.next().map(|(_, value)| value.as_str())
}

/// A row of a form: a key that waits, or the token of a claim or a dead timer.
enum Row {
    Key(Vec<u8>),
    Token(Version),
}

fn row(text: &str) -> Option<Row> {
    match text.split_once('-')? {
        ("key", digits) => from_hex(digits).map(Row::Key),
        ("token", digits) => digits.parse().ok().map(|token| Row::Token(Version(token))),
        _ => None,
    }
}

/// What a form asks for: an action, and to which timers.
fn asked(fields: &Fields) -> Result<(Action, Selection), Failure> {
    let wrong = |what: &str| Failure::Usage(format!("the form {what}"));
    let one = field(fields, "one").map(|one| one.split_once(' ').unwrap_or((one, "")));
    let name = one.map_or_else(|| field(fields, "action"), |(name, _)| Some(name));
    let action = name.and_then(known);
    let mut action = action.ok_or_else(|| wrong("names no action"))?;
    if let Action::MoveIn(delay) = &mut action {
        let text = field(fields, "in").unwrap_or_default();
        *delay = humantime::parse_duration(text.trim()).map_err(|error| {
            Failure::Usage(format!(
                "to move needs how long from now, such as 90s, 15m or 2h, and not {text:?}: {error}"
            ))
        })?;
    }
    if let (None, Some(prefix)) = (one, field(fields, "prefix")) {
        let prefix = from_hex(prefix).ok_or_else(|| wrong("has a wrong prefix"))?;
        return Ok((action, Selection::Prefix(prefix)));
    }
    if one.is_none() && field(fields, "all").is_some() {
        return Ok((action, Selection::All));
    }
    let rows: Vec<&str> = match one {
        Some((_, row)) => vec![row],
        None => fields
            .iter()
            .filter(|(name, _)| name == "row")
            .map(|(_, row)| row.as_str())
            .collect(),
    };
    if rows.is_empty() {
        return Err(Failure::Usage("no timer is selected".to_owned()));
    }
    let (mut keys, mut tokens) = (Vec::new(), Vec::new());
    for text in rows {
        match row(text).ok_or_else(|| wrong("has a wrong row"))? {
            Row::Key(key) => keys.push(key),
            Row::Token(token) => tokens.push(token),
        }
    }
    match (keys.is_empty(), tokens.is_empty()) {
        (false, true) => Ok((action, Selection::Keys(keys))),
        (true, _) => Ok((action, Selection::Tokens(tokens))),
        _ => Err(wrong("mixes keys and tokens")),
    }
}

/// Where a change leads back to: a page of this namespace.
fn back(fields: &Fields, namespace: &str) -> String {
    let home = format!("/n/{namespace}");
    let back = field(fields, "back").unwrap_or(&home);
    let rest = back.strip_prefix(&home);
    let is_own = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']));
    if is_own && back.bytes().all(|byte| byte.is_ascii_graphic()) {
        return back.to_owned();
    }
    home
}

pub(super) async fn change(
    State(site): Shared,
    Path(name): Path<String>,
    peer: Extension<Peer>,
    headers: HeaderMap,
    Form(fields): Form<Fields>,
) -> Result<Response, Failure> {
    if !site.allow_changes {
        return Ok(refusal(
            StatusCode::FORBIDDEN,
            "changes are not allowed: start with --allow-changes",
        ));
    }
    if !site.guard.knows(field(&fields, "csrf").unwrap_or_default()) {
        return Ok(refusal(
            StatusCode::FORBIDDEN,
            "the form is old: load the page again",
        ));
    }
    let (namespaces, operator) = site.namespaces_and_operator(&name).await?;
    let (action, selection) = asked(&fields)?;
    let back = back(&fields, &name);
    let frame = site.frame(&namespaces, &name);
    if action.is_asked(&selection) && field(&fields, "confirmed").is_none() {
        let (_, what) = count(&operator, action, &selection).await?;
        let shown = selection.shown();
        let asked = page::confirm(&frame, action, &what, &shown, &fields, &back);
        return Ok(Html(asked.into_string()).into_response());
    }
    let who = who(peer, &headers);
    // The change goes on, and is logged, if the browser leaves.
    let acting = tokio::spawn({
        let operator = operator.clone();
        async move { act(&operator, &who, action, selection, &|_| ()).await }
    });
    let acted = acting.await;
    let done = acted.map_err(|error| Failure::Failed(error.to_string()))??;
    if done.reasons.is_empty() && done.in_flight == 0 && done.changed > 0 {
        let query = format!("did={}&done={}", action.verb(), done.changed);
        let joint = if back.contains('?') { '&' } else { '?' };
        return Ok(Redirect::to(&format!("{back}{joint}{query}")).into_response());
    }
    let mut texts = vec![format!("{} {}.", separated(done.changed), action.done())];
    if done.in_flight > 0 {
        let number = separated(done.in_flight);
        texts.push(format!("{number} in flight: left alone."));
    }
    if done.changed == 0 && done.reasons.is_empty() {
        texts.push("There was no such timer.".to_owned());
    }
    texts.extend(done.reasons);
    let title = if done.changed == 0 {
        "Nothing was changed"
    } else {
        "Not all were changed"
    };
    Ok(Html(page::told(&frame, title, &texts, &back).into_string()).into_response())
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
            let asked = asked(&fields(form)).expect("it is right");
            assert_eq!(asked, (action, selection), "{form:?}");
        }
        for wrong in [
            &[("action", "burn"), ("all", "1")][..],
            &[("action", "run")],
            &[("action", "run"), ("row", "61")],
            &[("action", "run"), ("row", "key-6")],
            &[("action", "run"), ("row", "key-61"), ("row", "token-17")],
            &[("action", "move"), ("row", "key-61"), ("in", "soon")],
        ] {
            asked(&fields(wrong)).expect_err("it is wrong");
        }
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
            assert_eq!(back(&fields, "orders"), expected, "{given}");
        }
    }
}
