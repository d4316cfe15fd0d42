//! The pages. Every text goes through the template, which escapes it.

mod frame;
mod list;
mod overview;
mod rows;

pub(super) use frame::{Frame, confirm, login, message, told};
pub(super) use list::{ListPage, list, timers};
pub(super) use overview::{BARS, LATE, Overview, Summary, WINDOWS, home, overview};

/// A key, value or error in a table has at most so many characters.
const CELL: usize = 120;
