//! Schemas: which ones the tables may lie in, and several in one database.

use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_durable::store::{Namespace, Store, StoreError};
use tickwheel_durable::{Moved, Postgres, Removed, builder};

use super::log::Log;
use super::server::{client, database, missing};

const HOUR: Duration = Duration::from_secs(3_600);

/// The URL with a path.
fn with_path(url: &str, path: &str) -> String {
    format!("{url}?options=-csearch_path%3D{path}")
}

async fn refusal(url: &str) -> String {
    let error = Postgres::connect(url).await.expect_err("it must fail");
    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    format!("{error:#}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_are_not_made_where_others_may_create() {
    let Some(url) = database("open_schema").await else {
        return missing();
    };
    let admin = client(&url).await;
    let open = "GRANT CREATE ON SCHEMA public TO PUBLIC";
    admin.batch_execute(open).await.expect("it is granted");
    let text = refusal(&url).await;
    assert!(
        text.contains("other roles may create in the schema public"),
        "{text}"
    );
    let there = "SELECT count(*) FROM pg_class WHERE relname LIKE 'tickwheel%'";
    let there = admin.query_one(there, &[]).await.expect("it reads");
    assert_eq!(there.get::<_, i64>(0), 0);
    // The remedy that the documentation names.
    let own = "CREATE SCHEMA \"timers of ours\"";
    admin.batch_execute(own).await.expect("it is made");
    let url = with_path(&url, "%22timers%20of%20ours%22");
    let url = url.replace("%20", "%5C%20");
    let store = Postgres::connect(&url).await.expect("it connects");
    let wheel = TimerWheel::new();
    let started = builder::<String, u64>("orders").start(&wheel, store);
    let (timers, mut claims) = started.await.expect("it starts");
    let set = "SELECT \"timers of ours\".tickwheel_set('orders', 'a', '7', now())";
    admin.batch_execute(set).await.expect("it is set");
    let claim = claims.recv().await.expect("it is delivered");
    assert_eq!((claim.key.as_str(), claim.value), ("a", 7));
    claim.ack().await.expect("it is held");
    assert_eq!(timers.remove_timer("a").await, Ok(Removed::Absent));
}

/// Quotes and the like would end the texts of functions in which the name of the schema stands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn name_of_a_schema_is_no_code() {
    let Some(url) = database("odd_schema").await else {
        return missing();
    };
    let admin = client(&url).await;
    for name in ["it's", "$body$", "back\\slash"] {
        let make = format!(
            "CREATE SCHEMA \"{name}\"; ALTER ROLE CURRENT_USER IN DATABASE {} SET search_path = \"{name}\"",
            url.rsplit_once('/').expect("it has a name").1
        );
        admin.batch_execute(&make).await.expect("it is made");
        let text = refusal(&url).await;
        assert!(text.contains("a character that is not allowed"), "{text}");
    }
}

#[tokio::test]
async fn schema_that_others_may_create_in_is_warned_of() {
    let Some(url) = database("opened_schema").await else {
        return missing();
    };
    let log = Log::default();
    let _capturing = log.capture();
    let words = ["WARN", "other roles may create in the schema", "PUBLIC"];
    Postgres::connect(&url).await.expect("it connects");
    assert_eq!(log.with(&words), 0);
    let admin = client(&url).await;
    let open = "GRANT CREATE ON SCHEMA public TO PUBLIC";
    admin.batch_execute(open).await.expect("it is granted");
    Postgres::connect(&url).await.expect("it connects");
    assert_eq!(log.with(&words), 1);
}

/// Their triggers would run as the role of the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_a_stranger_may_have_made_are_refused() {
    let Some(url) = database("strangers").await else {
        return missing();
    };
    Postgres::connect(&url).await.expect("it connects");
    let admin = client(&url).await;
    let role = format!(
        "stranger_{}",
        url.rsplit_once('/').expect("it has a name").1
    );
    let give = format!(
        "CREATE ROLE {role}; GRANT CREATE ON SCHEMA public TO PUBLIC; ALTER TABLE tickwheel_timers OWNER TO {role}"
    );
    admin.batch_execute(&give).await.expect("it is given");
    let text = refusal(&url).await;
    let says = format!("belong to {role}");
    assert!(text.contains(&says) && text.contains("PUBLIC"), "{text}");
    // An owner with the right to create is trusted, if no other role has it.
    let close = format!(
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC; GRANT CREATE ON SCHEMA public TO {role}"
    );
    admin.batch_execute(&close).await.expect("it is revoked");
    Postgres::connect(&url).await.expect("it connects");
}

/// Advisory locks are those of a database, and their numbers were made of the namespace and the key
/// alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_of_one_schema_delays_no_call_in_another() {
    let Some(url) = database("tenants").await else {
        return missing();
    };
    let admin = client(&url).await;
    let schemas = "CREATE SCHEMA one; CREATE SCHEMA two";
    admin.batch_execute(schemas).await.expect("they are made");
    let space = Namespace::new("orders").expect("it is a name");
    let one = Postgres::connect(&with_path(&url, "one")).await;
    let opened = one.expect("it connects").open(&space, &"json".into()).await;
    opened.expect("it opens");
    let two = Postgres::connect(&with_path(&url, "two")).await;
    let wheel = TimerWheel::new();
    let started = builder::<String, u64>("orders").start(&wheel, two.expect("it connects"));
    let (timers, _claims) = started.await.expect("it starts");
    let call = |schema| {
        let set =
            format!("SELECT {schema}.tickwheel_set('orders', 'same', '1', now() + interval '1 h')");
        format!("BEGIN; SET LOCAL lock_timeout = '5s'; {set}")
    };
    let (user, other) = (client(&url).await, client(&url).await);
    user.batch_execute(&call("one")).await.expect("it is set");
    other.batch_execute(&call("two")).await.expect("it is set");
    other.batch_execute("ROLLBACK").await.expect("it ends");
    // Each call fails after its timeout, if it waits for the transaction.
    let set = timers.set_timer("same", &2, HOUR).await;
    set.expect("it is set");
    assert_eq!(timers.move_timer("same", HOUR).await, Ok(Moved::Done));
    let removed = timers.remove_timer("same").await;
    assert_eq!(removed, Ok(Removed::Done(2)));
    user.batch_execute("COMMIT").await.expect("it ends");
}
