//! Plays arbitrary bytes as a script of near timers among floods of far ones, and on a sorted map
//! beside it.
//!
//! The interpreter is the one of `tests/it/keyed/floods`.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/it/keyed/floods/script.rs"]
mod script;

/// The most steps of a script: a flood takes a millisecond.
const MOST_STEPS: usize = 100;

fuzz_target!(|bytes: &[u8]| {
    let steps = bytes.chunks_exact(4).take(MOST_STEPS);
    let step = |step: &[u8]| script::decode([step[0], step[1], step[2], step[3]]);
    let script: Vec<_> = steps.map(step).collect();
    script::run(&script, script::Reader::Prompt);
    script::run(&script, script::Reader::Slow);
});
