//! Replays what fuzzing the keyed interface found worth keeping, and a few scripts written by hand.
//!
//! `cargo fuzz run keyed` plays such scripts; the interpreter is the one of `model`.

use std::path::Path;

use super::model::{bytes, script};

fn play_bytes(bytes: &[u8]) {
    let (setup, script) = bytes::decode(bytes);
    script::run(&setup, &script);
}

#[test]
fn plays_every_script_of_the_corpus() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let corpus = fuzz.join("corpus/keyed").read_dir().expect("a corpus");
    let mut played = 0;
    for script in corpus {
        let path = script.expect("a file").path();
        println!("{}", path.display());
        play_bytes(&std::fs::read(&path).expect("readable"));
        played += 1;
    }
    assert!(played > 0, "the corpus is empty");
}

#[test]
fn plays_any_bytes_as_a_script() {
    play_bytes(&[]);
    for byte in 0..=u8::MAX {
        play_bytes(&[byte; 40]);
        let bytes: Vec<u8> = (0..200_u8)
            .map(|n| n.wrapping_mul(byte) ^ byte >> 3)
            .collect();
        play_bytes(&bytes);
    }
}

/// A script that is decoded as nothing would let every test of it pass.
#[test]
fn has_every_kind_of_step_in_the_corpus() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let mut kinds = std::collections::BTreeSet::new();
    for script in fuzz.join("corpus/keyed").read_dir().expect("a corpus") {
        let bytes = std::fs::read(script.expect("a file").path()).expect("readable");
        for op in bytes::decode(&bytes).1 {
            let name = format!("{op:?}");
            let end = name.find('(').unwrap_or(name.len());
            kinds.insert(name[..end].to_owned());
        }
    }
    assert_eq!(kinds.len(), 21, "{kinds:?}");
}
