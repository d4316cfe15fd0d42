//! Looks at the store, which are in the way of nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tickwheel_durable::store::{Due, List, Namespace, PrefixRows, State, Store, Terms};
use tokio::time::{Instant, sleep};

use super::contract::set;
use super::world::{Running, Stores, World};

/// How many timers wait, and can be looked at.
const ROWS: usize = 20_000;

/// They are due after so long.
const DAY: Duration = Duration::from_secs(86_400);

/// Ten rounds without looks follow ten with them, and the other way round.
const ROUNDS: u64 = 10;

/// How often the rounds change.
const CHANGES: u64 = 5;

/// A busy machine is slow at times, with looks or without.
const TRIES: u32 = 3;

/// D13: while all that can be looked at is looked at, again and again, timers are set, delivered
/// and acknowledged about as quickly as they are in the same run when there are no looks. It holds
/// nothing on a paused clock, on which neither takes any time.
pub async fn d13_looks_delay_nothing<T: Stores>(world: &World<T>) {
    let mut instance = world.instance().await;
    let space = world.namespace();
    fill(&instance.faults, &space).await;
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..CHANGES {
            rounds(&mut instance, &mut without).await;
            let is_over = Arc::new(AtomicBool::new(false));
            let looks = look_until(instance.faults.clone(), space.clone(), Arc::clone(&is_over));
            let looks = tokio::spawn(looks);
            rounds(&mut instance, &mut with).await;
            is_over.store(true, Ordering::Relaxed);
            let looks = looks.await.expect("they succeed");
            assert!(looks > 0, "something was looked at");
        }
        let (without, with) = (median(without), median(with));
        if with <= 3 * without + Duration::from_millis(20) {
            return;
        }
        seen.push((without, with));
    }
    panic!("rounds without and with looks take {seen:?}");
}

async fn fill<S: Store>(store: &S, space: &Namespace) {
    let terms = Terms::NONE;
    let keys: Vec<_> = (0..ROWS).map(|number| format!("far {number}")).collect();
    for keys in keys.chunks(1_000) {
        let writes = keys.iter().map(|key| set(key, "1", Due::In(DAY)));
        let written = store.write(space, writes.collect(), terms).await;
        written.expect("it writes");
    }
}

/// Looks at everything until that is over. Returns how often.
async fn look_until<S: Store>(store: S, space: Namespace, is_over: Arc<AtomicBool>) -> u32 {
    let mut looks = 0;
    while !is_over.load(Ordering::Relaxed) {
        let counts = store.count(&space).await.expect("it counts");
        assert!(counts.waiting > 0);
        let inspect = store.inspect();
        for state in [State::Waiting, State::InFlight, State::Dead] {
            let list = List::new(state, None, ROWS);
            store.list(&space, list).await.expect("it lists");
            let prefixed = PrefixRows::new(state, b"far".to_vec(), ROWS);
            let prefixed = inspect.rows_with_prefix(&space, prefixed).await;
            prefixed.expect("it lists");
        }
        let rows = store.rows_of(&space, b"far 1".to_vec(), ROWS).await;
        assert_eq!(rows.expect("it reads").len(), 1);
        let times = [0, 1, 2].map(|days| counts.now.after(days * DAY)).to_vec();
        let due = inspect.count_due(&space, times).await;
        due.expect("it counts");
        inspect.instances(&space).await.expect("it lists");
        inspect.namespaces().await.expect("it lists");
        inspect.charter(&space).await.expect("it reads");
        looks += 1;
        // Where nothing takes time, others have a turn.
        sleep(Duration::from_millis(1)).await;
    }
    looks
}

/// Sets timers that are due at once, receives and acknowledges them. Adds how long each takes.
async fn rounds<S: Store>(instance: &mut Running<S>, took: &mut Vec<Duration>) {
    for value in 0..ROUNDS {
        let began = Instant::now();
        instance.set("now", value, 0).await;
        let claim = instance.next_acked().await;
        assert_eq!(claim.value, value);
        took.push(began.elapsed());
    }
}

fn median(mut took: Vec<Duration>) -> Duration {
    took.sort_unstable();
    took[took.len() / 2]
}
