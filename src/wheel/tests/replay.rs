//! Replays what fuzzing found worth keeping, and a few scripts written by hand.

use std::path::Path;

use super::script::play_bytes;

#[test]
fn plays_every_script_of_the_corpus() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    if !fuzz.join("Cargo.toml").exists() {
        return; // the published package comes without it
    }
    let corpus = fuzz.join("corpus/wheel").read_dir().expect("a corpus");
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
