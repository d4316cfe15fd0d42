//! What monitors ask for.

use std::time::Duration;

use tickwheel_durable::Removed;
use tickwheel_durable_conformance::FaultPoint;
use tokio::time::sleep;

use super::{ANNA, Service};

/// The status and the text of a response.
async fn ask(service: &Service, path: &str) -> (u16, String) {
    let (status, _, text) = service
        .ask(&format!("GET /timers{path}"), &[ANNA], "")
        .await;
    (status.as_u16(), text)
}

async fn set(service: &Service, key: &str, delay: Duration) {
    let set = service.timers.set_timer(key, &"v".to_owned(), delay).await;
    set.expect("it is set");
}

/// When no instance runs, nobody else has any.
#[tokio::test(start_paused = true)]
async fn metrics_show_what_the_store_says_of_each_namespace() {
    let mut service = Service::new("/timers", |page| page).await;
    // Besides the two that wait, and each in another number.
    for key in ["d", "e", "f"] {
        service.kill(key).await;
    }
    for number in 0..5 {
        let key = format!("flies {number}");
        set(&service, &key, Duration::ZERO).await;
        std::mem::forget(service.claims.recv().await.expect("it comes"));
    }
    for number in 0..4 {
        let key = format!("soon {number}");
        set(&service, &key, Duration::from_secs(20)).await;
    }
    sleep(Duration::from_secs(1)).await;
    let (status, text) = ask(&service, "/metrics").await;
    assert_eq!(status, 200);
    let orders = |name: &str, value: &str| {
        let line = format!("\ntickwheel_store_{name}{{namespace=\"orders\"}} {value}\n");
        assert!(text.contains(&line), "{line}: {text}");
    };
    assert!(text.contains("\ntickwheel_store_up 1\n"), "{text}");
    for (name, value) in [
        ("read", "1"),
        ("waiting", "6"),
        ("in_flight", "5"),
        ("dead", "3"),
        ("due", "0"),
        ("overdue_seconds", "0"),
        ("instances", "1"),
        ("loaded", "4"),
        ("lacks", "0"),
    ] {
        orders(name, value);
        let part = format!("\ntickwheel_store_{name}{{namespace=\"orders/1\"}} ");
        assert!(text.contains(&part), "{part}: {text}");
        let kind = format!("# TYPE tickwheel_store_{name} gauge\n");
        assert_eq!(text.matches(&kind).count(), 1, "{text}");
    }
    service.timers.shutdown().await;
    sleep(Duration::from_secs(27)).await;
    let (_, text) = ask(&service, "/metrics").await;
    let line = |name: &str| {
        let start = format!("\ntickwheel_store_{name}{{namespace=\"orders\"}} ");
        let (_, rest) = text.split_once(&start).expect("it is there");
        rest.lines().next().expect("it has a value").parse::<f64>()
    };
    let [due, overdue, instances] = ["due", "overdue_seconds", "instances"].map(line);
    assert_eq!((due, instances), (Ok(4.0), Ok(0.0)), "{text}");
    assert!((7.0..9.0).contains(&overdue.expect("a number")), "{text}");
}

/// A probe that fails for each dead timer has somebody called for nothing.
#[tokio::test(start_paused = true)]
async fn health_fails_if_due_timers_do_not_fire_and_for_nothing_else() {
    let mut service = Service::new("/timers", |page| page).await;
    service.kill("d").await;
    assert_eq!(ask(&service, "/health").await, (200, "ok\n".to_owned()));
    // The program receives no more.
    set(&service, "late", Duration::from_secs(1)).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(ask(&service, "/health").await.0, 200, "it is late by four");
    sleep(Duration::from_secs(2)).await;
    let (status, text) = ask(&service, "/health").await;
    assert_eq!(status, 503, "{text}");
    assert!(
        text.starts_with("orders: late: the earliest timer has been due for"),
        "{text}"
    );
    service.timers.shutdown().await;
    let (status, text) = ask(&service, "/health").await;
    assert_eq!(status, 503, "{text}");
    assert!(
        text.starts_with("orders: failing: no instance loads timers"),
        "{text}"
    );
    let removed = service.timers.remove_timer("late").await;
    assert!(matches!(removed, Ok(Removed::Done(_))), "{removed:?}");
    assert_eq!(ask(&service, "/health").await, (200, "ok\n".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn store_that_is_away_is_told_to_monitors() {
    let service = Service::new("/timers", |page| page).await;
    service.store.set_failing(Some("count"));
    let (status, text) = ask(&service, "/health").await;
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("taken away by the test"), "{text}");
    let (status, text) = ask(&service, "/metrics").await;
    assert_eq!(status, 200, "{text}");
    assert!(text.contains("\ntickwheel_store_up 0\n"), "{text}");
    service.store.set_failing(None);
    // One namespace of two.
    (service.store).fail_at(service.store.calls(), FaultPoint::Before);
    let (_, text) = ask(&service, "/metrics").await;
    for line in [
        "tickwheel_store_up 1",
        "tickwheel_store_read{namespace=\"orders\"} 0",
        "tickwheel_store_read{namespace=\"orders/1\"} 1",
    ] {
        assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
    }
    assert!(!text.contains("waiting{namespace=\"orders\"}"), "{text}");
    (service.store).fail_at(service.store.calls(), FaultPoint::Before);
    let (status, text) = ask(&service, "/health").await;
    assert_eq!(status, 503, "{text}");
    assert!(text.starts_with("orders: failing: "), "{text}");
}
