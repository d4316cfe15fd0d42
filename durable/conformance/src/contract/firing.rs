//! Firing.

use std::time::Duration;

use tickwheel_durable::store::{
    Action, Due, Fire, Missed, Settled, Settlement, State, StoreTime, Version,
};

use super::{CLAIMANT, Case, FAR, HOUR, NOW, UNLOADED, armed, repeating, set, versions, write};
use crate::world::{Stores, World};

/// A row fires if its version exists and it is due, in the order asked for, with a new token each.
pub async fn fires_what_is_due_and_exists<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let (a, b, far) = (
        case.set("a", NOW).await,
        case.set("b", NOW).await,
        case.set("far", FAR).await,
    );
    let old = case.set("gone", NOW).await;
    case.set("gone", FAR).await;
    let never = Version(far.version.0 + 1_000_000);
    let asked = vec![
        b.version,
        far.version,
        old.version,
        never,
        a.version,
        b.version,
    ];
    let report = case.fire(asked).await;
    let keys: Vec<_> = report.fired.iter().map(|fired| fired.key.clone()).collect();
    assert_eq!(keys, [b"b".to_vec(), b"a".to_vec()]);
    assert_eq!(report.later, [far]);
    assert_eq!(report.next, []);
    for (fired, row) in report.fired.iter().zip([b, a]) {
        assert!(fired.token > row.version);
        assert_eq!((fired.attempt, fired.missed, fired.repeats), (1, 0, false));
        assert_eq!((fired.deadline, &fired.value), (row.due, &fired.key));
        assert!(fired.deadline <= report.now);
    }
    for row in case.list(State::InFlight).await {
        assert_eq!(
            row.due,
            report.now.after(HOUR),
            "the lease begins when it fires"
        );
        assert_eq!((row.period, row.loaded_by, row.attempt), (None, None, 1));
        assert_eq!(row.claimed_by, Some(CLAIMANT));
    }
    assert_eq!(case.list(State::InFlight).await.len(), 2);
}

/// After the end of its lease a claim is loaded and fires again, under a new token.
pub async fn fires_again_after_the_lease<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let instance = case.instance().await;
    let token = case.fired("a").await;
    assert_eq!(
        versions(&case.load(instance, 2 * HOUR, 10).await),
        [],
        "the lease lasts"
    );
    assert_eq!(case.fire(vec![token]).await.later.len(), 1);
    assert_eq!(
        case.settle(token, Settlement::Extend(Duration::ZERO)).await,
        Settled::Done
    );
    assert_eq!(
        versions(&case.load(instance, Duration::ZERO, 10).await),
        [token]
    );
    let again = case.fire(vec![token]).await;
    let fired = &again.fired[0];
    assert!(fired.token > token);
    assert_eq!((fired.attempt, &fired.value), (2, &b"a".to_vec()));
    assert_eq!(case.settle(token, Settlement::Ack).await, Settled::Lost);
    assert_eq!(
        case.settle(fired.token, Settlement::Ack).await,
        Settled::Done
    );
}

/// A fire takes due rows that no instance has loaded besides the versions that it names: waiting
/// rows and claims whose lease has ended, earliest first, and at most as many as it asks for.
pub async fn fires_what_no_instance_has_loaded<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let asked = async |versions, unloaded| {
        let mut request = Fire::new(versions, Some(HOUR), UNLOADED);
        request.unloaded = unloaded;
        request.missed = Missed::Skip;
        let report = case.fire_as(request).await;
        let keys = report.fired.iter().map(|fired| fired.key.clone());
        let keys: Vec<_> = keys.map(|key| String::from_utf8(key).unwrap()).collect();
        (keys.join(" "), report.more, report.later)
    };
    let nothing = (String::new(), false, Vec::new());
    assert_eq!(asked(vec![], 3).await, nothing);
    case.set("far", FAR).await;
    let mut held = Vec::new();
    for key in ["loaded", "lapsed", "claimed"] {
        held.push(case.set(key, NOW).await.version);
    }
    let instance = case.instance().await;
    assert_eq!(
        versions(&case.load(instance, Duration::ZERO, 1).await),
        held[..1]
    );
    let claims = case.fire(held[1..].to_vec()).await.fired;
    let now = Duration::ZERO;
    assert_eq!(
        case.settle(claims[0].token, Settlement::Extend(now)).await,
        Settled::Done
    );
    let first = case.set("first", Due::At(StoreTime::from_micros(1))).await;
    for key in ["last", "named"] {
        case.set(key, NOW).await;
    }
    let named = case.get("named").await.expect("it waits").version;
    assert_eq!(asked(vec![], 0).await, nothing);
    assert_eq!(
        asked(vec![named], 1).await,
        ("named first".into(), true, vec![])
    );
    assert_eq!(case.fire(vec![first.version]).await.fired, []);
    let (keys, _, later) = asked(vec![], 2).await;
    assert_eq!((keys.as_str(), later), ("lapsed last", vec![]));
    assert_eq!(
        asked(vec![], 2).await,
        nothing,
        "the rest is loaded, claimed or not due"
    );
    assert_eq!(case.fire(held[..1].to_vec()).await.fired.len(), 1);

    // An occurrence that is skipped comes back as the next one.
    let missed = repeating("missed", Due::At(StoreTime::from_micros(1)), HOUR);
    let (missed, _) = armed(&case.write(vec![missed]).await[0]);
    let (keys, _, later) = asked(vec![], 1).await;
    assert_eq!((keys.as_str(), later.len()), ("", 1));
    assert!(later[0].version > missed.version && later[0].due > missed.due);
}

/// The next occurrence of a repeating row waits in the same step, by the rule for what was missed.
pub async fn repeats_in_the_step_that_fires<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    for (missed, fires, count, behind) in [
        (Missed::FireAll, true, 0, 1),
        (Missed::FireOnce, true, 2, 3),
        (Missed::Skip, false, 0, 3),
    ] {
        let now = case.set("clock", NOW).await.due;
        // Two occurrences after it have been missed.
        let deadline = StoreTime::from_micros(now.as_micros() - 9_000_000_000);
        let action = Action::set(b"v".to_vec(), Due::At(deadline), Some(HOUR), false);
        let (row, _) = armed(&case.write(vec![write("a", action)]).await[0]);
        let mut request = Fire::new(vec![row.version], Some(HOUR), UNLOADED);
        request.missed = missed;
        let report = case.fire_as(request).await;
        let next = if fires { &report.next } else { &report.later };
        assert_eq!(
            (report.next.len(), report.later.len()),
            (usize::from(fires), usize::from(!fires))
        );
        assert_eq!(next[0].due, deadline.after(HOUR * behind), "{missed:?}");
        assert!(next[0].version > row.version);
        let fired: Vec<_> = report
            .fired
            .iter()
            .map(|f| (f.deadline, f.missed, f.repeats))
            .collect();
        assert_eq!(
            fired,
            vec![(deadline, count, true); usize::from(fires)],
            "{missed:?}"
        );
        let waiting = case.get("a").await.expect("the next one waits");
        assert_eq!(
            (waiting.version, waiting.state),
            (next[0].version, State::Waiting)
        );
        assert_eq!(
            (waiting.period, waiting.attempt, waiting.deadline),
            (Some(HOUR), 0, next[0].due)
        );
        if let Some(fired) = report.fired.first() {
            assert_eq!(
                case.settle(fired.token, Settlement::Ack).await,
                Settled::Done
            );
        }
        assert!(case.get("a").await.is_some(), "an ack leaves the next one");
    }
}

/// Without a lease what fires is gone, and a repeating one goes on.
pub async fn deletes_what_fires_at_most_once<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let once = case.set("once", NOW).await;
    let action = Action::set(Vec::new(), NOW, Some(HOUR), false);
    let (repeating, _) = armed(&case.write(vec![write("again", action)]).await[0]);
    let report = case
        .fire_as(Fire::new(
            vec![once.version, repeating.version],
            None,
            UNLOADED,
        ))
        .await;
    assert_eq!((report.fired.len(), report.next.len()), (2, 1));
    assert_eq!(case.list(State::InFlight).await, []);
    assert_eq!(case.get("once").await, None);
    let waiting = case.get("again").await.expect("it waits");
    assert_eq!(waiting.version, report.next[0].version);
    assert_eq!(
        case.settle(report.fired[0].token, Settlement::Ack).await,
        Settled::Lost
    );
}

/// With `no_overlap` a repeating row does not fire while its key has a row in flight. It waits
/// until the next time of its schedule, with the deadline that its rule for missed occurrences
/// says.
pub async fn holds_back_repeating_rows_that_overlap<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let fire = async |version, missed| {
        let mut request = Fire::new(vec![version], Some(HOUR), UNLOADED);
        (request.missed, request.no_overlap) = (missed, true);
        case.fire_as(request).await
    };
    for missed in [Missed::FireAll, Missed::FireOnce, Missed::Skip] {
        let now = case.set("clock", NOW).await.due;
        // Two and a half periods ago.
        let deadline = StoreTime::from_micros(now.as_micros() - 9_000_000_000);
        let written = case.write(vec![repeating("a", Due::At(deadline), HOUR)]);
        let (row, _) = armed(&written.await[0]);
        let report = fire(row.version, Missed::FireAll).await;
        let (token, next) = (report.fired[0].token, report.next[0]);
        assert_eq!(next.due, deadline.after(HOUR), "it is due too");

        let report = fire(next.version, missed).await;
        assert_eq!((report.fired, report.next), (vec![], vec![]), "{missed:?}");
        let held = report.later[0];
        assert_eq!(held.due, deadline.after(3 * HOUR), "the next time");
        assert!(held.version > next.version);
        let stored = case.get("a").await.expect("it waits");
        let kept = match missed {
            Missed::Skip => held.due,
            _ => next.due,
        };
        let seen = (stored.version, stored.due, stored.deadline);
        assert_eq!(seen, (held.version, held.due, kept), "{missed:?}");
        let seen = (stored.state, stored.period, stored.attempt);
        assert_eq!(seen, (State::Waiting, Some(HOUR), 0));
        assert_eq!(fire(next.version, missed).await.later, []);

        // It is not due before, whether one is in flight or not.
        assert_eq!(fire(held.version, missed).await.later, [held]);
        let acked = case.settle(token, Settlement::Ack).await;
        assert_eq!(acked, Settled::Done);
        assert_eq!(fire(held.version, missed).await.later, [held]);
        assert_eq!(
            case.fire_besides(vec![], 9).await.fired.len(),
            1,
            "the clock"
        );
    }

    // One that does not repeat is not held back, nor is one that has none of its key in flight.
    case.fired("b").await;
    let row = case.set("b", NOW).await;
    let fired = fire(row.version, Missed::FireOnce).await.fired;
    assert_eq!(fired.len(), 1);
    let written = case.write(vec![repeating("c", NOW, HOUR)]).await;
    let (row, _) = armed(&written[0]);
    let fired = fire(row.version, Missed::Skip).await.fired;
    assert_eq!(fired.len(), 1);

    // Rows that no instance has loaded are held back as well, and are in no other's way.
    let past = |micros| Due::At(StoreTime::from_micros(micros));
    let batch = vec![repeating("c", past(1), HOUR), set("d", "", past(2))];
    case.write(batch).await;
    let mut request = Fire::new(Vec::new(), Some(HOUR), UNLOADED);
    (request.unloaded, request.no_overlap) = (1, true);
    let report = case.fire_as(request.clone()).await;
    assert_eq!((report.fired.len(), report.later.len()), (0, 1));
    let fired = case.fire_as(request).await.fired;
    assert_eq!((fired.len(), fired[0].key.as_slice()), (1, &b"d"[..]));
}
