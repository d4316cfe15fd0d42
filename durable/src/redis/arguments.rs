//! Arguments that several calls send, as the scripts take them.

use ::redis::Cmd;

use crate::store::{Schedules, Terms, Version, micros};

/// A version as the server has it: as a string of digits, of which there are always as many.
pub(super) fn digits(version: Version) -> String {
    version.0.to_string()
}

/// The window, and the instance that loads what comes due in it.
pub(super) fn near_arguments(command: &mut Cmd, near: Terms) {
    let loader = near.loader.map(|loader| loader.0.to_string());
    command
        .arg(micros(near.window))
        .arg(loader.unwrap_or_default());
}

/// The schedules that an instance does not know, as the scripts take them.
pub(super) fn unknown_argument(schedules: &Schedules) -> String {
    match schedules {
        Schedules::None => "*".to_owned(),
        Schedules::AllBut(unknown) => unknown.join("\n"),
    }
}

/// A limit as the server takes it.
pub(super) fn limit_argument(limit: usize) -> u32 {
    u32::try_from(limit).unwrap_or(u32::MAX)
}
