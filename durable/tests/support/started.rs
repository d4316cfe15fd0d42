//! Starts instances with short time limits for their calls. On a busy machine one try to open a
//! namespace may take longer.

use std::time::{Duration, Instant};

use tickwheel::TimerWheel;
use tickwheel_durable::store::Store;
use tickwheel_durable::{BuildError, Builder, Claims, DurableTimers};
use tickwheel_durable_conformance::Faulty;

const LIMIT: Duration = Duration::from_secs(60);

type Instance = (DurableTimers<String, u64>, Claims<String, u64>);

pub(crate) async fn started(
    build: impl Fn() -> Builder<String, u64>,
    store: impl Store,
) -> Instance {
    let started = try_start(build, store).await;
    started.unwrap_or_else(|error| panic!("it starts: {error:#}"))
}

/// The same, with the error that does not pass.
pub(crate) async fn try_start(
    build: impl Fn() -> Builder<String, u64>,
    store: impl Store,
) -> Result<Instance, BuildError> {
    // Its clones share the store.
    let store = Faulty::new(store);
    let began = Instant::now();
    loop {
        match build().start(&TimerWheel::new(), store.clone()).await {
            Err(BuildError::Open(error)) if error.may_pass() && began.elapsed() < LIMIT => {}
            tried => return tried,
        }
    }
}
