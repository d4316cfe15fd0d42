//! Timers that do not decode, as in the middle of a roll-out.

use std::time::Duration;

use tickwheel_durable::Builder;
use tickwheel_durable::store::{Action, Due, Store, Terms, Write};
use tokio::time::timeout;

use super::FAR;
use crate::world::{Running, Stores, World, collect, next_of};

/// The next occurrence of a series of two units is soon.
async fn goes_on<S: Store>(instance: &Running<S>, key: &str) {
    let deadline = instance.timers.deadline(key).await;
    let deadline = deadline.expect("it is read").expect("it waits");
    let soon = instance.now().await + instance.unit * 4;
    assert!(deadline < soon, "{key} goes on");
}

/// Sets a timer that no instance of these checks decodes.
async fn poison<T: Stores>(world: &World<T>, key: &str, due: Duration, period: Option<Duration>) {
    let (store, space) = (world.store().await, world.namespace());
    let value = b"[neither, nor]".to_vec();
    let set = Action::set(value, Due::In(due), period, false);
    let writes = vec![Write::new(format!("{key:?}").into(), set)];
    let terms = Terms::NONE;
    store.write(&space, writes, terms).await.expect("it writes");
}

/// An instance that cannot decode a timer leaves it to others, and its series goes on.
pub async fn d9_leaves_to_others_what_does_not_decode<T: Stores>(world: &World<T>) {
    // The claims last, however busy the machine is.
    let lease = world.units(200);
    let mut numbers = world.instance_with(|b| b.lease(lease)).await;
    let texts = |b: Builder<String, String>| b.lease(lease);
    // Nothing of it is delivered to this instance of texts: the instance of numbers is alone at
    // first.
    let writer = world.instance_with(texts).await;
    writer.timers.shutdown().await;
    let (text, period) = ("text".to_owned(), world.units(2));
    let set = writer.timers.set_interval("text", &text, period).await;
    set.expect("it is set");
    numbers.sees_nothing(5).await;
    goes_on(&numbers, "text").await;

    // Now both, and each cannot decode what the other sets.
    let mut texts = world.instance_with(texts).await;
    let set = numbers.timers.set_interval("number", &1, period).await;
    set.expect("it is set");
    for _ in 0..6 {
        let claim = texts.next_acked().await;
        assert_eq!((claim.key.as_str(), claim.attempt), ("text", 1));
        let claim = numbers.next_acked().await;
        assert_eq!((claim.key.as_str(), claim.attempt), ("number", 1));
    }
    for key in ["text", "number"] {
        goes_on(&numbers, key).await;
    }
    assert!(numbers.timers.metrics().undecoded > 0);
    assert_eq!(numbers.counts().await.dead, 0);
}

/// What no instance decodes dies, each occurrence alone. It blocks no other timer, and a set
/// revives its key.
pub async fn d9_occurrences_that_none_decodes_die_alone<T: Stores>(world: &World<T>) {
    world.undisturbed(occurrences_die_alone).await;
}

async fn occurrences_die_alone<T: Stores>(world: &World<T>) -> Result<(), String> {
    let lease = world.units(4);
    let mut both = [
        world.instance_with(|b| b.lease(lease)).await,
        world.instance_with(|b| b.lease(lease)).await,
    ];
    poison(world, "once", world.units(1), None).await;
    poison(world, "again", world.units(1), Some(world.units(2))).await;
    let mut counted = 0;
    for _ in 0..600 {
        let next = timeout(world.units(1), next_of(&mut both)).await;
        assert!(next.is_err(), "nothing is delivered");
        counted = both.iter().map(|one| one.timers.metrics().dead).sum();
        if counted >= 3 {
            break;
        }
    }
    assert!(counted >= 3, "they die");
    let dead = both[0].timers.admin().dead(None, 1_000).await;
    let dead = dead.expect("it lists");
    assert!(dead.len() as u64 >= counted, "{counted} of {}", dead.len());
    for entry in &dead {
        let error = entry.value.as_ref().expect_err("it does not decode");
        let kept = entry.error.as_deref().expect("it is kept");
        assert!(kept.starts_with(&error.to_string()), "{kept}");
        if entry.attempt != 1 {
            return Err(format!("it was left and has counted: {}", entry.attempt));
        }
    }
    goes_on(&both[0], "again").await;
    // It was no reason to wait for others.
    both[0].set("sound", 1, 1).await;
    both[0].set("again", 2, 1).await;
    let claims = collect(&mut both, 2, Duration::ZERO).await.into_iter();
    let mut delivered: Vec<_> = claims.map(|claim| (claim.key, claim.value)).collect();
    delivered.sort();
    assert_eq!(
        delivered,
        [("again".to_owned(), 2), ("sound".to_owned(), 1)]
    );
    Ok(())
}

/// A timer that is set again is left as it was set by an instance that has just failed to decode
/// the former one, also when what that instance does about it comes later.
pub async fn set_outlives_what_does_not_decode<T: Stores>(world: &World<T>) {
    let lease = world.units(4);
    let mut instance = world.instance_with(|b| b.lease(lease)).await;
    let writer = world.instance().await;
    writer.timers.shutdown().await;
    instance.faults.set_delay(world.units(1));
    for number in 0..3 {
        let key = format!("key {number}");
        poison(world, &key, Duration::ZERO, Some(world.units(1))).await;
        let fails = async {
            while instance.timers.metrics().undecoded <= number {
                instance.sees_nothing(1).await;
            }
        };
        let failed = timeout(world.units(1_200), fails).await;
        failed.expect("it fails to decode");
        let set = writer.timers.set_timer(&key, &number, FAR);
        set.await.expect("it is set");
    }
    instance.sees_nothing(12).await;
    let until = instance.now().await + FAR;
    for number in 0..3 {
        let key = format!("key {number}");
        let entry = writer.timers.admin().get(&key).await.expect("it reads");
        let entry = entry.expect("it is there");
        assert_eq!(entry.value, Ok(number));
        assert!(entry.deadline <= until, "it is not at the end of time");
    }
}
