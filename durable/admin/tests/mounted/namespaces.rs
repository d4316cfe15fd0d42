//! Namespaces that appear while the page is shown.

use tickwheel_durable::store::{Namespace, Store as _};

use super::Service;

/// Regression: a namespace that was not there had no page for ten seconds after its first instance.
#[tokio::test]
async fn namespace_that_was_not_there_has_its_page_at_once() {
    let mails = &Namespace::new("mails").expect("it is a name");
    for (only, had, has) in [
        (Some(mails), "no namespace to show", "/timers/n/mails"),
        (None, "/timers/n/orders", "/timers/n/orders"),
    ] {
        let service = Service::new("/timers", |page| match only {
            Some(only) => page.namespace(only.clone()),
            None => page,
        });
        let service = service.await;
        let home = service.page("/timers").await;
        assert!(home.contains(had), "{home}");
        let opened = service.store.open(mails, &"json".into()).await;
        opened.expect("it opens");
        let home = service.page("/timers").await;
        assert!(home.contains(has), "{home}");
        service.page("/timers/n/mails").await;
    }
}

/// The frame of each page names all of them.
#[tokio::test(start_paused = true)]
async fn page_of_a_namespace_soon_leads_to_one_that_has_appeared() {
    let service = Service::new("/timers", |page| page).await;
    let link = "href=\"/timers/n/mails\"";
    let page = service.page("/timers/n/orders").await;
    assert!(!page.contains(link), "{page}");
    let mails = Namespace::new("mails").expect("it is a name");
    let opened = service.store.open(&mails, &"json".into()).await;
    opened.expect("it opens");
    tokio::time::sleep(std::time::Duration::from_secs(11)).await;
    let page = service.page("/timers/n/orders").await;
    assert!(page.contains(link), "{page}");
}
