//! Whether the clock of this build can be paused.
//!
//! It can if Tokio is built with its feature `test-util`, which another crate's development
//! dependencies may have switched on. Tokio does not say whether they have, but `tokio::time` has a
//! function `pause` only then. A name that a glob imports into a block hides the one outside the
//! block, so `pause` below is Tokio's where there is one, and else ours.

// Which of the two is used depends on the build.
#![allow(dead_code, unused_imports, clippy::wildcard_imports)]

/// The type that `pause` returns says whether it is Tokio's.
trait Answer {
    const IS_TOKIOS: bool;
}

impl Answer for () {
    const IS_TOKIOS: bool = true;
}

struct Missing;

impl Answer for Missing {
    const IS_TOKIOS: bool = false;
}

fn pause() -> Missing {
    Missing
}

const fn is_tokios<T: Answer>(_: fn() -> T) -> bool {
    T::IS_TOKIOS
}

/// Whether some runtime of this process may have a clock of its own, which does not follow the real
/// one.
pub(crate) const CAN_PAUSE: bool = {
    use tokio::time::*;
    is_tokios(pause)
};

#[cfg(test)]
mod tests {
    #[test]
    fn sees_that_the_tests_can_pause_the_clock() {
        // The development dependencies switch `test-util` on. Without it, calling Tokio's would not
        // compile.
        const { assert!(super::CAN_PAUSE) };
        let _: fn() = tokio::time::pause;
    }
}
