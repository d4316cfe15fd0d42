//! A sorted map of deadlines and a `Notify` against a set of keyed timers.

use std::sync::Arc;

use tickwheel::TimerWheel;
use tickwheel_coming_from::sorted_map::{after, before};
use tokio::time::Instant;

use crate::support::{Choices, SCRIPTS, STEPS, at, ms, pause};

enum Side {
    Before(Arc<before::Store>),
    After(after::Store),
}

impl Side {
    fn set(&self, key: &str, value: u32, ttl: Option<std::time::Duration>) {
        match self {
            Side::Before(store) => store.set(key, value, ttl),
            Side::After(store) => store.set(key, value, ttl).expect("it is open"),
        }
    }

    fn get(&self, key: &str) -> Option<u32> {
        match self {
            Side::Before(store) => store.get(key),
            Side::After(store) => store.get(key),
        }
    }
}

/// The values that were read, and when.
async fn play(side: &Side, seed: u64) -> Vec<(u128, String, Option<u32>)> {
    let start = Instant::now();
    let mut choices = Choices::new(seed);
    let mut log = Vec::new();
    for _ in 0..STEPS {
        let key = choices.key();
        match choices.one_of(5) {
            0 => side.set(&key, choices.value(), Some(choices.delay())),
            1 => side.set(&key, choices.value(), None),
            _ => log.push((at(start), key.clone(), side.get(&key))),
        }
        pause(choices.pause()).await;
    }
    log
}

#[tokio::test(start_paused = true)]
async fn same_items_are_there_at_the_same_instants() {
    let wheel = TimerWheel::new();
    for seed in 0..SCRIPTS {
        let store = Arc::<before::Store>::default();
        let purging = tokio::spawn(before::remove_expired(Arc::clone(&store)));
        let before = play(&Side::Before(store), seed).await;
        purging.abort();
        let after = play(&Side::After(after::Store::new(&wheel)), seed).await;
        assert_eq!(before, after, "seed {seed}");
    }
}

/// This thread blocks, so the task that removes items cannot run.
#[tokio::test]
async fn item_set_while_its_expiration_waits_stays() {
    let wheel = TimerWheel::new();
    for ttl in [None, Some(ms(3_600_000))] {
        let store = after::Store::new(&wheel);
        store.set("a", 1, Some(ms(5))).expect("it is open");
        // Nobody receives it: this is the thread of the runtime.
        std::thread::sleep(ms(50));
        store.set("a", 2, ttl).expect("it is open");
        pause(ms(50)).await;
        assert_eq!(store.get("a"), Some(2), "{ttl:?}");
    }
}
