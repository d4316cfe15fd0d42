//! The charter of a namespace, and calls that come late.

use std::time::Duration;

use tickwheel_durable::Charter;
use tickwheel_durable::store::{
    Action, Edition, Fire, Load, LoadWindow, Settled, Settlement, Store, StoreError,
};

use super::{Case, FAR, HOUR, NOW, UNLOADED, armed, set, write};
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

/// Loads, writes and fires under a charter that was amended change nothing. Claims can still be
/// settled.
pub async fn amended_charter_stops_all_but_settles<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let (old, new) = (Charter::new("test"), changed(|c| c.no_overlap = true));
    let edition = case.edition(&old).await.expect("it agrees");
    let under = UNLOADED.under(Some(edition));
    let (loader, token) = (case.instance().await, case.fired("held").await);
    let row = armed(&case.write_near(vec![set("a", "1", NOW)], under).await[0]).0;
    case.amend(&new).await.expect("it is amended");
    let amended = || Err(StoreError::amended(&case.space));
    for action in [
        Action::set(b"2".to_vec(), FAR, None, false),
        Action::move_to(FAR),
        Action::Remove,
    ] {
        let written = case
            .store
            .write(&case.space, vec![write("a", action)], under)
            .await;
        assert_eq!(written.map(|_| ()), amended());
    }
    let both = vec![write("a", Action::Remove), set("b", "2", FAR)];
    let written = case.store.write(&case.space, both, under).await;
    assert_eq!(written.map(|_| ()), amended());
    let mut load = Load::new(loader, HOUR, 10, HOUR);
    load.charter = Some(edition);
    assert_eq!(
        case.store.load(&case.space, load).await.map(|_| ()),
        amended()
    );
    let mut fire = Fire::new(vec![row.version], Some(HOUR), under);
    fire.unloaded = 5;
    let fired = case.store.fire(&case.space, fire.clone()).await;
    assert_eq!(fired.map(|_| ()), amended());
    fire.versions.clear();
    let fired = case.store.fire(&case.space, fire).await;
    assert_eq!(fired.map(|_| ()), amended());
    let stays = case.get("a").await.expect("it is there");
    assert_eq!((stays.version, stays.loaded_by), (row.version, None));
    assert_eq!(case.get("b").await, None);
    assert_eq!(case.settle(token, Settlement::Ack).await, Settled::Done);
    // The instance that differs learns of it, one that agrees goes on, and both change places.
    let error = case.edition(&old).await.expect_err("it differs");
    assert!(error.to_string().contains("no_overlap = true"), "{error}");
    let other = case.edition(&new).await.expect("it agrees");
    assert_ne!(other, edition);
    let under_other = UNLOADED.under(Some(other));
    case.write_near(vec![set("a", "2", FAR)], under_other).await;
    case.amend(&new).await.expect("it is so already");
    assert_eq!(case.edition(&new).await, Ok(other));
    case.amend(&old).await.expect("it is amended");
    assert!(case.edition(&old).await.is_ok_and(|again| again != edition));
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
    assert!(case.edition(&other).await.is_ok());
}

/// A write that the store gets to after its caller has given up changes nothing.
pub async fn refuses_late_writes<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let row = case.set("a", FAR).await;
    let now = case.store.count(&case.space).await.expect("it counts").now;
    let window = |until| LoadWindow::new(Duration::ZERO, None).until(until);
    let set_alone = vec![set("a", "late", FAR)];
    let mixed = vec![set("b", "late", FAR), write("a", Action::Remove)];
    for writes in [
        set_alone.clone(),
        mixed,
        vec![write("a", Action::move_to(NOW))],
    ] {
        let late = case
            .store
            .write(&case.space, writes, window(now.before(HOUR)))
            .await;
        assert!(
            matches!(late, Err(StoreError::Late { now: at, .. }) if at.since(now) < HOUR),
            "{late:?}"
        );
    }
    assert_eq!(
        case.get("a").await.map(|row| row.version),
        Some(row.version)
    );
    assert_eq!(case.get("b").await, None);
    let written = case.write_near(set_alone, window(now.after(HOUR))).await;
    armed(&written[0]);
}
