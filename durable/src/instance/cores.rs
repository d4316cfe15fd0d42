//! The cores of an instance, one for each part of its namespace.
//!
//! A store may [divide](crate::store::Store::parts) a namespace into parts; their number
//! never changes. A key belongs to one part, by a hash of the encoded key. So what a store promises
//! of one key, such as the order of its tokens, it keeps.

use std::slice::Iter;
use std::sync::Arc;

use super::Core;
use crate::metrics::DurableMetrics;
use crate::store::Namespace;
use crate::token::Token;

/// The cores of an instance, one for each part, in their order. There is one at least.
pub(crate) struct Cores {
    cores: Vec<Arc<Core>>,
}

impl Cores {
    pub(super) fn new(cores: Vec<Arc<Core>>) -> Self {
        Cores { cores }
    }

    /// The namespace of the instance, which is that of its first part.
    pub(crate) fn namespace(&self) -> &Namespace {
        self.cores[0].calls.namespace()
    }

    /// The number of the part that has an encoded key.
    pub(crate) fn part_of(&self, key: &[u8]) -> usize {
        part_of(key, self.cores.len())
    }

    /// The one that has an encoded key.
    pub(crate) fn of_key(&self, key: &[u8]) -> &Arc<Core> {
        &self.cores[self.part_of(key)]
    }

    /// The one that has given a token, if it is a token of this namespace.
    pub(crate) fn of_token(&self, token: Token) -> Option<&Arc<Core>> {
        self.cores.get(token.part)
    }

    /// The one with this number.
    pub(crate) fn of_part(&self, part: usize) -> &Arc<Core> {
        &self.cores[part]
    }

    pub(crate) fn iter(&self) -> Iter<'_, Arc<Core>> {
        self.cores.iter()
    }

    /// Gives back what the store holds open. All parts have the same store.
    pub(crate) async fn close_store(&self) {
        self.cores[0].calls.close_store().await;
    }

    pub(crate) fn read_metrics(&self) -> DurableMetrics {
        // All count in the same.
        let mut metrics = self.cores[0].metrics.read();
        for core in &self.cores {
            metrics.on_wheel += core.on_wheel.len();
            metrics.due += core.due.len();
            metrics.unsettled += core.settings.capacity - core.capacity.available_permits();
            metrics.failing |= core.calls.failing();
            metrics.differs |= core.calls.differs();
        }
        metrics
    }
}

/// FNV-1a of the key, mixed by the finalizer of `MurmurHash3`. It is the same in every version of
/// the crate.
fn part_of(key: &[u8], parts: usize) -> usize {
    let mut hash = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^= hash >> 33;
    usize::try_from(hash % parts as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_keeps_its_part_in_all_versions() {
        let keys = ["\"order 1\"", "\"order 2\"", "17", "", "\"ä\""];
        let parts = keys.map(|key| part_of(key.as_bytes(), 4));
        assert_eq!(parts, [0, 1, 0, 2, 2]);
    }

    #[test]
    fn keys_spread_evenly() {
        let mut counts = [0_usize; 5];
        for key in 0..10_000 {
            counts[part_of(format!("\"order {key}\"").as_bytes(), 5)] += 1;
        }
        assert!(
            counts.iter().all(|count| count.abs_diff(2_000) < 200),
            "{counts:?}"
        );
    }
}
