//! Settling claims.

use std::time::Duration;

use tickwheel_durable::store::{Action, Fire, Settle, Settled, Settlement, State, Store, Version};

use super::{Case, FAR, HOUR, NOW, UNLOADED, armed, versions, write};
use crate::world::{Stores, World};

/// A settle by a token that names no claim changes nothing.
pub async fn settles_by_token<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let waiting = case.set("waiting", FAR).await;
    let token = case.fired("a").await;
    for settlement in [
        Settlement::Ack,
        Settlement::RetryAfter(HOUR),
        Settlement::Release,
        Settlement::Unfire,
        Settlement::Extend(HOUR),
    ] {
        assert_eq!(
            case.settle(waiting.version, settlement).await,
            Settled::Lost
        );
        assert_eq!(
            case.settle(Version(token.0 + 1_000_000), settlement).await,
            Settled::Lost
        );
    }
    assert_eq!(
        case.settle(token, Settlement::Extend(3 * HOUR)).await,
        Settled::Done
    );
    let row = case.get("a").await.expect("it is there");
    assert_eq!((row.version, row.attempt), (token, 1), "the token stays");
    assert!(row.due >= row.deadline.after(3 * HOUR));
    assert_eq!(
        case.settle(token, Settlement::Extend(Duration::MAX)).await,
        Settled::Done
    );
    assert!(case.get("a").await.expect("it is there").due.is_never());
    assert_eq!(case.settle(token, Settlement::Ack).await, Settled::Done);
    assert_eq!(case.settle(token, Settlement::Ack).await, Settled::Lost);
    assert!(case.get("waiting").await.is_some());
}

/// Put back, a row waits under its key again, with its attempts; released, with its deadline too.
pub async fn puts_back_under_its_key<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let deadline = case.set("a", NOW).await.due;
    let version = case.get("a").await.expect("it is there").version;
    let token = case.fire(vec![version]).await.fired[0].token;
    let Settled::Armed(row) = case.settle(token, Settlement::Release).await else {
        panic!("it is released")
    };
    assert!(row.version > token);
    let stored = case.get("a").await.expect("it waits");
    assert_eq!(
        (stored.version, stored.state),
        (row.version, State::Waiting)
    );
    assert_eq!((stored.attempt, stored.deadline), (1, deadline));
    let fired = case.fire(vec![row.version]).await.fired[0].clone();
    assert_eq!((fired.attempt, fired.deadline), (2, deadline));
    let Settled::Armed(row) = case.settle(fired.token, Settlement::Unfire).await else {
        panic!("it is put back")
    };
    let stored = case.get("a").await.expect("it waits");
    assert_eq!((stored.attempt, stored.deadline), (1, deadline));
    let fired = case.fire(vec![row.version]).await.fired[0].clone();
    assert_eq!((fired.attempt, fired.deadline), (2, deadline));
    let Settled::Armed(row) = case.settle(fired.token, Settlement::RetryAfter(HOUR)).await else {
        panic!("it is put back")
    };
    let stored = case.get("a").await.expect("it waits");
    assert_eq!(
        (stored.attempt, stored.deadline, stored.due),
        (2, row.due, row.due)
    );
    assert!(row.due >= deadline.after(HOUR));
    assert_eq!(
        case.settle(fired.token, Settlement::Ack).await,
        Settled::Lost
    );
    // A timer as any other.
    let moved = case.write(vec![write("a", Action::move_to(FAR))]).await;
    assert_eq!(armed(&moved[0]).1, Some(row.version));
}

/// Put back beside a newer row of its key, a row stays in flight until then, under a new version
/// and without a mark. The same put-back made again changes nothing, and the newer row stays as it
/// is.
pub async fn puts_back_beside_a_newer_row<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let instance = case.instance().await;
    let by_instance = async |version| {
        let mut fire = Fire::new(vec![version], Some(HOUR), UNLOADED);
        fire.by = Some(instance);
        case.fire_as(fire).await.fired[0].clone()
    };
    let put_back = async |token, settlement| {
        assert_eq!(case.settle(token, settlement).await, Settled::Done);
        let in_flight = case.list(State::InFlight).await;
        assert_eq!(in_flight.len(), 1);
        assert!(in_flight[0].version > token, "{settlement:?}");
        assert_eq!(
            (in_flight[0].loaded_by, in_flight[0].claimed_by),
            (None, None)
        );
        assert_eq!(case.settle(token, settlement).await, Settled::Lost);
        assert_eq!(case.list(State::InFlight).await, in_flight);
        in_flight[0].clone()
    };
    let row = case.set("a", NOW).await;
    let token = by_instance(row.version).await.token;
    let newer = case.set("a", FAR).await;
    let row = put_back(token, Settlement::RetryAfter(2 * HOUR)).await;
    assert!(row.due > newer.due);
    let row = put_back(row.version, Settlement::Release).await;
    let fired = by_instance(row.version).await;
    assert_eq!(fired.attempt, 2);
    let row = put_back(fired.token, Settlement::Unfire).await;
    let fired = by_instance(row.version).await;
    assert_eq!(fired.attempt, 2, "the firing before does not count");
    // It is loaded by an instance when the claim is put back: its wheel has the old version.
    let lapsed = case
        .settle(fired.token, Settlement::Extend(Duration::ZERO))
        .await;
    assert_eq!(lapsed, Settled::Done);
    assert_eq!(
        versions(&case.load(instance, Duration::ZERO, 10).await),
        [fired.token]
    );
    let mut row = put_back(fired.token, Settlement::Unfire).await;
    assert_eq!(
        versions(&case.load(instance, Duration::ZERO, 10).await),
        [row.version]
    );
    for _ in 0..2 {
        row = put_back(row.version, Settlement::Unfire).await;
    }
    let fired = by_instance(row.version).await;
    assert_eq!(fired.attempt, 1, "there are no fewer attempts than none");
    let waiting = case.get("a").await.expect("it waits");
    assert_eq!((waiting.version, waiting.due), (newer.version, newer.due));
}

/// A batch puts back several claims of one key: the first becomes the waiting row of the key, and
/// the others stay in flight.
pub async fn puts_back_claims_of_one_key_together<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    for settlement in [
        Settlement::Release,
        Settlement::Unfire,
        Settlement::RetryAfter(HOUR),
    ] {
        let tokens = [case.fired("a").await, case.fired("a").await];
        let settles = tokens.map(|token| Settle::new(token, settlement));
        let settled = case
            .store
            .settle(&case.space, settles.to_vec(), UNLOADED)
            .await;
        let settled = settled.expect("it settles");
        let Settled::Armed(row) = settled[0] else {
            panic!("{settled:?} after {settlement:?}")
        };
        assert_eq!(settled[1], Settled::Done);
        let waiting = case.get("a").await.expect("it waits");
        assert_eq!(
            (waiting.version, waiting.state),
            (row.version, State::Waiting)
        );
        let in_flight = case.list(State::InFlight).await;
        assert_eq!(in_flight.len(), 1);
        assert!(in_flight[0].version > tokens[1]);
        assert_eq!(case.purge().await, 2);
    }
}
