//! Plays arbitrary bytes as a script on the keyed interface, under the paused clock, and on a
//! sorted map beside it.
//!
//! The interpreter is the one of `tests/it/keyed/model`, and `tests/it/keyed/corpus.rs` replays
//! `fuzz/corpus/keyed`. Add a script that fails here to that corpus once the bug is fixed.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/it/keyed/model/bytes.rs"]
mod bytes;
#[path = "../../tests/it/keyed/model/flood.rs"]
mod flood;
#[allow(dead_code)] // the distribution is for random scripts
#[path = "../../tests/it/keyed/model/ops.rs"]
mod ops;
#[path = "../../tests/it/keyed/model/oracle.rs"]
mod oracle;
#[path = "../../tests/it/keyed/model/script.rs"]
mod script;
#[allow(dead_code)] // the distribution is for random scripts
#[path = "."] // the paths below begin in this folder
mod support {
    #[path = "../../tests/it/support/script_time.rs"]
    pub(crate) mod script_time;
}

fuzz_target!(|bytes: &[u8]| {
    let (setup, script) = bytes::decode(bytes);
    script::run(&setup, &script);
});
