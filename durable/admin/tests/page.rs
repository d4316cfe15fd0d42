//! The page in a browser.

#[path = "support/browser.rs"]
mod browser;
#[path = "page/forms.rs"]
mod forms;
#[path = "support/server.rs"]
#[allow(dead_code, reason = "another test uses the rest")]
mod server;
#[allow(dead_code, reason = "another test uses the rest")]
mod support;

use std::time::Duration;

use browser::Browser;
use serde_json::Value;
use server::Server;
use support::{File, counted, kill_timers, set};
use tickwheel_durable::Retry;
use tickwheel_durable::rusqlite::Connection;

const HOUR: Duration = Duration::from_secs(3_600);

/// A text that would be an element, or turn the page around, if it was not escaped.
const HOSTILE: &str =
    "\"'><script>window.hostile = 1</script><img src=x onerror='window.hostile = 1'>\u{202e}&lt;";

/// What does not fit the width of the page, and words that are broken into lines.
const MISFITS: &str = r#"(() => {
    const misfits = [];
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth > width) misfits.push(`scrolls to ${document.documentElement.scrollWidth}`);
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const node = texts.currentNode, parent = node.parentElement;
        if (!parent.checkVisibility() || parent.closest("svg, .skip, noscript, script")) continue;
        for (const word of node.data.matchAll(/\S+/g)) {
            const range = document.createRange();
            range.setStart(node, word.index);
            range.setEnd(node, word.index + word[0].length);
            const lines = new Set([...range.getClientRects()].map(rect => Math.round(rect.top)));
            // A longer one, as of a key, may have to be broken.
            if (lines.size > 1 && word[0].length <= 20) misfits.push(`broken: ${word[0]}`);
            const clip = parent.closest(".text");
            if (!clip && range.getBoundingClientRect().right > width + 1) misfits.push(`outside: ${word[0]}`);
        }
    }
    for (const element of document.querySelectorAll("button, input, td, th")) {
        const box = element.getBoundingClientRect();
        if (element.checkVisibility() && box.width > 0 && (box.right > width + 1 || box.left < -1)) misfits.push(`outside: ${element.outerHTML.slice(0, 80)}`);
    }
    return misfits.join("; ");
})()"#;

/// The page shows thousands of timers and hostile ones, follows what changes, and its button
/// retries a dead timer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_is_live_in_a_browser() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let file = File::new();
    let (timers, mut claims) = file.instance().await;
    let large = HOSTILE.repeat(8_000);
    let set = timers.set_timer(HOSTILE, &large, Duration::ZERO).await;
    set.expect("it is set");
    let claim = claims.recv().await.expect("it comes");
    claim.fail(Retry::never(HOSTILE)).await.expect("it is held");
    let keys: Vec<String> = (0..10_000).map(|key| format!("{key} {HOSTILE}")).collect();
    let value = HOSTILE.to_owned();
    let many = keys.iter().map(|key| (key.as_str(), &value, HOUR / 2));
    timers.set_many(many).await.expect("they are set");

    let server = Server::start(&file, &["--allow-changes"]);
    browser.open(&format!("http://{}/", server.address));
    browser.until("document.querySelector('#namespaces .state').textContent === 'died'");
    browser.value("document.querySelector('#namespaces td a').click()");
    browser.until("document.querySelectorAll('#waiting tbody tr').length === 10");
    assert_eq!(
        browser.value("document.querySelectorAll('#dead tbody tr').length"),
        1
    );
    assert_eq!(
        browser.value("document.querySelector('#state dd').textContent"),
        "10,000"
    );
    assert_eq!(
        browser.value("document.querySelectorAll('#due rect').length"),
        1
    );
    assert_eq!(
        browser.value("document.querySelectorAll('img, main script').length"),
        0
    );
    assert_eq!(browser.value("typeof window.hostile"), "undefined");
    assert_eq!(
        browser.value("document.body.innerText.includes('\\u202e')"),
        false
    );

    // Another one is shown without the page being loaded again.
    browser.value("window.mark = 1");
    let set = timers.set_timer("new", &value, HOUR).await;
    set.expect("it is set");
    browser.until("document.querySelector('#state dd').textContent === '10,001'");
    assert_eq!(browser.value("window.mark"), 1, "it is the same page");

    // The box of a table selects no row of another one.
    let select_all = "document.querySelector('#dead [data-all]').click()";
    browser.value(select_all);
    let selected = "document.querySelectorAll('[name=row]:checked').length";
    assert_eq!(browser.value(selected), 1);
    browser.value(select_all);

    browser.value("document.querySelector('#dead tbody button[name=one]').click()");
    let again = claims.recv().await.expect("it comes again");
    assert_eq!((again.key.as_str(), again.attempt), (HOSTILE, 1));
    browser.until("document.body.innerText.includes('1 retried.')");
    browser.until("document.querySelectorAll('#in_flight tbody tr').length === 1");
    browser.until("document.getElementById('live-state').textContent === 'live'");
    browser.open(&format!("http://{}/n/orders/find?key=new", server.address));
    browser.until("document.querySelectorAll('dl.details').length === 1");
    assert_eq!(
        browser.value("document.querySelectorAll('img, main script').length"),
        0
    );
    // A page that does not change by itself does not say that it does.
    assert_eq!(
        browser.value("document.getElementById('live-state')"),
        Value::Null
    );
}

/// Regression: at 400 px letters stood alone, and rows were of double height.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_fit_phones_and_screens() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let file = File::new();
    let mut orders = file.instance().await;
    let _empty = file.instance_of("a-namespace-without-a-timer").await;
    let error = "connection refused by payments.example:443 while the order was being charged for the third time";
    kill_timers(&mut orders, &["order 17", "order 18"], error).await;
    let (timers, mut claims) = orders;
    let long = "invoice-2026-11-".repeat(19);
    let keys: Vec<String> = (0..12_000).map(|key| format!("customer {key}")).collect();
    let value = r#"{"amount":1999,"currency":"EUR","lines":[{"article":"a long name of an article","count":3}]}"#.to_owned();
    let delay = |number: u64| HOUR / 4 + Duration::from_millis(number * number / 60);
    let many = keys.iter().zip(0..);
    let many = many.map(|(key, number)| (key.as_str(), &value, delay(number)));
    timers.set_many(many).await.expect("they are set");
    set(&timers, &[&long, "order 19"], Duration::ZERO).await;
    let _claims = [claims.recv().await, claims.recv().await];
    let secret = file.path().with_extension("token");
    std::fs::write(&secret, "a token of some length").expect("it is written");
    let server = Server::start(&file, &["--allow-changes"]);
    let guarded = Server::start(
        &file,
        &["--token-file", secret.to_str().expect("it is text")],
    );
    let hex = "226f7264657220313722";
    let pages = [
        ("home", format!("http://{}/", server.address)),
        ("namespace", format!("http://{}/n/orders", server.address)),
        (
            "empty",
            format!("http://{}/n/a-namespace-without-a-timer", server.address),
        ),
        (
            "waiting",
            format!(
                "http://{}/n/orders/list/waiting?prefix=cust",
                server.address
            ),
        ),
        (
            "in-flight",
            format!("http://{}/n/orders/list/in_flight", server.address),
        ),
        (
            "dead",
            format!("http://{}/n/orders/list/dead?error=refused", server.address),
        ),
        (
            "nothing",
            format!("http://{}/n/orders/list/dead?error=none", server.address),
        ),
        (
            "key",
            format!("http://{}/n/orders/timer/{hex}", server.address),
        ),
        ("refused", format!("http://{}/n/none", server.address)),
        ("login", format!("http://{}/login", guarded.address)),
    ];
    let folder = std::env::var_os("SCREENSHOTS").map(std::path::PathBuf::from);
    for width in [400, 1_280] {
        for is_dark in [false, true] {
            browser.resize(width, is_dark);
            let shade = if is_dark { "dark" } else { "light" };
            let look = |browser: &mut Browser, name: &str| {
                browser.until(
                    "document.readyState === 'complete' && document.querySelector('h1') !== null",
                );
                let misfits = browser.value(MISFITS);
                if let Some(folder) = &folder {
                    let shot = browser.screenshot();
                    let file = folder.join(format!("{name}-{width}-{shade}.png"));
                    std::fs::write(file, shot).expect("it is written");
                }
                assert_eq!(misfits, "", "{name} at {width} px");
            };
            for (name, url) in &pages {
                browser.open(url);
                look(&mut browser, name);
            }
            // The question before all dead letters are discarded.
            browser.open(&pages[1].1);
            browser.until("document.querySelector('#dead form.all .danger') !== null");
            browser.value("document.querySelector('#dead form.all .danger').click()");
            browser.until("document.querySelector('h1').textContent === 'Discard 2 dead timers?'");
            look(&mut browser, "question");
        }
    }
    assert_eq!(counted(&timers).await[2], 2, "nothing was confirmed");
}

/// The progress of a long change is followed until it has ended, and then the page is not live any
/// more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_of_a_long_change_is_live() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let file = File::new();
    let (timers, _claims) = file.instance().await;
    let keys: Vec<String> = (0..1_200).map(|key| format!("a {key}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    set(&timers, &keys, HOUR).await;
    let server = Server::start(&file, &["--allow-changes"]);
    let list = format!("http://{}/n/orders/list/waiting?prefix=a", server.address);
    browser.open(&list);
    browser.until("document.querySelector('form.all .danger') !== null");
    browser.value("document.querySelector('form.all .danger').click()");
    browser.until("document.querySelector('h1').textContent === 'Remove 1,200 waiting timers?'");
    // Another transaction holds it up.
    let other = Connection::open(file.path()).expect("it opens");
    let locked = other.execute_batch("BEGIN IMMEDIATE");
    locked.expect("the instance lets go of the file");
    browser.value("document.querySelector('button.danger').click()");
    browser.until("document.querySelector('progress') !== null");
    for (width, is_dark) in [(400, false), (400, true), (1_280, false), (1_280, true)] {
        browser.resize(width, is_dark);
        assert_eq!(browser.value(MISFITS), "", "{width} px");
        if let Some(folder) = std::env::var_os("SCREENSHOTS") {
            let file = std::path::PathBuf::from(folder);
            let file = file.join(format!("progress-{width}-{is_dark}.png"));
            std::fs::write(file, browser.screenshot()).expect("it is written");
        }
    }
    browser.value("window.mark = 1");
    browser.until("document.getElementById('live-state').textContent === 'live'");
    other.execute_batch("COMMIT").expect("it commits");
    browser.until("document.querySelector('h1').textContent === 'Done'");
    browser.until("document.body.innerText.includes('1,200 removed.')");
    browser.until("document.getElementById('live-state') === null");
    assert_eq!(browser.value("window.mark"), 1, "it is the same page");
}

/// Somebody who ticks boxes, writes or points is not disturbed: what is in use stays as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn part_in_use_is_not_refreshed() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let file = File::new();
    let (timers, _claims) = file.instance().await;
    set(&timers, &["a", "b"], HOUR).await;
    let server = Server::start(&file, &["--allow-changes"]);
    browser.open(&format!("http://{}/n/orders", server.address));
    let rows =
        |number: u32| format!("document.querySelectorAll('#waiting tbody tr').length === {number}");
    let waiting =
        |number: u32| format!("document.querySelector('#state dd').textContent === '{number}'");
    browser.until(&rows(2));
    browser.value("document.querySelector('#waiting [name=row]').click()");
    set(&timers, &["c"], HOUR).await;
    browser.until(&waiting(3));
    let ticked = "document.querySelectorAll('#waiting [name=row]:checked').length";
    assert_eq!(browser.value(ticked), 1);
    assert_eq!(browser.value(&rows(2)), true);
    browser.value("document.querySelector('#waiting [name=row]:checked').click()");
    browser.until(&rows(3));

    browser.value("document.querySelector('#waiting [name=in]').focus()");
    browser.write("2h");
    set(&timers, &["d"], HOUR).await;
    browser.until(&waiting(4));
    assert_eq!(browser.value("document.activeElement.value"), "2h");
    browser.value("document.activeElement.blur()");
    browser.until(&rows(4));

    browser.point_at("#waiting tbody button");
    set(&timers, &["e"], HOUR).await;
    browser.until(&waiting(5));
    assert_eq!(browser.value(&rows(4)), true);
    browser.point_at("h1");
    browser.until(&rows(5));
}

/// After an error a page that is live goes on, and says how it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_is_live_again_after_an_error() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let file = File::new();
    let (timers, claims) = file.instance().await;
    set(&timers, &["a"], HOUR).await;
    timers.shutdown().await;
    drop(claims);
    let server = Server::start(&file, &[]);
    browser.open(&format!("http://{}/n/orders", server.address));
    let is =
        |state: &str| format!("document.getElementById('live-state').textContent === '{state}'");
    browser.until(&is("live"));
    browser.value("window.mark = 1");
    let other = Connection::open(file.path()).expect("it opens");
    let rename = |from: &str, to: &str| {
        let renamed = other.execute_batch(&format!("ALTER TABLE {from} RENAME TO {to}"));
        renamed.expect("it is renamed");
    };
    rename("tickwheel_instances", "away");
    browser.until(&is("not connected"));
    rename("away", "tickwheel_instances");
    browser.until(&is("live"));
    assert_eq!(browser.value("window.mark"), 1, "it is the same page");
}

/// What can be done with a mouse can be done with the keyboard: fields are named, a key leads to
/// the search, where it can be written, and a box selects all rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_is_used_by_keyboard() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let file = File::new();
    let (timers, _claims) = file.instance().await;
    set(&timers, &["a 1", "a 2", "b"], HOUR).await;
    let server = Server::start(&file, &["--allow-changes"]);
    browser.open(&format!(
        "http://{}/n/orders/list/waiting?prefix=a",
        server.address
    ));
    browser.until("document.querySelectorAll('tbody tr').length === 2");
    // Its script runs last.
    browser.until("document.readyState === 'complete'");
    let unnamed = "[...document.querySelectorAll('input:not([type=hidden])')].filter(i => !i.ariaLabel && !i.labels.length).length";
    assert_eq!(browser.value(unnamed), 0);
    browser.press("/");
    browser.until("document.activeElement.id === 'find'");
    browser.press("/");
    browser.until("document.activeElement.value.includes('/')");
    browser.value("document.querySelector('[data-all]').focus()");
    browser.press(" ");
    browser.until("document.querySelectorAll('input[name=row]:checked').length === 2");
    browser.value("document.querySelector('form:has(table) [value=remove]').focus()");
    browser.press("Enter");
    browser.until("document.querySelector('h1').textContent === 'Remove 2 waiting timers?'");
    browser.value("document.querySelector('button.danger').focus()");
    browser.press("Enter");
    browser.until("document.body.innerText.includes('2 removed.')");
    assert_eq!(counted(&timers).await, [1, 0, 0]);
}
