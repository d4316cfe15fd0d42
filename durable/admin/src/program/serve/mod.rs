//! The server of the page.

mod connections;
mod guard;
mod sessions;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Form, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use tickwheel::TimerWheel;
use tokio::net::TcpListener;

use super::args::{Common, Serve};
use super::output::print;
use super::{access, given, stop};
use crate::failure::Failure;
use crate::operator::StoreAccess;
use crate::page::{FORM, Page, check_origin, login as login_page, refusal, secure};
use crate::shown::separated;
use connections::BODY;
use guard::Guard;

/// The variable that has the token.
const VARIABLE: &str = "TICKWHEEL_ADMIN_TOKEN";

/// A token has at least this many characters.
const TOKEN: usize = 16;

/// After a wrong token.
const PAUSE: Duration = Duration::from_millis(500);

struct Site {
    guard: Guard,
    wheel: TimerWheel,
}

type Shared = State<Arc<Site>>;

/// The token that the options name, if it is long enough, and there if it is needed.
fn token(options: &Serve) -> Result<Option<String>, Failure> {
    let token = given("token", options.token_file.as_deref(), VARIABLE)?;
    match &token {
        Some(token) if token.chars().count() < TOKEN => Err(Failure::Usage(format!(
            "the token has {} characters; it must have {TOKEN} at least",
            token.chars().count()
        ))),
        None if !options.listen.ip().is_loopback() => Err(Failure::Usage(format!(
            "{} is not on the loopback: that needs --token-file",
            options.listen
        ))),
        _ => Ok(token),
    }
}

/// Serves the page until the program is interrupted.
pub(super) async fn serve(common: &Common, options: Serve) -> Result<(), Failure> {
    let token = token(&options)?;
    let store = access(common).await?;
    let served = serve_store(&store, common, options, token).await;
    store.close().await;
    served
}

async fn serve_store(
    access: &StoreAccess,
    common: &Common,
    options: Serve,
    token: Option<String>,
) -> Result<(), Failure> {
    let listener = TcpListener::bind(options.listen).await;
    let listener = listener
        .map_err(|error| Failure::Failed(format!("listening on {}: {error}", options.listen)))?;
    let listen = listener.local_addr()?;
    let page = Page {
        access: access.clone(),
        only: common.namespace.clone(),
        allow_changes: options.allow_changes,
        log_out: token.is_some(),
    };
    let wheel = TimerWheel::new();
    let site = Arc::new(Site {
        guard: Guard::new(listen, token, options.session),
        wheel: wheel.clone(),
    });
    let router = Router::new()
        .route("/login", get(async || login_page()).post(login))
        .route("/logout", post(logout))
        .merge(page.routes())
        .fallback(async || refusal("", StatusCode::NOT_FOUND, "there is no such page"))
        .layer(middleware::from_fn_with_state(Arc::clone(&site), guarded))
        .with_state(site);
    let stop = stop()?;
    print(&format!("http://{listen}/"))?;
    connections::serve(listener, router, wheel, stop).await;
    Ok(())
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
    let refused = |status, text: &str| refusal("", status, text);
    let headers = request.headers();
    let is_open = guard::is_open(request.uri().path());
    if let Err((status, text)) = site.guard.check_way(&request) {
        return Err(refused(status, &text));
    }
    if !is_open && !site.guard.lets_in(headers) {
        if guard::is_tried(headers) {
            site.wheel.sleep(PAUSE).await;
        } else if request.method().is_safe() && !guard::is_for_monitor(request.uri().path()) {
            return Err(Redirect::to("/login").into_response());
        }
        return Err(refused(
            StatusCode::UNAUTHORIZED,
            "the token is missing or wrong",
        ));
    }
    if let Err(text) = check_origin(request.method(), headers) {
        return Err(refused(StatusCode::FORBIDDEN, &text));
    }
    if request.method().is_safe() {
        return Ok(request);
    }
    let (head, body) = request.into_parts();
    let read = axum::body::to_bytes(body, FORM);
    match site.wheel.timeout(BODY, read).await {
        Ok(Ok(body)) => Ok(Request::from_parts(head, body.into())),
        Ok(Err(_)) => Err(refused(
            StatusCode::PAYLOAD_TOO_LARGE,
            &format!("a form has at most {} bytes", separated(FORM as u64)),
        )),
        Err(_) => Err(refused(
            StatusCode::REQUEST_TIMEOUT,
            &format!("the form has not arrived within {BODY:?}"),
        )),
    }
}

#[derive(Deserialize)]
struct Login {
    token: String,
}

async fn login(State(site): Shared, headers: HeaderMap, Form(form): Form<Login>) -> Response {
    if let Some(cookie) = site.guard.login(&headers, &form.token) {
        return ([("set-cookie", cookie)], Redirect::to("/")).into_response();
    }
    site.wheel.sleep(PAUSE).await;
    refusal("", StatusCode::UNAUTHORIZED, "the token is wrong")
}

async fn logout(State(site): Shared, headers: HeaderMap) -> Response {
    let cookie = site.guard.logout(&headers);
    ([("set-cookie", cookie)], Redirect::to("/login")).into_response()
}
