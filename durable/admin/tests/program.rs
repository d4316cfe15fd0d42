//! The program on an SQLite file that an instance uses at the same time.

mod support;

use std::time::Duration;

use serde_json::Value;
use support::{File, Run, run};
use tickwheel_durable::Retry;
use tickwheel_durable::rusqlite::Connection;

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn lists_and_shows_timers_of_each_state() {
    let file = File::new();
    let (timers, mut claims) = file.instance().await;
    for key in ["order 1", "order 2", "other"] {
        let set = timers.set_timer(key, &"<b>".to_owned(), HOUR).await;
        set.expect("it is set");
    }
    let set = timers
        .set_timer("now", &"v".to_owned(), Duration::ZERO)
        .await;
    set.expect("it is set");
    let claim = claims.recv().await.expect("it comes");

    let stats = run(&file, &["stats", "--json"]).json();
    let orders = &stats["namespaces"][0];
    assert_eq!(orders["namespace"], "orders");
    assert_eq!(
        (&orders["waiting"], &orders["in_flight"]),
        (&3.into(), &1.into())
    );
    let listed = run(&file, &["list", "--json", "--prefix", "order "]).json();
    let keys: Vec<_> = each(&listed["timers"])
        .map(|timer| &timer["key"]["data"])
        .collect();
    assert_eq!(keys, ["order 1", "order 2"]);
    let page = run(&file, &["list", "--json", "--limit", "2"]).json();
    let next = page["next"].as_str().expect("there are more");
    let rest = run(&file, &["list", "--json", "--after", next]).json();
    assert_eq!(
        (each(&rest["timers"]).count(), &rest["next"]),
        (1, &Value::Null)
    );
    let in_flight = run(&file, &["list", "--json", "--state", "in-flight"]).json();
    assert_eq!(in_flight["timers"][0]["token"], claim.token().get());
    let instances = run(&file, &["instances", "--json"]).json();
    let members = timers.admin().instances().await.expect("they are listed");
    assert!(members[0].is_own, "{members:?}");
    assert_eq!(instances["instances"][0]["id"], members[0].instance.id.0);

    let shown = run(&file, &["show", "order 1"]);
    assert!(shown.output.contains("<b>"), "{shown:?}");
    // The fields that scripts rely on.
    let shown = run(&file, &["show", "\"order 1\"", "--json"]).json();
    let timer = shown["timers"][0].as_object().expect("it is one");
    let fields: Vec<_> = timer.keys().map(String::as_str).collect();
    let expected = "attempt claimed_by deadline died due error key key_hex lease_until loaded_by period_seconds schedule state token value";
    assert_eq!(fields, expected.split(' ').collect::<Vec<_>>());
}

#[tokio::test]
async fn dead_timer_is_retried_by_key_and_discarded_by_prefix() {
    let file = File::new();
    let (timers, mut claims) = file.instance().await;
    for key in ["a", "b"] {
        let set = timers.set_timer(key, &"v".to_owned(), Duration::ZERO).await;
        set.expect("it is set");
        let claim = claims.recv().await.expect("it comes");
        claim
            .fail(Retry::never("poison"))
            .await
            .expect("it is held");
    }
    assert_eq!(run(&file, &["retry", "--key", "a"]).code, 0);
    let again = claims.recv().await.expect("it comes again");
    assert_eq!((again.key.as_str(), again.attempt), ("a", 1));
    assert_eq!(
        run(&file, &["retry", "--key", "a"]).code,
        3,
        "it is not dead"
    );
    let discarded = run(&file, &["discard", "--prefix", "b", "--json"]).json();
    assert_eq!(discarded["changed"], 1);
    assert_eq!(run(&file, &["discard", "--all"]).code, 3);
}

/// Either the release of a claim takes effect or its acknowledgement, not both.
#[tokio::test]
async fn released_claim_is_lost_to_its_worker() {
    let file = File::new();
    let (timers, mut claims) = file.instance().await;
    let set = timers.set_timer("a", &"v".to_owned(), Duration::ZERO).await;
    set.expect("it is set");
    let claim = claims.recv().await.expect("it comes");
    let token = claim.token().to_string();
    assert_eq!(run(&file, &["release", &token]).code, 0);
    assert_eq!(run(&file, &["release", &token]).code, 3);
    claim.ack().await.expect_err("it was released");
    let again = claims.recv().await.expect("it comes again");
    let token = again.token().to_string();
    assert_eq!(run(&file, &["discard", "--in-flight", &token]).code, 0);
    again.ack().await.expect_err("it was acknowledged");
    assert_eq!(run(&file, &["show", "a"]).code, 3);
}

#[tokio::test]
async fn exit_code_tells_what_is_wrong() {
    let file = File::new();
    let Run { code, errors, .. } = run(&file, &["stats"]);
    assert_eq!(code, 3, "{errors}");
    assert!(!file.path().exists(), "to look makes no file");
    let foreign = Connection::open(file.path()).expect("it opens");
    let made = foreign.execute("CREATE TABLE orders (id INTEGER)", ());
    made.expect("it is made");
    for (expected, error) in [(3, "has no timers"), (1, "not a database")] {
        let before = std::fs::read(file.path()).expect("it is read");
        let Run { code, errors, .. } = run(&file, &["stats"]);
        assert_eq!(code, expected, "{errors}");
        assert!(errors.contains(error), "{errors}");
        let after = std::fs::read(file.path()).expect("it is read");
        assert!(before == after, "to look changes nothing");
        std::fs::write(file.path(), "no database".repeat(99)).expect("it is written");
    }
    std::fs::remove_file(file.path()).expect("it is removed");
    let (timers, _claims) = file.instance().await;
    let set = timers.set_timer("a", &"v".to_owned(), HOUR).await;
    set.expect("it is set");
    for (arguments, expected) in [
        (&["show", "b"][..], 3),
        (&["show", "a"], 0),
        (&["list", "--namespace", "other"], 3),
        (&["list", "--after", "nonsense"], 2),
        (&["list", "--prefix", "zz", "--hex"], 2),
        (&["retry"], 2),
        (&["release", "0"], 2),
        (&["purge"], 2),
        (&["serve", "--listen", "0.0.0.0:0"], 2),
        (&["watch", "--times", "1", "--json"], 0),
        (&["purge", "--yes"], 0),
        (&["show", "a"], 3),
    ] {
        let ran = run(&file, arguments);
        assert_eq!(ran.code, expected, "{arguments:?}: {ran:?}");
        assert_eq!(
            ran.errors.is_empty(),
            expected == 0,
            "{arguments:?}: {ran:?}"
        );
    }
}

fn each(array: &Value) -> impl Iterator<Item = &Value> {
    array.as_array().expect("it is an array").iter()
}
