//! The records that `--json` prints. A field is never renamed or removed, and is `null` where it
//! means nothing.

use serde_json::{Value, json};
use tickwheel_durable::store::{State, StoreTime, Stored, StoredInstance};

use crate::actions::Outcome;
use crate::details::state_name;
use crate::health::Summary;
use crate::operator::Operator;
use crate::shown::hex;

/// Bytes, as what they seem to be.
fn shown(bytes: &[u8]) -> Value {
    let (encoding, data) = match (
        serde_json::from_slice::<Value>(bytes),
        std::str::from_utf8(bytes),
    ) {
        (Ok(value), _) => ("json", value),
        (_, Ok(text)) => ("text", text.into()),
        (Err(_), Err(_)) => ("hex", hex(bytes).into()),
    };
    json!({ "encoding": encoding, "data": data })
}

/// An instant, as RFC 3339 writes it.
fn time(time: StoreTime) -> Option<String> {
    (!time.is_never()).then(|| time.to_string())
}

pub(super) fn namespaces(summaries: &[Summary]) -> Value {
    let record = |each: &Summary| {
        let counts = each.counts.as_ref();
        json!({
            "namespace": each.operator.namespace.as_str(),
            "codec": each.operator.codec,
            "now": counts.and_then(|counts| time(counts.now)),
            // `ok`, `died`, `late` or `failing`, and why.
            "state": each.health.word,
            "reason": each.health.text,
            "waiting": counts.map(|counts| counts.waiting),
            "in_flight": counts.map(|counts| counts.in_flight),
            "dead": counts.map(|counts| counts.dead),
            "is_estimate": counts.map(|counts| counts.is_estimate),
            "earliest": counts.and_then(|counts| counts.earliest).and_then(time),
            // For how long the earliest has been due; 0 if it is not.
            "overdue_seconds": counts.map(|_| each.overdue().as_secs_f64()),
            "instances": counts.map(|counts| loading(&each.instances, counts.now)),
        })
    };
    json!({ "namespaces": summaries.iter().map(record).collect::<Vec<_>>() })
}

/// Timers, and the argument of `--after` that goes on.
pub(super) fn timers(operator: &Operator, rows: &[Stored], next: Option<&str>) -> Value {
    let timers: Vec<_> = rows.iter().map(timer).collect();
    json!({ "namespace": operator.namespace.as_str(), "timers": timers, "next": next })
}

fn timer(row: &Stored) -> Value {
    let due_if = |state| (row.state == state).then_some(row.due).and_then(time);
    json!({
        "state": state_name(row.state),
        "key": shown(&row.key),
        "key_hex": hex(&row.key),
        "value": shown(&row.value),
        // As data, JSON numbers are rounded to 64 bits.
        "value_hex": hex(&row.value),
        // When it was set to be due.
        "deadline": time(row.deadline),
        "due": due_if(State::Waiting),
        "attempt": row.attempt,
        "period_seconds": row.period.map(|period| period.as_secs_f64()),
        // The cron expression and the zone of a timer that repeats by one.
        "schedule": row.schedule,
        // The instances that have it on their wheel, and that have claimed it.
        "loaded_by": row.loaded_by.filter(|id| !id.is_left()).map(|id| id.0),
        "claimed_by": row.claimed_by.map(|id| id.0),
        // That of its claim, or of its last one if it is dead.
        "token": (row.state != State::Waiting).then_some(row.version.0),
        "lease_until": due_if(State::InFlight),
        "died": due_if(State::Dead),
        "error": row.error,
    })
}

pub(super) fn instances(operator: &Operator, all: &[StoredInstance], now: StoreTime) -> Value {
    let name = operator.namespace.as_str();
    json!({ "namespace": name, "now": now.to_string(), "instances": loading(all, now) })
}

fn loading(all: &[StoredInstance], now: StoreTime) -> Vec<Value> {
    let record = |instance: &StoredInstance| {
        json!({
            "id": instance.id.0,
            "name": instance.name,
            "alive_until": time(instance.alive_until),
            "is_alive": instance.alive_until >= now,
            "loaded": instance.loaded,
            "lacks": instance.lacks,
        })
    };
    all.iter().map(record).collect()
}

/// How many timers were changed, how many were left alone because they are in flight or locked, how
/// many keys and tokens have no such timer and why the first of them have not, and why the change
/// has failed, if it has. A key whose timer is in flight counts in `in_flight` and in `unchanged`.
pub(super) fn changed(operator: &Operator, done: &Outcome) -> Value {
    json!({
        "namespace": operator.namespace.as_str(),
        "changed": done.changed,
        "in_flight": done.in_flight,
        "locked": done.locked,
        // The first ones, and of how many.
        "reasons": done.reasons,
        "unchanged": done.unchanged,
        "error": done.failure.as_ref().map(ToString::to_string),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tickwheel_durable::Counts;
    use tickwheel_durable::store::{InstanceId, Version};

    use super::*;
    use crate::case::Case;
    use crate::health::Health;

    const NOW: StoreTime = StoreTime::from_micros(1_000_000_000);

    fn row(state: State) -> Stored {
        Stored::new(Version(17), state, b"a".to_vec(), b"1".to_vec(), NOW)
    }

    #[test]
    fn bytes_are_what_they_seem_to_be() {
        for (bytes, encoding, data) in [
            (&b"\"order 17\""[..], "json", "order 17"),
            (b"order 17", "text", "order 17"),
            (b"\xff\x01", "hex", "ff01"),
        ] {
            let expected = json!({ "encoding": encoding, "data": data });
            assert_eq!(shown(bytes), expected);
        }
    }

    #[test]
    fn timer_that_is_left_to_others_is_on_no_wheel() {
        let mut row = row(State::Waiting);
        row.loaded_by = Some(InstanceId(5));
        assert_eq!(timer(&row)["loaded_by"], 5);
        row.loaded_by = Some(InstanceId(-5));
        assert_eq!(timer(&row)["loaded_by"], Value::Null);
    }

    #[tokio::test]
    async fn figure_has_the_name_of_what_it_counts() {
        let case = Case::new().await;
        let mut counts = Counts::new(NOW, 3, 1);
        counts.dead = 2;
        let minute = Duration::from_secs(60);
        for (earliest, overdue) in [(NOW.before(minute), 60.0), (NOW.after(minute), 0.0)] {
            counts.earliest = Some(earliest);
            let summary = Summary {
                operator: case.operator.clone(),
                health: Health::new(&counts, &[], false),
                instances: Vec::new(),
                counts: Some(counts.clone()),
            };
            let record = &namespaces(&[summary])["namespaces"][0];
            for (name, figure) in [
                ("waiting", json!(3)),
                ("in_flight", json!(1)),
                ("dead", json!(2)),
                ("overdue_seconds", json!(overdue)),
                ("now", json!(NOW.to_string())),
                ("earliest", json!(earliest.to_string())),
            ] {
                assert_eq!(record[name], figure, "{name}: {record}");
            }
        }
        let instance = |until| StoredInstance::new(InstanceId(1), until);
        let mut both = [instance(NOW), instance(NOW.before(minute))];
        (both[0].loaded, both[0].lacks) = (3, 7);
        let record = instances(&case.operator, &both, NOW);
        let are_alive = [0, 1].map(|number| record["instances"][number]["is_alive"].clone());
        assert_eq!(are_alive, [true, false]);
        let first = &record["instances"][0];
        assert_eq!((&first["loaded"], &first["lacks"]), (&json!(3), &json!(7)));
        // Not all reasons are told.
        let done = Outcome {
            unchanged: 13,
            reasons: vec!["why".to_owned()],
            ..Outcome::default()
        };
        assert_eq!(changed(&case.operator, &done)["unchanged"], 13);
    }

    /// What the store calls due is another thing in each state.
    #[test]
    fn time_of_a_timer_has_the_name_of_what_happens_then() {
        for (state, name) in [
            (State::Waiting, "due"),
            (State::InFlight, "lease_until"),
            (State::Dead, "died"),
        ] {
            let mut row = row(state);
            row.period = Some(Duration::from_secs(90));
            let record = timer(&row);
            for each in ["due", "lease_until", "died"] {
                let expected = (each == name).then(|| NOW.to_string());
                assert_eq!(record[each], json!(expected), "{each}: {record}");
            }
            assert_eq!(record["period_seconds"], 90.0);
        }
    }

    #[test]
    fn value_is_there_digit_by_digit() {
        let value = u128::MAX.to_string().into_bytes();
        let row = Stored::new(
            Version(1),
            State::Waiting,
            b"a".to_vec(),
            value.clone(),
            NOW,
        );
        assert_eq!(timer(&row)["value_hex"], hex(&value));
    }
}
