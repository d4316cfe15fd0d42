//! The tasks of the soak test that receive expirations and completions.

use std::collections::HashMap;
use std::sync::Arc;

use tickwheel::Expirations;
use tokio::time::Instant;

use super::{Value, World};

const AT_ONCE: usize = 1024;

/// Receives until no handle is left that could set a timer.
pub(crate) async fn read(world: Arc<World>, mut stream: Expirations<u64, Value>) {
    let mut received = Vec::new();
    while stream.recv_many(&mut received, AT_ONCE).await > 0 {
        for expired in received.drain(..) {
            world.saw(expired.deadline);
        }
    }
}

/// The same for repeating timers: the times at which one key fires only grow.
pub(crate) async fn read_repeating(world: Arc<World>, mut stream: Expirations<u64, Value>) {
    let mut last: HashMap<u64, Instant> = HashMap::new();
    let mut received = Vec::new();
    while stream.recv_many(&mut received, AT_ONCE).await > 0 {
        for expired in received.drain(..) {
            world.saw(expired.deadline);
            let before = last.insert(expired.key, expired.deadline);
            let grew = before.is_none_or(|before| before < expired.deadline);
            assert!(grew, "key {} fired twice for one time", expired.key);
        }
    }
}
