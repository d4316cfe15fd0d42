//! Rows that repeat by a schedule: only instances know its times.

use tickwheel_durable::store::{
    Action, Due, Fire, Load, Schedules, Store, StoreTime, Terms, Write,
};

use super::{Case, HOUR, set, versions_of, write};
use crate::world::{Stores, World};

/// A schedule. Stores keep it without reading it.
const SCHEDULE: &str = "0 9 * * MON-FRI Europe/Berlin";

fn scheduled(key: &str, due: Due, schedule: &str) -> Write {
    write(key, Action::set_scheduled(key.into(), due, schedule.into()))
}

/// Rows with schedules that an instance does not know are left to others, and are in the way of no
/// other row.
pub async fn leaves_unknown_schedules_to_others<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let instance = case.instance().await;
    case.load(instance, HOUR, 0).await;
    let past = |micros| Due::At(StoreTime::from_micros(micros));
    let keys: Vec<_> = (0..40).map(|number| format!("unknown {number}")).collect();
    let unknown = keys.iter().zip(1..);
    let unknown = unknown.map(|(key, micros)| scheduled(key, past(micros), "unknown UTC"));
    case.write(unknown.collect()).await;
    let batch = [
        set("once", "", past(100)),
        scheduled("known", past(101), SCHEDULE),
        set("last", "", past(102)),
    ];
    let rows = case.set_all(batch).await;
    let all_but = Schedules::AllBut(vec!["another UTC".into(), "unknown UTC".into()]);
    for (schedules, expected) in [
        (all_but, vec![rows[0], rows[1], rows[2]]),
        (Schedules::None, vec![rows[0], rows[2]]),
    ] {
        let mut request = Load::new(instance, HOUR, 2, HOUR);
        request.schedules = schedules.clone();
        let loaded = case.load_as(request.clone()).await;
        let expected: Vec<_> = expected.iter().map(|row| (row.version, row.due)).collect();
        assert_eq!(loaded.rows, expected[..2], "{schedules:?}");
        assert_eq!(loaded.more, expected.len() > 2, "{schedules:?}");
        let loaded = case.load_as(request).await;
        assert_eq!(loaded.rows, expected[2..], "{schedules:?}");
        let unmarked = (case.store).unmark(&case.space, instance, versions_of(&rows));
        unmarked.await.expect("it unmarks");
    }
    let fire_some = async |unloaded, schedules| {
        let terms = Terms::new(HOUR, Some(instance));
        let mut request = Fire::new(vec![], Some(HOUR), terms);
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
