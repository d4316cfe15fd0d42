//! The charter of a namespace.

use tickwheel_durable::Charter;
use tickwheel_durable::store::{Edition, Store, StoreError};

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
        (changed(|c| c.parts = 3), "parts = 1", "parts = 3"),
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
    let edition = case.edition(&same).await.expect("it agrees");
    assert_eq!(case.edition(&same).await, Ok(edition));
}

/// A namespace keeps its codec and its parts, whether it has timers or none.
pub async fn codec_and_parts_never_change<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    for _ in 0..2 {
        for other in [Charter::new("other"), changed(|c| c.parts = 2)] {
            let error = case.amend(&other).await.expect_err("it never changes");
            assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
            assert!(error.to_string().contains("never change"), "{error}");
        }
        case.set("a", FAR).await;
    }
    assert!(case.edition(&Charter::new("test")).await.is_ok());
}

/// An amendment gives the namespace another edition, and one to what it has gives none.
pub async fn amendment_gives_another_edition<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let former = Charter::new("test");
    // Either field, and both.
    for (no_overlap, at_most_once) in [(true, false), (false, true), (true, true)] {
        let other = changed(|c| (c.no_overlap, c.at_most_once) = (no_overlap, at_most_once));
        let before = case.edition(&former).await.expect("it agrees");
        case.amend(&other).await.expect("it is amended");
        let edition = case.edition(&other).await.expect("it agrees");
        assert_ne!(edition, before, "{other}");
        case.amend(&other).await.expect("it is so already");
        assert_eq!(case.edition(&other).await, Ok(edition));
        case.amend(&former).await.expect("it is amended");
        let again = case.edition(&former).await;
        assert!(again.is_ok_and(|again| again != edition));
    }
}
