//! Claims that are made while an operator reads a question.

use std::time::Duration;

use tickwheel_admin::Page;

use super::{ANNA, OWN, Service};

/// Regression: claims of handlers that had begun after the question were ended, and their timers
/// were lost.
#[tokio::test]
async fn confirmed_change_leaves_a_claim_made_after_the_question() {
    let mut service = Service::new("/timers", Page::allow_changes).await;
    let change = "POST /timers/n/orders/change";
    // Those whose keys begin with a quote.
    let form = "action=acknowledge&prefix=22";
    let value = "v".to_owned();
    let mut claims = Vec::new();
    let mut question = None;
    for key in ["c", "d"] {
        let set = service.timers.set_timer(key, &value, Duration::ZERO).await;
        set.expect("it is set");
        claims.push(service.claims.recv().await.expect("it comes"));
        if question.is_none() {
            let (_, _, page) = service.ask(change, &[ANNA, OWN], form).await;
            assert!(page.contains("Acknowledge 1 in flight timer?"), "{page}");
            let as_of = page.split_once("name=\"as_of\" value=\"");
            let as_of = as_of.and_then(|(_, rest)| rest.split_once('"'));
            question = as_of.map(|(as_of, _)| as_of.to_owned());
        }
    }
    let as_of = question.expect("it is in the form");
    let form = format!("{form}&as_of={as_of}&confirmed=1");
    let (_, to, page) = service.ask(change, &[ANNA, OWN], &form).await;
    assert!(to.contains("did=acknowledge&done=1"), "{to}: {page}");
    let newer = claims.pop().expect("there are two");
    newer.ack().await.expect("it is held");
    let older = claims.pop().expect("there are two");
    older.ack().await.expect_err("it was acknowledged");
}
