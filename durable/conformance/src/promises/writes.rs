//! D1 and D4: what a call has written is kept, and the last write wins.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use tickwheel_durable::{Moved, Removed};

use super::FAR;
use crate::world::{Stores, World, collect, key, next_of, while_they_work};

/// D1: what a call said it had set is there after a crash right after it.
pub async fn d1_keeps_what_it_said_it_set<T: Stores>(world: &World<T>) {
    let first = world.instance().await;
    first.set_numbers(100, world.units(1)).await;
    first.kill();
    let mut second = world.instance().await;
    let mut delivered = BTreeSet::new();
    while delivered.len() < 100 {
        let claim = second.next_acked().await;
        assert_eq!((claim.key, claim.missed), (key(claim.value), 0));
        delivered.insert(claim.value);
    }
    assert!(delivered.into_iter().eq(0..100));
}

/// D4: after a set, move or remove by another instance the old deadline and value are never
/// delivered.
pub async fn d4_last_write_wins_across_instances<T: Stores>(world: &World<T>) {
    let (first, second) = (world.instance().await, world.instance().await);
    for name in ["moved later", "set again", "removed", "far"] {
        first.set(name, 1, 10).await;
    }
    // The writes come too late for the loads: an instance has them on its wheel.
    world.wait(2).await;
    first.has_loaded_all().await;
    let before = first.now().await;
    let delay = world.units(14);
    let moved = second.timers.move_timer("moved later", delay).await;
    assert_eq!(moved, Ok(Moved::Done));
    second.set("set again", 2, 14).await;
    let removed = second.timers.remove_timer("removed").await;
    assert_eq!(removed, Ok(Removed::Done(1)));
    let moved = second.timers.move_timer("far", FAR).await;
    assert_eq!(moved, Ok(Moved::Done));
    let gone = second.timers.remove_timer("removed").await;
    assert_eq!(gone, Ok(Removed::Absent));

    let mut both = [first, second];
    let claims = collect(&mut both, 2, world.units(6)).await;
    for claim in &claims {
        // Not at the old deadline, which came earlier.
        assert!(claim.deadline >= before + delay, "{claim:?}");
    }
    let mut delivered: Vec<_> = claims
        .into_iter()
        .map(|claim| (claim.key, claim.value))
        .collect();
    delivered.sort();
    let expected = [("moved later", 1), ("set again", 2)];
    let expected = expected.map(|(key, value)| (key.to_owned(), value));
    assert_eq!(delivered, expected);
    let deadline = both[0].timers.deadline("far").await;
    assert!(deadline.expect("it reads").is_some());
}

/// D4: a timer that is removed about when it fires is either removed or delivered, and the caller
/// is told.
pub async fn d4_removed_or_fired_never_both<T: Stores>(world: &World<T>) {
    world.undisturbed(removes_while_they_fire).await;
}

async fn removes_while_they_fire<T: Stores>(world: &World<T>) -> Result<(), String> {
    // Either instance may have loaded a timer.
    let mut instances = [world.patient().await, world.patient().await];
    instances[0].set_numbers(60, world.units(3)).await;
    let remover = instances[1].timers.clone();
    // Some before, some after, and some while they fire.
    let remove = (0..60).map(async |number| {
        tokio::time::sleep(world.units(2) + world.units(6) * number / 60).await;
        let removed = remover.remove_timer(&key(number.into())).await;
        removed.expect("it answers")
    });
    let mut held = Vec::new();
    let hold = async {
        loop {
            held.push(next_of(&mut instances).await.1);
        }
    };
    let outcomes = while_they_work(hold, join_all(remove)).await;
    let (mut removed, mut fired) = (0, BTreeSet::new());
    for (number, outcome) in (0..).zip(outcomes) {
        match outcome {
            Removed::Done(value) if value == number => removed += 1,
            Removed::InFlight(_) => _ = fired.insert(number),
            other => panic!("{number} was neither there nor in flight: {other:?}"),
        }
    }
    for claim in &held {
        claim.ack().await.expect("it is held");
    }
    held.extend(collect(&mut instances, 0, world.units(10)).await);
    let delivered: BTreeSet<_> = held.iter().map(|claim| claim.value).collect();
    assert_eq!(delivered.len(), held.len());
    assert_eq!(delivered, fired);
    if removed == 0 || fired.is_empty() {
        return Err(format!("{removed} removed, {} fired", fired.len()));
    }
    Ok(())
}
