//! Promise P12 for keyed timers: a `Hash`, `Eq`, `Clone`, `Drop`, waker or handler that panics, or
//! that calls back into the library, harms its own timer only.

mod keys;
mod values;
mod wakers;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Makes a key or value panic once it is lit.
#[derive(Debug, Default, Clone)]
struct Fuse(Arc<AtomicBool>);

impl Fuse {
    fn light(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn quench(&self) {
        self.0.store(false, Ordering::SeqCst);
    }

    fn check(&self, what: &str) {
        assert!(!self.0.load(Ordering::SeqCst), "{what} panics");
    }
}

/// Whether the call unwinds.
fn unwinds<T>(call: impl FnOnce() -> T) -> bool {
    catch_unwind(AssertUnwindSafe(call)).is_err()
}
