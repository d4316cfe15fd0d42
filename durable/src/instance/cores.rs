//! The cores of an instance, one for each shard.

use std::slice::Iter;
use std::sync::Arc;

use super::Core;
use crate::metrics::{DurableMetrics, Failing};
use crate::shards::Placement;
use crate::store::Namespace;
use crate::token::Token;

/// The cores of an instance, one for each shard, in their order.
#[derive(Debug)]
pub(crate) struct Cores {
    placement: Placement,
    cores: Vec<Arc<Core>>,
}

impl Cores {
    pub(super) fn new(placement: Placement, cores: Vec<Arc<Core>>) -> Self {
        Cores { placement, cores }
    }

    /// The namespace of the instance. A shard may have one of its own.
    pub(crate) fn namespace(&self) -> &Namespace {
        self.placement.namespace()
    }

    /// The number of the shard that has an encoded key.
    pub(crate) fn shard_of(&self, key: &[u8]) -> usize {
        self.placement.shard_of(key)
    }

    /// The name of the shard with this number, if there are several.
    pub(crate) fn name(&self, shard: usize) -> Option<&str> {
        self.placement.name(shard)
    }

    /// The one that has an encoded key.
    pub(crate) fn of_key(&self, key: &[u8]) -> &Arc<Core> {
        &self.cores[self.shard_of(key)]
    }

    /// The one that has given a token. A token of another instance may be of a shard that this one lacks.
    pub(crate) fn of_token(&self, token: Token) -> Option<&Arc<Core>> {
        self.cores.get(token.shard)
    }

    /// The one with this number.
    pub(crate) fn of_shard(&self, shard: usize) -> &Arc<Core> {
        &self.cores[shard]
    }

    pub(crate) fn iter(&self) -> Iter<'_, Arc<Core>> {
        self.cores.iter()
    }

    pub(crate) fn read_metrics(&self) -> DurableMetrics {
        let (mut on_wheel, mut due, mut unsettled) = (0, 0, 0);
        let mut failing = Failing::default();
        for core in &self.cores {
            on_wheel += core.on_wheel.len();
            due += core.due.len();
            unsettled += core.settings.capacity - core.capacity.available_permits();
            failing |= core.calls.failing();
        }
        // All count in the same.
        let metrics = &self.cores[0].metrics;
        metrics.read(on_wheel, due, unsettled, failing)
    }
}
