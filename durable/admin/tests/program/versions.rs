//! A namespace that another version has written, in Redis.

use serde_json::Value;
use tickwheel_durable::Charter;
use tickwheel_durable::store::{Namespace, Store as _};

use super::redis::Server;
use super::support::{ended, program};

/// Regression: it took down the counts of all others.
#[tokio::test]
async fn namespace_of_another_schema_hides_no_other() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let (url, store) = (server.url(), server.connect().await);
    for name in ["mails", "orders"] {
        let space = Namespace::new(name).expect("it is a name");
        let opened = store.open(&space, &Charter::new("json")).await;
        opened.expect("it opens");
    }
    let schema = [
        "HSET",
        "tickwheel:{mails}",
        "schema",
        "5",
        "readable_by",
        "5",
    ];
    server.command(&schema).await;
    let ran = |arguments: &[&str]| ended(program().args(["--url", &url]).args(arguments));
    for command in [&["stats"][..], &["watch", "--times", "1"]] {
        let table = ran(command);
        assert_eq!(table.code, 0, "{table:?}");
        for (name, state) in [("mails", "failing: "), ("orders", "ok: ")] {
            let is_shown = |line: &str| line.contains(name) && line.contains(state);
            assert!(table.output.lines().any(is_shown), "{table:?}");
        }
        let has_instances = table.output.contains("orders at ");
        assert_eq!(has_instances, command[0] == "watch", "{table:?}");
        let record = ran(&[command, &["--json"]].concat()).json();
        let [mails, orders] = [0, 1].map(|number| record["namespaces"][number].clone());
        let reason = mails["reason"].as_str().expect("it is told");
        assert!(reason.contains("schema version 5"), "{reason}");
        assert_eq!(
            (&mails["state"], &orders["state"]),
            (&"failing".into(), &"ok".into())
        );
        assert_eq!(
            (&mails["waiting"], &orders["waiting"]),
            (&Value::Null, &0.into())
        );
        assert_eq!(orders["instances"], Value::Array(Vec::new()));
    }
    assert_eq!(ran(&["stats", "--namespace", "mails"]).code, 1);
}
