//! D1 to D12, through whole instances.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use tickwheel_durable::store::{Action, Due, Feature, LoadWindow, Missed, Store, Write};
use tickwheel_durable::{Builder, Claim, Error, Moved, Removed, SetIfAbsent};

use super::world::{Stores, World, collect, next_of};

/// A time within which nothing comes due.
const FAR: Duration = Duration::from_secs(360_000);

type Settings = Builder<String, u64>;

fn key(number: u64) -> String {
    format!("key {number}")
}

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

/// D2: claims that are not settled within the lease are delivered again, by another instance too, and counted. Each fires
/// between the end of its lease and the next poll.
pub async fn d2_delivers_again_after_the_lease<T: Stores>(world: &World<T>) {
    let mut first = world.instance_with(|b| b.lease(world.units(8))).await;
    // Their leases end at different times between two polls.
    for number in 0..8 {
        let delay = world.units(1) * number / 4;
        let key = key(number.into());
        let set = first.timers.set_timer(&key, &1, delay).await;
        set.expect("it is set");
    }
    let mut deadlines = BTreeMap::new();
    let mut held = Vec::new();
    for _ in 0..8 {
        let claim = first.next().await;
        assert_eq!(claim.attempt, 1);
        deadlines.insert(claim.key.clone(), claim.deadline);
        held.push(claim);
    }
    let ended = first.leases().await;
    assert_eq!(ended.len(), 8);
    first.kill();
    let mut second = world.instance().await;
    let mut again = Vec::new();
    for _ in 0..8 {
        let claim = second.next().await;
        assert_eq!((claim.value, claim.attempt), (1, 2));
        assert_eq!(deadlines.remove(&claim.key), Some(claim.deadline));
        again.push(claim);
    }
    for (key, lease_until) in second.leases().await {
        // A lease begins in the step that fires.
        let fired = lease_until - world.units(20);
        let after = fired.duration_since(ended[&key]);
        let after = after.expect("not before the lease has ended");
        assert!(after <= world.longest_poll(), "{key}: {after:?} after it");
    }
    for claim in again {
        claim.ack().await.expect("it is held");
    }
    second.sees_nothing(6).await;
}

/// D2: in the mode, what was delivered is never delivered again.
pub async fn d2_at_most_once_is_a_mode<T: Stores>(world: &World<T>) {
    let mode = |b: Settings| b.at_most_once().lease(world.units(2));
    let mut first = world.instance_with(mode).await;
    first.set("a", 1, 0).await;
    let claim = first.next().await;
    claim.ack().await.expect("acknowledging does nothing");
    let token = claim.token();
    assert_eq!(claim.retry_after(FAR).await, Err(Error::Settled { token }));
    assert_eq!(claim.extend(FAR).await, Err(Error::Settled { token }));
    drop(claim);
    assert_eq!(first.timers.counts().await.expect("it counts").in_flight, 0);
    let mut second = world.instance_with(mode).await;
    second.sees_nothing(5).await;
    first.sees_nothing(1).await;
}

/// D3: no timer is delivered before its deadline by the store's clock.
pub async fn d3_is_never_early<T: Stores>(world: &World<T>) {
    let mut instance = world.instance().await;
    for number in 0..60 {
        let delay = world.units(5) * number / 60;
        let key = key(number.into());
        let set = instance.timers.set_timer(&key, &0, delay).await;
        set.expect("it is set");
    }
    for _ in 0..60 {
        let claim = instance.next_acked().await;
        let now = instance.timers.counts().await.expect("it counts").now;
        assert!(
            SystemTime::from(now) >= claim.deadline,
            "{claim:?} at {now}"
        );
    }
}

/// D4: after a set, move or remove by another instance the old deadline and value are never delivered.
pub async fn d4_last_write_wins_across_instances<T: Stores>(world: &World<T>) {
    let (first, second) = (world.instance().await, world.instance().await);
    for name in ["moved later", "set again", "removed", "far"] {
        first.set(name, 1, 10).await;
    }
    // All are loaded by now.
    world.wait(2).await;
    let delay = world.units(14);
    let moved = second.timers.move_timer("moved later", delay).await;
    assert_eq!(moved, Ok(Moved::Yes));
    second.set("set again", 2, 14).await;
    let removed = second.timers.remove_timer("removed").await;
    assert_eq!(removed, Ok(Removed::Value(1)));
    let moved = second.timers.move_timer("far", FAR).await;
    assert_eq!(moved, Ok(Moved::Yes));
    let gone = second.timers.remove_timer("removed").await;
    assert_eq!(gone, Ok(Removed::Absent));

    let mut both = [first, second];
    let claims = collect(&mut both, world.units(20)).await;
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

/// D4: a timer that is removed about when it fires is either removed or delivered, and the caller is told.
pub async fn d4_removed_or_fired_never_both<T: Stores>(world: &World<T>) {
    let claimant = world.instance().await;
    let remover = world.instance().await;
    let keys: Vec<_> = (0..60).map(key).collect();
    let set = |key| claimant.timers.set_timer(key, &1, world.units(3));
    for set in join_all(keys.iter().map(set)).await {
        set.expect("it is set");
    }
    // Some before, some after, and some while they fire.
    let remove = keys.iter().zip(0..).map(|(key, number)| {
        let timers = &remover.timers;
        async move {
            tokio::time::sleep(world.units(2) + world.units(2) * number / 60).await;
            timers.remove_timer(key).await.expect("it answers")
        }
    });
    let mut removed = BTreeSet::new();
    let mut fired = BTreeSet::new();
    for (key, outcome) in keys.iter().zip(join_all(remove).await) {
        match outcome {
            Removed::Value(1) => assert!(removed.insert(key.clone())),
            Removed::InFlight(_) => assert!(fired.insert(key.clone())),
            other => panic!("{key} was neither there nor in flight: {other:?}"),
        }
    }
    let claims = collect(&mut [claimant, remover], world.units(10)).await;
    let times = claims.len();
    let delivered: BTreeSet<_> = claims.into_iter().map(|claim| claim.key).collect();
    assert_eq!(delivered.len(), times);
    assert_eq!(delivered, fired);
    assert_eq!(delivered.len() + removed.len(), keys.len());
}

/// D5: many instances on the same timers deliver each once.
pub async fn d5_delivers_once_among_many<T: Stores>(world: &World<T>) {
    let mut instances = Vec::new();
    for _ in 0..4 {
        instances.push(world.instance_with(|b| b.capacity(20)).await);
    }
    let keys: Vec<_> = (0..200).map(key).collect();
    let set = keys.iter().zip(0..).map(|(key, number)| {
        let instance = &instances[number % 4];
        instance.timers.set_timer(key, &1, world.units(2))
    });
    for set in join_all(set).await {
        set.expect("it is set");
    }
    // Two hundred acknowledgements one after the other take a busy machine long.
    let mut claims = Vec::new();
    for _ in 0..20 {
        claims.extend(collect(&mut instances, world.units(5)).await);
        if claims.len() >= keys.len() {
            break;
        }
    }
    claims.extend(collect(&mut instances, world.units(5)).await);
    assert!(claims.iter().all(|claim| claim.attempt == 1));
    assert_eq!(claims.len(), keys.len());
    let delivered: BTreeSet<_> = claims.into_iter().map(|claim| claim.key).collect();
    assert_eq!(delivered.len(), keys.len());
}

/// D6: a timer that was loaded long before it is due has its whole lease when it fires.
pub async fn d6_counts_the_lease_from_firing<T: Stores>(world: &World<T>) {
    let brief = world.units(5);
    let set = |b: Settings| b.lease(brief).window(world.units(40));
    let mut both = [
        world.instance_with(set).await,
        world.instance_with(set).await,
    ];
    both[0].set("a", 1, 12).await;
    let (_, claim) = next_of(&mut both).await;
    assert_eq!(claim.attempt, 1);
    world.wait(2).await;
    claim
        .ack()
        .await
        .expect("two of five units have passed since it fired");
    for instance in &mut both {
        instance.sees_nothing(4).await;
    }
}

/// D7: tokens grow, and a claim that was lost changes nothing.
pub async fn d7_fences_lost_claims<T: Stores>(world: &World<T>) {
    let mut instance = world.instance_with(|b| b.lease(world.units(6))).await;
    instance.set("a", 1, 0).await;
    let first = instance.next().await;
    let second = instance.next().await;
    assert_eq!((first.attempt, second.attempt), (1, 2));
    assert!(first.token() < second.token());
    let token = first.token();
    for outcome in [
        first.ack().await,
        first.extend(FAR).await,
        first.retry_after(Duration::ZERO).await,
    ] {
        assert_eq!(outcome, Err(Error::Lost { token }));
    }
    second.extend(world.units(40)).await.expect("it is held");
    instance.sees_nothing(9).await;
    second.ack().await.expect("it was extended");
    instance.set("a", 2, 0).await;
    let third = instance.next_acked().await;
    assert!(second.token() < third.token());
    assert_eq!((third.value, third.attempt), (2, 1));
    instance.sees_nothing(8).await;
}

/// D8: timers that came due while no instance ran are delivered at start, earliest first.
pub async fn d8_delivers_what_was_missed_in_order<T: Stores>(world: &World<T>) {
    let writer = world.instance().await;
    writer.claims.shutdown().await;
    let order: Vec<u64> = (0..40).map(|number| number * 17 % 40).collect();
    // Absolute deadlines: relative ones count from when each is written.
    let now = writer.timers.counts().await.expect("it counts").now;
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
    let mut instance = world.instance_with(|b| b.capacity(7)).await;
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
        // Three occurrences are due, and the next is not for five units. A busy machine may miss more.
        world.wait(35).await;
        let mut instance = world.instance_with(|b| b.missed(rule)).await;
        let mut delivered = Vec::new();
        // The fourth is the next one. Until it comes, all that were missed have come.
        while delivered.last().is_none_or(|&(number, _, _)| number < 4) {
            let claim = instance.next_acked().await;
            let now = instance.timers.counts().await.expect("it counts").now;
            let last_due = number_at(now.into());
            delivered.push((
                number_at(claim.deadline),
                u128::from(claim.missed),
                last_due,
            ));
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
        assert_eq!(removed, Ok(Removed::Value(1)));
    }
}

/// D9: occurrences come at their deadlines though none of them is acknowledged.
pub async fn d9_keeps_the_cadence_unacknowledged<T: Stores>(world: &World<T>) {
    let mut instance = world.instance().await;
    let period = world.units(6);
    let set = instance.timers.set_interval("a", &1, period).await;
    set.expect("it is set");
    let mut held = vec![instance.next().await];
    for number in 1..4 {
        let claim = instance.next().await;
        assert_eq!(claim.deadline, held[0].deadline + period * number);
        assert_eq!((claim.attempt, claim.missed), (1, 0));
        held.push(claim);
    }
    assert!(held.is_sorted_by_key(Claim::token));
    for claim in held {
        claim.ack().await.expect("it is held");
    }
    let removed = instance.timers.remove_timer("a").await;
    assert_eq!(removed, Ok(Removed::Value(1)));
    // A busy machine may have fired another one before.
    let ended = instance.now().await;
    let late = collect(&mut [instance], world.units(8)).await;
    assert!(late.iter().all(|claim| claim.deadline < ended), "{late:?}");
}

/// D10: an instance whose capacity is used up claims no more, and others get what is due.
pub async fn d10_leaves_to_others_when_full<T: Stores>(world: &World<T>) {
    // What it holds stays its own, however slow the machine is.
    let settings = |b: Settings| b.capacity(2).lease(world.units(200));
    let mut full = world.instance_with(settings).await;
    let keys: Vec<_> = (0..10).map(key).collect();
    let set = keys
        .iter()
        .map(|key| full.timers.set_timer(key, &1, world.units(1)));
    for set in join_all(set).await {
        set.expect("it is set");
    }
    let held = [full.next().await, full.next().await];
    full.sees_nothing(3).await;
    assert_eq!(full.timers.metrics().unsettled, 2);
    let other = world.instance().await;
    let mut both = [full, other];
    let mut claims = Vec::new();
    for _ in 0..8 {
        let (_, claim) = next_of(&mut both).await;
        claim.ack().await.expect("it is held");
        claims.push(claim);
    }
    claims.extend(collect(&mut both, world.units(3)).await);
    assert_eq!(claims.len(), 8, "none comes twice");
    assert!(claims.iter().all(|claim| claim.attempt == 1));
    let [mut full, other] = both;
    assert_eq!(full.timers.metrics().delivered, 2);
    other.timers.shutdown().await;
    drop(held);
    let again = [full.next_acked().await, full.next_acked().await];
    assert!(again.iter().all(|claim| claim.attempt == 2));
}

/// D11: while the store is unreachable, calls fail and nothing is delivered; then everything is.
pub async fn d11_recovers_when_the_store_is_back<T: Stores>(world: &World<T>) {
    let mut instance = world.instance().await;
    let numbers: Vec<_> = (0..20).map(|number| (key(number), number)).collect();
    let delay = world.units(8);
    let set = numbers.iter().map(|(key, number)| (key, number, delay));
    instance.timers.set_many(set).await.expect("they are set");
    world.wait(2).await;
    instance.faults.set_away(true);
    let failed = instance.timers.set_timer("late", &0, FAR).await;
    assert!(
        matches!(failed, Err(Error::Store(_) | Error::Shard { .. })),
        "{failed:?}"
    );
    // Much longer than the first retries are apart.
    instance.sees_nothing(40).await;
    instance.faults.set_away(false);
    let mut one = [instance];
    let claims = collect(&mut one, world.units(8)).await;
    let delivered: BTreeSet<_> = claims.iter().map(|claim| claim.value).collect();
    assert_eq!((claims.len(), delivered.len()), (20, 20));
    let set = one[0].timers.set_if_absent("late", &0, FAR).await;
    assert_eq!(set, Ok(SetIfAbsent::Set));
}

/// D12: an instance with far timers only asks the store once for each poll.
pub async fn d12_is_quiet_when_idle<T: Stores>(world: &World<T>) {
    let instance = world.instance().await;
    let keys: Vec<_> = (0..100).map(key).collect();
    let set = |key| instance.timers.set_timer(key, &1, FAR);
    for set in join_all(keys.iter().map(set)).await {
        set.expect("it is set");
    }
    world.wait(2).await;
    let before = instance.faults.calls();
    world.wait(20).await;
    let calls = instance.faults.calls() - before;
    assert!((1..=20).contains(&calls), "{calls} calls in 20 polls");
}

/// A claim that is dropped is delivered again long before its lease ends.
pub async fn releases_dropped_claims_at_once<T: Stores>(world: &World<T>) {
    let mut instance = world.instance_with(|b| b.lease(FAR)).await;
    instance.set("a", 1, 0).await;
    let first = instance.next().await;
    let deadline = first.deadline;
    drop(first);
    let second = instance.next().await;
    assert_eq!((second.attempt, second.deadline), (2, deadline));
    second
        .retry_after(world.units(2))
        .await
        .expect("it is held");
    let third = instance.next_acked().await;
    assert_eq!(third.attempt, 3);
    assert!(third.deadline > deadline);
    instance.sees_nothing(4).await;
}

/// After a shutdown nothing is loaded, and what was not received is delivered to others.
pub async fn gives_back_what_it_loaded_at_shutdown<T: Stores>(world: &World<T>) {
    let mut first = world.instance_with(|b| b.lease(FAR)).await;
    // It is fired for a program that then does not come for it, which is no attempt.
    first.sees_nothing(1).await;
    first.set("due", 1, 0).await;
    first.set("near", 2, 14).await;
    world.wait(2).await;
    first.timers.shutdown().await;
    assert!(first.claims.recv().await.is_none());
    let pending = first.timers.admin().pending(None, 10).await;
    for entry in pending.expect("it lists") {
        assert!(!entry.loaded, "{entry:?}");
    }
    // The handle goes on writing.
    first.set("late", 3, 2).await;
    let mut second = world.instance().await;
    let claims = [
        second.next_acked().await,
        second.next_acked().await,
        second.next_acked().await,
    ];
    assert_eq!(
        claims.map(|claim| (claim.value, claim.attempt)),
        [(1, 1), (3, 1), (2, 1)]
    );
}

/// A timer that does not decode is dead, or is quarantined if the store keeps no dead timers, once. It does not block other
/// timers.
pub async fn ends_what_does_not_decode<T: Stores>(world: &World<T>) {
    let (store, space) = (world.store().await, world.namespace());
    let mut instance = world.instance().await;
    let poison = |key: &str, period| {
        Write::new(
            format!("{key:?}").into(),
            Action::set(
                "not a number".into(),
                Due::In(world.units(1)),
                period,
                false,
            ),
        )
    };
    let near = LoadWindow::new(Duration::ZERO, None);
    let writes = vec![poison("once", None), poison("again", Some(world.units(2)))];
    store.write(&space, writes, near).await.expect("it writes");
    instance.set("sound", 1, 2).await;
    assert_eq!(instance.next_acked().await.value, 1);
    instance.sees_nothing(8).await;

    let admin = instance.timers.admin();
    let metrics = instance.timers.metrics();
    if store.supports(Feature::DeadRows) {
        assert_eq!((metrics.dead, metrics.quarantined), (2, 0));
        let dead = admin.dead(None, 10).await.expect("it lists");
        assert_eq!(dead.len(), 2);
        for entry in dead {
            let error = entry.value.expect_err("it does not decode").to_string();
            assert!(error.contains("cannot be decoded"), "{error}");
            let kept = entry.error.expect("it is kept");
            assert!(
                kept.starts_with(&error) && kept.len() > error.len(),
                "{kept}"
            );
            let token = entry.dead.expect("it is dead").token;
            assert_eq!(admin.discard_dead(token).await, Ok(true));
        }
        assert_eq!(instance.timers.counts().await.expect("it counts").dead, 0);
        return;
    }
    assert_eq!((metrics.dead, metrics.quarantined), (0, 2));
    let quarantined = admin.in_flight(None, 10).await.expect("it lists");
    assert_eq!(quarantined.len(), 2);
    for entry in quarantined {
        let error = entry.value.expect_err("it does not decode").to_string();
        assert!(error.contains("cannot be decoded"), "{error}");
        let claim = entry.in_flight.expect("it is in flight");
        assert_eq!(claim.lease_until, None);
        admin.discard(claim.token).await.expect("it is thrown away");
    }
    assert_eq!(
        instance.timers.counts().await.expect("it counts").in_flight,
        0
    );
}

/// Other instances fire the timers that a dead instance had loaded, at their first poll after its last load is three
/// polls old.
pub async fn takes_over_what_a_dead_instance_had_loaded<T: Stores>(world: &World<T>) {
    let first = world.instance().await;
    // Within three polls, and after four.
    for units in 3..10 {
        first.set(&key(units.into()), 1, units).await;
    }
    // An instance loads nothing before its first load has made it count as alive.
    loop {
        let pending = first.timers.admin().pending(None, 10).await;
        if pending.expect("it lists").iter().all(|entry| entry.loaded) {
            break;
        }
        world.wait(1).await;
    }
    let killed = first.now().await;
    first.kill();
    let mut second = world.instance().await;
    let taken_over = killed + world.units(3);
    for _ in 3..10 {
        let claim = second.next_acked().await;
        let late = second
            .now()
            .await
            .duration_since(taken_over.max(claim.deadline));
        // Early is another check.
        let late = late.unwrap_or_default();
        assert_eq!(claim.attempt, 1);
        assert!(
            late <= world.longest_poll(),
            "{claim:?} is late by {late:?}"
        );
    }
}

/// A near deadline set by an instance that claims nothing is found by one that does, at its next poll at the latest.
pub async fn finds_near_deadlines_of_other_instances<T: Stores>(world: &World<T>) {
    let rarely = |b: Settings| b.poll(world.units(8));
    let mut claimant = world.instance_with(rarely).await;
    let writer = world.instance().await;
    writer.claims.shutdown().await;
    for number in 0..3 {
        writer.set(&key(number), number, 1).await;
        let claim = claimant.next_acked().await;
        assert_eq!(claim.value, number);
        let late = claimant.now().await.duration_since(claim.deadline);
        let late = late.unwrap_or_default();
        // Its poll is eight units, and up to a tenth longer.
        let longest = world.longest_poll() + world.units(78) / 10;
        assert!(late <= longest, "late by {late:?}");
    }
}
