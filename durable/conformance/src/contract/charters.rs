//! The charter of a namespace.

use tickwheel_durable::Charter;
use tickwheel_durable::store::{Edition, Settled, Settlement, Store, StoreError};

use super::{Case, FAR};
use crate::world::{Stores, World};

/// The charter with which checks open a namespace, with a change.
fn changed(change: impl FnOnce(&mut Charter)) -> Charter {
    let mut charter = Charter::new("test");
    change(&mut charter);
    charter
}

impl<S: Store> Case<S> {
    async fn edition(&self, charter: &Charter) -> Result<Edition, StoreError> {
        let opened = self.store.open(&self.space, charter).await;
        opened.map(|opened| opened.edition)
    }

    async fn amend(&self, charter: &Charter) -> Result<(), StoreError> {
        self.store.amend(&self.space, charter).await
    }
}

/// A namespace is opened with the charter that it was made with alone, and the error names the
/// field and both values.
pub async fn refuses_another_charter<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let others = [
        (Charter::new("other"), "codec = test", "codec = other"),
        (
            changed(|c| c.no_overlap = true),
            "no_overlap = false",
            "no_overlap = true",
        ),
        (
            changed(|c| c.at_most_once = true),
            "at_most_once = false",
            "at_most_once = true",
        ),
        (changed(|c| c.parts = 3), "in 1 parts", "asks for 3"),
    ];
    for (other, stored, asked) in others {
        let error = case.edition(&other).await.expect_err("it differs");
        assert!(matches!(error, StoreError::Charter { .. }), "{error:?}");
        let text = error.to_string();
        for part in [case.space.as_str(), stored, asked] {
            assert!(text.contains(part), "{text} without {part}");
        }
    }
    let same = Charter::new("test");
    assert_eq!(case.edition(&same).await, case.edition(&same).await);
}

/// A namespace with timers keeps their codec, and each namespace its parts.
pub async fn codec_of_timers_is_not_amended<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let other = Charter::new("other");
    for state in ["waiting", "in flight", "dead"] {
        match state {
            "waiting" => drop(case.set("a", FAR).await),
            "in flight" => drop(case.fired("a").await),
            _ => {
                let token = case.fired("a").await;
                assert_eq!(case.settle(token, Settlement::Dead).await, Settled::Done);
            }
        }
        let error = case.amend(&other).await.expect_err(state);
        assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
        assert!(error.to_string().contains("other"), "{error}");
        case.purge().await;
    }
    let parts = case.amend(&changed(|c| c.parts = 2)).await;
    assert!(
        matches!(parts, Err(StoreError::Refused { .. })),
        "{parts:?}"
    );
    assert!(case.edition(&Charter::new("test")).await.is_ok());
    case.amend(&other).await.expect("it is empty");
    let edition = case.edition(&other).await.expect("it agrees");
    case.amend(&other).await.expect("it is so already");
    assert_eq!(case.edition(&other).await, Ok(edition));
    case.amend(&Charter::new("test"))
        .await
        .expect("it is empty");
    let again = case.edition(&Charter::new("test")).await;
    assert!(again.is_ok_and(|again| again != edition));
}
