//! Output to a reader that may have gone.

/// Writes a line like `println!`, but does not panic if the reader has gone, as in `example | head -1`.
macro_rules! say {
    ($($line:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($line)*);
    }};
}
