//! Changes of a namespace that is spread over parts.

use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_durable::builder;

use super::redis::Server;
use super::support::{Run, counted, ended, kill_timers, program};

/// Regression: `retry --all` retried the dead timers of the first part, and said that it was done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn change_of_all_is_of_all_parts() {
    let Some(server) = Server::start(&["--appendfsync", "no"]) else {
        return;
    };
    let store = server.connect().await.spread(3);
    let orders = builder("orders").call_timeout(Duration::from_secs(60));
    let started = orders.start(&TimerWheel::new(), store).await;
    let mut instance = started.expect("it starts");
    let keys: Vec<_> = (0..24).map(|key| format!("order {key}")).collect();
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    let run = |arguments: &[&str]| -> Run {
        let mut program = program();
        program.args(["--url", &server.url(), "--namespace", "orders", "--json"]);
        ended(program.args(arguments))
    };
    kill_timers(&mut instance, &keys, "poison").await;
    assert_eq!(counted(&instance.0).await, [0, 0, 24]);
    let retried = run(&["retry", "--all"]).json();
    assert_eq!(retried["changed"], 24, "{retried}");
    for _ in &keys {
        let claim = instance.1.recv().await.expect("it comes again");
        claim.ack().await.expect("it is held");
    }
    kill_timers(&mut instance, &keys, "poison").await;
    let discarded = run(&["discard", "--prefix", "order 1", "--yes"]).json();
    assert_eq!(discarded["changed"], 11, "{discarded}");
    let purged = run(&["purge", "--yes"]).json();
    assert_eq!(purged["changed"], 13, "{purged}");
    assert_eq!(counted(&instance.0).await, [0, 0, 0]);
    // A part that is named is the only one.
    kill_timers(&mut instance, &keys, "poison").await;
    let mut sum = 0;
    for part in ["orders/1", "orders/2"] {
        let mut program = program();
        program.args(["--url", &server.url(), "--namespace", part, "--json"]);
        let retried = ended(program.args(["retry", "--all"])).json();
        sum += retried["changed"].as_u64().expect("it is a number");
    }
    assert!((1..24).contains(&sum), "{sum}");
    assert_eq!(counted(&instance.0).await[2], 24 - sum);
}
