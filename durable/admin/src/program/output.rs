//! Tables for people, JSON for scripts.

use std::io::Write as _;

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{ContentArrangement, Table};
use serde_json::Value;

use crate::failure::Failure;
use crate::shown::visible;

/// A line that is not read by a terminal has this many columns at most.
const WIDTH: u16 = 160;

/// A table with these columns, as wide as the terminal.
pub(super) fn table(columns: &[&str]) -> Table {
    let mut table = Table::new();
    let (_, width) = console::Term::stdout().size_checked().unwrap_or((0, WIDTH));
    table
        .load_preset(UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width)
        .set_header(columns);
    table
}

/// Prints a line, or several.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{text}")?;
    Ok(output.flush()?)
}

/// Prints a record on one line.
pub(super) fn print_json(record: &Value) -> Result<(), Failure> {
    let code = |c: char| {
        let mut units = [0; 2];
        let units = c.encode_utf16(&mut units).iter();
        let codes = units.map(|unit| format!("\\u{unit:04x}"));
        codes.collect::<Vec<_>>().concat()
    };
    print(&visible(record.to_string().chars(), code))
}
