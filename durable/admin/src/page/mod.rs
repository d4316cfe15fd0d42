//! The page, as routes.

mod changes;
mod html;
mod jobs;
mod monitor;
mod origin;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequestParts, NestedPath, Path, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{Extensions, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use maud::Markup;
use serde::Deserialize;
use tickwheel_durable::store::{List, Namespace, Store, StoreTime};
use tokio::time::Instant;

use crate::actions::Action;
use crate::details::{STATES, state_name};
use crate::failure::Failure;
use crate::health::{LATE, Summary};
use crate::listing::{self, Filter};
use crate::operator::{Operator, StoreAccess};
use crate::shown::{from_hex, hex, separated};
use html::{BARS, Frame, Overview, WINDOWS};
use jobs::Jobs;

#[cfg(feature = "program")]
pub(crate) use html::login;
pub(crate) use origin::secure;
#[cfg(feature = "program")]
pub(crate) use origin::{HEADER, check as check_origin, is_from};

/// A section and a list have at most this many rows.
const SECTION: usize = 10;
const ROWS: usize = 50;

/// Once there are namespaces, others are looked for so often: Redis looks at all of its keys.
const KNOWN: Duration = Duration::from_secs(10);

/// What monitors ask for.
pub(crate) const METRICS: &str = "/metrics";
pub(crate) const HEALTH: &str = "/health";

const CSS: [(&str, &str); 1] = [("content-type", "text/css; charset=utf-8")];
const SCRIPT: [(&str, &str); 1] = [("content-type", "text/javascript; charset=utf-8")];

/// A form has at most this many bytes: enough for the keys of a list, in hexadecimal digits.
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
/// Two routes are for monitors: `/metrics` has figures of each namespace in the text format of
/// Prometheus, and `/health` answers 503 when the store cannot be read, or a timer has been due for
/// five seconds and has not fired. The [README](https://docs.rs/crate/tickwheel-admin/latest) lists
/// the figures.
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
    pub(crate) access: StoreAccess,
    pub(crate) only: Option<Namespace>,
    pub(crate) allow_changes: bool,
    /// Has a button that posts to `/logout`.
    pub(crate) log_out: bool,
}

impl Page {
    /// A page that shows all namespaces of a store, and changes nothing.
    ///
    /// Takes a store, or a `Box<dyn Store>`, as
    /// [`Builder::start`](tickwheel_durable::Builder::start) does. It need not be the one that an
    /// instance uses.
    pub fn new(store: impl Into<Box<dyn Store>>) -> Self {
        Page {
            access: StoreAccess::new(store.into(), Duration::from_secs(5)),
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
        self.access.limit = limit;
        self
    }

    /// Takes the line of each change. By default it goes to standard error.
    #[must_use]
    pub fn log(mut self, log: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.access.log = Arc::new(log);
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
            .route("/static/style.css", get((CSS, include_str!("style.css"))))
            .route("/static/page.js", get((SCRIPT, include_str!("page.js"))))
            .route(METRICS, get(monitor::metrics))
            .route(HEALTH, get(monitor::health))
            .route("/n/{namespace}", get(overview))
            .route("/n/{namespace}/find", get(find))
            .route("/n/{namespace}/list/{state}", get(list))
            .route("/n/{namespace}/timer/", get(timer))
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
    known: Mutex<Option<(Instant, Vec<Operator>)>>,
}

impl Failure {
    fn status(&self) -> StatusCode {
        match self {
            Failure::NotFound(_) => StatusCode::NOT_FOUND,
            Failure::Usage(_) => StatusCode::BAD_REQUEST,
            Failure::Failed(_) | Failure::Unread => StatusCode::BAD_GATEWAY,
        }
    }
}

/// The response becomes a page once it is known where the routes are.
impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// A page that says why a request is refused.
pub(crate) fn refusal(root: &str, status: StatusCode, text: &str) -> Response {
    let title = status.canonical_reason().unwrap_or("Refused");
    let page = html::message(root, title, &[text.to_owned()]);
    (status, page).into_response()
}

/// Stands before each page.
async fn checked(request: Request, next: Next) -> Response {
    let root = &root(request.extensions());
    if let Err(text) = origin::check(request.method(), request.headers()) {
        return secure(refusal(root, StatusCode::FORBIDDEN, &text));
    }
    let mut response = next.run(request).await;
    if let Some(failure) = response.extensions_mut().remove::<Failure>() {
        response = refusal(root, failure.status(), &failure.to_string());
    }
    secure(response)
}

/// The path at which the routes are.
fn root(extensions: &Extensions) -> String {
    let root = extensions
        .get::<NestedPath>()
        .map_or("", NestedPath::as_str);
    root.trim_end_matches('/').to_owned()
}

/// A request for a page of a namespace.
struct Visit {
    site: Arc<Site>,
    root: String,
    user: String,
    namespaces: Vec<Operator>,
    operator: Operator,
    /// The parameters of the route.
    path: HashMap<String, String>,
    query: HashMap<String, String>,
}

impl FromRequestParts<Arc<Site>> for Visit {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, site: &Arc<Site>) -> Result<Self, Failure> {
        let user = parts.extensions.get().map(|User(name)| name.clone());
        let Query(query) = Query::try_from_uri(&parts.uri).unwrap_or_default();
        let no_such = || Failure::NotFound("there is no such namespace".to_owned());
        let Path(path) = Path::<HashMap<String, String>>::from_request_parts(parts, site)
            .await
            .map_err(|_| no_such())?;
        let is_it = |found: &&Operator| found.namespace.as_str() == path["namespace"];
        let is_there = |found: &[Operator]| found.iter().any(|found| is_it(&found));
        // A change may keep the store busy for long: the page of its progress asks nothing.
        let is_progress = path.contains_key("number");
        let age = if is_progress { Duration::MAX } else { KNOWN };
        let namespaces = site.namespaces(age, is_there).await?;
        let operator = namespaces.iter().find(is_it).ok_or_else(no_such)?.clone();
        Ok(Visit {
            site: Arc::clone(site),
            root: root(&parts.extensions),
            user: user.unwrap_or_else(|| "unknown".to_owned()),
            namespaces,
            operator,
            path,
            query,
        })
    }
}

impl Site {
    /// The namespaces that are shown. Asks the store if those that are known are older or do not
    /// suffice.
    async fn namespaces(
        &self,
        age: Duration,
        suffices: impl Fn(&[Operator]) -> bool,
    ) -> Result<Vec<Operator>, Failure> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let last = known().clone().filter(|(at, _)| at.elapsed() < age);
        if let Some((_, found)) = last.filter(|(_, found)| suffices(found)) {
            return Ok(found);
        }
        let found = (self.page.access)
            .operators(self.page.only.as_ref())
            .await?;
        *known() = Some((Instant::now(), found.clone()));
        Ok(found)
    }

    fn frame<'a>(&'a self, root: &'a str, namespaces: &'a [Operator]) -> Frame<'a> {
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
    fn query(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    fn frame(&self) -> Frame<'_> {
        let done = self.query("done").parse().ok().map(separated);
        let done = Action::named(self.query("did")).zip(done);
        Frame {
            current: self.operator.namespace.as_str(),
            notice: done.map(|(did, number)| format!("{number} {}.", did.past())),
            ..self.site.frame(&self.root, &self.namespaces)
        }
    }
}

async fn home(extensions: Extensions, State(site): State<Arc<Site>>) -> Result<Markup, Failure> {
    let root = root(&extensions);
    let namespaces = site.namespaces(KNOWN, |known| !known.is_empty()).await?;
    let summaries = Summary::of_all(&namespaces).await?;
    let mut frame = site.frame(&root, &namespaces);
    frame.is_live = true;
    Ok(html::home(&frame, &summaries))
}

async fn overview(visit: Visit) -> Result<Markup, Failure> {
    let operator = &visit.operator;
    let known = |window: &u64| WINDOWS.iter().any(|(known, _)| known == window);
    let window = visit.query("window").parse().ok();
    let window = window.filter(known).unwrap_or(WINDOWS[1].0);
    let counts = operator.counts().await?;
    let (now, summary) = (counts.now, Summary::of(operator, counts).await?);
    let bar = Duration::from_secs(window) / BARS;
    let mut times = vec![StoreTime::default(), now.before(LATE), now];
    times.extend((1..=BARS).map(|number| now.after(bar * number)));
    let counted = operator.count_due(times).await?;
    let [late, _due_now, due @ ..] = &counted[..] else {
        let text = "the store has not counted what is due";
        return Err(Failure::Failed(text.to_owned()));
    };
    let mut rows = Vec::new();
    for state in STATES {
        rows.push(operator.list(List::new(state, None, SECTION)).await?);
    }
    let shown = Overview {
        summary,
        now,
        rows,
        late: *late,
        window,
        due: due.to_vec(),
    };
    let mut frame = visit.frame();
    frame.is_live = true;
    Ok(html::overview(&frame, &shown))
}

async fn find(visit: Visit) -> Result<Redirect, Failure> {
    let key = visit.operator.key(visit.query("key"), false).await?;
    let timer = visit.frame().here(&format!("/timer/{}", hex(&key)));
    Ok(Redirect::to(&timer))
}

/// Which page of a list.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ListQuery {
    prefix: String,
    error: String,
    /// Where this page begins, after where those before it do.
    pages: String,
}

async fn list(visit: Visit, Query(query): Query<ListQuery>) -> Result<Markup, Failure> {
    let operator = &visit.operator;
    let state = (STATES.into_iter()).find(|known| state_name(*known) == visit.path["state"]);
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
    let now = operator.counts().await?.now;
    Ok(html::list(&visit.frame(), &query, &filter, &found, now))
}

async fn timer(visit: Visit) -> Result<Response, Failure> {
    let operator = &visit.operator;
    // The digits of an empty key are none.
    let digits = visit.path.get("key").map_or("", String::as_str);
    let key = from_hex(digits);
    let key = key.ok_or_else(|| Failure::Usage("the key is no digits".to_owned()))?;
    let rows = operator.rows_of(key.clone()).await?;
    let now = operator.counts().await?.now;
    let frame = visit.frame();
    let status = if rows.is_empty() && frame.notice.is_none() {
        StatusCode::NOT_FOUND
    } else {
        StatusCode::OK
    };
    let shown = html::timers(&frame, &key, &rows, now);
    Ok((status, shown).into_response())
}
