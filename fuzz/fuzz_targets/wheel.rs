//! Plays arbitrary bytes as a script on the wheel and on a sorted set beside it.
//!
//! The interpreter is the one of the unit tests, which replay `fuzz/corpus/wheel`. Add a script
//! that fails here to that corpus once the bug is fixed.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tickwheel::wheel::{Token, Wheel};

#[allow(dead_code)] // the property tests need more of it
#[path = "../../src/wheel/tests/script.rs"]
mod script;

/// As `Wheel::advance` documents it.
const CASCADE_LIMIT: usize = 4096;

fn inspect<T>(wheel: &Wheel<T>) {
    wheel.assert_invariants();
}

fuzz_target!(|bytes: &[u8]| script::play_bytes(bytes));
