//! An instance that dies, or has a call that fails, before and after every single call of the
//! store.
//!
//! One small program uses every step of the protocol: sets, moves and removes, loads, fires,
//! acknowledgements, timers put back, and before a crash a shutdown. It is run once for each of its
//! calls, and in that run this call goes wrong. A crash stops the instance for good, and another
//! one takes over; an error is returned to the instance, which goes on. What either was told before
//! must hold.

use std::collections::BTreeSet;
use std::pin::pin;

use futures_util::future::{Either, join_all, select};
use tickwheel_durable::store::Store;
use tickwheel_durable::{Claim, Error, Moved, Removed};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::faulty::FaultPoint;
use super::world::{Running, Stores, World};

/// At most eight runs go on at once: of four calls, before and after each.
const AT_ONCE: u64 = 4;

/// The answers that the program got.
#[derive(Debug, Default)]
struct Told {
    /// Values that are set for certain, and not removed, acknowledged or replaced.
    pending: BTreeSet<u64>,
    /// Values that must not be delivered any more.
    done: BTreeSet<u64>,
}

impl Told {
    fn set(&mut self, value: u64, outcome: &Result<(), Error>) {
        if outcome.is_ok() {
            self.pending.insert(value);
        }
    }

    fn end(&mut self, value: u64) {
        self.pending.remove(&value);
        self.done.insert(value);
    }
}

/// The instance dies in each of its calls in turn; another one delivers what is left.
pub async fn survives_a_crash_in_every_call<T: Stores>(world: &World<T>) {
    in_every_call(world, true).await;
}

/// Each call in turn fails, before or after it has taken effect; the same instance delivers
/// everything.
pub async fn survives_an_error_in_every_call<T: Stores>(world: &World<T>) {
    in_every_call(world, false).await;
}

async fn in_every_call<T: Stores>(world: &World<T>, crash: bool) {
    let mut call = 0;
    loop {
        let calls = call..call + AT_ONCE;
        let runs = calls.flat_map(|call| [(call, FaultPoint::Before), (call, FaultPoint::After)]);
        let struck = join_all(runs.map(|(call, when)| run(world, call, when, crash))).await;
        if !struck.contains(&true) {
            break;
        }
        call += AT_ONCE;
    }
    assert!(call >= AT_ONCE, "the program makes calls");
}

/// Runs the program with one call that goes wrong. Returns whether it was made.
async fn run<T: Stores>(world: &World<T>, call: u64, when: FaultPoint, crash: bool) -> bool {
    let world = world.part(&format!("{crash}-{call}-{when:?}"));
    let what = format!("crash: {crash}, call {call}, {when:?}");
    let mut told = Told::default();
    let mut instance = world.instance_with(|b| b.lease(world.units(10))).await;
    let faults = instance.faults.clone();
    let call = faults.calls() + call;
    if crash {
        faults.crash_at(call, when);
    } else {
        faults.fail_at(call, when);
    }
    let program = async {
        program(&world, &mut instance, &mut told).await;
        if crash {
            instance.claims.shutdown().await;
        }
    };
    // After a crash the program waits forever, for which some seconds stand. On a busy machine it
    // may take long until then.
    let waits = async {
        while !(crash && faults.has_struck()) {
            sleep(world.units(1)).await;
        }
        sleep(world.units(40)).await;
    };
    let ended = async { matches!(select(pin!(program), pin!(waits)).await, Either::Left(_)) };
    let ended = timeout(world.units(400), ended).await == Ok(true);
    let struck = faults.has_struck();
    assert!(ended || (crash && struck), "{what}: the program hangs");
    if crash {
        instance.kill();
        instance = world.instance().await;
    }
    // A fault that has not struck yet is planned no more.
    instance.faults.set_away(false);
    deliver_the_rest(&world, &mut instance, &mut told, &what).await;
    struck
}

async fn program<S: Store, T: Stores<Store = S>>(
    world: &World<T>,
    instance: &mut Running<S>,
    told: &mut Told,
) {
    let timers = instance.timers.clone();
    let [a, b, c, d] = ["a", "b", "c", "d"].map(str::to_owned);
    for (key, value) in [(&a, 1), (&b, 2), (&c, 3)] {
        told.set(value, &timers.set_timer(key, &value, world.units(4)).await);
    }
    // An instance that dies in a call leaves it in doubt: it may be delivered, and need not.
    let was_set = told.pending.remove(&3);
    match timers.remove_timer(&c).await {
        Ok(Removed::Done(3)) => told.end(3),
        Ok(Removed::Absent) => assert!(!was_set),
        Ok(other) => panic!("{other:?}"),
        Err(_) => {}
    }
    match timers.move_timer(&b, world.units(5)).await {
        Ok(Moved::Absent) => assert!(!told.pending.contains(&2)),
        Ok(Moved::Done) | Err(_) => {}
        Ok(other) => panic!("it is not due: {other:?}"),
    }
    // Replaced before it is due.
    told.set(4, &timers.set_timer(&d, &4, world.units(12)).await);
    told.pending.remove(&4);
    let replaced = timers.set_timer(&d, &5, world.units(6)).await;
    if replaced.is_ok() {
        told.end(4);
    }
    told.set(5, &replaced);
    let mut put_back = false;
    let until = Instant::now() + world.units(18);
    while let Ok(claim) = timeout_at(until, instance.claims.recv()).await {
        let claim: Claim<String, u64> = claim.expect("the stream goes on");
        let value = claim.value;
        assert!(
            !told.done.contains(&value),
            "{claim:?} was delivered after its end"
        );
        if value == 2 && !put_back {
            put_back = claim.retry_after(world.units(1)).await.is_ok();
            continue;
        }
        told.pending.remove(&value);
        if claim.ack().await.is_ok() {
            told.end(value);
        }
    }
}

/// The instance, or the one that took over, delivers all that must be, and nothing that must not
/// be.
async fn deliver_the_rest<S: Store, T: Stores<Store = S>>(
    world: &World<T>,
    instance: &mut Running<S>,
    told: &mut Told,
    what: &str,
) {
    let until = Instant::now() + world.units(600);
    loop {
        let counts = instance.counts().await;
        if counts.waiting + counts.in_flight == 0 {
            break;
        }
        let next = timeout_at(until, instance.claims.recv()).await;
        let claim = next.unwrap_or_else(|_| panic!("{what}: {counts:?} are left, of {told:?}"));
        let claim = claim.expect("the stream goes on");
        let done = told.done.contains(&claim.value);
        assert!(!done, "{what}: {claim:?} was delivered after its end");
        claim.ack().await.expect("it is held");
        told.end(claim.value);
    }
    assert!(told.pending.is_empty(), "{what}: {told:?} is lost");
}
