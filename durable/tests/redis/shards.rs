//! Several servers, each of which has some of the timers of an instance.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tickwheel::TimerWheel;
use tickwheel_durable::{Claims, DurableTimers, Error, Redis, Shards, builder};
use tokio::time::{sleep, timeout};

use crate::faults::delivered;
use crate::server::Server;

const SECOND: Duration = Duration::from_secs(1);
const ROUNDS: u64 = 20;

/// Sets timers under a key, one after the other, and returns by how much the median one is late.
async fn lateness(
    timers: &DurableTimers<String, u64>,
    claims: &mut Claims<String, u64>,
    key: &str,
) -> Duration {
    let mut late = Vec::new();
    for round in 0..ROUNDS {
        let began = Instant::now();
        let set = timers.set_timer(key, &round, SECOND / 20).await;
        set.expect("its server is there");
        let claim = timeout(20 * SECOND, claims.recv()).await;
        let claim = claim.expect("it comes").expect("the stream goes on");
        assert_eq!(claim.key, key);
        late.push(began.elapsed().saturating_sub(SECOND / 20));
        claim.ack().await.expect("it is held");
    }
    late.sort();
    late[late.len() / 2]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_is_killed_delays_no_timer_of_another() {
    let Some(one) = Server::start(&[]) else {
        return;
    };
    let mut two = Server::start(&[]).expect("there is a program");
    let shards = Shards::stores([("one", one.connect().await), ("two", two.connect().await)]);
    let builder = builder("shards").poll(SECOND / 5).window(2 * SECOND);
    let wheel = TimerWheel::new();
    let started = builder.call_timeout(2 * SECOND).start(&wheel, shards).await;
    let (timers, mut claims) = started.expect("it starts");
    let keys = ["one", "two"].map(|shard| {
        let mut keys = (0..).map(|number| format!("key {number}"));
        let is_there = |key: &String| timers.shard_of(key) == Ok(Some(shard));
        keys.find(is_there).expect("each shard has keys")
    });
    let control = lateness(&timers, &mut claims, &keys[0]).await;
    let set = timers.set_timer(&keys[1], &1_000, SECOND).await;
    set.expect("it is set");
    two.kill();
    let late = lateness(&timers, &mut claims, &keys[0]).await;
    assert!(
        late < 3 * control + SECOND / 20,
        "{late:?}, before {control:?}"
    );
    let error = timers.move_timer(&keys[1], SECOND).await;
    let error = error.expect_err("its server is killed");
    assert!(
        matches!(&error, Error::Shard { name, .. } if **name == *"two"),
        "{error}"
    );
    two.run();
    delivered(&mut claims, &BTreeSet::from([1_000])).await;
}

/// No instance could be started while one of the servers was down: its store could not be made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instance_starts_while_a_server_is_down() {
    let Some(one) = Server::start(&[]) else {
        return;
    };
    let mut two = Server::start(&[]).expect("there is a program");
    two.kill();
    let lazy = |server: &Server| Redis::connect_lazy(&server.url()).expect("the URL is right");
    let shards = Shards::stores([("one", lazy(&one)), ("two", lazy(&two))]);
    let builder = builder::<String, u64>("shards").poll(SECOND / 5);
    let wheel = TimerWheel::new();
    let started = builder.call_timeout(2 * SECOND).start(&wheel, shards).await;
    let (timers, mut claims) = started.expect("one of them is there");
    let keys: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    for key in &keys {
        let set = timers.set_timer(key, &1, SECOND).await;
        let is_down = timers.shard_of(key) == Ok(Some("two"));
        assert_eq!(set.is_err(), is_down, "{set:?}");
    }
    two.run();
    for (key, value) in keys.iter().zip(2..) {
        while timers.set_timer(key, &value, SECOND).await.is_err() {
            sleep(SECOND / 10).await;
        }
    }
    delivered(&mut claims, &(2..22).collect()).await;
}
