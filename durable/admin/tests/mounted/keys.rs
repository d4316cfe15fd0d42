//! Keys of any bytes.

use tickwheel_admin::Page;
use tickwheel_durable::store::{Action, Due, Namespace, Store as _, Terms, Write};

use super::{ANNA, HOUR, OWN, Service};

/// Regression: the link of its row was empty, and led to a page that was not there.
#[tokio::test]
async fn empty_key_has_a_page() {
    let service = Service::new("/timers", Page::allow_changes).await;
    let space = Namespace::new("orders").expect("it is a name");
    let set = Action::set(b"1".to_vec(), Due::In(HOUR), None, false);
    let writes = vec![Write::new(Vec::new(), set)];
    let written = service.store.write(&space, writes, Terms::NONE).await;
    written.expect("it writes");
    let list = service.page("/timers/n/orders/list/waiting").await;
    let link = "href=\"/timers/n/orders/timer/\"><bdi>(empty)</bdi>";
    assert!(list.contains(link), "{list}");
    let page = service.page("/timers/n/orders/timer/").await;
    assert!(page.contains("<bdi>(empty)</bdi>"), "{page}");
    let change = "POST /timers/n/orders/change";
    let remove = "action=remove&row=key-";
    let (_, _, question) = service.ask(change, &[ANNA, OWN], remove).await;
    assert!(question.contains("Remove 1 waiting timer?"), "{question}");
    let confirmed = format!("{remove}&confirmed=1");
    let (status, _, removed) = service.ask(change, &[ANNA, OWN], &confirmed).await;
    assert_eq!(status, 303, "{removed}");
}
