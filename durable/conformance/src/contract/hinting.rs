//! Hints of near rows that no instance has loaded.

use std::future::Future;
use std::time::Duration;

use tickwheel_durable::store::{
    Action, DeadRows, Due, Fire, InstanceId, LeftRow, Load, LoadWindow, Settle, Settled,
    Settlement, Store, Version,
};
use tokio::time::timeout;

use super::{Case, FAR, HOUR, NOW, armed, repeating, set, versions_of, write};
use crate::world::{Stores, World};

/// Rows due within two minutes are near, and the caller loads none.
const NEAR: LoadWindow = LoadWindow::new(Duration::from_secs(120), None);

const SOON: Due = Due::In(Duration::from_secs(60));

struct Listening<'a, T: Stores> {
    world: &'a World<T>,
    case: Case<T::Store>,
}

impl<T: Stores> Listening<'_, T> {
    /// Takes the hints that there are.
    async fn quiet(&self) {
        let space = &self.case.space;
        while timeout(self.world.units(1), self.case.store.hinted(space))
            .await
            .is_ok()
        {}
    }

    /// Makes a call, and sees whether it gives a hint.
    async fn is_hinted<O>(&self, call: impl Future<Output = O>) -> (O, bool) {
        let hinted = loop {
            self.quiet().await;
            let mut hinted = Box::pin(self.case.store.hinted(&self.case.space));
            // On a busy machine a hint of the call before comes only now.
            if timeout(Duration::ZERO, &mut hinted).await.is_err() {
                break hinted;
            }
        };
        let answer = call.await;
        // With room for a busy machine: it ends with the hint.
        let heard = timeout(self.world.units(10), hinted).await;
        (answer, heard.is_ok())
    }

    async fn sees_a_hint<O>(&self, of: &str, call: impl Future<Output = O>) -> O {
        let (answer, is_hinted) = self.is_hinted(call).await;
        assert!(is_hinted, "no hint of {of}");
        answer
    }

    async fn set(&self, key: &str, due: Due) -> Version {
        let written = self.case.write_near(vec![set(key, key, due)], NEAR).await;
        armed(&written[0]).version
    }

    async fn settle(&self, token: Version, settlement: Settlement) -> Settled {
        let settles = vec![Settle::new(token, settlement)];
        self.case.settle_as(settles, NEAR).await[0]
    }

    async fn load_for(&self, instance: InstanceId, alive: Duration) -> usize {
        let request = Load::new(instance, HOUR, 100, alive);
        self.case.load_as(request).await.rows.len()
    }
}

/// Each call that leaves a near row which no instance has loaded gives a hint, and a call that
/// leaves none gives none.
pub async fn hints_near_rows_that_no_instance_has_loaded<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let instance = case.instance().await;
    let listening = Listening { world, case };
    let case = &listening.case;
    let store = &case.store;

    listening
        .sees_a_hint("a set", listening.set("a", SOON))
        .await;
    let (_, is_hinted) = listening.is_hinted(listening.set("far", FAR)).await;
    assert!(!is_hinted, "a far row is none");
    let moved = case.write_near(vec![write("far", Action::move_to(SOON))], NEAR);
    listening.sees_a_hint("a move", moved).await;
    let absent = Action::set(Vec::new(), SOON, None, true);
    let absent = case.write_near(vec![write("absent", absent)], NEAR);
    listening.sees_a_hint("a set if absent", absent).await;

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
        let settled = listening.settle(token, settlement);
        match listening.sees_a_hint(&what, settled).await {
            Settled::Armed(_) if !is_beside => {}
            Settled::Done if is_beside => {}
            other => panic!("{other:?} to {what}"),
        }
    }

    let repeats = case.set_all([repeating("repeats", NOW, minute)]).await;
    let fire = Fire::new(versions_of(&repeats), Some(HOUR), NEAR);
    let report = listening.sees_a_hint("a next occurrence", case.fire_as(fire));
    assert_eq!(report.await.next.len(), 1);

    let row = case.set("left", NOW).await.version;
    assert!(listening.load_for(instance, HOUR).await > 1);
    let unmark = async || store.unmark(&case.space, instance, vec![row]).await;
    let unmarked = listening.sees_a_hint("an unmark", unmark()).await;
    assert_eq!(unmarked, Ok(Vec::new()));
    let (_, is_hinted) = listening.is_hinted(unmark()).await;
    assert!(!is_hinted, "it was not marked");
    let fresh = listening.sees_a_hint("an unload", case.unload(instance));
    let fresh = fresh.await;
    assert!(listening.load_for(fresh, Duration::ZERO).await > 1);

    for (key, is_beside) in [("dead", false), ("dead beside", true)] {
        let token = case.fired(key).await;
        if is_beside {
            case.set(key, FAR).await;
        }
        assert_eq!(case.settle(token, Settlement::Dead).await, Settled::Done);
        let (what, retry) = (format!("a retry of {key}"), || {
            case.retry(DeadRows::Token(token))
        });
        assert_eq!(listening.sees_a_hint(&what, retry()).await, 1);
        let (_, is_hinted) = listening.is_hinted(retry()).await;
        assert!(!is_hinted, "nothing was retried");
    }

    // A live instance has marked the row in the same step, so no other instance needs a hint.
    let living = case.instance().await;
    listening.load_for(living, HOUR).await;
    let marked = LoadWindow::new(NEAR.window, Some(living));
    let set = case.write_near(vec![set("mine", "", SOON)], marked);
    let (_, is_hinted) = listening.is_hinted(set).await;
    assert!(!is_hinted, "it is loaded");
}
