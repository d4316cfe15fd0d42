//! What there is to say of a timer and of an instance, for the program and the page.

use humantime::format_duration;
use tickwheel_durable::store::{State, StoreTime, Stored, StoredInstance};

use crate::clock::{from_now, goes_on};
use crate::shown::{separated, text_line, whole};

/// A name of an instance has at most this many characters.
const NAME: usize = 60;

pub(crate) const STATES: [State; 3] = [State::Waiting, State::InFlight, State::Dead];

pub(crate) fn state_text(state: State) -> &'static str {
    match state {
        State::Waiting => "waiting",
        State::InFlight => "in flight",
        State::Dead => "dead",
        _ => "unknown",
    }
}

/// The state in addresses and records.
pub(crate) fn state_name(state: State) -> String {
    state_text(state).replace(' ', "_")
}

/// The label of the `due` of rows in this state.
pub(crate) fn due_name(state: State) -> &'static str {
    match state {
        State::InFlight => "lease ends",
        State::Dead => "died",
        _ => "due",
    }
}

/// Everything about a timer but its key: what has more than a line comes last.
pub(crate) fn details(row: &Stored, now: StoreTime) -> Vec<(&'static str, String)> {
    let at = |time: StoreTime| {
        if time.is_never() {
            "never".to_owned()
        } else {
            format!("{} ({time})", from_now(time, now))
        }
    };
    let mut details = vec![
        ("deadline", at(row.deadline)),
        (due_name(row.state), at(row.due)),
        ("attempt", row.attempt.to_string()),
    ];
    if row.state != State::Waiting {
        details.push(("token", row.version.0.to_string()));
    }
    let period = |period| ("every", format_duration(period).to_string());
    details.extend(row.period.map(period));
    details.extend((row.schedule.as_ref()).map(|schedule| ("every", whole(schedule.as_bytes()))));
    details.extend(row.claimed_by.map(|id| ("claimed by", id.0.to_string())));
    details.extend(row.loaded_by.map(|id| {
        let what = if id.is_left() {
            "left to others by"
        } else {
            "on the wheel of"
        };
        (what, id.0.unsigned_abs().to_string())
    }));
    if let Some(error) = &row.error {
        details.push(("last error", whole(error.as_bytes())));
    }
    details.push(("value", whole(&row.value)));
    details
}

/// The columns of instances.
pub(crate) const INSTANCE: [&str; 5] = ["name", "instance", "alive", "loaded", "lacks"];

pub(crate) fn instance_cells(instance: &StoredInstance, now: StoreTime) -> [String; 5] {
    [
        text_line(instance.name.as_deref().unwrap_or("-"), NAME),
        instance.id.0.to_string(),
        goes_on(instance.alive_until, now),
        separated(instance.loaded),
        separated(instance.lacks),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tickwheel_durable::store::{InstanceId, Version};

    use super::*;

    fn row(state: State) -> Stored {
        let (key, value) = (b"a".to_vec(), b"1".to_vec());
        Stored::new(Version(17), state, key, value, StoreTime::default())
    }

    #[test]
    fn instance_is_shown_with_what_it_has_and_what_it_lacks() {
        let now = StoreTime::from_micros(1_000_000);
        let mut instance = StoredInstance::new(InstanceId(5), now);
        (instance.loaded, instance.lacks) = (1_003, 7);
        let [name, id, _, loaded, lacks] = instance_cells(&instance, now);
        assert_eq!([&*name, &id, &loaded, &lacks], ["-", "5", "1,003", "7"]);
    }

    #[test]
    fn period_is_shown_to_the_second() {
        let mut row = row(State::Waiting);
        row.period = Some(Duration::from_secs(3_630));
        assert!(details(&row, row.due).contains(&("every", "1h 30s".to_owned())));
    }

    /// Another program may have written one that moves the cursor of a terminal.
    #[test]
    fn schedule_hides_nothing() {
        let mut row = row(State::Waiting);
        row.schedule = Some("@daily\u{1b}[2J".to_owned());
        let shown = "@daily\\u{1b}[2J".to_owned();
        assert!(details(&row, row.due).contains(&("every", shown)));
    }

    #[test]
    fn timer_is_on_the_wheel_of_its_instance_or_left_by_it() {
        for (id, label) in [(5, "on the wheel of"), (-5, "left to others by")] {
            let mut row = row(State::Waiting);
            row.loaded_by = Some(InstanceId(id));
            let shown = details(&row, row.due);
            assert!(shown.contains(&(label, "5".to_owned())), "{shown:?}");
        }
    }

    /// A timer that waits for its next attempt has failed, too.
    #[test]
    fn last_error_is_shown_in_each_state() {
        for state in STATES {
            let mut row = row(state);
            row.error = Some("no route".to_owned());
            let shown = details(&row, row.due);
            let error = ("last error", "no route".to_owned());
            assert!(shown.contains(&error), "{state:?}: {shown:?}");
        }
    }

    #[test]
    fn token_is_shown_of_what_can_be_chosen_by_it() {
        for (state, has_token) in [
            (State::Waiting, false),
            (State::InFlight, true),
            (State::Dead, true),
        ] {
            let shown = details(&row(state), StoreTime::default());
            let is_shown = shown.contains(&("token", "17".to_owned()));
            assert_eq!(is_shown, has_token, "{state:?}");
        }
    }
}
