//! The page as routes of a service with its own sign-in.

#[path = "mounted/keys.rs"]
mod keys;
#[path = "mounted/monitor.rs"]
mod monitor;
#[path = "mounted/namespaces.rs"]
mod namespaces;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::Response;
use tickwheel::TimerWheel;
use tickwheel_admin::{Page, User};
use tickwheel_durable::store::{Namespace, Store as _};
use tickwheel_durable::{Claims, DurableTimers, Memory, Retry, builder};
use tickwheel_durable_conformance::{FaultPoint, Faulty};
use tokio::time::{Instant, sleep};
use tower::ServiceExt as _;

const HOUR: Duration = Duration::from_secs(3_600);

/// The sign-in of the service: a header has the name.
async fn signed_in(mut request: Request, next: Next) -> Result<Response, StatusCode> {
    let name = request.headers().get("user").cloned();
    let name = name.ok_or(StatusCode::UNAUTHORIZED)?;
    let name = name.to_str().expect("it is text").to_owned();
    request.extensions_mut().insert(User(name));
    Ok(next.run(request).await)
}

struct Service {
    app: Router,
    log: Arc<Mutex<Vec<String>>>,
    store: Faulty<Memory>,
    timers: DurableTimers<String, String>,
    claims: Claims<String, String>,
}

impl Service {
    /// A service with the page at a path, two timers, and a part of their namespace.
    async fn new(path: &str, change: impl Fn(Page) -> Page) -> Self {
        let store = Faulty::new(Memory::new());
        let wheel = TimerWheel::new();
        let started = builder("orders").start(&wheel, store.clone()).await;
        let (timers, claims) = started.expect("it starts");
        let part = Namespace::new("orders/1").expect("it is a name");
        let charter = "json".into();
        store.open(&part, &charter).await.expect("it opens");
        for key in ["a", "b"] {
            let set = timers.set_timer(key, &"v".to_owned(), HOUR).await;
            set.expect("it is set");
        }
        let log = Arc::new(Mutex::new(Vec::new()));
        let page = Page::new(store.clone()).log({
            let log = Arc::clone(&log);
            move |line| log.lock().expect("it is free").push(line.to_owned())
        });
        let routes = change(page).routes().layer(middleware::from_fn(signed_in));
        let app = Router::new().route("/", axum::routing::get(|| async { "shop" }));
        let app = match path {
            "" => Router::new().merge(routes),
            path => app.nest(path, routes),
        };
        Service {
            app,
            log,
            store,
            timers,
            claims,
        }
    }

    async fn answer(&self, request: &str, headers: &[(&str, &str)], form: &str) -> Response {
        let (method, path) = request.split_once(' ').expect("it has a path");
        let mut request = Request::builder().method(method).uri(path);
        request = request.header("content-type", "application/x-www-form-urlencoded");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(form.to_owned()));
        let asked = self.app.clone().oneshot(request.expect("it is right"));
        asked.await.expect("it does not fail")
    }

    /// The status, a header and the body of a response.
    async fn ask(
        &self,
        request: &str,
        headers: &[(&str, &str)],
        form: &str,
    ) -> (StatusCode, String, String) {
        let answer = self.answer(request, headers, form).await;
        let location = answer.headers().get("location");
        let location = location.map_or("", |value| value.to_str().expect("it is text"));
        let (status, location) = (answer.status(), location.to_owned());
        let body = to_bytes(answer.into_body(), usize::MAX).await;
        let body = String::from_utf8(body.expect("it is whole").into());
        (status, location, body.expect("it is text"))
    }

    /// Makes a timer of this key dead.
    async fn kill(&mut self, key: &str) {
        self.fail(key, Retry::never("poison")).await;
    }

    /// Makes the first attempt of a timer of this key fail.
    async fn fail(&mut self, key: &str, retry: Retry) {
        let value = "v".to_owned();
        let set = self.timers.set_timer(key, &value, Duration::ZERO).await;
        set.expect("it is set");
        let claim = self.claims.recv().await.expect("it comes");
        claim.fail(retry).await.expect("it is held");
    }

    async fn page(&self, path: &str) -> String {
        let (status, _, body) = self.ask(&format!("GET {path}"), &[ANNA], "").await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }
}

const ANNA: (&str, &str) = ("user", "anna");
const OWN: (&str, &str) = ("sec-fetch-site", "same-origin");

#[tokio::test]
async fn page_is_behind_the_sign_in_of_its_service() {
    let service = Service::new("/timers", Page::allow_changes).await;
    for request in [
        "GET /timers",
        "GET /timers/n/orders",
        "POST /timers/n/orders/change",
    ] {
        let (status, ..) = service
            .ask(request, &[OWN], "action=remove&prefix=22&confirmed=1")
            .await;
        assert_eq!(status, 401, "{request}");
    }
    assert_eq!(service.timers.counts().await.expect("it counts").waiting, 2);
    let (status, _, body) = service.ask("GET /", &[], "").await;
    assert_eq!((status, &*body), (StatusCode::OK, "shop"));
}

#[tokio::test]
async fn links_lead_to_where_the_page_is() {
    for (path, home) in [
        ("/timers", "/timers"),
        ("/ops/timers", "/ops/timers"),
        ("", "/"),
    ] {
        let service = Service::new(path, Page::allow_changes).await;
        for page in [
            home,
            &format!("{path}/n/orders"),
            &format!("{path}/n/orders/list/waiting"),
            &format!("{path}/n/orders/timer/226122"),
            &format!("{path}/n/orders%2F1/list/waiting"),
        ] {
            let page = service.page(page).await;
            let links = ["href=\"", "src=\"", "action=\""].map(|kind| page.split(kind).skip(1));
            for link in links.into_iter().flatten() {
                let link = link.split('"').next().expect("it ends");
                let is_own = link == home
                    || link == "#main"
                    || ["/n/", "/static/"]
                        .iter()
                        .any(|rest| link.starts_with(&format!("{path}{rest}")));
                // A part is one segment of its path.
                let is_whole = !link.contains("/n/orders/1");
                assert!(is_own && is_whole, "{link} at {path}");
            }
            assert!(!page.contains("Log out"), "the service has its own");
        }
        let style = service.page(&format!("{path}/static/style.css")).await;
        assert!(style.contains("prefers-color-scheme"), "{style}");
        let find = format!("GET {path}/n/orders/find?key=a");
        let (_, to, _) = service.ask(&find, &[ANNA], "").await;
        assert_eq!(to, format!("{path}/n/orders/timer/226122"));
        let (status, _, page) = service
            .ask(&format!("GET {path}/n/none"), &[ANNA], "")
            .await;
        assert_eq!(status, 404);
        assert!(
            page.contains(&format!("\"{path}/static/style.css\"")),
            "{page}"
        );
    }
}

#[tokio::test]
async fn change_is_logged_with_the_user_of_the_service() {
    let service = Service::new("/timers", Page::allow_changes).await;
    let change = "POST /timers/n/orders/change";
    let form = "action=remove&row=key-226122&confirmed=1&back=/timers/n/orders/list/waiting";
    let foreign = [
        ANNA,
        ("origin", "https://evil.example"),
        ("host", "shop.example"),
    ];
    for headers in [&foreign[..], &[ANNA]] {
        let (status, _, body) = service.ask(change, headers, form).await;
        assert_eq!(status, 403, "{body}");
    }
    assert!(service.log.lock().expect("it is free").is_empty());
    let (status, to, body) = service.ask(change, &[ANNA, OWN], form).await;
    assert_eq!(status, 303, "{body}");
    assert_eq!(to, "/timers/n/orders/list/waiting?did=remove&done=1");
    let log = service.log.lock().expect("it is free").clone();
    assert_eq!(log.len(), 1, "{log:?}");
    for part in [
        "who=\"anna\"",
        "namespace=orders",
        "action=remove",
        "changed=1",
    ] {
        assert!(log[0].contains(part), "{part}: {log:?}");
    }
    assert_eq!(service.timers.counts().await.expect("it counts").waiting, 1);
    for (bytes, expected) in [(131_072, 400), (131_073, 413)] {
        let form = "x".repeat(bytes);
        let (status, ..) = service.ask(change, &[ANNA, OWN], &form).await;
        assert_eq!(status, expected, "{bytes} bytes");
    }
}

#[tokio::test]
async fn page_changes_and_shows_what_it_was_allowed_to() {
    let only = Namespace::new("orders").expect("it is a name");
    let service = Service::new("/timers", |page| page.namespace(only.clone())).await;
    for path in ["", "/list/waiting?prefix=a", "/timer/226122"] {
        let page = service.page(&format!("/timers/n/orders{path}")).await;
        assert!(!page.contains("<button name="), "{path}: {page}");
    }
    // A page that says what a change has done is no error, though it has left nothing.
    let gone = "/timers/n/orders/timer/2267226722";
    let (status, ..) = service.ask(&format!("GET {gone}"), &[ANNA], "").await;
    assert_eq!(status, 404);
    let page = service.page(&format!("{gone}?did=remove&done=1")).await;
    assert!(page.contains("1 removed."), "{page}");
    let form = "action=remove&prefix=22&confirmed=1";
    let (status, ..) = service
        .ask("POST /timers/n/orders/change", &[ANNA, OWN], form)
        .await;
    assert_eq!(status, 403);
    assert_eq!(service.timers.counts().await.expect("it counts").waiting, 2);
    let other = Namespace::new("mails").expect("it is a name");
    let service = Service::new("/timers", |page| page.namespace(other.clone())).await;
    let home = service.page("/timers").await;
    assert!(home.contains("There is no namespace to show"), "{home}");
    let (status, ..) = service.ask("GET /timers/n/orders", &[ANNA], "").await;
    assert_eq!(status, 404);
}

/// Whatever an answer is, it is neither cached nor in a frame, and its forms lead nowhere else.
#[tokio::test]
async fn each_answer_has_the_headers_that_protect_it() {
    let service = Service::new("/timers", Page::allow_changes).await;
    for (request, status, content) in [
        ("GET /timers", 200, "text/html"),
        ("GET /timers/n/orders", 200, "text/html"),
        ("GET /timers/n/orders/timer/zz", 400, "text/html"),
        ("POST /timers/n/orders/change", 403, "text/html"),
        ("GET /timers/n/none", 404, "text/html"),
        ("GET /timers/static/style.css", 200, "text/css"),
        ("GET /timers/static/page.js", 200, "text/javascript"),
    ] {
        let answer = service.answer(request, &[ANNA], "").await;
        assert_eq!(answer.status(), status, "{request}");
        for (name, part) in [
            ("cache-control", "no-store"),
            ("content-type", content),
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "same-origin"),
            ("content-security-policy", "default-src 'none'"),
            ("content-security-policy", "form-action 'self'"),
            ("content-security-policy", "frame-ancestors 'none'"),
        ] {
            let value = answer.headers().get(name).map(|value| value.to_str());
            let value = value.unwrap_or(Ok("")).expect("it is text");
            let has_part = value.split("; ").any(|each| each == part);
            assert!(has_part, "{name} of {request}: {value:?}");
        }
    }
}

/// A browser waits for a store that hangs as long as the service says, not as long as it hangs, and
/// for the list of namespaces not for each of them.
#[tokio::test(start_paused = true)]
async fn store_that_hangs_is_told_after_the_time_limit() {
    let limit = Duration::from_millis(200);
    let service = Service::new("/timers", |page| page.call_timeout(limit)).await;
    for is_known in [false, true] {
        if is_known {
            // Then the list asks them, two at most.
            service.page("/timers").await;
        }
        service.store.set_delay(HOUR);
        for path in ["/timers", "/timers/n/orders", "/timers/n/orders/list/dead"] {
            let began = Instant::now();
            let (status, _, body) = service.ask(&format!("GET {path}"), &[ANNA], "").await;
            assert!(began.elapsed() <= 2 * limit, "{path}");
            assert_eq!(status, 502, "{path}: {body}");
            let words = "the store has not responded within 200ms";
            assert!(body.contains(words), "{path}: {body}");
        }
        service.store.set_delay(Duration::ZERO);
    }
}

/// Regression: it took down the page of all others.
#[tokio::test]
async fn namespace_that_cannot_be_read_hides_no_other() {
    let service = Service::new("/timers", |page| page).await;
    (service.store).fail_at(service.store.calls(), FaultPoint::Before);
    let home = service.page("/timers").await;
    let rows: Vec<_> = home.split("<tr>").skip(2).collect();
    assert!(rows[0].contains("state failing"), "{home}");
    assert!(rows[0].contains("taken away by the test"), "{home}");
    assert!(rows[1].contains("state ok"), "{home}");
}

/// Regression: each page, and each refresh, made Redis look at all of its keys.
#[tokio::test(start_paused = true)]
async fn namespaces_are_looked_for_every_few_seconds() {
    let service = Service::new("/timers", |page| page).await;
    service.page("/timers").await;
    let mails = Namespace::new("mails").expect("it is a name");
    let opened = service.store.open(&mails, &"json".into()).await;
    opened.expect("it opens");
    assert!(!service.page("/timers").await.contains("mails"));
    sleep(Duration::from_secs(10)).await;
    assert!(service.page("/timers").await.contains("mails"));
}

/// The page of a change that has failed says so, and is not live any more.
#[tokio::test(start_paused = true)]
async fn long_change_that_fails_is_told_on_its_page() {
    let limit = Duration::from_secs(2);
    let limited = |page: Page| page.allow_changes().call_timeout(limit);
    let service = Service::new("/timers", limited).await;
    service.store.set_slow("write", HOUR);
    let change = "POST /timers/n/orders/change";
    let form = "action=remove&row=key-226122&confirmed=1";
    let (status, to, body) = service.ask(change, &[ANNA, OWN], form).await;
    assert_eq!(status, 303, "{body}");
    let page = service.page(&to).await;
    // Without a script, too.
    let again = "<noscript><meta http-equiv=\"refresh\"";
    let asked = "<h1>Remove 1 waiting timer</h1>";
    for words in [asked, "<progress", "live-state", again] {
        assert!(page.contains(words), "{words}: {page}");
    }
    sleep(limit).await;
    let page = service.page(&to).await;
    for words in [
        "<h1>The change has failed</h1>",
        "Remove 1 waiting timer.",
        "the store has not responded within 2s",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert!(
        !page.contains("live-state") && !page.contains(again),
        "{page}"
    );
}

#[tokio::test]
async fn change_that_fails_at_once_is_no_success() {
    let service = Service::new("/timers", Page::allow_changes).await;
    service.store.set_failing(Some("write"));
    let change = "POST /timers/n/orders/change";
    let form = "action=run&row=key-226122";
    let (status, _, page) = service.ask(change, &[ANNA, OWN], form).await;
    assert_eq!(status, 502, "{page}");
    assert!(page.contains("<h1>The change has failed</h1>"), "{page}");
}

/// A list that looks as if all was done would hide that a timer had gone.
#[tokio::test]
async fn change_of_two_timers_says_that_one_has_gone() {
    let service = Service::new("/timers", Page::allow_changes).await;
    let change = "POST /timers/n/orders/change";
    let form = "action=move&in=2h&row=key-226122&row=key-227a22";
    let (status, _, page) = service.ask(change, &[ANNA, OWN], form).await;
    assert_eq!(status, 200, "{page}");
    for words in [
        "<h1>Not all were changed</h1>",
        "1 moved.",
        "&quot;z&quot; has no timer",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
}

#[tokio::test]
async fn filter_finds_keys_that_are_no_strings() {
    let service = Service::new("/timers", |page| page).await;
    let builder = builder::<u64, String>("numbers");
    let started = builder
        .start(&TimerWheel::new(), service.store.clone())
        .await;
    let (timers, mut claims) = started.expect("it starts");
    for (key, delay) in [(17, HOUR), (23, Duration::ZERO)] {
        let set = timers.set_timer(&key, &"v".to_owned(), delay).await;
        set.expect("it is set");
    }
    let claim = claims.recv().await.expect("it comes");
    claim.fail(Retry::never("why")).await.expect("it is held");
    for (list, found) in [
        ("waiting?prefix=1", "<bdi>17</bdi>"),
        ("waiting?prefix=2", "No timer fits the filter."),
        ("dead?prefix=2", "<bdi>23</bdi>"),
    ] {
        let page = service
            .page(&format!("/timers/n/numbers/list/{list}"))
            .await;
        assert!(page.contains(found), "{list}: {page}");
    }
}

#[tokio::test]
async fn timer_that_waits_for_its_retry_is_listed_with_its_error() {
    let mut service = Service::new("/timers", |page| page).await;
    let retry = Retry::after(HOUR).because("no route to host");
    service.fail("c", retry).await;
    for filter in ["", "?error=route"] {
        let list = format!("/timers/n/orders/list/waiting{filter}");
        let page = service.page(&list).await;
        assert!(page.contains("<bdi>no route to host</bdi>"), "{page}");
    }
}

/// Regression: a timer that died while the question was read was discarded unseen.
#[tokio::test]
async fn confirmed_change_leaves_what_died_after_the_question() {
    let mut service = Service::new("/timers", Page::allow_changes).await;
    let change = "POST /timers/n/orders/change";
    service.kill("dead 1").await;
    let form = "action=discard&all=1";
    let (_, _, page) = service.ask(change, &[ANNA, OWN], form).await;
    assert!(page.contains("Discard 1 dead timer?"), "{page}");
    let as_of = page.split_once("name=\"as_of\" value=\"");
    let as_of = as_of.and_then(|(_, rest)| rest.split_once('"'));
    let (as_of, _) = as_of.expect("it is in the form");
    sleep(Duration::from_millis(100)).await;
    service.kill("dead 2").await;
    let form = format!("{form}&as_of={as_of}&confirmed=1");
    let (_, to, page) = service.ask(change, &[ANNA, OWN], &form).await;
    assert!(to.contains("did=discard&done=1"), "{to}: {page}");
    assert_eq!(service.timers.counts().await.expect("it counts").dead, 1);
}

/// Each figure differs from the others, so that none takes the place of another one.
#[tokio::test]
async fn figure_is_beside_its_name() {
    let mut service = Service::new("/timers", |page| page).await;
    for key in ["dead 1", "dead 2"] {
        service.kill(key).await;
    }
    let (timers, value) = (&service.timers, "v".to_owned());
    let set = timers.set_timer("flying", &value, Duration::ZERO).await;
    set.expect("it is set");
    let _claim = service.claims.recv().await.expect("it comes");
    let set = timers.set_timer("c", &value, HOUR).await;
    set.expect("it is set");
    let figures = [("waiting", 3), ("in flight", 1), ("dead", 2)];
    let home = service.page("/timers").await;
    let orders = home
        .split("<tr>")
        .find(|row| row.contains(">orders</a></td>"));
    let orders = orders.expect("it is there");
    for (name, figure) in figures {
        let cell = format!("data-label=\"{name}\">{figure}</td>");
        assert!(orders.contains(&cell), "{cell}: {orders}");
    }
    let page = service.page("/timers/n/orders").await;
    for (name, figure) in figures.into_iter().chain([("late", 0)]) {
        let pair = format!("<dt>{name}</dt><dd>{figure}</dd>");
        assert!(page.contains(&pair), "{pair}: {page}");
    }
    assert!(page.contains("<dt>earliest</dt><dd>in 59 min"), "{page}");
    let members = service.timers.admin().instances().await;
    let id = members.expect("they are listed")[0].instance.id.0;
    let claimed = format!("data-label=\"claimed by\">{id}</td>");
    assert!(page.contains(&claimed), "{claimed}: {page}");
}

/// Bars show what is due within an hour, or within the time that is chosen, and say when.
#[tokio::test(start_paused = true)]
async fn bars_show_what_is_due_within_the_chosen_time() {
    let service = Service::new("/timers", |page| page).await;
    let timers = &service.timers;
    let set = async |key: &str, delay| {
        let set = timers.set_timer(key, &"v".to_owned(), delay).await;
        set.expect("it is set");
    };
    set("a", HOUR * 9 / 4).await;
    set("b", HOUR * 9 / 4).await;
    for query in ["", "?window=3600", "?window=17"] {
        let page = service.page(&format!("/timers/n/orders{query}")).await;
        assert!(page.contains("<strong>an hour</strong>"), "{query}: {page}");
        assert!(page.contains("Nothing is due then."), "{query}: {page}");
    }
    let page = service.page("/timers/n/orders?window=86400").await;
    for words in [
        "<strong>a day</strong>",
        "<title>in 2 h to in 2 h 30 min: 2</title>",
        "highest: 2",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    set("c", HOUR * 51 / 100).await;
    let page = service.page("/timers/n/orders").await;
    let title = "<title>in 30 min to in 31 min 15 s: 1</title>";
    assert!(page.contains(title), "{page}");
    // One timer beside many has a bar that can be seen.
    for number in 0..200 {
        set(&format!("many {number}"), HOUR / 4).await;
    }
    let page = service.page("/timers/n/orders").await;
    assert!(page.contains("highest: 200"), "{page}");
    let bar = format!("height=\"2\">{title}");
    assert!(page.contains(&bar), "{page}");
}
