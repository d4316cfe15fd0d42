//! Rows that repeat by a schedule: only instances know its times.

use tickwheel_durable::store::{
    Action, Armed, Due, Fire, InstanceId, Load, LoadWindow, Missed, NextOccurrence, Plan,
    Scheduled, Schedules, Settled, Settlement, State, Store, StoreTime, Version, Write,
    WriteOutcome,
};

use super::{Case, FAR, HOUR, NOW, UNLOADED, armed, set, versions, write};
use crate::world::{Stores, World};

/// A schedule. Stores keep it without reading it.
const SCHEDULE: &str = "0 9 * * MON-FRI Europe/Berlin";

fn scheduled(key: &str, due: Due, schedule: &str) -> Write {
    write(key, Action::set_scheduled(key.into(), due, schedule.into()))
}

/// A plan that holds now: the row fires, and is due again far from now.
fn plan(version: Version) -> Plan {
    let next = NextOccurrence::new(true, 3, StoreTime::from_micros(7_000_000_000_000_000));
    Plan::new(version, StoreTime::default(), next.due, next)
}

fn fire(versions: Vec<Version>, plans: Vec<Plan>, near: LoadWindow) -> Fire {
    let mut fire = Fire::new(versions, Some(HOUR), near);
    fire.plans = plans;
    fire
}

impl<S: Store> Case<S> {
    /// A case with the id of an instance that loads.
    async fn with_instance<T: Stores<Store = S>>(world: &World<T>) -> (Self, InstanceId) {
        let case = Case::open(world).await;
        let instance = case.instance().await;
        case.load(instance, HOUR, 0).await;
        (case, instance)
    }

    async fn set_scheduled(&self, key: &str, due: Due) -> Armed {
        armed(&self.write(vec![scheduled(key, due, SCHEDULE)]).await[0]).0
    }
}

/// A row with a schedule fires by a plan that holds, and leaves the next occurrence waiting in the
/// same step.
pub async fn fires_scheduled_rows_by_their_plans<T: Stores>(world: &World<T>) {
    let (case, instance) = Case::with_instance(world).await;
    let row = case.set_scheduled("a", NOW).await;
    let once = case.set("b", NOW).await;
    let loaded = case.load(instance, HOUR, 10).await;
    let known = Scheduled::new(row.version, row.due, SCHEDULE.into());
    assert_eq!(loaded.scheduled, vec![known.clone()]);
    assert_eq!(versions(&loaded), [row.version, once.version]);

    // Without a plan that holds, it stays. Others fire.
    let now = loaded.now;
    let next = plan(row.version).next;
    let far = next.due;
    let passed = Plan::new(row.version, StoreTime::default(), now, next);
    let ahead = Plan::new(row.version, now.after(HOUR), far, next);
    let of_another = plan(Version(row.version.0 + 1_000_000));
    for plans in [vec![], vec![passed], vec![ahead], vec![of_another]] {
        let other = case.set("b", NOW).await;
        let report = case.fire_as(fire(vec![row.version, other.version], plans, UNLOADED));
        let report = report.await;
        let later = Armed::new(row.version, row.due, true);
        assert_eq!(
            (report.later, report.scheduled),
            (vec![later], vec![known.clone()])
        );
        assert_eq!((report.fired.len(), report.next), (1, vec![]));
        assert_eq!(report.fired[0].key, b"b");
    }
    let stored = case.get("a").await.expect("it waits");
    let seen = (stored.version, stored.due, stored.attempt, stored.loaded_by);
    assert_eq!(seen, (row.version, row.due, 0, Some(instance)));
    assert_eq!(stored.schedule.as_deref(), Some(SCHEDULE));

    // A plan for a row that is not due changes nothing.
    let later = case.set_scheduled("later", FAR).await;
    let report = fire(vec![later.version], vec![plan(later.version)], UNLOADED);
    assert_eq!(case.fire_as(report).await.later, [later]);

    let report = fire(vec![row.version], vec![plan(row.version)], UNLOADED);
    let report = case.fire_as(report).await;
    let fired = &report.fired[0];
    assert_eq!(
        (fired.deadline, fired.missed, fired.repeats),
        (row.due, 3, true)
    );
    assert_eq!((fired.attempt, fired.value.as_slice()), (1, &b"a"[..]));
    let [next] = report.next[..] else {
        panic!("{report:?}")
    };
    assert_eq!((next.due, next.loaded), (far, false));
    let stored = case.get("a").await.expect("it waits");
    let seen = (stored.version, stored.due, stored.deadline, stored.attempt);
    assert_eq!(seen, (next.version, far, far, 0));
    assert_eq!(
        (stored.schedule.as_deref(), stored.state),
        (Some(SCHEDULE), State::Waiting)
    );
    let in_flight = case.list(State::InFlight).await;
    let in_flight = in_flight.iter().find(|row| row.version == fired.token);
    let in_flight = in_flight.expect("it is in flight");
    assert_eq!(
        (&in_flight.schedule, in_flight.period),
        (&None, None),
        "it does not repeat"
    );

    // The old version, and its plan, name nothing any more.
    let again = fire(vec![row.version], vec![plan(row.version)], UNLOADED);
    let again = case.fire_as(again).await;
    assert_eq!(
        (again.fired, again.later, again.next),
        (vec![], vec![], vec![])
    );

    // Put back, dead or acknowledged, an occurrence leaves the schedule alone.
    let again = case.settle(fired.token, Settlement::RetryAfter(HOUR)).await;
    assert_eq!(again, Settled::Done);
    case.settle(fired.token, Settlement::Dead).await;
    assert_eq!(case.get("a").await.expect("it waits"), stored);
}

/// A plan may leave an occurrence out, delete what fires, or have it wait while another is in
/// flight.
pub async fn skips_and_holds_back_scheduled_rows<T: Stores>(world: &World<T>) {
    let (case, instance) = Case::with_instance(world).await;
    let near = LoadWindow::new(HOUR, Some(instance));
    let row = case.set_scheduled("a", NOW).await;
    let soon = row.due.after(HOUR / 2);
    let skips = NextOccurrence::new(false, 0, soon);
    let skips = Plan::new(row.version, row.due, soon, skips);
    let report = case
        .fire_as(fire(vec![row.version], vec![skips], near))
        .await;
    assert_eq!((report.fired, report.next), (vec![], vec![]));
    let [later] = report.later[..] else {
        panic!("{:?}", report.later)
    };
    assert!(later.version > row.version && later.due == soon && later.loaded);
    let known = Scheduled::new(later.version, soon, SCHEDULE.into());
    assert_eq!(report.scheduled, [known], "the instance has loaded it");
    let stored = case.get("a").await.expect("it waits");
    assert_eq!((stored.due, stored.deadline), (soon, soon));

    let row = case.set_scheduled("gone", NOW).await;
    let mut request = fire(vec![row.version], vec![plan(row.version)], near);
    request.lease = None;
    let report = case.fire_as(request).await;
    assert_eq!((report.fired.len(), report.next.len()), (1, 1));
    assert_eq!(case.list(State::InFlight).await, []);

    for missed in [Missed::FireAll, Missed::FireOnce, Missed::Skip] {
        case.fired("held").await;
        let row = case.set_scheduled("held", NOW).await;
        let until = row.due.after(HOUR / 2);
        let next = NextOccurrence::new(true, 0, until.after(HOUR));
        let held = Plan::new(row.version, row.due, until, next);
        let mut request = fire(vec![row.version], vec![held], near);
        (request.missed, request.no_overlap) = (missed, true);
        let report = case.fire_as(request).await;
        assert_eq!((report.fired, report.next), (vec![], vec![]), "{missed:?}");
        let later = report.later[0];
        assert!(later.version > row.version && later.due == until && later.loaded);
        let deadline = if missed == Missed::Skip {
            until
        } else {
            row.due
        };
        let known = Scheduled::new(later.version, deadline, SCHEDULE.into());
        assert_eq!(report.scheduled, [known], "{missed:?}");
        let stored = case.get("held").await.expect("it waits");
        assert_eq!(
            (stored.due, stored.deadline),
            (until, deadline),
            "{missed:?}"
        );
        assert_eq!(stored.schedule.as_deref(), Some(SCHEDULE));
    }
}

/// A fire that comes upon a row with a schedule that no instance has loaded loads it.
pub async fn loads_scheduled_rows_that_it_comes_upon<T: Stores>(world: &World<T>) {
    let (case, instance) = Case::with_instance(world).await;
    let row = case.set_scheduled("a", NOW).await;
    let dead = InstanceId(instance.0 + 1_000_000);
    for (loader, is_loaded) in [(None, false), (Some(dead), false), (Some(instance), true)] {
        let mut request = fire(vec![], vec![], LoadWindow::new(HOUR, loader));
        request.unloaded = 2;
        let report = case.fire_as(request).await;
        assert_eq!(report.fired, []);
        assert_eq!(report.later, [Armed::new(row.version, row.due, is_loaded)]);
        let known = Scheduled::new(row.version, row.due, SCHEDULE.into());
        let expected = if is_loaded { vec![known] } else { vec![] };
        assert_eq!(report.scheduled, expected);
        let stored = case.get("a").await.expect("it waits");
        assert_eq!(stored.loaded_by, loader.filter(|_| is_loaded));
    }
    let mut request = fire(vec![], vec![], LoadWindow::new(HOUR, Some(instance)));
    request.unloaded = 2;
    assert_eq!(case.fire_as(request).await.later, [], "it is loaded");
    let report = fire(vec![row.version], vec![plan(row.version)], UNLOADED);
    assert_eq!(case.fire_as(report).await.fired.len(), 1);
}

/// Rows with schedules that an instance does not know are left to others, and are in the way of no
/// other row.
pub async fn leaves_unknown_schedules_to_others<T: Stores>(world: &World<T>) {
    let (case, instance) = Case::with_instance(world).await;
    let past = |micros| Due::At(StoreTime::from_micros(micros));
    let keys: Vec<_> = (0..40).map(|number| format!("unknown {number}")).collect();
    let unknown = keys.iter().zip(1..);
    let unknown = unknown.map(|(key, micros)| scheduled(key, past(micros), "unknown UTC"));
    case.write(unknown.collect()).await;
    let batch = vec![
        set("once", "", past(100)),
        scheduled("known", past(101), SCHEDULE),
        set("last", "", past(102)),
    ];
    let written = case.write(batch).await;
    let rows: Vec<_> = written.iter().map(|row| armed(row).0).collect();
    let all_but = Schedules::AllBut(vec!["another UTC".into(), "unknown UTC".into()]);
    for (schedules, expected) in [
        (all_but, vec![rows[0], rows[1], rows[2]]),
        (Schedules::None, vec![rows[0], rows[2]]),
    ] {
        let mut request = Load::new(instance, HOUR, 2, HOUR);
        request.schedules = schedules.clone();
        let loaded = case.store.load(&case.space, request.clone()).await;
        let loaded = loaded.expect("it loads");
        let expected: Vec<_> = expected.iter().map(|row| (row.version, row.due)).collect();
        assert_eq!(loaded.rows, expected[..2], "{schedules:?}");
        assert_eq!(loaded.more, expected.len() > 2, "{schedules:?}");
        let loaded = case.store.load(&case.space, request).await;
        assert_eq!(
            loaded.expect("it loads").rows,
            expected[2..],
            "{schedules:?}"
        );
        case.store
            .unmark(
                &case.space,
                instance,
                rows.iter().map(|row| row.version).collect(),
            )
            .await
            .expect("it unmarks");
    }
    let fire_some = async |unloaded, schedules| {
        let mut request = fire(vec![], vec![], LoadWindow::new(HOUR, Some(instance)));
        (request.unloaded, request.schedules) = (unloaded, schedules);
        case.fire_as(request).await
    };
    let report = fire_some(1, Schedules::None).await;
    assert_eq!(report.fired[0].key, b"once");
    assert!(report.more);
    let report = fire_some(5, Schedules::None).await;
    assert_eq!(
        (report.fired[0].key.as_slice(), report.later),
        (&b"last"[..], vec![])
    );
    assert!(!report.more);
    let report = fire_some(5, Schedules::AllBut(vec!["unknown UTC".into()])).await;
    assert_eq!(report.later.len(), 1);
    assert_eq!(report.scheduled[0].version, rows[1].version);

    // They are for an instance that knows them.
    let loaded = case.load(instance, HOUR, 100).await;
    assert_eq!(loaded.scheduled.len(), 40);
    assert!(
        loaded
            .scheduled
            .iter()
            .all(|row| row.schedule == "unknown UTC")
    );
    assert_eq!(loaded.rows.len(), 40);
}

/// Setting a row to the schedule that it has replaces its value, and leaves its time.
pub async fn keeps_the_time_of_the_same_schedule<T: Stores>(world: &World<T>) {
    let (case, instance) = Case::with_instance(world).await;
    let first = case.set_scheduled("a", NOW).await;
    let again = write(
        "a",
        Action::set_scheduled(b"new".to_vec(), FAR, SCHEDULE.into()),
    );
    let near = LoadWindow::new(HOUR, Some(instance));
    let written = case.write_near(vec![again], near).await;
    let (row, replaced) = armed(&written[0]);
    assert_eq!(
        (row.due, row.loaded),
        (first.due, true),
        "it is due, and loaded"
    );
    assert!(replaced == Some(first.version) && row.version > first.version);
    let stored = case.get("a").await.expect("it waits");
    assert_eq!((stored.due, stored.deadline), (first.due, first.due));
    assert_eq!(
        (stored.value.as_slice(), stored.loaded_by),
        (&b"new"[..], Some(instance))
    );

    // Moved, it keeps the schedule, and the time that it was moved to.
    let moved = case.write(vec![write("a", Action::move_to(FAR))]).await;
    let (moved, _) = armed(&moved[0]);
    let again = case.write(vec![scheduled("a", NOW, SCHEDULE)]).await;
    assert_eq!(armed(&again[0]).0.due, moved.due);

    // Another schedule has another time.
    let other = case.write(vec![scheduled("a", NOW, "another UTC")]).await;
    assert!(armed(&other[0]).0.due < moved.due);
    let stored = case.get("a").await.expect("it waits");
    assert_eq!(stored.schedule.as_deref(), Some("another UTC"));
    let listed = case.list(State::Waiting).await;
    assert_eq!(listed, vec![stored]);

    // Set without one, it stops repeating; and the other way round it has no time to keep.
    let absent = Action::set(vec![], NOW, None, true);
    let absent = case.write(vec![write("a", absent)]).await;
    assert_eq!(absent, [WriteOutcome::Present]);
    let plain = case.set("a", FAR).await;
    assert_eq!(case.get("a").await.expect("it waits").schedule, None);
    let again = case.set_scheduled("a", NOW).await;
    assert!(again.due < plain.due);
    let batch = vec![
        write("a", Action::Remove),
        scheduled("a", FAR, SCHEDULE),
        scheduled("a", NOW, SCHEDULE),
    ];
    let written = case.write(batch).await;
    let removed = WriteOutcome::removed(again.version, b"a".to_vec());
    assert_eq!(written[0], removed);
    assert_eq!(armed(&written[1]).0.due, armed(&written[2]).0.due);
    assert_eq!(case.purge().await, 1);
    assert_eq!(case.get("a").await, None);
}
