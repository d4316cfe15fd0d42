//! The page, as routes.

mod changes;
mod html;
mod jobs;
mod origin;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequestParts, NestedPath, Path, Query, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};
use tickwheel_durable::store::{
    List, Namespace, State as RowState, Store, StoreTime, StoredNamespace,
};
use tokio::time::Instant;

use crate::actions::Action;
use crate::details::{STATES, state_name};
use crate::failure::Failure;
use crate::health::{LATE, Summary};
use crate::listing::{self, Filter};
use crate::operator::{Desk, Operator};
use crate::shown::{from_hex, hex, separated};
use html::{BARS, Frame, ListPage, Overview, WINDOWS};
use jobs::Jobs;

pub(crate) use origin::secure;
#[cfg(feature = "program")]
pub(crate) use origin::{HEADER, check as check_origin, is_from};

/// A section has at most so many rows, and a list.
const SECTION: usize = 10;
const ROWS: usize = 50;

/// Once there are namespaces, others are looked for so often: Redis looks at all of its keys.
const KNOWN: Duration = Duration::from_secs(10);

/// A form has at most so many bytes: enough for the keys of a list, in hexadecimal digits.
pub(crate) const FORM: usize = 128 * 1024;

/// The page of an operator, as routes of an axum service.
///
/// The page shows all timers of the store, their keys, values and errors, to every client that
/// requests it: put the sign-in of the service before the routes, as a layer. Each change is logged
/// in one line with who made it: the [`User`] that the sign-in has found, by default on standard
/// error.
///
/// Forms change something only if the browser says that they come from a page of the same origin,
/// in `Sec-Fetch-Site`, or in an `Origin` that is the `Host` of the request. Answers have a content
/// security policy, and are neither cached nor shown in frames.
///
/// Browsers that wait for a change for more than a second are led to a page of its progress. With
/// several processes behind a load balancer that page needs sticky sessions; everything else does
/// not.
///
/// # Examples
///
/// The front page of the crate has one.
#[derive(Debug)]
pub struct Page {
    desk: Desk,
    only: Option<Namespace>,
    allow_changes: bool,
    log_out: bool,
}

impl Page {
    /// A page that shows all namespaces of a store, and changes nothing.
    ///
    /// Takes a store, or a `Box<dyn Store>`, as
    /// [`Builder::start`](tickwheel_durable::Builder::start) does. It need not be the one that an
    /// instance uses.
    pub fn new(store: impl Into<Box<dyn Store>>) -> Self {
        Page::of(Desk::new(store.into(), Duration::from_secs(5)))
    }

    pub(crate) fn of(desk: Desk) -> Self {
        Page {
            desk,
            only: None,
            allow_changes: false,
            log_out: false,
        }
    }

    /// Shows this namespace only. By default all are shown.
    #[must_use]
    pub fn namespace(mut self, namespace: Namespace) -> Self {
        self.only = Some(namespace);
        self
    }

    /// Has buttons that change timers. By default it only shows them.
    #[must_use]
    pub fn allow_changes(mut self) -> Self {
        self.allow_changes = true;
        self
    }

    /// Sets how long a call waits for the store. The default is 5 s.
    #[must_use]
    pub fn call_timeout(mut self, limit: Duration) -> Self {
        self.desk.limit = limit;
        self
    }

    /// Takes the line of each change. By default it goes to standard error.
    #[must_use]
    pub fn log(mut self, log: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.desk.log = Arc::new(log);
        self
    }

    /// Has a button that posts to `/logout`.
    #[cfg(feature = "program")]
    pub(crate) fn log_out(mut self) -> Self {
        self.log_out = true;
        self
    }

    /// The routes. [Nest](Router::nest) them at a path, which must have no parameters, or merge
    /// them.
    pub fn routes<S: Clone + Send + Sync + 'static>(self) -> Router<S> {
        let site = Arc::new(Site {
            page: self,
            jobs: Jobs::default(),
            known: Mutex::default(),
        });
        Router::new()
            .route("/", get(home))
            .route("/static/style.css", get(style))
            .route("/static/page.js", get(script))
            .route("/n/{namespace}", get(overview))
            .route("/n/{namespace}/find", get(find))
            .route("/n/{namespace}/list/{state}", get(list))
            .route("/n/{namespace}/timer/{key}", get(timer))
            .route("/n/{namespace}/change", post(changes::change))
            .route("/n/{namespace}/change/{number}", get(changes::job))
            .layer(DefaultBodyLimit::max(FORM))
            .layer(middleware::from_fn(checked))
            .with_state(site)
    }
}

/// The user that has signed in. Insert it into the extensions of a request, before the routes of a
/// [`Page`], which logs it with each change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User(pub String);

struct Site {
    page: Page,
    jobs: Jobs,
    known: Mutex<Option<(Instant, Vec<StoredNamespace>)>>,
}

/// What a refused request is told, as an extension of the response.
#[derive(Clone)]
struct Refused(String);

impl Failure {
    fn status(&self) -> StatusCode {
        match self {
            Failure::NotFound(_) => StatusCode::NOT_FOUND,
            Failure::Usage(_) => StatusCode::BAD_REQUEST,
            Failure::Failed(_) | Failure::Unread => StatusCode::BAD_GATEWAY,
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        refused(self.status(), self.to_string())
    }
}

/// A response that becomes a page once it is known where the routes are.
fn refused(status: StatusCode, text: String) -> Response {
    let mut response = status.into_response();
    response.extensions_mut().insert(Refused(text));
    response
}

/// A page that says why a request is refused.
pub(crate) fn refusal(root: &str, status: StatusCode, text: &str) -> Response {
    let title = status.canonical_reason().unwrap_or("Refused");
    let page = html::message(root, title, &[text.to_owned()]);
    (status, Html(page.into_string())).into_response()
}

#[cfg(feature = "program")]
pub(crate) fn login_page() -> Html<String> {
    Html(html::login().into_string())
}

/// Stands before each page.
async fn checked(caller: Caller, request: Request, next: Next) -> Response {
    let root = &caller.root;
    if let Err(text) = origin::check(request.method(), request.headers()) {
        return secure(refusal(root, StatusCode::FORBIDDEN, &text));
    }
    let mut response = next.run(request).await;
    if let Some(Refused(text)) = response.extensions_mut().remove() {
        response = refusal(root, response.status(), &text);
    }
    secure(response)
}

/// The sender of a request, and the path at which the routes are.
struct Caller {
    root: String,
    user: String,
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let root = parts.extensions.get::<NestedPath>();
        let root = root.map_or("", NestedPath::as_str).trim_end_matches('/');
        let user = parts.extensions.get().map(|User(name)| name.clone());
        Ok(Caller {
            root: root.to_owned(),
            user: user.unwrap_or_else(|| "unknown".to_owned()),
        })
    }
}

/// A request for a page of a namespace.
struct Visit {
    site: Arc<Site>,
    caller: Caller,
    namespaces: Vec<StoredNamespace>,
    operator: Operator,
    /// What a change has done that has led to this page.
    notice: Option<String>,
}

impl FromRequestParts<Arc<Site>> for Visit {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, site: &Arc<Site>) -> Result<Self, Failure> {
        let Ok(caller) = Caller::from_request_parts(parts, site).await;
        let done = Query::<DoneQuery>::try_from_uri(&parts.uri).ok();
        let no_such = || Failure::NotFound("there is no such namespace".to_owned());
        let Path(path) = Path::<HashMap<String, String>>::from_request_parts(parts, site)
            .await
            .map_err(|_| no_such())?;
        let namespaces = site.namespaces().await?;
        let mut found = namespaces.iter();
        let found = found
            .find(|found| Some(found.name.as_str()) == path.get("namespace").map(|name| &**name));
        let operator = site.page.desk.operator(found.ok_or_else(no_such)?);
        Ok(Visit {
            site: Arc::clone(site),
            caller,
            namespaces,
            operator,
            notice: done.and_then(|Query(done)| done.notice()),
        })
    }
}

impl Site {
    /// The namespaces that are shown.
    async fn namespaces(&self) -> Result<Vec<StoredNamespace>, Failure> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let last = known().clone().filter(|(at, _)| at.elapsed() < KNOWN);
        if let Some((_, found)) = last {
            return Ok(found);
        }
        let found = (self.page.desk).namespaces(self.page.only.as_ref()).await?;
        if !found.is_empty() {
            *known() = Some((Instant::now(), found.clone()));
        }
        Ok(found)
    }

    fn frame<'a>(&'a self, root: &'a str, namespaces: &'a [StoredNamespace]) -> Frame<'a> {
        Frame {
            root,
            namespaces,
            allow_changes: self.page.allow_changes,
            log_out: self.page.log_out,
            ..Frame::default()
        }
    }
}

impl Visit {
    fn frame(&self) -> Frame<'_> {
        Frame {
            current: self.operator.namespace.as_str(),
            notice: self.notice.clone(),
            ..self.site.frame(&self.caller.root, &self.namespaces)
        }
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

async fn home(caller: Caller, State(site): State<Arc<Site>>) -> Result<Html<String>, Failure> {
    let namespaces = site.namespaces().await?;
    let operators = namespaces
        .iter()
        .map(|found| site.page.desk.operator(found));
    let summaries = Summary::of_all(operators.collect()).await?;
    let frame = Frame {
        is_live: true,
        ..site.frame(&caller.root, &namespaces)
    };
    Ok(Html(html::home(&frame, &summaries).into_string()))
}

#[derive(Deserialize)]
struct Look {
    window: Option<u64>,
}

#[derive(Deserialize)]
struct DoneQuery {
    did: Option<String>,
    done: Option<u64>,
}

impl DoneQuery {
    fn notice(&self) -> Option<String> {
        let did = Action::named(self.did.as_deref()?)?;
        Some(format!("{} {}.", separated(self.done?), did.done()))
    }
}

async fn overview(visit: Visit, Query(look): Query<Look>) -> Result<Html<String>, Failure> {
    let operator = &visit.operator;
    let known = |window: &u64| WINDOWS.iter().any(|(known, _)| known == window);
    let window = look.window.filter(known).unwrap_or(WINDOWS[1].0);
    let counts = operator.counts().await?;
    let summary = Summary::of(operator, counts).await?;
    let now = counts.now;
    let bar = Duration::from_secs(window) / BARS;
    let mut times = vec![StoreTime::default(), now.before(LATE), now];
    times.extend((1..=BARS).map(|number| now.after(bar * number)));
    let counted = operator.count_due(times).await?;
    let first = |state| operator.list(List::new(state, None, SECTION));
    let shown = Overview {
        window,
        late: counted[0],
        due: counted[2..].to_vec(),
        dead: first(RowState::Dead).await?,
        in_flight: first(RowState::InFlight).await?,
        waiting: first(RowState::Waiting).await?,
        counts,
        summary,
    };
    let frame = Frame {
        is_live: true,
        ..visit.frame()
    };
    Ok(Html(html::overview(&frame, &shown).into_string()))
}

#[derive(Deserialize)]
struct Find {
    key: String,
}

async fn find(visit: Visit, Query(find): Query<Find>) -> Result<Redirect, Failure> {
    let key = visit.operator.key(&find.key, false).await?;
    let timer = visit.frame().here(&format!("/timer/{}", hex(&key)));
    Ok(Redirect::to(&timer))
}

/// Which page of a list.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(default)]
struct Listed {
    #[serde(skip_serializing_if = "String::is_empty")]
    prefix: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    error: String,
    /// Where this page begins, after where those before it do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pages: String,
}

async fn list(
    visit: Visit,
    Path((_, state)): Path<(String, String)>,
    Query(query): Query<Listed>,
) -> Result<Html<String>, Failure> {
    let operator = &visit.operator;
    let state = (STATES.into_iter()).find(|known| state_name(*known) == state);
    let state = state.ok_or_else(|| Failure::NotFound("there is no such list".to_owned()))?;
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let prefix = match &*query.prefix {
        "" => None,
        prefix => Some((operator.prefix(prefix, false, state)).await?),
    };
    let filter = Filter {
        state,
        prefix,
        error: some(&query.error),
    };
    let found = listing::page(operator, &filter, query.after(), ROWS).await?;
    let frame = visit.frame();
    let shown = ListPage {
        state,
        query,
        prefix_bytes: filter.prefix,
        found,
        now: operator.counts().await?.now,
    };
    Ok(Html(html::list(&frame, &shown).into_string()))
}

async fn timer(visit: Visit, Path((_, key)): Path<(String, String)>) -> Result<Response, Failure> {
    let operator = &visit.operator;
    let key = from_hex(&key).ok_or_else(|| Failure::Usage("the key is no digits".to_owned()))?;
    let rows = operator.rows_of(key.clone()).await?;
    let now = operator.counts().await?.now;
    let frame = visit.frame();
    let status = if rows.is_empty() && frame.notice.is_none() {
        StatusCode::NOT_FOUND
    } else {
        StatusCode::OK
    };
    let shown = html::timers(&frame, &key, &rows, now);
    Ok((status, Html(shown.into_string())).into_response())
}
