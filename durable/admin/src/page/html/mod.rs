//! The pages. Every text goes through the template, which escapes it.

mod frame;
mod list;
mod overview;
mod rows;

#[cfg(feature = "program")]
pub(crate) use frame::login;
pub(super) use frame::{Frame, capital, confirm, job, message};
pub(super) use list::{list, timers};
pub(super) use overview::{BARS, Overview, WINDOWS, home, overview};

/// A key, value or error in a table has at most this many characters.
const CELL: usize = 120;
