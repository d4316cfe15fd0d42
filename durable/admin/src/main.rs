//! The program. The README says what it does.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    tickwheel_admin::program::main()
}
