//! Demand, through whole instances whose handlers take time: D5, D10 and D14.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{sleep, timeout};

use super::world::{Running, Stores, World};
use crate::claim::Claim;
use crate::instance::race;
use crate::metrics::Failing;
use crate::store::Store;

/// How many handlers each instance runs at once, as in the README.
const CONCURRENCY: usize = 16;

/// How often each key was handled, and by whom first.
#[derive(Default)]
struct Handled(Mutex<BTreeMap<String, (usize, u32)>>);

impl Handled {
    fn note(&self, by: usize, claim: &Claim<String, u64>) {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, times) = keys.entry(claim.key.clone()).or_insert((by, 0));
        *times += 1;
        assert_eq!(
            (claim.attempt, *times),
            (1, 1),
            "{claim:?} is handled again"
        );
    }

    fn len(&self) -> usize {
        let keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        keys.len()
    }

    fn by(&self, instance: usize) -> usize {
        let keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        keys.values().filter(|(by, _)| *by == instance).count()
    }
}

/// Sets so many timers, with their numbers as values.
async fn set<S: Store>(instance: &Running<S>, timers: u64, delay: Duration) {
    let keys: Vec<_> = (0..timers)
        .map(|number| (format!("key {number}"), number))
        .collect();
    let set = keys.iter().map(|(key, number)| (key, number, delay));
    instance.timers.set_many(set).await.expect("they are set");
}

/// Runs handlers on all instances until so many timers were handled, and then for so much longer.
async fn handle<S: Store>(
    instances: &mut [Running<S>],
    concurrency: usize,
    time: impl Fn(u64) -> Duration,
    enough: usize,
    longer: Duration,
) -> Arc<Handled> {
    let handled = Arc::<Handled>::default();
    let unit = instances[0].unit;
    let (time, handled_by) = (&time, &handled);
    let dispatch = instances.iter_mut().enumerate().map(|(by, instance)| {
        let handler = move |claim: Claim<String, u64>| async move {
            handled_by.note(by, &claim);
            sleep(time(claim.value)).await;
            Ok(())
        };
        instance.claims.dispatch(concurrency, handler)
    });
    let done = async {
        while handled.len() < enough {
            sleep(unit).await;
        }
        sleep(longer).await;
    };
    let dispatch = async { drop(join_all(dispatch).await) };
    let run = timeout(unit * 1_200, race(dispatch, done)).await;
    run.expect("all are handled before long");
    handled
}

/// D5: two instances with the default capacity handle each timer once, though many wait, a handler takes half a lease, and some
/// take longer than one.
pub async fn d5_handles_once_however_long_it_takes<T: Stores>(world: &World<T>) {
    let mut both = [world.instance().await, world.instance().await];
    set(&both[0], 100, world.units(1)).await;
    let time = |number| world.units(if number % 20 == 7 { 30 } else { 10 });
    let handled = handle(&mut both, CONCURRENCY, time, 100, world.units(45)).await;
    assert_eq!(handled.len(), 100);
    for instance in &both {
        let metrics = instance.timers.metrics();
        assert_eq!((metrics.lost, metrics.redelivered), (0, 0), "{metrics:?}");
    }
    let counts = both[0].timers.counts().await.expect("it counts");
    assert_eq!((counts.waiting, counts.in_flight), (0, 0));
}

/// D10: of what one instance has loaded and has no hands for, another gets its share.
pub async fn d10_shares_what_waits<T: Stores>(world: &World<T>) {
    let mut both = [world.instance().await, world.instance().await];
    set(&both[0], 120, world.units(1)).await;
    let time = |_| world.units(10);
    let handled = handle(&mut both, CONCURRENCY, time, 120, Duration::ZERO).await;
    let shares = [handled.by(0), handled.by(1)];
    assert!(shares.iter().all(|share| *share >= 48), "{shares:?}");
}

/// D10: a backlog costs at most six row writes for each timer that is handled, however many instances there are and however long
/// the handlers take.
pub async fn d10_bounds_the_writes_of_a_backlog<T: Stores>(world: &World<T>) {
    for (instances, tenths, enough) in [(1, 2, 120), (1, 25, 24), (4, 2, 240), (4, 25, 96)] {
        let part = world.part(&format!("{instances}-{tenths}"));
        let mut running = Vec::new();
        for _ in 0..instances {
            running.push(part.instance().await);
        }
        // All loaded by the first one, and far more than it can handle.
        set(&running[0], 600, Duration::ZERO).await;
        let before: u64 = running
            .iter()
            .map(|running| running.faults.row_writes())
            .sum();
        let time = |_| part.units(tenths) / 10;
        let handled = handle(&mut running, 4, time, enough, Duration::ZERO).await;
        let after: u64 = running
            .iter()
            .map(|running| running.faults.row_writes())
            .sum();
        // Those 600 are left to others once.
        let writes = (after - before).saturating_sub(600);
        let handled = handled.len() as u64;
        assert!(
            writes <= 6 * handled,
            "{writes} rows for {handled} timers, {instances} instances"
        );
    }
}

/// D14: an instance knows which kind of call fails, and that it works again.
pub async fn d14_says_which_calls_fail<T: Stores>(world: &World<T>) {
    let mut instance = world.instance().await;
    let of = |call| Failing {
        load: call == "load",
        fire: call == "fire",
        write: call == "write",
        settle: call == "settle",
    };
    for call in ["write", "load", "fire", "settle"] {
        instance.set("before", 1, 0).await;
        let before = instance.next().await;
        instance.faults.set_failing(Some(call));
        let key = "a".to_owned();
        let set = instance.timers.set_timer(&key, &1, world.units(2)).await;
        assert_eq!(set.is_err(), call == "write");
        assert_eq!(before.ack().await.is_err(), call == "settle");
        let received = timeout(world.units(6), instance.claims.recv()).await;
        match call {
            "write" | "fire" => assert!(received.is_err(), "{received:?} while {call} fails"),
            "settle" => assert!(received.is_ok(), "claims are fired"),
            // The instance gives everything back, and may have fired it before.
            _ => {}
        }
        assert_eq!(instance.timers.metrics().failing, of(call));
        instance.faults.set_failing(None);
        if let Ok(claim) = received {
            claim
                .expect("the stream goes on")
                .ack()
                .await
                .expect("it is held");
        } else {
            if call == "write" {
                instance.set("a", 1, 0).await;
            }
            assert_eq!(instance.next_acked().await.key, "a");
        }
        before.ack().await.expect("it is held");
        world.wait(3).await;
        assert_eq!(instance.timers.metrics().failing, of(""), "after {call}");
    }
}
