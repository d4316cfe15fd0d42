//! Plays arbitrary bytes as a script on the wheel and on a sorted set beside it.
//!
//! The interpreter is the one of the unit tests, which replay `fuzz/corpus/wheel`: a script that fails here is put
//! there once it is mended.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tickwheel::wheel::{REFILE_LIMIT, Token, Wheel};

#[allow(dead_code)] // the property tests need more of it
#[path = "../../src/wheel/tests/script.rs"]
mod script;

fn inspect<T>(wheel: &Wheel<T>) {
    wheel.assert_invariants();
}

fuzz_target!(|bytes: &[u8]| script::play_bytes(bytes));
