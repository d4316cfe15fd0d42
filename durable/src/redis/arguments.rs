//! What calls send, as the scripts take it.

use std::time::Duration;

use ::redis::Cmd;

use crate::store::{
    Action, DeadRows, Due, LoadWindow, NextOccurrence, Plan, Schedules, Settle, Settlement, State,
    StoreTime, Version, Write, micros,
};

/// A duration as the scripts take it, which is never at most.
pub(super) fn span(duration: Duration) -> i64 {
    micros(duration).min(StoreTime::NEVER.as_micros())
}

/// A version as the server has it: as a string of digits, of which there are always as many.
pub(super) fn digits(version: Version) -> String {
    version.0.to_string()
}

/// The window, and the instance that loads what comes due in it.
pub(super) fn near_arguments(command: &mut Cmd, near: LoadWindow) {
    let loader = near.loader.map(|loader| loader.0.to_string());
    command
        .arg(span(near.window))
        .arg(loader.unwrap_or_default());
}

/// A number as the scripts pack it. All they pack are below 2^53.
#[expect(clippy::cast_precision_loss, reason = "doubles hold it exactly")]
fn packed(number: i64) -> [u8; 8] {
    (number as f64).to_le_bytes()
}

/// What a write does, packed as `write.lua` takes it, without key and value.
fn write_head(action: &Action) -> Vec<u8> {
    let (op, due, period) = match *action {
        Action::Set {
            due,
            period,
            ref schedule,
            if_absent,
            ..
        } => {
            let period = match schedule {
                Some(_) => -1,
                None => period.map_or(0, span),
            };
            (if if_absent { b'a' } else { b's' }, Some(due), period)
        }
        Action::Move { due } => (b'm', Some(due), 0),
        Action::Remove => (b'r', None, 0),
    };
    let (base, due) = match due {
        Some(Due::In(delay)) => (b'+', span(delay)),
        Some(Due::At(time)) => (b'@', time.as_micros()),
        None => (b'@', 0),
    };
    let mut head = vec![op, base];
    head.extend(packed(due));
    head.extend(packed(period));
    head
}

pub(super) fn write_arguments(command: &mut Cmd, writes: &[Write]) {
    let heads = writes.iter().flat_map(|write| write_head(&write.action));
    command.arg(heads.collect::<Vec<u8>>());
    for write in writes {
        command.arg(&write.key);
    }
    for write in writes {
        if let Action::Set {
            value, schedule, ..
        } = &write.action
        {
            command.arg(value);
            if let Some(schedule) = schedule {
                command.arg(schedule);
            }
        }
    }
}

/// The claims, which of them are not acknowledged but settled otherwise, and how, as `settle.lua` takes it.
pub(super) fn settle_arguments(command: &mut Cmd, settles: &[Settle]) {
    let mut errors = 0;
    let otherwise = settles.iter().enumerate().filter_map(|(at, settle)| {
        let (settlement, delay) = match settle.settlement {
            Settlement::Ack => return None,
            Settlement::Extend(lease) => ("extend", lease),
            Settlement::RetryAfter(delay) => ("again", delay),
            Settlement::Release => ("release", Duration::ZERO),
            Settlement::Unfire => ("unfire", Duration::ZERO),
            Settlement::Dead => ("die", Duration::ZERO),
        };
        errors += usize::from(settle.error.is_some());
        let error = settle.error.as_ref().map_or(0, |_| errors);
        Some(format!("{at} {settlement} {} {error}", span(delay)))
    });
    command.arg(otherwise.collect::<Vec<_>>().join(" "));
    command.arg(settles.len());
    for settle in settles {
        command.arg(digits(settle.token));
    }
    let others = settles
        .iter()
        .filter(|settle| settle.settlement != Settlement::Ack);
    for error in others.filter_map(|settle| settle.error.as_ref()) {
        command.arg(error);
    }
}

/// Tells `bury.lua` which dead rows to change, and how.
pub(super) fn dead_arguments(command: &mut Cmd, op: &str, limit: usize, which: &DeadRows) {
    let unloaded = LoadWindow::new(Duration::ZERO, None);
    near_arguments(command, unloaded);
    command.arg(op).arg(limit_argument(limit));
    match which {
        DeadRows::Token(token) => command.arg("token").arg(digits(*token)),
        DeadRows::Key(key) => command.arg("key").arg(key),
        DeadRows::OlderThan(age) => command.arg("older").arg(span(*age)),
    };
}

/// The schedules that an instance does not know, as the scripts take them.
pub(super) fn unknown_argument(schedules: &Schedules) -> String {
    match schedules {
        Schedules::None => "*".to_owned(),
        Schedules::AllBut(unknown) => unknown.join("\n"),
    }
}

/// How rows with a schedule repeat, as `fire.lua` takes it.
pub(super) fn plans_argument(plans: &[Plan]) -> String {
    let plans = plans.iter().map(|plan| {
        let NextOccurrence { fires, missed, due } = plan.next;
        let missed = if fires {
            i64::try_from(missed).unwrap_or(StoreTime::NEVER.as_micros())
        } else {
            -1
        };
        let [from, until, due] = [plan.from, plan.until, due].map(StoreTime::as_micros);
        let version = digits(plan.version);
        format!("{version} {from} {until} {due} {missed}")
    });
    plans.collect::<Vec<_>>().join(" ")
}

/// A limit as the server takes it.
pub(super) fn limit_argument(limit: usize) -> u32 {
    u32::try_from(limit).unwrap_or(u32::MAX)
}

pub(super) fn state_argument(state: State) -> &'static str {
    match state {
        State::Waiting => "w",
        State::InFlight => "f",
        State::Dead => "d",
    }
}
