//! Settling claims.

use tickwheel_durable::store::{Settle, Settled, Settlement, State, Store};

use super::{Case, HOUR, UNLOADED};
use crate::world::{Stores, World};

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
