//! D8 and D9: what came due while no instance ran, and when repeating timers are due again.

use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use tickwheel_durable::store::Missed;
use tickwheel_durable::{Claim, Removed};

use super::Settings;
use crate::world::{Stores, World, collect, key};

/// D8: timers that came due while no instance ran are delivered at start, earliest first.
pub async fn d8_delivers_what_was_missed_in_order<T: Stores>(world: &World<T>) {
    let writer = world.instance().await;
    writer.claims.shutdown().await;
    let order: Vec<u64> = (0..40).map(|number| number * 17 % 40).collect();
    // Absolute deadlines: relative ones count from when each is written.
    let now = writer.counts().await.now;
    let set = order.iter().map(|&number| {
        let deadline = now.after(world.units(1) + Duration::from_millis(number));
        let timers = &writer.timers;
        async move {
            timers
                .set_timer_at(&key(number), &number, deadline.into())
                .await
        }
    });
    for set in join_all(set).await {
        set.expect("it is set");
    }
    world.wait(3).await;
    // The claims last, however busy the machine is.
    let settings = |b: Settings| b.capacity(7).lease(world.units(600));
    let mut instance = world.instance_with(settings).await;
    for number in 0..40 {
        assert_eq!(instance.next_acked().await.value, number);
    }
    instance.sees_nothing(2).await;
}

/// D8: missed occurrences of repeating timers follow the rule.
pub async fn d8_repeats_by_each_rule<T: Stores>(world: &World<T>) {
    for rule in [Missed::FireAll, Missed::FireOnce, Missed::Skip] {
        let name = format!("{rule:?}");
        let writer = world.instance().await;
        writer.claims.shutdown().await;
        let period = world.units(10);
        let set = writer.timers.set_interval(&name, &1, period).await;
        set.expect("it is set");
        let due = writer.timers.deadline(&name).await.expect("it reads");
        let due = due.expect("it is there");
        let number_at = |time: SystemTime| {
            let since = time.duration_since(due);
            since.expect("not before the first").as_micros() / period.as_micros() + 1
        };
        // Three occurrences are due, and the next is not for five units. A busy machine may miss
        // more.
        world.wait(35).await;
        let mut instance = world.instance_with(|b| b.missed(rule)).await;
        let mut delivered = Vec::new();
        // The fourth is the next one. Until it comes, all that were missed have come.
        while delivered.last().is_none_or(|&(number, _, _)| number < 4) {
            let claim = instance.next_acked().await;
            let last_due = number_at(instance.now().await);
            let (number, missed) = (number_at(claim.deadline), u128::from(claim.missed));
            delivered.push((number, missed, last_due));
        }
        let is_right = match (rule, &delivered[..]) {
            (Missed::FireAll, all) => all
                .iter()
                .map(|&(number, missed, _)| (number, missed))
                .eq((1..=4).map(|number| (number, 0))),
            (Missed::FireOnce, &[(1, missed, last_due), (next, _, _)]) => {
                (2..last_due).contains(&missed) && next == missed + 2
            }
            (Missed::Skip, &[(next, 0, last_due)]) => (4..=last_due).contains(&next),
            _ => false,
        };
        assert!(is_right, "{rule:?}: {delivered:?}");
        let removed = instance.timers.remove_timer(&name).await;
        assert_eq!(removed, Ok(Removed::Done(1)));
    }
}

/// D9: occurrences come at their deadlines though none of them is acknowledged.
pub async fn d9_keeps_the_cadence_unacknowledged<T: Stores>(world: &World<T>) {
    world.undisturbed(keeps_the_cadence).await;
}

async fn keeps_the_cadence<T: Stores>(world: &World<T>) -> Result<(), String> {
    let mut instance = world.patient().await;
    let period = world.units(6);
    let set = instance.timers.set_interval("a", &1, period).await;
    set.expect("it is set");
    let mut held = vec![instance.next().await];
    for number in 1..4 {
        let claim = instance.next().await;
        assert_eq!(claim.attempt, 1);
        if claim.missed > 0 || claim.deadline != held[0].deadline + period * number {
            return Err(format!("{claim:?} as number {number}"));
        }
        held.push(claim);
    }
    assert!(held.is_sorted_by_key(Claim::token));
    for claim in held {
        claim.ack().await.expect("it is held");
    }
    let removed = instance.timers.remove_timer("a").await;
    assert_eq!(removed, Ok(Removed::Done(1)));
    // A busy machine may have fired another one before.
    let ended = instance.now().await;
    let late = collect(&mut [instance], 0, world.units(8)).await;
    assert!(late.iter().all(|claim| claim.deadline < ended), "{late:?}");
    Ok(())
}
