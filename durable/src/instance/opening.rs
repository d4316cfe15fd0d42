//! Opening a namespace at the start.

use std::time::Duration;

use super::calls::{Calls, Timed};
use crate::error::{BuildError, Error};
use crate::settings::Settings;
use crate::store::{Charter, InstanceId, Load, Loaded, StoreError};

/// How many round trips may show that the lease is long enough.
const ROUND_TRIPS: u32 = 3;

/// Opens another part of a namespace, of which this instance agrees with the first one. That one
/// decides: an amendment that has ended in the middle is brought to its end.
pub(super) async fn open_other(
    calls: &Calls,
    first: &Calls,
    settings: &Settings,
    charter: &Charter,
) -> Result<(InstanceId, Timed<Loaded>), BuildError> {
    let opened = open(calls, settings).await;
    let Err(BuildError::Open(Error::Store(StoreError::Charter { .. }))) = opened else {
        return opened;
    };
    first.open_for("open").await.map_err(BuildError::Open)?;
    calls.amend(charter).await.map_err(BuildError::Open)?;
    open(calls, settings).await
}

/// Opens a namespace. Returns what its first load has found.
pub(super) async fn open(
    calls: &Calls,
    settings: &Settings,
) -> Result<(InstanceId, Timed<Loaded>), BuildError> {
    let opened = calls.open_for("open").await.map_err(BuildError::Open)?;
    let instance = opened.answer.instance;
    // The next round trip does not include connecting. Its load also makes this instance count as
    // alive.
    let mut request = Load::new(instance, settings.window, 0, settings.alive());
    request.name.clone_from(&settings.name);
    let (mut min, mut round_trips) = (Duration::MAX, 0);
    loop {
        let loaded = calls
            .load(request.clone())
            .await
            .map_err(BuildError::Open)?;
        min = min.min((loaded.received - loaded.sent) * 2);
        if settings.lease >= min {
            return Ok((instance, loaded));
        }
        // One slow response does not make the store too slow.
        round_trips += 1;
        if round_trips == ROUND_TRIPS {
            let value = settings.lease;
            return Err(BuildError::Lease { value, min });
        }
    }
}
