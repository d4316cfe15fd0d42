//! Plays byte scripts: those of a fuzzer's corpus, and some that are made here. The tests of keyed
//! timers include this file too.

use std::path::Path;

/// The scripts of the corpus `name`; `None` in the published package, which has no corpus.
pub(crate) fn scripts(name: &str) -> Option<Vec<Vec<u8>>> {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    if !fuzz.join("Cargo.toml").exists() {
        return None;
    }
    let corpus = fuzz.join("corpus").join(name).read_dir();
    let read = |path: &Path| std::fs::read(path).expect("readable");
    let scripts: Vec<_> = (corpus.expect("a corpus"))
        .map(|script| read(&script.expect("a file").path()))
        .collect();
    assert!(!scripts.is_empty(), "the corpus is empty");
    Some(scripts)
}

/// Plays every script of the corpus `name`. One that fails is printed.
pub(crate) fn play_corpus(name: &str, play: impl Fn(&[u8])) {
    for script in scripts(name).into_iter().flatten() {
        println!("{script:?}");
        play(&script);
    }
}

/// Plays scripts that are not made for the interpreter.
pub(crate) fn play_any_bytes(play: impl Fn(&[u8])) {
    play(&[]);
    for byte in 0..=u8::MAX {
        play(&[byte; 40]);
        let bytes: Vec<u8> = (0..200_u8)
            .map(|n| n.wrapping_mul(byte) ^ byte >> 3)
            .collect();
        play(&bytes);
    }
}
