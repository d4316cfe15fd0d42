//! The page: what is due when, what is in flight, dead letters, lateness, instances.

mod guard;
mod page;
mod picture;

use std::sync::Arc;
use std::time::Duration;

use axum::Form;
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use tickwheel_durable::store::{
    List, Namespace, State as RowState, StoreTime, StoredNamespace, Version,
};
use tokio::net::TcpListener;
use tokio::time::sleep;

use crate::actions::{Action, Selection, act};
use crate::args::{Common, KeyForm, Serve};
use crate::failure::Failure;
use crate::operator::{Asked, Operator};
use crate::shown::{from_hex, hex};
use guard::{Guard, secure};
use page::{BARS, Frame, LATE, Overview, WINDOWS};

/// A table has at most so many rows.
const ROWS: usize = 50;

/// A token has at least so many characters.
const TOKEN: usize = 16;

/// A form has at most so many bytes.
const FORM: usize = 16 * 1024;

/// After a wrong token.
const PAUSE: Duration = Duration::from_millis(500);

struct Site {
    asked: Asked,
    /// The one namespace that is shown, if not all are.
    only: Option<Namespace>,
    allow_changes: bool,
    guard: Guard,
}

type Shared = State<Arc<Site>>;

/// Checks the options before anything is asked.
pub(crate) fn check(options: &Serve) -> Result<(), Failure> {
    token(options).map(drop)
}

fn token(options: &Serve) -> Result<Option<String>, Failure> {
    let token = match &options.token_file {
        Some(file) => {
            let text = std::fs::read_to_string(file);
            let text = text.map_err(|error| {
                Failure::Usage(format!("the token file {}: {error}", file.display()))
            })?;
            Some(text.trim().to_owned())
        }
        None => options.token.clone(),
    };
    match &token {
        Some(token) if token.len() < TOKEN => Err(Failure::Usage(format!(
            "the token has {} characters; it must have {TOKEN} at least",
            token.len()
        ))),
        None if !options.listen.ip().is_loopback() => Err(Failure::Usage(format!(
            "{} is not on the loopback: that needs --token-file",
            options.listen
        ))),
        _ => Ok(token),
    }
}

/// Serves the page until the program is interrupted.
pub(crate) async fn serve(asked: Asked, common: &Common, options: Serve) -> Result<(), Failure> {
    let token = token(&options)?;
    let listener = TcpListener::bind(options.listen).await;
    let listener = listener
        .map_err(|error| Failure::Failed(format!("listening on {}: {error}", options.listen)))?;
    let listen = listener.local_addr()?;
    let site = Arc::new(Site {
        asked,
        only: common.namespace.clone(),
        allow_changes: options.allow_changes,
        guard: Guard::new(listen, token)?,
    });
    crate::commands::print(&format!("http://{listen}/"))?;
    let serving = axum::serve(listener, router(site));
    serving
        .with_graceful_shutdown(async {
            // Without signals it runs until it is killed.
            let _ = tokio::signal::ctrl_c().await;
        })
        .await?;
    Ok(())
}

fn router(site: Arc<Site>) -> axum::Router {
    axum::Router::new()
        .route("/", get(home))
        .route("/login", get(login_page).post(login))
        .route("/static/style.css", get(style))
        .route("/static/refresh.js", get(script))
        .route("/n/{namespace}", get(overview))
        .route("/n/{namespace}/find", get(find))
        .route("/n/{namespace}/list/{state}", get(list))
        .route("/n/{namespace}/timer/{key}", get(timer))
        .route("/n/{namespace}/{action}", post(change))
        .layer(DefaultBodyLimit::max(FORM))
        .layer(middleware::from_fn_with_state(Arc::clone(&site), guarded))
        .with_state(site)
}

/// Stands before each page, and refuses what the guard does.
async fn guarded(State(site): Shared, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let path = request.uri().path();
    let is_open = path == "/login" || path.starts_with("/static/");
    if !site.guard.is_meant(headers) {
        return secure(refusal(
            StatusCode::MISDIRECTED_REQUEST,
            "this server has another name",
        ));
    }
    if !is_open && !site.guard.lets_in(headers) {
        return secure(
            if request.method().is_safe() && !headers.contains_key("authorization") {
                Redirect::to("/login").into_response()
            } else {
                refusal(StatusCode::UNAUTHORIZED, "the token is missing or wrong")
            },
        );
    }
    if !request.method().is_safe() && !Guard::is_from_here(headers) {
        return secure(refusal(
            StatusCode::FORBIDDEN,
            "the form is of another site",
        ));
    }
    secure(next.run(request).await)
}

fn refusal(status: StatusCode, text: &str) -> Response {
    (
        status,
        Html(page::message(status.as_str(), text).into_string()),
    )
        .into_response()
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = match &self {
            Failure::NotFound(_) => StatusCode::NOT_FOUND,
            Failure::Usage(_) => StatusCode::BAD_REQUEST,
            Failure::Failed(_) | Failure::Unread => StatusCode::BAD_GATEWAY,
        };
        refusal(status, &self.to_string())
    }
}

async fn style() -> impl IntoResponse {
    (
        [("content-type", "text/css; charset=utf-8")],
        include_str!("style.css"),
    )
}

async fn script() -> impl IntoResponse {
    (
        [("content-type", "text/javascript; charset=utf-8")],
        include_str!("refresh.js"),
    )
}

async fn login_page(State(site): Shared) -> Html<String> {
    Html(page::login(&site.guard.csrf).into_string())
}

#[derive(Deserialize)]
struct Login {
    token: String,
}

async fn login(State(site): Shared, Form(form): Form<Login>) -> Response {
    let Some(cookie) = site.guard.login(&form.token) else {
        sleep(PAUSE).await;
        return refusal(StatusCode::UNAUTHORIZED, "the token is wrong");
    };
    ([("set-cookie", cookie)], Redirect::to("/")).into_response()
}

impl Site {
    /// The namespaces that are shown.
    async fn namespaces(&self) -> Result<Vec<StoredNamespace>, Failure> {
        let mut all = self.asked.namespaces().await?;
        all.retain(|found| self.only.as_ref().is_none_or(|only| *only == found.name));
        Ok(all)
    }

    /// The namespaces that are shown, and the operator of the one with this name.
    async fn namespaces_and_operator(
        &self,
        name: &str,
    ) -> Result<(Vec<StoredNamespace>, Operator), Failure> {
        let namespaces = self.namespaces().await?;
        let mut found = namespaces.iter();
        let found = found.find(|found| found.name.as_str() == name);
        let found =
            found.ok_or_else(|| Failure::NotFound("there is no such namespace".to_owned()))?;
        let operator = self.asked.operator(found.clone());
        Ok((namespaces, operator))
    }

    async fn operator(&self, name: &str) -> Result<Operator, Failure> {
        let (_, operator) = self.namespaces_and_operator(name).await?;
        Ok(operator)
    }
}

async fn home(State(site): Shared) -> Result<Response, Failure> {
    let namespaces = site.namespaces().await?;
    let first = namespaces.first();
    let first = first.ok_or_else(|| Failure::NotFound("the store has no namespace".to_owned()))?;
    Ok(Redirect::to(&format!("/n/{}", first.name)).into_response())
}

#[derive(Deserialize)]
struct Look {
    window: Option<u64>,
    done: Option<u64>,
}

async fn overview(
    State(site): Shared,
    Path(name): Path<String>,
    Query(look): Query<Look>,
) -> Result<Html<String>, Failure> {
    let (namespaces, operator) = site.namespaces_and_operator(&name).await?;
    let window = look
        .window
        .filter(|window| WINDOWS.iter().any(|(known, _)| known == window));
    let window = window.unwrap_or(WINDOWS[1].0);
    let counts = operator.counts().await?;
    let mut times = vec![StoreTime::default()];
    times.extend(
        LATE.iter()
            .rev()
            .map(|&late| counts.now.before(Duration::from_secs(late))),
    );
    times.push(counts.now);
    let bar = Duration::from_secs(window) / BARS;
    times.extend((1..=BARS).map(|number| counts.now.after(bar * number)));
    let mut late = operator.count_due(times).await?;
    let due = late.split_off(late.len() - BARS as usize);
    let first = |state| operator.list(List::new(state, None, ROWS));
    let shown = Overview {
        counts,
        window,
        late,
        due,
        instances: operator.instances().await?,
        in_flight: first(RowState::InFlight).await?,
        dead: first(RowState::Dead).await?,
        waiting: first(RowState::Waiting).await?,
        namespace: StoredNamespace::new(operator.namespace.clone(), operator.codec.clone()),
    };
    let notice = look.done.map(|done| match done {
        0 => "Nothing was changed: there was no such timer.".to_owned(),
        1 => "Done.".to_owned(),
        done => format!("Done: {done} timers."),
    });
    let frame = site.frame(&namespaces, notice.as_deref());
    Ok(Html(page::overview(&frame, &shown).into_string()))
}

impl Site {
    fn frame<'a>(
        &'a self,
        namespaces: &'a [StoredNamespace],
        notice: Option<&'a str>,
    ) -> Frame<'a> {
        Frame {
            namespaces,
            csrf: &self.guard.csrf,
            allow_changes: self.allow_changes,
            notice,
        }
    }
}

#[derive(Deserialize)]
struct Find {
    key: String,
}

async fn find(
    State(site): Shared,
    Path(name): Path<String>,
    Query(find): Query<Find>,
) -> Result<Response, Failure> {
    let rows = {
        let operator = site.operator(&name).await?;
        let key = operator.key(&find.key, KeyForm::default()).await?;
        operator.rows_of(key).await?
    };
    let row = rows.first();
    let row = row.ok_or_else(|| Failure::NotFound("there is no timer with this key".to_owned()))?;
    Ok(Redirect::to(&format!("/n/{name}/timer/{}", hex(&row.key))).into_response())
}

#[derive(Deserialize)]
struct After {
    due: Option<i64>,
    version: Option<i64>,
}

async fn list(
    State(site): Shared,
    Path((name, state)): Path<(String, String)>,
    Query(after): Query<After>,
) -> Result<Html<String>, Failure> {
    let (namespaces, operator) = site.namespaces_and_operator(&name).await?;
    let states = [RowState::Waiting, RowState::InFlight, RowState::Dead];
    let mut states = states.into_iter();
    let state = states.find(|known| crate::records::state_name(*known) == state);
    let state = state.ok_or_else(|| Failure::NotFound("there is no such list".to_owned()))?;
    let after = after.due.zip(after.version);
    let after = after.map(|(due, version)| (StoreTime::from_micros(due), Version(version)));
    let rows = operator.list(List::new(state, after, ROWS)).await?;
    let now = operator.counts().await?.now;
    let frame = site.frame(&namespaces, None);
    Ok(Html(
        page::list(&frame, &name, state, &rows, now).into_string(),
    ))
}

async fn timer(
    State(site): Shared,
    Path((name, key)): Path<(String, String)>,
) -> Result<Html<String>, Failure> {
    let (namespaces, operator) = site.namespaces_and_operator(&name).await?;
    let key = from_hex(&key).ok_or_else(|| Failure::Usage("the key is no digits".to_owned()))?;
    let rows = operator.rows_of(key).await?;
    if rows.is_empty() {
        return Err(Failure::NotFound(
            "there is no timer with this key any more".to_owned(),
        ));
    }
    let now = operator.counts().await?.now;
    let frame = site.frame(&namespaces, None);
    Ok(Html(page::timers(&frame, &name, &rows, now).into_string()))
}

#[derive(Deserialize)]
struct Change {
    csrf: String,
    token: Option<i64>,
}

async fn change(
    State(site): Shared,
    Path((name, action)): Path<(String, String)>,
    Form(form): Form<Change>,
) -> Result<Response, Failure> {
    if !site.allow_changes {
        return Ok(refusal(
            StatusCode::FORBIDDEN,
            "changes are not allowed: start with --allow-changes",
        ));
    }
    if !site.guard.knows(&form.csrf) {
        return Ok(refusal(
            StatusCode::FORBIDDEN,
            "the form is old: load the page again",
        ));
    }
    let operator = site.operator(&name).await?;
    let action_and_selection = match (&*action, form.token.map(Version)) {
        ("retry", Some(token)) => (Action::Retry, Selection::Tokens(vec![token])),
        ("discard", Some(token)) => (Action::Discard, Selection::Tokens(vec![token])),
        ("release", Some(token)) => (Action::Release, Selection::Tokens(vec![token])),
        ("retry-all", None) => (Action::Retry, Selection::All),
        ("discard-all", None) => (Action::Discard, Selection::All),
        _ => return Err(Failure::NotFound("there is no such button".to_owned())),
    };
    let (action, selection) = action_and_selection;
    let done = act(&operator, "page", action, selection, &|_| ()).await?;
    let done = done.changed;
    Ok(Redirect::to(&format!("/n/{name}?done={done}")).into_response())
}
