//! The page: how each namespace is doing, what is due when, what is in flight, dead letters,
//! lateness, instances.

mod changes;
mod connections;
mod guard;
mod health;
mod page;
mod picture;
mod sessions;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, Form, Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use tickwheel::TimerWheel;
use tickwheel_durable::store::{
    List, Namespace, State as RowState, StoreTime, StoredNamespace, Version,
};
use tokio::net::TcpListener;

use crate::args::{Common, KeyForm, Serve};
use crate::failure::Failure;
use crate::listing::{self, Filter};
use crate::operator::{Asked, Operator};
use crate::shown::{from_hex, hex, separated};
use connections::{BODY, Peer};
use guard::{Guard, Refused, secure};
use health::{COUNTED, Health, RECENT};
use page::{BARS, Frame, LATE, ListPage, Overview, Summary, WINDOWS};

/// A section has at most so many rows, and a list.
const SECTION: usize = 10;
const ROWS: usize = 50;

/// A token has at least so many characters.
const TOKEN: usize = 16;

/// A form has at most so many bytes.
const FORM: usize = 64 * 1024;

/// After a wrong token.
const PAUSE: Duration = Duration::from_millis(500);

struct Site {
    asked: Asked,
    /// The one namespace that is shown, if not all are.
    only: Option<Namespace>,
    allow_changes: bool,
    guard: Guard,
    wheel: TimerWheel,
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
    let wheel = TimerWheel::new();
    let site = Arc::new(Site {
        asked,
        only: common.namespace.clone(),
        allow_changes: options.allow_changes,
        guard: Guard::new(listen, token, options.session)?,
        wheel: wheel.clone(),
    });
    let stop = stop()?;
    crate::commands::print(&format!("http://{listen}/"))?;
    connections::serve(listener, router(site), wheel, stop).await;
    Ok(())
}

/// Ends when the program is asked to stop.
fn stop() -> Result<impl Future<Output = ()>, Failure> {
    #[cfg(unix)]
    let mut terminate = {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::terminate())?
    };
    Ok(async move {
        #[cfg(unix)]
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        #[cfg(not(unix))]
        let _ = tokio::signal::ctrl_c().await;
    })
}

fn router(site: Arc<Site>) -> axum::Router {
    axum::Router::new()
        .route("/", get(home))
        .route("/login", get(login_page).post(login))
        .route("/logout", post(logout))
        .route("/static/style.css", get(style))
        .route("/static/page.js", get(script))
        .route("/n/{namespace}", get(overview))
        .route("/n/{namespace}/find", get(find))
        .route("/n/{namespace}/list/{state}", get(list))
        .route("/n/{namespace}/timer/{key}", get(timer))
        .route("/n/{namespace}/change", post(changes::change))
        .layer(middleware::from_fn_with_state(Arc::clone(&site), guarded))
        .with_state(site)
}

/// Stands before each page, and refuses what the guard does.
async fn guarded(State(site): Shared, request: Request, next: Next) -> Response {
    secure(match admit(&site, request).await {
        Ok(request) => next.run(request).await,
        Err(refused) => refused,
    })
}

/// The request, with its whole body, or why it is refused.
async fn admit(site: &Site, request: Request) -> Result<Request, Response> {
    let headers = request.headers();
    let path = request.uri().path();
    let is_safe = request.method().is_safe();
    let is_open = path == "/login" || path.starts_with("/static/");
    site.guard.check_way(headers)?;
    if !is_open && !site.guard.lets_in(headers) {
        if headers.contains_key("authorization") {
            site.wheel.sleep(PAUSE).await;
        } else if is_safe {
            return Err(Redirect::to("/login").into_response());
        }
        return Err(refusal(
            StatusCode::UNAUTHORIZED,
            "the token is missing or wrong",
        ));
    }
    if is_safe {
        return Ok(request);
    }
    Guard::check_origin(headers)?;
    let (head, body) = request.into_parts();
    let read = axum::body::to_bytes(body, FORM);
    match site.wheel.timeout(BODY, read).await {
        Ok(Ok(body)) => Ok(Request::from_parts(head, body.into())),
        Ok(Err(_)) => Err(refusal(
            StatusCode::PAYLOAD_TOO_LARGE,
            &format!("a form has at most {} bytes", separated(FORM as u64)),
        )),
        Err(_) => Err(refusal(
            StatusCode::REQUEST_TIMEOUT,
            &format!("the form has not arrived within {BODY:?}"),
        )),
    }
}

fn refusal(status: StatusCode, text: &str) -> Response {
    let title = status.canonical_reason().unwrap_or("Refused");
    let page = page::message(title, &[text.to_owned()], "/");
    (status, Html(page.into_string())).into_response()
}

impl From<Refused> for Response {
    fn from(Refused(status, text): Refused) -> Self {
        refusal(status, &text)
    }
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
        include_str!("page.js"),
    )
}

async fn login_page() -> Html<String> {
    Html(page::login().into_string())
}

#[derive(Deserialize)]
struct Login {
    token: String,
}

async fn login(
    State(site): Shared,
    headers: HeaderMap,
    Form(form): Form<Login>,
) -> Result<Response, Failure> {
    let Some(cookie) = site.guard.login(&headers, &form.token)? else {
        site.wheel.sleep(PAUSE).await;
        return Ok(refusal(StatusCode::UNAUTHORIZED, "the token is wrong"));
    };
    Ok(([("set-cookie", cookie)], Redirect::to("/")).into_response())
}

async fn logout(State(site): Shared, headers: HeaderMap) -> Response {
    let cookie = site.guard.logout(&headers);
    ([("set-cookie", cookie)], Redirect::to("/login")).into_response()
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

    fn frame<'a>(&'a self, namespaces: &'a [StoredNamespace], current: &'a str) -> Frame<'a> {
        Frame {
            namespaces,
            current,
            csrf: &self.guard.csrf,
            allow_changes: self.allow_changes,
            has_login: self.guard.has_token(),
            notice: None,
            is_live: false,
        }
    }
}

async fn summary(operator: &Operator) -> Result<Summary, Failure> {
    let counts = operator.counts().await?;
    let instances = operator.instances().await?;
    let since = Some((counts.now.before(RECENT), Version(0)));
    let died = operator.list(List::new(RowState::Dead, since, COUNTED));
    let health = Health::new(&counts, &instances, died.await?.len());
    Ok(Summary {
        namespace: StoredNamespace::new(operator.namespace.clone(), operator.codec.clone()),
        counts,
        instances,
        health,
    })
}

async fn home(State(site): Shared) -> Result<Html<String>, Failure> {
    let namespaces = site.namespaces().await?;
    let mut summaries = Vec::new();
    for found in &namespaces {
        summaries.push(summary(&site.asked.operator(found.clone())).await?);
    }
    let frame = Frame {
        is_live: true,
        ..site.frame(&namespaces, "")
    };
    Ok(Html(page::home(&frame, &summaries).into_string()))
}

#[derive(Deserialize)]
struct Look {
    window: Option<u64>,
}

/// What a change has done: shown on the page that it leads back to.
#[derive(Deserialize)]
struct DoneQuery {
    did: Option<String>,
    done: Option<String>,
}

impl DoneQuery {
    fn notice(&self) -> Option<String> {
        let number = self.done.as_deref()?.parse().ok()?;
        let did = changes::known(self.did.as_deref()?)?;
        Some(format!("{} {}.", separated(number), did.done()))
    }
}

async fn overview(
    State(site): Shared,
    Path(name): Path<String>,
    Query(look): Query<Look>,
    Query(done): Query<DoneQuery>,
) -> Result<Html<String>, Failure> {
    let (namespaces, operator) = site.namespaces_and_operator(&name).await?;
    let window = look
        .window
        .filter(|window| WINDOWS.iter().any(|(known, _)| known == window));
    let window = window.unwrap_or(WINDOWS[1].0);
    let summary = summary(&operator).await?;
    let now = summary.counts.now;
    let mut times = vec![StoreTime::default()];
    times.extend(
        LATE.iter()
            .rev()
            .map(|&late| now.before(Duration::from_secs(late))),
    );
    times.push(now);
    let bar = Duration::from_secs(window) / BARS;
    times.extend((1..=BARS).map(|number| now.after(bar * number)));
    let mut late = operator.count_due(times).await?;
    let due = late.split_off(late.len() - BARS as usize);
    let first = |state| operator.list(List::new(state, None, SECTION));
    let shown = Overview {
        summary,
        window,
        late,
        due,
        in_flight: first(RowState::InFlight).await?,
        dead: first(RowState::Dead).await?,
        waiting: first(RowState::Waiting).await?,
    };
    let frame = Frame {
        is_live: true,
        notice: done.notice(),
        ..site.frame(&namespaces, &name)
    };
    Ok(Html(page::overview(&frame, &shown).into_string()))
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
    let (_, operator) = site.namespaces_and_operator(&name).await?;
    let key = operator.key(&find.key, KeyForm::default()).await?;
    Ok(Redirect::to(&format!("/n/{name}/timer/{}", hex(&key))).into_response())
}

/// Which page of which list.
#[derive(Deserialize)]
struct Listed {
    #[serde(default)]
    prefix: String,
    #[serde(default)]
    error: String,
    after: Option<String>,
    /// Where the pages before began.
    trail: Option<String>,
}

fn state_of(name: &str) -> Result<RowState, Failure> {
    let states = [RowState::Waiting, RowState::InFlight, RowState::Dead];
    let mut states = states.into_iter();
    let state = states.find(|known| crate::records::state_name(*known) == name);
    state.ok_or_else(|| Failure::NotFound("there is no such list".to_owned()))
}

async fn list(
    State(site): Shared,
    Path((name, state)): Path<(String, String)>,
    Query(listed): Query<Listed>,
    Query(done): Query<DoneQuery>,
) -> Result<Html<String>, Failure> {
    let (namespaces, operator) = site.namespaces_and_operator(&name).await?;
    let state = state_of(&state)?;
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let prefix = some(&listed.prefix).map(|prefix| operator.prefix(&prefix, KeyForm::default()));
    let filter = Filter {
        state,
        prefix: prefix.transpose()?,
        error: some(&listed.error),
    };
    let found = listing::page(&operator, &filter, listed.after.as_deref(), ROWS).await?;
    let frame = Frame {
        notice: done.notice(),
        ..site.frame(&namespaces, &name)
    };
    let shown = ListPage {
        state,
        prefix: listed.prefix,
        prefix_bytes: filter.prefix,
        error: listed.error,
        after: listed.after,
        trail: listed.trail.unwrap_or_default(),
        found,
        now: operator.counts().await?.now,
    };
    Ok(Html(page::list(&frame, &shown).into_string()))
}

async fn timer(
    State(site): Shared,
    Path((name, key)): Path<(String, String)>,
    Query(done): Query<DoneQuery>,
) -> Result<Response, Failure> {
    let (namespaces, operator) = site.namespaces_and_operator(&name).await?;
    let key = from_hex(&key).ok_or_else(|| Failure::Usage("the key is no digits".to_owned()))?;
    let rows = operator.rows_of(key.clone()).await?;
    let now = operator.counts().await?.now;
    let frame = Frame {
        notice: done.notice(),
        ..site.frame(&namespaces, &name)
    };
    let status = if rows.is_empty() && frame.notice.is_none() {
        StatusCode::NOT_FOUND
    } else {
        StatusCode::OK
    };
    let shown = page::timers(&frame, &key, &rows, now);
    Ok((status, Html(shown.into_string())).into_response())
}

/// The sender of a request.
fn who(Extension(Peer(peer)): Extension<Peer>, headers: &HeaderMap) -> String {
    let peer: SocketAddr = peer;
    guard::who(peer, headers)
}
