//! Replays the fuzzer's corpus for the wheel, and scripts that are made here.

use super::corpus::{play_any_bytes, play_corpus};
use super::script::play_bytes;

#[test]
fn replays_every_script_of_the_corpus() {
    play_corpus("wheel", play_bytes);
}

#[test]
fn replays_any_bytes_as_a_script() {
    play_any_bytes(play_bytes);
}
