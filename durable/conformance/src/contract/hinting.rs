//! Hints of near rows that no instance has loaded.

use std::future::Future;
use std::time::Duration;

use tickwheel_durable::store::{
    Action, DeadRows, Due, Fire, LeftRow, Load, Settle, Settled, Settlement, Store, Terms,
};
use tokio::time::timeout;

use super::{Case, FAR, HOUR, NOW, repeating, set, versions_of, write};
use crate::world::{Stores, World};

/// Rows due within two minutes are near, and the caller loads none.
const NEAR: Terms = Terms::new(Duration::from_secs(120), None);

const SOON: Due = Due::In(Duration::from_secs(60));

impl<S: Store> Case<S> {
    /// Makes a call, and sees whether it gives a hint within ten units.
    async fn is_hinted<O>(&self, unit: Duration, call: impl Future<Output = O>) -> (O, bool) {
        let hinted = loop {
            while timeout(unit, self.store.hinted(&self.space)).await.is_ok() {}
            let mut hinted = self.store.hinted(&self.space);
            // On a busy machine a hint of the call before comes only now.
            if timeout(Duration::ZERO, &mut hinted).await.is_err() {
                break hinted;
            }
        };
        let answer = call.await;
        (answer, timeout(unit * 10, hinted).await.is_ok())
    }

    async fn sees_a_hint<O>(&self, unit: Duration, of: &str, call: impl Future<Output = O>) -> O {
        let (answer, is_hinted) = self.is_hinted(unit, call).await;
        assert!(is_hinted, "no hint of {of}");
        answer
    }

    async fn set_near(&self, key: &str, due: Due) {
        self.write_near(vec![set(key, key, due)], NEAR).await;
    }
}

/// Each call that leaves a near row which no instance has loaded gives a hint, and a call that
/// leaves none gives none.
pub async fn hints_near_rows_that_no_instance_has_loaded<T: Stores>(world: &World<T>) {
    let case = &Case::open(world).await;
    let instance = case.instance().await;
    let unit = world.units(1);

    let near = case.set_near("a", SOON);
    case.sees_a_hint(unit, "a set", near).await;
    let ((), is_hinted) = case.is_hinted(unit, case.set_near("far", FAR)).await;
    assert!(!is_hinted, "a far row is none");
    let moved = case.write_near(vec![write("far", Action::move_to(SOON))], NEAR);
    case.sees_a_hint(unit, "a move", moved).await;
    let absent = Action::set(Vec::new(), SOON, None, true);
    let absent = case.write_near(vec![write("absent", absent)], NEAR);
    case.sees_a_hint(unit, "a set if absent", absent).await;

    // Fired once, and put back in each way: as a timer of its key, and beside a newer one.
    let minute = Duration::from_secs(60);
    let left = Settlement::Leave(LeftRow::new(instance, Duration::ZERO, HOUR));
    for (settlement, is_beside) in [
        (Settlement::RetryAfter(minute), false),
        (Settlement::Release, false),
        (Settlement::Release, true),
        (Settlement::Unfire, false),
        (Settlement::Unfire, true),
        (left, false),
        (left, true),
    ] {
        let what = format!("{settlement:?}, beside a newer row: {is_beside}");
        let token = case.fired(&what).await;
        if is_beside {
            case.set(&what, FAR).await;
        }
        let settled = case.settle_as(vec![Settle::new(token, settlement)], NEAR);
        match case.sees_a_hint(unit, &what, settled).await[0] {
            Settled::Armed(_) if !is_beside => {}
            Settled::Done if is_beside => {}
            other => panic!("{other:?} to {what}"),
        }
    }

    let repeats = case.set_all([repeating("repeats", NOW, minute)]).await;
    let fire = Fire::new(versions_of(&repeats), Some(HOUR), NEAR);
    let report = case.sees_a_hint(unit, "a next occurrence", case.fire_as(fire));
    assert_eq!(report.await.next.len(), 1);

    let row = case.set("left", NOW).await.version;
    assert!(case.load(instance, HOUR, 100).await.rows.len() > 1);
    let unmark = async || case.store.unmark(&case.space, instance, vec![row]).await;
    let unmarked = case.sees_a_hint(unit, "an unmark", unmark()).await;
    assert_eq!(unmarked, Ok(Vec::new()));
    let (_, is_hinted) = case.is_hinted(unit, unmark()).await;
    assert!(!is_hinted, "it was not marked");
    let fresh = case.sees_a_hint(unit, "an unload", case.unload(instance));
    let fresh = fresh.await;
    let load = Load::new(fresh, HOUR, 100, Duration::ZERO);
    assert!(case.load_as(load).await.rows.len() > 1);

    for (key, is_beside) in [("dead", false), ("dead beside", true)] {
        let token = case.fired(key).await;
        if is_beside {
            case.set(key, FAR).await;
        }
        assert_eq!(case.settle(token, Settlement::Dead).await, Settled::Done);
        let (what, retry) = (format!("a retry of {key}"), || {
            case.retry(DeadRows::Token(token))
        });
        assert_eq!(case.sees_a_hint(unit, &what, retry()).await, 1);
        let (_, is_hinted) = case.is_hinted(unit, retry()).await;
        assert!(!is_hinted, "nothing was retried");
    }

    // A live instance has marked the row in the same step, so no other instance needs a hint.
    let living = case.instance().await;
    case.load(living, HOUR, 100).await;
    let marked = Terms::new(NEAR.window, Some(living));
    let set = case.write_near(vec![set("mine", "", SOON)], marked);
    let (_, is_hinted) = case.is_hinted(unit, set).await;
    assert!(!is_hinted, "it is loaded");
}
