//! Opening the store of a shard, at the start or later.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep};

use super::{Calls, Core};
use crate::error::BuildError;
use crate::jitter::jittered;
use crate::settings::Settings;
use crate::store::{Feature, InstanceId, Load, StoreTime};

/// How many round trips may show that the lease is long enough.
const ROUND_TRIPS: u32 = 3;

/// A shard that is open.
pub(super) struct Opened {
    pub(super) instance: InstanceId,
    /// The store's time in the last call, and when that was.
    pub(super) now: StoreTime,
    pub(super) sent: Instant,
    pub(super) received: Instant,
}

impl Opened {
    /// In place of a shard that is not open. Nothing is loaded with that.
    pub(super) fn not_yet() -> Self {
        let now = Instant::now();
        Opened {
            instance: InstanceId(0),
            now: SystemTime::now().into(),
            sent: now,
            received: now,
        }
    }
}

/// An instance starts when one of its shards is open and the others may be later. Otherwise returns the error that says why it
/// does not.
pub(super) fn one_at_least(
    opened: Vec<Result<Opened, BuildError>>,
) -> Result<Vec<Result<Opened, BuildError>>, BuildError> {
    let may_pass =
        |error: &BuildError| matches!(error, BuildError::Open(error) if error.may_pass());
    let is_none_open = opened.iter().all(Result::is_err);
    let (mut stays, mut left) = (None, Vec::new());
    for opened in opened {
        match opened {
            Err(error) if stays.is_none() && (is_none_open || !may_pass(&error)) => {
                stays = Some(error);
            }
            opened => left.push(opened),
        }
    }
    stays.map_or(Ok(left), Err)
}

/// Opens a shard that could not be opened at the start, whenever that works.
pub(super) async fn open_at_last(core: &Core, codec: &str) {
    let opened = loop {
        sleep(jittered(core.settings.poll)).await;
        if let Ok(opened) = open(&core.calls, codec, &core.settings).await {
            break opened;
        }
    };
    // The first estimate was a guess.
    let _ = core.clock.observe(opened.sent, opened.received, opened.now);
    core.id.store(opened.instance.0, Ordering::Release);
    core.loads.store(true, Ordering::Release);
    let name = core.calls.shard().map(|name| &**name);
    tracing::info!(namespace = %core.calls.namespace(), shard = name, "a shard is open at last");
}

/// Opens the store of a shard.
pub(super) async fn open(
    calls: &Calls,
    codec: &str,
    settings: &Settings,
) -> Result<Opened, BuildError> {
    for (setting, is_set, feature) in [
        (
            "max_attempts",
            settings.max_attempts.is_some(),
            Feature::DeadRows,
        ),
        ("no_overlap", settings.no_overlap, Feature::NoOverlap),
    ] {
        if is_set && !calls.supports(feature) {
            return Err(BuildError::Unsupported { setting, feature });
        }
    }
    let opened = calls.open(codec).await.map_err(BuildError::Open)?;
    let instance = opened.answer.instance;
    // The next round trip does not include connecting. Its load also makes this instance count as
    // alive.
    let request = Load::new(instance, settings.window, 0, settings.alive());
    let (mut min, mut round_trips) = (Duration::MAX, 0);
    loop {
        let loaded = calls
            .load(request.clone())
            .await
            .map_err(BuildError::Open)?;
        min = min.min((loaded.received - loaded.sent) * 2);
        if settings.lease >= min {
            return Ok(Opened {
                instance,
                now: loaded.answer.now,
                sent: loaded.sent,
                received: loaded.received,
            });
        }
        // One slow response does not make the store too slow.
        round_trips += 1;
        if round_trips == ROUND_TRIPS {
            let value = settings.lease;
            return Err(BuildError::Lease { value, min });
        }
    }
}
