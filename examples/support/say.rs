//! Output to a reader that may have gone, and the arguments of examples that take none.

/// Writes a line like `println!`, but does not panic if the reader has gone, as in
/// `example | head -1`.
macro_rules! say {
    ($($line:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($line)*);
    }};
}

/// Ends the program if it has arguments: it prints what it does for `--help`, and refuses every
/// other one.
#[allow(dead_code)] // servers have options
pub(crate) fn takes_no_arguments(about: &str) {
    let name = env!("CARGO_CRATE_NAME");
    let Some(argument) = std::env::args_os().nth(1) else {
        return;
    };
    if argument == "--help" || argument == "-h" {
        say!("{about}, as an example of tickwheel.\n\nUsage: {name}\n\nIt takes no arguments.");
        std::process::exit(0);
    }
    eprintln!("{name}: unexpected argument {argument:?}; usage: {name}");
    std::process::exit(2);
}
