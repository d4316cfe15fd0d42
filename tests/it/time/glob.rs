//! `use tickwheel::time::*` beside traits of one's own.

use std::future::{Future, ready};

use tickwheel::time::*;

/// Its methods have the names of `tickwheel::time::ext::FutureExt`'s.
trait Limit: Future + Sized {
    fn timeout(self, limit: Duration) -> Duration {
        limit
    }

    fn timeout_at(self, limit: Instant) -> Instant {
        limit
    }
}

impl<F: Future> Limit for F {}

// The trait was in the glob, and these calls did not compile.
#[tokio::test(start_paused = true)]
async fn glob_brings_no_ambiguous_methods() {
    let limit = Duration::from_secs(5);
    assert_eq!(ready(()).timeout(limit), limit);
    let deadline = Instant::now() + limit;
    assert_eq!(ready(()).timeout_at(deadline), deadline);
    // The functions are there.
    assert_eq!(timeout(limit, ready(7)).await, Ok(7));
    sleep_until(deadline).await;
}
