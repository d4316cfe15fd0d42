//! Demand, through whole instances with handlers that take time: D5, D10 and D14.

use std::future::Future;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::{join, join_all};
use tickwheel_durable::store::Store;
use tickwheel_durable::{Builder, Claim};
use tokio::time::{Instant, sleep, timeout};

use super::faulty::Faulty;
use super::handled::Handled;
use super::world::{Running, Stores, World, until, while_they_work};

/// How many handlers each instance runs at once, as in the README.
const CONCURRENCY: usize = 16;

impl Handled {
    /// Runs handlers on one instance, as long as it claims.
    async fn dispatch<S>(
        &self,
        by: usize,
        instance: &mut Running<S>,
        concurrency: usize,
        time: impl Fn(u64) -> Duration,
    ) {
        let time = &time;
        let handler = move |claim: Claim<String, u64>| async move {
            self.note(by, &claim);
            sleep(time(claim.value)).await;
            Ok(())
        };
        instance.claims.dispatch(concurrency, handler).await;
    }

    /// Runs `work` until so many timers were handled, and then for so much longer. Shows how many
    /// there are, again and again.
    async fn wait(
        &self,
        work: impl Future,
        unit: Duration,
        enough: usize,
        longer: Duration,
        mut see: impl FnMut(usize),
    ) {
        let done = async {
            while self.len() < enough {
                sleep(unit).await;
                see(self.len());
            }
            sleep(longer).await;
        };
        let run = timeout(unit * 1_200, while_they_work(work, done)).await;
        assert!(run.is_ok(), "all are handled before long");
    }
}

/// Runs handlers on all instances until so many timers were handled, and then for so much longer.
async fn handle<S: Store>(
    instances: &mut [Running<S>],
    concurrency: usize,
    time: impl Fn(u64) -> Duration,
    enough: usize,
    longer: Duration,
    see: impl FnMut(usize),
) -> Handled {
    let handled = Handled::default();
    let unit = instances[0].unit;
    let dispatch = instances
        .iter_mut()
        .enumerate()
        .map(|(by, instance)| handled.dispatch(by, instance, concurrency, &time));
    let work = join_all(dispatch);
    handled.wait(work, unit, enough, longer, see).await;
    handled
}

/// D5: two instances with the default capacity handle each timer once, though many wait, a handler
/// takes half a lease, and some take longer than one.
pub async fn d5_handles_once_however_long_it_takes<T: Stores>(world: &World<T>) {
    world.undisturbed(handles_once).await;
}

async fn handles_once<T: Stores>(world: &World<T>) -> Result<(), String> {
    let mut both = [world.instance().await, world.instance().await];
    both[0].set_numbers(100, world.units(1)).await;
    let time = |number| world.units(if number % 20 == 7 { 30 } else { 10 });
    let longer = world.units(45);
    let mut stall = Duration::ZERO;
    let watch = async {
        loop {
            let began = Instant::now();
            world.wait(1).await;
            stall = stall.max(began.elapsed());
        }
    };
    let handled = handle(&mut both, CONCURRENCY, time, 100, longer, |_| {});
    let handled = while_they_work(watch, handled).await;
    let metrics = both.each_ref().map(|instance| instance.timers.metrics());
    let again = metrics
        .iter()
        .map(|metrics| metrics.lost + metrics.redelivered);
    let counts = both[0].counts().await;
    let left = counts.waiting + counts.in_flight;
    let (twice, again) = (handled.twice(), again.sum::<u64>());
    if twice.is_empty() && again == 0 && left == 0 {
        return Ok(());
    }
    let broken =
        format!("{twice:?} were handled twice, {again} lost or delivered again, {left} left");
    // A lease is renewed when half of it is left, 10 units. It ends only if this program or a call
    // takes at least half of that.
    let calls = metrics.iter().map(|metrics| metrics.store_latency.max());
    let stall = calls.fold(stall, Duration::max);
    let errors = metrics.iter().map(|metrics| metrics.store_errors);
    let is_disturbed = stall >= world.units(5) || errors.sum::<u64>() > 0;
    assert!(
        is_disturbed,
        "{broken}, though no step took more than {stall:?}"
    );
    Err(format!("{broken}, and a step took {stall:?}"))
}

/// D10: of what one instance has loaded and has no hands for, another gets its share: from the
/// beginning, when it starts late, and when nothing is handled by the first one.
pub async fn d10_shares_what_waits<T: Stores>(world: &World<T>) {
    world.undisturbed(shares_what_waits).await;
}

async fn shares_what_waits<T: Stores>(world: &World<T>) -> Result<(), String> {
    for (name, late, first_takes) in [("both", 0, 10), ("late", 5, 10), ("stuck", 5, 100_000)] {
        let part = world.part(name);
        let (mut first, handled) = (part.instance().await, Handled::default());
        first.set_numbers(120, world.units(1)).await;
        let mut before = 0;
        let work = async {
            let first = handled.dispatch(0, &mut first, CONCURRENCY, |_| world.units(first_takes));
            let second = async {
                world.wait(late).await;
                let mut second = part.instance().await;
                before = handled.by(0);
                let time = |_| world.units(10);
                handled.dispatch(1, &mut second, CONCURRENCY, time).await;
            };
            join(first, second).await;
        };
        let (unit, nothing_more) = (world.units(1), Duration::ZERO);
        handled.wait(work, unit, 120, nothing_more, |_| {}).await;
        if late > 0 && before != CONCURRENCY {
            return Err(format!("{before} were handled before the late one started"));
        }
        let shares = [handled.by(0) - before, handled.by(1)];
        // All handlers of one begin and end together, so one instance may be ahead by as many as it
        // runs at once, and in the end as many again.
        let are_fair = shares[0].abs_diff(shares[1]) <= 2 * CONCURRENCY;
        if name == "stuck" {
            assert_eq!(shares, [0, 120 - before]);
        } else if !are_fair {
            return Err(format!("{shares:?} of what waited, {name}"));
        }
    }
    Ok(())
}

/// D10: a backlog costs at most six row writes for each timer that is handled, at any time: however
/// many instances there are and however long the handlers take, and whether the timers were loaded
/// before they were due or came due before the start.
pub async fn d10_bounds_the_writes_of_a_backlog<T: Stores>(world: &World<T>) {
    for (instances, tenths) in [(1, 2), (1, 25), (4, 2), (4, 25)] {
        for was_due in [true, false] {
            let part = world.part(&format!("{instances}-{tenths}-{was_due}"));
            let bounds =
                async |world: &_| bounds_the_writes(world, instances, tenths, was_due).await;
            part.undisturbed(bounds).await;
        }
    }
}

async fn bounds_the_writes<T: Stores>(
    world: &World<T>,
    instances: usize,
    tenths: u32,
    was_due: bool,
) -> Result<(), String> {
    let mut running = vec![world.instance().await];
    if was_due {
        running[0].claims.shutdown().await;
        running[0].set_numbers(600, Duration::ZERO).await;
        running.clear();
    }
    while running.len() < instances {
        running.push(world.instance().await);
    }
    if !was_due {
        // All loaded by the first one, and far more than it can handle.
        running[0].set_numbers(600, world.units(2)).await;
    }
    let faults: Vec<_> = running.iter().map(|one| one.faults.clone()).collect();
    let writes = || faults.iter().map(Faulty::row_writes).sum::<u64>();
    // The rows in progress at the ends of a window are fewer than this allows for.
    let window = 12 * instances;
    let (mut began, mut bounded) = ((0, writes()), Ok(()));
    let see = |handled| {
        let (timers, rows) = (handled - began.0, writes() - began.1);
        if timers < window {
            return;
        }
        if rows > 6 * timers as u64 {
            let after = began.0;
            bounded = Err(format!(
                "{rows} rows for {timers} timers after {after}, {instances} instances, {tenths} tenths, \
                 due before the start: {was_due}"
            ));
        }
        began = (handled, writes());
    };
    let time = |_| world.units(tenths) / 10;
    let enough = 4 * window;
    handle(&mut running, 4, time, enough, Duration::ZERO, see).await;
    bounded
}

/// D14: an instance knows which kind of call fails, and that it works again.
pub async fn d14_says_which_calls_fail<T: Stores>(world: &World<T>) {
    let mut instance = world.patient().await;
    for call in ["write", "load", "fire", "settle"] {
        instance.set("before", 1, 0).await;
        let before = instance.next().await;
        instance.faults.set_failing(Some(call));
        let key = "a".to_owned();
        let set = instance.timers.set_timer(&key, &1, world.units(2)).await;
        assert_eq!(set.is_err(), call == "write");
        assert_eq!(before.ack().await.is_err(), call == "settle");
        let limit = world.units(if call == "settle" { 600 } else { 6 });
        let received = timeout(limit, instance.claims.recv()).await;
        match call {
            "write" | "fire" => assert!(received.is_err(), "{received:?} while {call} fails"),
            "settle" => assert!(received.is_ok(), "claims are fired"),
            // The instance gives everything back, and may have fired it before.
            _ => {}
        }
        until_failing(&instance, call).await;
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
        until_failing(&instance, "").await;
    }
}

/// Waits until the instance says that this kind of call fails, and no other.
async fn until_failing<S>(instance: &Running<S>, call: &str) {
    let expected = ["load", "fire", "write", "settle"].map(|kind| kind == call);
    until(&instance.timers, instance.unit, |metrics| {
        let failing = metrics.failing;
        [failing.load, failing.fire, failing.write, failing.settle] == expected
    })
    .await;
}

/// With `no_overlap` a repeating timer is handled by one instance at a time, however long its
/// handlers take. Without, several handle it at once.
pub async fn repeating_timer_does_not_overlap<T: Stores>(world: &World<T>) {
    let period = world.units(2);
    for no_overlap in [false, true] {
        let part = world.part(&no_overlap.to_string());
        let start = async || {
            let set = |b: Builder<String, u64>| if no_overlap { b.no_overlap() } else { b };
            part.instance_with(set).await
        };
        let (mut first, mut second) = (start().await, start().await);
        let timers = first.timers.clone();
        let set = timers.set_interval("again", &1, period).await;
        set.expect("it is set");
        let seen = Mutex::new((0, 0, Vec::new()));
        let handle = |claim: Claim<String, u64>| {
            let (seen, time) = (&seen, period * 5 / 2);
            async move {
                {
                    let (running, most, claims) = &mut *seen.lock().expect("it is free");
                    *running += 1;
                    *most = (*most).max(*running);
                    claims.push((claim.deadline, claim.missed));
                }
                sleep(time).await;
                seen.lock().expect("it is free").0 -= 1;
                Ok(())
            }
        };
        let enough = async {
            while seen.lock().expect("it is free").2.len() < 4 {
                sleep(period / 4).await;
            }
        };
        let handlers = join(
            first.claims.dispatch(4, handle),
            second.claims.dispatch(4, handle),
        );
        let enough = timeout(period * 300, enough);
        let ended = while_they_work(handlers, enough).await;
        ended.expect("it is delivered");
        let (_, most, claims) = &*seen.lock().expect("it is free");
        assert_eq!(*most == 1, no_overlap, "{claims:?}");
        if no_overlap {
            for pair in claims.windows(2) {
                let apart = pair[1].0.duration_since(pair[0].0).expect("in their order");
                assert_eq!(apart.as_micros() % period.as_micros(), 0, "{claims:?}");
            }
            assert!(claims[1].1 > 0, "it stands for those missed: {claims:?}");
        }
    }
}
