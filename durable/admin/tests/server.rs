//! The page over HTTP: who gets it, and what its forms change.

#[path = "server/clients.rs"]
mod clients;
#[path = "support/server.rs"]
mod server;
#[allow(dead_code, reason = "another test uses the rest")]
mod support;

use std::collections::BTreeSet;
use std::io::Read as _;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use server::{Server, between};
use support::{File, NAME, counted, kill_timers, program, set};
use tickwheel_durable::rusqlite::Connection;

const HOUR: Duration = Duration::from_secs(3_600);

const TOKEN: &str = "a token of some length";

/// A file with the token. Returns its path.
fn token_file(file: &File) -> String {
    let secret = file.path().with_extension("token");
    std::fs::write(&secret, format!("{TOKEN}\n")).expect("it is written");
    secret.to_str().expect("it is text").to_owned()
}

/// The cookie of a login with these further headers, and its attributes.
fn login(server: &Server, headers: &[&str]) -> (String, String) {
    let login = server.ask("POST /login", headers, "token=a+token+of+some+length");
    let cookie = between(&login, "set-cookie: ", "\r\n").expect("it sets a cookie");
    let (cookie, attributes) = cookie.split_once(';').expect("it has attributes");
    (format!("Cookie: {cookie}"), attributes.to_owned())
}

#[tokio::test]
async fn form_changes_something_only_with_all_that_it_needs() {
    let file = File::new();
    let mut instance = file.instance().await;
    kill_timers(&mut instance, &["a"], "poison").await;
    let (timers, _claims) = instance;
    let dead = timers.admin().dead(None, 1).await.expect("it lists");
    let token = dead[0].dead.as_ref().expect("it is dead").token;
    let retry = "POST /n/orders/change";
    let fields = format!("action=retry&row=token-{token}");

    let reading = Server::start(&file, &[]);
    let page = reading.page("/n/orders");
    assert!(page.contains("poison"), "{page}");
    for button in ["retry", "discard", "checkbox"] {
        assert!(!page.contains(button), "{button}: {page}");
    }
    assert!(
        page.contains("content-security-policy: default-src 'none'"),
        "{page}"
    );
    let refused = reading.ask(retry, &[], &fields);
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    assert!(refused.contains("--allow-changes"), "{refused}");

    let server = Server::start(&file, &["--allow-changes"]);
    let here = format!("Origin: http://{}", server.address);
    for (headers, expected, words) in [
        (&["Sec-Fetch-Site: cross-site"][..], "403", &*server.address),
        (&["Origin: http://evil.example"], "403", "evil.example"),
        (
            &[&here, "Sec-Fetch-Site: same-site"],
            "403",
            &server.address,
        ),
        (&["Host: evil.example"], "421", "evil.example"),
        (&["X-Forwarded-For: 192.0.2.1"], "403", "--token-file"),
        (
            &[&here, "Sec-Fetch-Site: same-origin"],
            "303",
            "location: /n/orders",
        ),
    ] {
        assert_eq!(counted(&timers).await[2], 1);
        let answer = server.ask(retry, headers, &fields);
        let status = format!("HTTP/1.1 {expected}");
        assert!(answer.starts_with(&status), "{headers:?}: {answer}");
        assert!(answer.contains(words), "{headers:?}: {answer}");
    }
    assert_eq!(counted(&timers).await[2], 0);
}

/// A probe takes a redirection for a success.
#[tokio::test]
async fn monitor_without_the_token_is_refused_and_not_led_to_the_login() {
    let file = File::new();
    let _instance = file.instance().await;
    let server = Server::start(&file, &["--token-file", &token_file(&file)]);
    let token = format!("Authorization: Bearer {TOKEN}");
    for (path, words) in [
        ("/health", "\r\n\r\nok\n"),
        ("/metrics", "\ntickwheel_store_up 1\n"),
    ] {
        let refused = server.ask(&format!("GET {path}"), &[], "");
        assert!(refused.starts_with("HTTP/1.1 401"), "{path}: {refused}");
        let answer = server.ask(&format!("GET {path}"), &[&token], "");
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        assert!(answer.contains(words), "{path}: {answer}");
    }
}

#[tokio::test]
async fn token_is_needed_for_every_page() {
    let file = File::new();
    let _instance = file.instance().await;
    let server = Server::start(
        &file,
        &["--token-file", &token_file(&file), "--allow-changes"],
    );
    for path in [
        "/",
        "/n/orders",
        "/n/orders/list/dead",
        "/n/orders/find?key=a",
        "/n/orders/timer/61",
    ] {
        let answer = server.ask(&format!("GET {path}"), &[], "");
        assert!(answer.starts_with("HTTP/1.1 303"), "{answer}");
        assert!(answer.contains("location: /login"), "{answer}");
        assert!(answer.contains("cache-control: no-store"), "{answer}");
    }
    let answer = server.ask("POST /n/orders/change", &[], "action=purge&all=1");
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    // A proxy with a password of its own passes it on.
    let answer = server.ask("GET /", &["Authorization: Basic bWU6czNjcmV0"], "");
    assert!(answer.starts_with("HTTP/1.1 303"), "{answer}");
    let right = format!("Authorization: Bearer {TOKEN}");
    for forwarded in ["X: y", "X-Forwarded-For: 192.0.2.1"] {
        let answer = server.ask(
            "GET /n/orders",
            &[&right, forwarded, "Host: timers.example"],
            "",
        );
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let (cookie, attributes) = login(&server, &[]);
    assert!(!attributes.contains("Secure"), "{attributes}");
    let answer = server.ask("GET /n/orders", &[&cookie], "");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("Log out"), "{answer}");
    let (_, attributes) = login(&server, &["X-Forwarded-Proto: https"]);
    assert!(attributes.contains("Secure"), "{attributes}");
}

/// Each wrong token takes half a second, so that tokens cannot be tried by the thousand.
#[tokio::test]
async fn wrong_token_is_answered_after_a_pause() {
    let file = File::new();
    let _instance = file.instance().await;
    let server = Server::start(&file, &["--token-file", &token_file(&file)]);
    let wrong = ["Authorization: Bearer another token of a length"];
    let login = || server.ask("POST /login", &[], "token=another+token+of+a+length");
    let bearer = || server.ask("GET /n/orders", &wrong, "");
    for ask in [&login as &dyn Fn() -> String, &bearer] {
        let began = Instant::now();
        let answer = ask();
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
        assert!(!answer.contains("set-cookie"), "{answer}");
        assert!(
            began.elapsed() >= Duration::from_millis(450),
            "{:?}",
            began.elapsed()
        );
    }
}

#[tokio::test]
async fn short_token_is_refused() {
    let file = File::new();
    let _instance = file.instance().await;
    let short = file.path().with_extension("token");
    for (token, words) in [
        ("12345", "has 5 characters; it must have 16"),
        ("123456789012345\n", "has 15 characters"),
        ("", "has 0 characters"),
    ] {
        std::fs::write(&short, token).expect("it is written");
        let by_file = ["--token-file", short.to_str().expect("it is text")];
        for (arguments, variable) in [(&by_file[..], None), (&[], Some(token))] {
            let mut command = program();
            command.arg("--url").arg(file.path());
            command
                .args(["serve", "--listen", "127.0.0.1:0"])
                .args(arguments);
            if let Some(token) = variable {
                command.env("TICKWHEEL_ADMIN_TOKEN", token);
            }
            let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = child.spawn().expect("it starts");
            let mut output = String::new();
            let stdout = child.stdout.as_mut().expect("it is piped");
            // It ends, or says where it listens.
            let mut first = [0];
            let listens = stdout.read(&mut first).expect("it is read") > 0;
            let _ = child.kill();
            let status = child.wait().expect("it ends");
            let stderr = child.stderr.as_mut().expect("it is piped");
            stderr.read_to_string(&mut output).expect("it is read");
            assert!(!listens && status.code() == Some(2), "{token:?}: {output}");
            assert!(output.contains(words), "{output}");
        }
    }
}

/// Regression: a login was good until the program ended.
#[tokio::test]
async fn login_ends() {
    let file = File::new();
    let _instance = file.instance().await;
    let token_file = token_file(&file);
    let server = Server::start(&file, &["--token-file", &token_file]);
    let (first, _) = login(&server, &[]);
    let (second, _) = login(&server, &[]);
    assert_ne!(first, second);
    let evil = [&*first, "Origin: http://evil.example"];
    for path in ["/login", "/logout"] {
        let form = "token=a+token+of+some+length";
        let foreign = server.ask(&format!("POST {path}"), &evil, form);
        assert!(foreign.starts_with("HTTP/1.1 403"), "{foreign}");
        assert!(!foreign.contains("set-cookie"), "{foreign}");
    }
    let out = server.ask("POST /logout", &[&first], "");
    assert!(out.contains("Max-Age=0"), "{out}");
    let answer = server.ask("GET /n/orders", &[&first], "");
    assert!(answer.starts_with("HTTP/1.1 303"), "{answer}");
    let answer = server.ask("GET /n/orders", &[&second], "");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    let short = Server::start(&file, &["--token-file", &token_file, "--session", "100ms"]);
    let (cookie, _) = login(&short, &[]);
    // The cookies of a host are for all of its ports.
    let name = |cookie: &str| cookie.split('=').next().map(str::to_owned);
    assert_ne!(name(&cookie), name(&first));
    tokio::time::sleep(Duration::from_millis(200)).await;
    let answer = short.ask("GET /n/orders", &[&cookie], "");
    assert!(answer.starts_with("HTTP/1.1 303"), "{answer}");
}

/// Regression: a page of one namespace showed and changed all others.
#[tokio::test]
async fn page_of_one_namespace_leaves_others_alone() {
    let file = File::new();
    let (mut orders, mut mails) = (file.instance().await, file.instance_of("mails").await);
    kill_timers(&mut orders, &["a"], "poison").await;
    kill_timers(&mut mails, &["a"], "poison").await;
    let server = Server::start(&file, &["--namespace", "mails", "--allow-changes"]);
    for path in ["/", "/n/mails"] {
        let page = server.page(path);
        assert!(page.contains("mails") && !page.contains("orders"), "{page}");
    }
    for path in ["", "/list/dead", "/timer/226122", "/find?key=a"] {
        let answer = server.ask(&format!("GET /n/orders{path}"), &[], "");
        assert!(answer.starts_with("HTTP/1.1 404"), "{path}: {answer}");
    }
    for fields in [
        "action=retry&all=1",
        "action=discard&all=1&confirmed=1",
        "action=discard&prefix=22&confirmed=1",
    ] {
        let answer = server.change("orders", fields);
        assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    }
    let done = server.change("mails", "action=discard&all=1&confirmed=1");
    assert!(done.starts_with("HTTP/1.1 303"), "{done}");
    assert_eq!(counted(&mails.0).await, [0, 0, 0]);
    assert_eq!(counted(&orders.0).await, [0, 0, 1]);
}

/// Regression: what cannot be undone was done by one click, and left no trace.
#[tokio::test]
async fn change_is_asked_and_logged() {
    let file = File::new();
    let mut instance = file.instance().await;
    kill_timers(&mut instance, &["dead 1", "dead 2"], "poison").await;
    let (timers, _claims) = instance;
    set(&timers, &["a 1", "a 2", "b"], HOUR).await;
    let server = Server::start(&file, &["--allow-changes"]);
    let page = server.page("/n/orders");
    let offers = page.matches("name=\"all\"").count();
    assert_eq!(offers, 1, "of those that are dead: {page}");
    for (fields, words) in [
        ("action=discard&all=1", &["Discard 2 dead timers?"][..]),
        ("action=remove&row=key-22622", &[][..]),
        (
            "action=remove&row=key-226222",
            &["Remove 1 waiting timer?", "b"],
        ),
        (
            "action=run&prefix=2261",
            &["Run 2 waiting timers?", "that begin with"],
        ),
        ("action=move&in=2h&prefix=2261", &["Move 2 waiting timers?"]),
    ] {
        let page = server.change("orders", fields);
        for word in words {
            assert!(page.starts_with("HTTP/1.1 200"), "{page}");
            assert!(page.contains(word), "{word}: {page}");
            assert!(page.contains("<strong>orders</strong>"), "{page}");
        }
        assert_eq!(counted(&timers).await, [3, 0, 2], "{fields}");
    }
    // What no button sends is refused, also if it is confirmed.
    for (action, words) in [
        ("purge", "the page does not purge"),
        ("remove", "only if they are dead"),
        ("run", "only if they are dead"),
        ("release", "only if they are dead"),
    ] {
        let fields = format!("action={action}&all=1&confirmed=1");
        let refused = server.change("orders", &fields);
        assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
        assert!(refused.contains(words), "{refused}");
        assert_eq!(counted(&timers).await, [3, 0, 2], "{fields}");
    }
    assert_eq!(server.log(), "");

    let moved = server.change(
        "orders",
        "action=move&in=2h&row=key-226222&back=/n/orders/list/waiting",
    );
    let to = "location: /n/orders/list/waiting?did=move&done=1";
    assert!(moved.contains(to), "{moved}");
    let page = server.page("/n/orders/list/waiting?did=move&done=1234");
    assert!(page.contains("1,234 moved."), "{page}");
    let deadline = timers.deadline("b").await.expect("it reads");
    assert!(deadline.expect("it waits") > SystemTime::now() + HOUR);
    let removed = server.change("orders", "action=remove&prefix=2261&confirmed=1");
    assert!(removed.contains("did=remove&done=2"), "{removed}");
    let discarded = server.change("orders", "action=discard&all=1&confirmed=1");
    assert!(discarded.contains("did=discard&done=2"), "{discarded}");
    assert_eq!(counted(&timers).await, [1, 0, 0]);
    let absent = server.change("orders", "action=run&row=key-2261203122");
    assert!(absent.contains("has no timer"), "{absent}");
    assert!(absent.contains("Nothing was changed"), "{absent}");
    let log = server.log_of(4);
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines.len(), 4, "{log}");
    for (line, parts) in lines.iter().zip([
        &["action=move in=2h", "changed=1"][..],
        &["action=remove", "changed=2", "begin with"],
        &["action=discard", "changed=2", "which=\"all\""],
        &["action=run", "changed=0"],
    ]) {
        for part in [
            parts,
            &["change: time=", "who=\"127.0.0.1:", "namespace=orders"],
        ]
        .concat()
        {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
}

/// A list is read from page to page and back, each timer once, and filtered by key, state and
/// error.
#[tokio::test]
async fn lists_are_filtered_and_read_in_pages() {
    let file = File::new();
    let mut instance = file.instance().await;
    kill_timers(&mut instance, &["dead a", "dead b"], "no route to host").await;
    kill_timers(&mut instance, &["dead c"], "timeout").await;
    let (timers, _claims) = instance;
    let deadline = SystemTime::now() + HOUR;
    // Two whole pages: no third one follows.
    for number in 0..100 {
        let key = format!("order {number:03}");
        let set = timers.set_timer_at(&key, &"v".to_owned(), deadline).await;
        set.expect("it is set");
    }
    let server = Server::start(&file, &[]);
    let keys = |page: &str| -> Vec<String> {
        let cells = page.split("<bdi>&quot;").skip(1);
        let keys = cells.filter_map(|cell| cell.split_once("&quot;</bdi></a>"));
        keys.map(|(key, _)| key.to_owned()).collect()
    };
    let link = |page: &str, rel: &str| {
        let before = page.split_once(&format!("\" rel=\"{rel}\""))?.0;
        let (_, address) = before.rsplit_once("href=\"")?;
        Some(address.replace("&amp;", "&"))
    };
    for filter in ["", "?prefix=order"] {
        let (mut all, mut pages) = (Vec::new(), Vec::new());
        let mut path = Some(format!("/n/orders/list/waiting{filter}"));
        while let Some(here) = path {
            let page = server.page(&here);
            all.extend(keys(&page));
            assert!(all.len() <= 100, "{filter}");
            path = link(&page, "next");
            let previous = link(&page, "prev");
            assert_eq!(previous.as_ref(), pages.last(), "{here}");
            pages.push(here);
        }
        let once: BTreeSet<_> = all.iter().collect();
        assert_eq!(
            (all.len(), once.len(), pages.len()),
            (100, 100, 2),
            "{filter}"
        );
    }
    for (path, expected) in [
        ("dead", &["dead a", "dead b", "dead c"][..]),
        ("dead?error=route", &["dead a", "dead b"]),
        ("dead?prefix=dead+b&error=route", &["dead b"]),
        ("dead?prefix=dead+c&error=route", &[]),
        ("waiting?prefix=order+11&error=x", &[]),
        ("in_flight", &[]),
    ] {
        let page = server.page(&format!("/n/orders/list/{path}"));
        assert_eq!(keys(&page), expected, "{path}");
        assert_eq!(link(&page, "next"), None, "{path}");
        assert_eq!(
            page.contains("No timer fits"),
            expected.is_empty() && path.contains('?')
        );
    }
    let home = server.page("/");
    assert!(
        home.contains("state died") && home.contains(">100<"),
        "{home}"
    );
    assert!(
        home.contains("but timers have died within the last hour."),
        "{home}"
    );
}

/// Regression: a browser waited for as long as a change took, and showed nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_change_has_a_page_of_its_progress() {
    let file = File::new();
    let (timers, _claims) = file.instance().await;
    let keys: Vec<_> = (0..1_234).map(|key| format!("a {key}")).collect();
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    set(&timers, &keys, HOUR).await;
    let server = Server::start(&file, &["--allow-changes"]);
    // Another transaction holds it up.
    let other = Connection::open(file.path()).expect("it opens");
    let locked = other.execute_batch("BEGIN IMMEDIATE");
    locked.expect("the instance lets go of the file");
    let removing = "action=remove&prefix=2261&confirmed=1&back=/n/orders/list/waiting";
    let answer = server.change("orders", removing);
    let path = between(&answer, "location: ", "\r\n").expect("it leads on");
    assert!(path.starts_with("/n/orders/change/"), "{answer}");
    let page = server.page(&path);
    for words in [
        "<h1>Remove 1,234 waiting timers</h1>",
        "<progress max=\"1234\" value=\"0\">",
        // The question may have stopped counting.
        "<p>0 so far.",
        "live-state",
        "href=\"/n/orders/list/waiting\"",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    // The last step takes seconds.
    let slow = "CREATE TRIGGER slow AFTER DELETE ON tickwheel_timers
        WHEN 5 = (SELECT count(*) FROM tickwheel_timers) BEGIN
            SELECT count(*) FROM tickwheel_timers WHERE due = (
                WITH RECURSIVE n (x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM n WHERE x < 10000000)
                SELECT max(x) FROM n);
        END; COMMIT";
    other.execute_batch(slow).expect("it commits");
    let began = Instant::now();
    let mut seen = BTreeSet::new();
    let page = loop {
        let page = server.page(&path);
        let Some(value) = between(&page, "max=\"1234\" value=\"", "\"") else {
            break page;
        };
        seen.insert(value.parse::<u64>().expect("it is a number"));
        assert!(began.elapsed() < Duration::from_secs(60), "{page}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    // It adds up the steps.
    assert!(seen.range(1_000..1_234).next().is_some(), "{seen:?}");
    assert!(page.contains("<h1>Done</h1>"), "{page}");
    assert!(page.contains("1,234 removed."), "{page}");
    assert!(!page.contains("live-state"), "it does not change any more");
    assert_eq!(counted(&timers).await, [0, 0, 0]);
    assert!(server.log_of(1).contains("changed=1234"));
    for absent in ["/n/orders/change/17", "/n/other/change/17"] {
        let answer = server.ask(&format!("GET {absent}"), &[], "");
        assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    }
}

/// A timer is late once it has been due for five seconds, not sooner. A section without a timer
/// says so.
#[tokio::test]
async fn page_counts_what_is_late() {
    let file = File::new();
    let (timers, claims) = file.instance().await;
    set(&timers, &["a", "b", "now", "next"], HOUR).await;
    timers.shutdown().await;
    drop(claims);
    let due = "UPDATE tickwheel_timers SET due = unixepoch() * 1000000 - CASE key
        WHEN CAST('\"next\"' AS BLOB) THEN -600000000
        WHEN CAST('\"now\"' AS BLOB) THEN 0
        ELSE 60000000 END";
    let other = Connection::open(file.path()).expect("it opens");
    let server = Server::start(&file, &[]);
    other.execute(due, ()).expect("they are moved");
    let page = server.page("/n/orders");
    assert!(page.contains("<dt>late</dt><dd>2</dd>"), "{page}");
    for (section, is_empty) in [("dead", true), ("in_flight", true), ("waiting", false)] {
        let start = format!("<section id=\"{section}\"");
        let text = between(&page, &start, "</section>").expect("it is there");
        assert_eq!(text.contains("None."), is_empty, "{text}");
    }
}

/// Regression: instances were numbers.
#[tokio::test]
async fn instances_have_the_names_of_their_programs() {
    let file = File::new();
    let _instance = file.instance().await;
    let server = Server::start(&file, &[]);
    let page = server.page("/n/orders");
    assert!(page.contains(NAME), "{page}");
}

#[tokio::test]
async fn page_says_what_is_wrong_with_a_request() {
    let file = File::new();
    let _instance = file.instance().await;
    let server = Server::start(&file, &["--allow-changes"]);
    let answer = server.ask("GET /n/orders/timer/2261", &[], "");
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    assert!(answer.contains("The key has no timer"), "{answer}");
    let answer = server.ask("GET /absent", &[], "");
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    assert!(answer.contains("there is no such page"), "{answer}");
    let answer = server.ask("GET /n/orders/timer/zz", &[], "");
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    for (fields, words) in [
        ("action=burn&all=1", "names no action"),
        ("action=run", "no timer is selected"),
        ("action=remove&row=token-17", "remove takes no token"),
        ("action=move&row=key-2261&in=soon", "how long from now"),
    ] {
        let answer = server.change("orders", fields);
        assert!(answer.starts_with("HTTP/1.1 400"), "{fields}: {answer}");
        assert!(answer.contains(words), "{fields}: {answer}");
        assert!(answer.contains("/static/style.css"), "{answer}");
    }
}
