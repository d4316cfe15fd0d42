//! The store in memory keeps the promises, under the paused clock.

use tickwheel_durable::Memory;
use tickwheel_durable_conformance::{Pace, Stores, conformance_tests};

struct InMemory(Memory);

impl Stores for InMemory {
    type Store = Memory;

    async fn connect(&self) -> Memory {
        self.0.clone()
    }
}

conformance_tests! {
    #[tokio::test(start_paused = true)]
    (InMemory(Memory::new()), Pace::paused())
}
