//! A store that is away for a moment while claims end, through whole instances: D2 and D5.

use std::time::Duration;

use futures_util::future::join;
use tickwheel_durable::{Builder, Claim, DurableTimers, Error, Retry};
use tokio::time::{Instant, sleep, timeout};

use super::handled::Handled;
use super::world::{Stores, World, while_they_work};

/// Waits until no timer is in flight, and returns how many wait.
async fn settled(timers: &DurableTimers<String, u64>, unit: Duration) -> u64 {
    for _ in 0..200 {
        if let Ok(counts) = timers.counts().await {
            if counts.in_flight == 0 {
                return counts.waiting;
            }
        }
        sleep(unit).await;
    }
    panic!("claims are settled soon after the outage");
}

/// D5: a handler that has ended while the store was away does not run again, and holds no place of
/// `dispatch`.
///
/// Each restart and each failover made the handlers that ended then run again, with most of their
/// leases left.
pub async fn d5_handles_once_through_an_outage<T: Stores>(world: &World<T>) {
    for part in ["away", "failing", "losing"] {
        let world = world.part(part);
        let mut instance = world.patient().await;
        for number in 0..12 {
            instance.set(&number.to_string(), number, 1).await;
        }
        let (handled, unit) = (Handled::default(), instance.unit);
        let (timers, faults) = (&instance.timers, &instance.faults);
        let handler = |claim: Claim<String, u64>| {
            handled.note(0, &claim);
            async move {
                sleep(unit * 2).await;
                Ok(())
            }
        };
        // All calls fail, or those that settle, before or after they have taken effect.
        let set = |begins: bool| match part {
            "away" => faults.set_away(begins),
            "failing" => faults.set_failing(begins.then_some("settle")),
            _ => faults.set_losing(begins.then_some("settle")),
        };
        let course = async {
            handled.reach(1, unit).await;
            set(true);
            if part == "away" {
                sleep(unit * 20).await;
            } else {
                let fired = timeout(unit * 400, handled.reach(12, unit)).await;
                assert!(fired.is_ok(), "{} of 12, {part}", handled.len());
            }
            set(false);
            while handled.len() < 12 || settled(timers, unit).await > 0 {
                sleep(unit).await;
            }
            timers.shutdown().await;
        };
        let course = async {
            let ended = timeout(unit * 1_200, course).await;
            assert!(ended.is_ok(), "{} of 12, {part}", handled.len());
        };
        join(instance.claims.dispatch(2, handler), course).await;
        assert_eq!(timers.metrics().lost, 0, "{part}");
        assert_eq!(handled.twice(), [""; 0]);
    }
}

/// D5: a put-back that the store did not take keeps its error, and is due when it would have been.
pub async fn d5_put_back_survives_an_outage<T: Stores>(world: &World<T>) {
    let mut instance = world.patient().await;
    instance.set("a", 1, 0).await;
    let (unit, handled) = (instance.unit, Handled::default());
    let (timers, faults) = (&instance.timers, &instance.faults);
    let handler = |claim: Claim<String, u64>| {
        handled.note(0, &claim);
        faults.set_failing(Some("settle"));
        async move {
            let again = Retry::after(unit * 40).because("why");
            if claim.attempt == 1 {
                Err(again)
            } else {
                Ok(())
            }
        }
    };
    let check = async {
        let called = timeout(unit * 1_200, handled.reach(1, unit)).await;
        called.expect("it is delivered");
        let failed = Instant::now();
        sleep(unit * 20).await;
        faults.set_failing(None);
        assert_eq!(settled(timers, unit).await, 1);
        let entry = timers.admin().get("a").await.expect("it reads");
        let entry = entry.expect("it waits");
        assert_eq!((entry.error.as_deref(), entry.attempt), (Some("why"), 1));
        let expected = (unit * 40).saturating_sub(failed.elapsed());
        let now = timers.counts().await.expect("it counts").now.into();
        let due = entry.deadline.duration_since(now).unwrap_or_default();
        // Not from the end of the outage on.
        assert!(due <= expected + unit * 10, "{due:?}, {expected:?}");
    };
    while_they_work(instance.claims.dispatch(1, handler), check).await;
}

/// D2: a lost answer of a fire delays its timers by no lease, and costs them no attempt.
///
/// Regression: up to 1,024 timers waited for a whole lease. Those with one attempt were dead, and
/// had never run.
pub async fn d2_lost_answer_to_a_fire_costs_nothing<T: Stores>(world: &World<T>) {
    const TIMERS: usize = 50;
    let lease = world.units(600);
    let set = |builder: Builder<_, _>| builder.lease(lease).max_attempts(1);
    let mut instance = world.instance_with(set).await;
    for number in 0..TIMERS as u64 {
        instance.set(&number.to_string(), number, 1).await;
    }
    let (unit, handled) = (instance.unit, Handled::default());
    let (timers, faults) = (&instance.timers, &instance.faults);
    faults.set_losing(Some("fire"));
    let handler = |claim: Claim<String, u64>| {
        handled.note(0, &claim);
        assert_eq!(claim.attempt, 1);
        async { Ok(()) }
    };
    let course = async {
        sleep(unit * 6).await;
        assert_eq!(handled.len(), 0, "no answer has come");
        faults.set_losing(None);
        let all = timeout(unit * 300, handled.reach(TIMERS, unit)).await;
        assert!(all.is_ok(), "{} were handled", handled.len());
        assert_eq!(settled(timers, unit).await, 0);
        timers.shutdown().await;
    };
    join(instance.claims.dispatch(64, handler), course).await;
    assert_eq!(handled.twice(), [""; 0]);
    assert_eq!(timers.metrics().dead, 0);
}

/// D5: an acknowledgement that has failed is not followed by a release when its claim is dropped.
/// It goes on.
pub async fn d5_failed_acknowledgement_is_not_released<T: Stores>(world: &World<T>) {
    let mut instance = world.patient().await;
    for key in ["awaited", "background"] {
        instance.set(key, 1, 0).await;
    }
    let claims = [instance.next().await, instance.next().await];
    instance.faults.set_failing(Some("settle"));
    let [awaited, background] = claims;
    assert!(matches!(awaited.ack().await, Err(Error::Store(_))));
    drop(awaited);
    let acknowledged = background.ack_in_background();
    instance.sees_nothing(5).await;
    instance.faults.set_failing(None);
    let acknowledged = timeout(world.units(200), acknowledged).await;
    assert_eq!(acknowledged.expect("it is told"), Ok(()));
    assert_eq!(settled(&instance.timers, instance.unit).await, 0);
    instance.sees_nothing(5).await;
    let lost = instance.timers.metrics().lost;
    assert_eq!(lost, 0);
}
