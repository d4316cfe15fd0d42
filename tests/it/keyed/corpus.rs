//! Replays the fuzzer's corpus for keyed timers, and scripts that are made here.
//!
//! `cargo fuzz run keyed` plays such scripts; the interpreter is the one of `model`.

#[path = "../../../src/wheel/tests/corpus.rs"]
mod scripts;

use std::collections::BTreeSet;

use super::model::{bytes, script};
use scripts::{play_any_bytes, play_corpus};

fn play_bytes(bytes: &[u8]) {
    let (setup, script) = bytes::decode(bytes);
    script::run(&setup, &script);
}

#[test]
fn plays_every_script_of_the_corpus() {
    play_corpus("keyed", play_bytes);
}

#[test]
fn plays_any_bytes_as_a_script() {
    play_any_bytes(play_bytes);
}

/// A corpus of scripts that decode to few steps would prove little.
#[test]
fn has_every_kind_of_step_in_the_corpus() {
    let mut kinds = BTreeSet::new();
    for script in scripts::scripts("keyed").expect("a corpus") {
        for op in bytes::decode(&script).1 {
            let name = format!("{op:?}");
            let end = name.find('(').unwrap_or(name.len());
            kinds.insert(name[..end].to_owned());
        }
    }
    assert_eq!(kinds.len(), 21, "{kinds:?}");
}
