//! The servers and URLs that are refused, and the errors.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_durable::store::{Load, Namespace, Store, StoreError};
use tickwheel_durable::{Charter, Moved, Redis, Removed, Retry, builder};
use tokio::time::sleep;

use crate::server::{Server, until};

const SECRET: &str = "s3cret";

fn space() -> Namespace {
    Namespace::new("refusals").expect("it is a name")
}

/// Connecting is refused, and the error says so without the password.
async fn refused(url: &str, says: &str) {
    let error = Redis::connect(url).await.expect_err("it is refused");
    assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
    let text = format!("{error:#} {error:?}");
    assert!(text.contains(says), "{text}");
    assert!(!text.contains(SECRET), "{text}");
}

#[tokio::test]
async fn refuses_urls_that_do_not_parse() {
    for url in [
        &format!("redis://user:{SECRET}@host:port/0"),
        &format!("redis://user:{SECRET}@host/database"),
        &format!("http://user:{SECRET}@host"),
    ] {
        refused(url, "host").await;
    }
    refused("localhost", "(not shown) cannot be used").await;
    refused("", "cannot be used").await;
}

#[tokio::test]
async fn says_that_the_server_is_not_there() {
    let Some(mut server) = Server::start(&[]) else {
        return;
    };
    server.kill();
    let url = server.url_as(&format!("user:{SECRET}@"));
    let error = Redis::connect(&url).await.expect_err("it is not there");
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    let text = format!("{error:#}");
    assert!(
        text.contains(&format!("127.0.0.1:{}", server.port())),
        "{text}"
    );
    assert!(!text.contains(SECRET), "{text}");
}

/// Regression: the text was "connection reset".
#[tokio::test]
async fn says_that_the_server_has_too_many_clients() {
    let Some(server) = Server::start(&["--maxclients", "3"]) else {
        return;
    };
    let clients = [(); 3].map(|()| {
        let mut client = TcpStream::connect(("127.0.0.1", server.port())).expect("it connects");
        client.write_all(b"PING\r\n").expect("it is sent");
        let mut answer = [0; 7];
        client.read_exact(&mut answer).expect("it answers");
        client
    });
    for _ in 0..5 {
        let error = Redis::connect(&server.url()).await.expect_err("it is full");
        let text = format!("{error:#}");
        assert!(error.may_pass() && text.contains("maxclients"), "{text}");
    }
    drop(clients);
    server.connect().await;
}

#[tokio::test]
async fn says_that_the_password_is_wrong() {
    let Some(server) = Server::start(&["--requirepass", "right"]) else {
        return;
    };
    refused(&server.url_as(&format!(":{SECRET}@")), "127.0.0.1").await;
    refused(&server.url_as(&format!("nobody:{SECRET}@")), "127.0.0.1").await;
    refused(&server.url(), "NOAUTH").await;
    Redis::connect(&server.url_as(":right@"))
        .await
        .expect("it is right");
}

#[tokio::test]
async fn says_that_the_server_is_a_replica() {
    let Some(master) = Server::start(&[]) else {
        return;
    };
    let store = master.connect().await;
    store
        .open(&space(), &"json".into())
        .await
        .expect("it opens");
    let port = master.port().to_string();
    let replica = Server::start(&["--replicaof", "127.0.0.1", &port]).expect("there is a program");
    let store = replica.connect().await;
    let mut said = String::new();
    for _ in 0..200 {
        said = match store.open(&space(), &"json".into()).await {
            Err(error @ StoreError::Unavailable { .. }) => format!("{error:#}"),
            other => format!("{other:?}"),
        };
        if said.contains("read-only replica") {
            break;
        }
        sleep(Duration::from_millis(50)).await;
    }
    assert!(
        said.starts_with("the store is unavailable") && said.contains("it is a read-only replica"),
        "{said}"
    );
    replica.command(&["REPLICAOF", "NO", "ONE"]).await;
    store
        .open(&space(), &"json".into())
        .await
        .expect("it is a master now");
}

#[tokio::test]
async fn refuses_another_schema() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let store = server.connect().await;
    let opened = store
        .open(&space(), &"json".into())
        .await
        .expect("it opens");
    for (schema, readable_by, says) in [
        (9, 2, "schema version 9, for versions"),
        (0, 0, "schema version 0, and this version"),
    ] {
        let (set, by) = (schema.to_string(), readable_by.to_string());
        let key = "tickwheel:{refusals}";
        let set = ["HSET", key, "schema", &set, "readable_by", &by];
        server.command(&set).await;
        let another = StoreError::schema(schema, readable_by, 1);
        assert!(another.to_string().contains(says), "{another}");
        let again = store.open(&space(), &"json".into()).await;
        assert_eq!(again, Err(another.clone()));
        // Those that run already stop too.
        let load = Load::new(opened.instance, Duration::ZERO, 1, Duration::from_secs(1));
        assert_eq!(store.load(&space(), load).await, Err(another));
    }
}

/// A server that takes over would not know the amendment, and have what was purged.
#[tokio::test]
async fn amendment_and_purge_wait_for_replicas() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let store = server.connect().await.wait_for_replicas(1);
    let opened = store.open(&space(), &"json".into()).await;
    opened.expect("it opens");
    let mut charter = Charter::from("json");
    charter.no_overlap = true;
    let amended = store.amend(&space(), &charter).await;
    let purged = store.purge(&space()).await.map(drop);
    for changed in [amended, purged] {
        let error = changed.expect_err("there is no replica");
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn d17_schema_that_is_raised_stops_new_work_alone() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let store = async || server.connect().await.into();
    crate::raised::d17_stops_new_work_alone("refusals", store, async |version, readable_by| {
        let (version, readable_by) = (version.to_string(), readable_by.to_string());
        let key = "tickwheel:{refusals}";
        let raise = ["HSET", key, "schema", &version, "readable_by", &readable_by];
        server.command(&raise).await;
    })
    .await;
}

#[tokio::test]
async fn checks_what_the_server_does_with_its_data() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    for protocol in ["resp2", "resp3"] {
        let url = format!("redis://127.0.0.1:{}?protocol={protocol}", server.port());
        let store = Redis::connect(&url).await.expect("it connects");
        store.check_durability().await.expect("it is durable");
    }
    let store = server.connect().await;
    for (policies, is_durable) in [
        (
            "volatile-lru volatile-lfu volatile-random volatile-ttl",
            true,
        ),
        ("allkeys-lru allkeys-lfu allkeys-random", false),
    ] {
        for policy in policies.split(' ') {
            let set = ["CONFIG", "SET", "maxmemory-policy", policy];
            server.command(&set).await;
            let checked = store.check_durability().await;
            assert_eq!(checked.is_ok(), is_durable, "{policy}: {checked:?}");
        }
    }
    for (setting, value) in [
        ("appendonly", "no"),
        ("appendfsync", "everysec"),
        ("maxmemory-policy", "allkeys-lru"),
    ] {
        let server = Server::start(&[&format!("--{setting}"), value]).expect("there is a program");
        let store = server.connect().await;
        let error = store
            .check_durability()
            .await
            .expect_err("it is not durable");
        let text = format!("{error:#}");
        assert!(text.contains(&format!("{setting} is {value}")), "{text}");
    }
}

/// The user that the documentation of [`Redis`] gives.
#[tokio::test]
async fn needs_no_more_permissions_than_documented() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let documented = include_str!("../../src/redis/mod.rs").replace("///", "");
    let rule = documented
        .split("```")
        .find(|part| part.starts_with("text\n ACL SETUSER"));
    let words = rule.expect("it is documented").split_whitespace().skip(1);
    server.command(&words.collect::<Vec<_>>()).await;

    let store = Redis::connect(&server.url_as("tickwheel:s3cret@"))
        .await
        .expect("it is let in");
    let error = store.check_durability().await.expect_err("it may not ask");
    let error = format!("{error:#}");
    assert!(error.contains("no permissions"), "{error}");
    let started = builder::<String, u64>("refusals")
        .start(&TimerWheel::new(), store)
        .await;
    let (timers, mut claims) = started.expect("it starts");
    let key = "timer".to_owned();
    timers
        .set_timer(&key, &1, Duration::ZERO)
        .await
        .expect("it may set");
    let claim = claims.recv().await.expect("the stream goes on");
    claim
        .retry_after(Duration::from_secs(60))
        .await
        .expect("it may put back");
    timers
        .deadline(&key)
        .await
        .expect("it may read")
        .expect("it is there");
    let pending = timers.admin().pending(None, 10).await;
    assert_eq!(pending.expect("it may list").len(), 1);
    let counts = timers.counts().await.expect("it may count");
    assert_eq!((counts.waiting, counts.in_flight), (1, 0));
    let moved = timers.move_timer(&key, Duration::ZERO).await;
    assert_eq!(moved, Ok(Moved::Done));
    let admin = timers.admin();
    for _ in 0..2 {
        let claim = claims.recv().await.expect("the stream goes on");
        let never = Retry::never("why");
        claim.fail(never).await.expect("it may die");
        assert_eq!(admin.dead(None, 10).await.expect("it may list").len(), 1);
        assert_eq!(admin.retry_dead_key(&key).await, Ok(1));
    }
    let claim = claims.recv().await.expect("the stream goes on");
    claim.fail(Retry::never("why")).await.expect("it may die");
    let removed = timers.remove_timer(&key).await;
    assert_eq!(removed, Ok(Removed::Done(1)));
    assert_eq!(admin.discard_all_dead().await, Ok(0));
    assert_eq!(admin.purge().await, Ok(0));
    timers.shutdown().await;
    assert_eq!(timers.metrics().store_errors, 0);
}

/// All keys of a namespace lie in one slot.
#[tokio::test]
async fn runs_on_a_node_of_a_cluster() {
    let Some(server) = Server::start(&["--cluster-enabled", "yes"]) else {
        return;
    };
    let store = server.connect().await;
    let error = store
        .open(&space(), &"json".into())
        .await
        .expect_err("no node has the slot");
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    server
        .command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"])
        .await;
    until("the slots are served", async || {
        server.info("cluster", "cluster_state").await.as_deref() == Some("ok")
    })
    .await;
    let started = builder::<String, u64>("refusals")
        .start(&TimerWheel::new(), store)
        .await;
    let (timers, mut claims) = started.expect("it starts");
    timers
        .set_timer("timer", &1, Duration::ZERO)
        .await
        .expect("it sets");
    let claim = claims.recv().await.expect("the stream goes on");
    claim.ack().await.expect("it is held");
}
