//! D1 and D4: what a call has written is kept, and the last write wins.

use std::collections::BTreeSet;
use std::pin::pin;

use futures_util::future::{Either, join_all, select};
use tickwheel_durable::{Moved, Removed};

use super::{FAR, key};
use crate::world::{Stores, World, acked_of, collect, next_of};

/// D1: what a call said it had set is there after a crash right after it.
pub async fn d1_keeps_what_it_said_it_set<T: Stores>(world: &World<T>) {
    let first = world.instance().await;
    let keys: Vec<_> = (0..100).map(key).collect();
    let set = |key| first.timers.set_timer(key, &7, world.units(1));
    for set in join_all(keys.iter().map(set)).await {
        set.expect("it is set");
    }
    first.kill();
    let mut second = world.instance().await;
    let mut delivered = BTreeSet::new();
    while delivered.len() < keys.len() {
        let claim = second.next_acked().await;
        assert_eq!((claim.value, claim.missed), (7, 0));
        delivered.insert(claim.key);
    }
    assert!(keys.iter().all(|key| delivered.contains(key)));
}

/// D4: after a set, move or remove by another instance the old deadline and value are never
/// delivered.
pub async fn d4_last_write_wins_across_instances<T: Stores>(world: &World<T>) {
    let (first, second) = (world.instance().await, world.instance().await);
    for name in ["moved later", "set again", "removed", "far"] {
        first.set(name, 1, 10).await;
    }
    // All are loaded by now.
    world.wait(2).await;
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
    let mut claims = acked_of(&mut both, 2).await;
    claims.extend(collect(&mut both, world.units(6)).await);
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
    // The claims last, however busy the machine is. Either instance may have loaded a timer.
    let lease = world.units(600);
    let mut instances = [
        world.instance_with(|b| b.lease(lease)).await,
        world.instance_with(|b| b.lease(lease)).await,
    ];
    let [setter, remover] = [0, 1].map(|number: usize| instances[number].timers.clone());
    let keys: Vec<_> = (0..60).map(key).collect();
    let set = |key| setter.set_timer(key, &1, world.units(3));
    for set in join_all(keys.iter().map(set)).await {
        set.expect("it is set");
    }
    // Some before, some after, and some while they fire.
    let remover = &remover;
    let remove = keys.iter().zip(0..).map(|(key, number)| async move {
        tokio::time::sleep(world.units(2) + world.units(6) * number / 60).await;
        remover.remove_timer(key).await.expect("it answers")
    });
    let mut held = Vec::new();
    let hold = async {
        loop {
            held.push(next_of(&mut instances).await.1);
        }
    };
    let outcomes = match select(join_all(remove), pin!(hold)).await {
        Either::Left((outcomes, _)) => outcomes,
        Either::Right((never, _)) => never,
    };
    let mut removed = BTreeSet::new();
    let mut fired = BTreeSet::new();
    for (key, outcome) in keys.iter().zip(outcomes) {
        match outcome {
            Removed::Done(1) => assert!(removed.insert(key.clone())),
            Removed::InFlight(_) => assert!(fired.insert(key.clone())),
            other => panic!("{key} was neither there nor in flight: {other:?}"),
        }
    }
    for claim in &held {
        claim.ack().await.expect("it is held");
    }
    held.extend(collect(&mut instances, world.units(10)).await);
    let delivered: BTreeSet<_> = held.iter().map(|claim| claim.key.clone()).collect();
    assert_eq!(delivered.len(), held.len());
    assert_eq!(delivered, fired);
    assert_eq!(delivered.len() + removed.len(), keys.len());
    if removed.is_empty() || fired.is_empty() {
        return Err(format!("{} removed, {} fired", removed.len(), fired.len()));
    }
    Ok(())
}
