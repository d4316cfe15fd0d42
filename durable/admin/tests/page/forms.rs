//! Forms that are filled in.

use std::time::{Duration, SystemTime};

use tickwheel_durable::DurableTimers;

use super::HOUR;
use super::browser::Browser;
use super::server::Server;
use super::support::{File, set};

/// Writes into a field once its page is there.
fn fill(browser: &mut Browser, field: &str, text: &str) {
    browser.until(&format!(
        "document.readyState === 'complete' && document.querySelector('{field}') !== null"
    ));
    browser.value(&format!("document.querySelector('{field}').focus()"));
    browser.write(text);
}

/// For how long a timer waits.
async fn wait_of(timers: &DurableTimers<String, String>, key: &str) -> Duration {
    let deadline = timers.deadline(key).await.expect("it reads");
    let deadline = deadline.expect("it waits");
    let wait = deadline.duration_since(SystemTime::now());
    wait.expect("it is not due")
}

/// Regression: enter in the field of a move made the timers due now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enter_in_the_field_of_a_move_moves_timers() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let file = File::new();
    let (timers, _claims) = file.instance().await;
    set(&timers, &["a"], HOUR).await;
    let server = Server::start(&file, &["--allow-changes"]);
    let list = "/n/orders/list/waiting?prefix=a";
    for (hours, path, form) in [
        (2, list, "form:has(table)"),
        (3, "/n/orders/timer/226122", "form.actions"),
        (4, list, "form.all"),
    ] {
        browser.open(&format!("http://{}{path}", server.address));
        browser.until("!location.search.includes('did=')");
        let field = format!("{form} [name=in]");
        fill(&mut browser, &field, &format!("{hours}h"));
        browser.value("document.querySelector('[name=row]').checked = true");
        browser.press("Enter");
        if form == "form.all" {
            browser.until("document.querySelector('h1').textContent === 'Move 1 waiting timer?'");
            browser.value("document.querySelector('button.danger').click()");
        }
        browser.until("document.body.innerText.includes('1 moved.')");
        let wait = wait_of(&timers, "a").await;
        assert!(wait > HOUR * (hours - 1), "{form}: {wait:?}");
    }
}

/// Somebody logs in, finds a timer, filters a list, moves a timer and logs out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forms_send_what_is_written_into_them() {
    const TOKEN: &str = "a token of some length";
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let file = File::new();
    let (timers, _claims) = file.instance().await;
    set(&timers, &["order 17", "order 18", "other"], HOUR).await;
    let secret = file.path().with_extension("token");
    std::fs::write(&secret, TOKEN).expect("it is written");
    let secret = secret.to_str().expect("it is text");
    let server = Server::start(&file, &["--token-file", secret, "--allow-changes"]);
    let orders = format!("http://{}/n/orders", server.address);
    let rows =
        |number: u32| format!("document.querySelectorAll('main tbody tr').length === {number}");

    browser.open(&orders);
    fill(&mut browser, "[name=token]", TOKEN);
    browser.press("Enter");
    browser.until("document.querySelector('#namespaces td a') !== null");
    browser.value("document.querySelector('#namespaces td a').click()");
    browser.until("location.pathname === '/n/orders'");
    fill(&mut browser, "#find", "order 17");
    browser.press("Enter");
    browser.until("document.querySelectorAll('dl.details').length === 1");
    browser.until("document.querySelector('h1').textContent === 'orders: \"order 17\"'");

    browser.open(&format!("{orders}/list/waiting"));
    browser.until(&rows(3));
    fill(&mut browser, "[name=error]", "refused");
    browser.press("Enter");
    browser.until("document.body.innerText.includes('No timer fits the filter.')");
    browser.value("document.querySelector('[name=error]').value = ''");
    fill(&mut browser, "#find", "order 1");
    browser.press("Enter");
    browser.until(&rows(2));
    fill(&mut browser, "form:has(table) [name=in]", "2h");
    browser.value("document.querySelector('tbody [name=row]').click()");
    browser.value("document.querySelector('form:has(table) [value=move]').click()");
    browser.until("document.body.innerText.includes('1 moved.')");
    let waits = [
        wait_of(&timers, "order 17").await,
        wait_of(&timers, "order 18").await,
    ];
    assert!(waits[0] > HOUR * 3 / 2 && waits[1] < HOUR, "{waits:?}");

    browser.value("document.querySelector('header button').click()");
    browser.until("location.pathname === '/login'");
    browser.value("window.mark = 1");
    browser.open(&orders);
    browser.until("window.mark === undefined && location.pathname === '/login'");

    // A live page whose session has ended elsewhere leads there, too.
    fill(&mut browser, "[name=token]", TOKEN);
    browser.press("Enter");
    browser.until("document.querySelector('#namespaces td a') !== null");
    browser.value("fetch('/logout', { method: 'POST' }) && 0");
    browser.until("location.pathname === '/login'");
}
