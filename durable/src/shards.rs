//! Several stores, or several namespaces of one, and which of them has a key.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::error::BuildError;
use crate::store::{Namespace, Store};

/// How many shards there may be.
const COUNT: RangeInclusive<usize> = 1..=256;

/// Divides the timers of an instance among several stores, or several namespaces of one store.
///
/// [`Builder::start`](crate::Builder::start) takes it in place of a store. There is still one handle and one stream of claims.
/// Each key belongs to one *shard*, so all [promises](crate::protocol#the-promises) hold for each timer as before.
///
/// * **Why.** [`stores`](Self::stores) spreads the load over several servers, and a server that is down stops only its own
///   timers. [`namespaces`](Self::namespaces) spreads it over the nodes of one [Redis Cluster](crate::Redis#clusters).
/// * **A shard that is down** delays no timer of another one. Calls on its keys fail with [`Error::Shard`](crate::Error::Shard),
///   which names it; so do calls about all timers, such as `counts`. An instance starts when one of its shards can be opened; the
///   others are tried again each poll. `connect_lazy` makes a store whose server is down.
/// * **Each shard has** its own [capacity](crate::Builder::capacity), polls, and store's clock. Claims come in the order in which
///   they fire, not by deadline across shards.
///
/// # Which shard has a key
///
/// The one with the greatest score, of equal ones the one whose name sorts first. The score of a shard is
/// `mix(fnv(key) ^ fnv(name))`, where `fnv` is FNV-1a with 64 bits, of the encoded key and of the shard's name, and `mix` is the
/// finalizer of `MurmurHash3` (`fmix64`). This is rendezvous hashing: the order of shards does not matter, and a shard that is
/// added takes its share from the others and moves no other key. It is the same in every version of this crate.
/// [`DurableTimers::shard_of`](crate::DurableTimers::shard_of) tells where a key belongs, for
/// [transactions of your own](crate::Postgres#in-your-own-transaction).
///
/// Give all instances the same shards under the same names: an instance looks for a key in its shard alone.
///
/// # Adding and removing shards
///
/// An `n`th shard takes one of `n` keys. They have to be moved while no instance runs:
///
/// 1. Shut all instances down. Claims are handled or released then.
/// 2. Start one with the new shards, and [shut down](crate::DurableTimers::shutdown) its claims. To remove a shard, first give it
///    to [`draining`](Self::draining), so that it keeps no keys.
/// 3. Call [`Admin::rebalance`](crate::Admin::rebalance) until it has left nothing.
/// 4. Start all instances with the new shards.
///
/// Timers that are due meanwhile are late by that pause. A rebalance that was interrupted loses nothing, and is made again.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tickwheel_durable::{Memory, Shards, builder};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let wheel = tickwheel::TimerWheel::new();
/// // `Redis::connect("redis://one").await?` and so on.
/// let (one, two) = (Memory::new(), Memory::new());
/// let shards = Shards::stores([("one", one), ("two", two)]);
/// let (timers, mut claims) = builder::<String, u32>("orders").start(&wheel, shards).await?;
///
/// timers.set_timer("order 17", &30, Duration::from_secs(60)).await?;
/// assert_eq!(timers.shard_of("order 17")?, Some("two"));
/// claims.recv().await.ok_or("closed")?.ack().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "shards do nothing until an instance is started on them"]
pub struct Shards {
    all: Vec<Shard>,
    /// How many there are to be: of too many namespaces not all are made.
    count: usize,
    /// Whether each has a namespace of its own.
    in_one: bool,
}

struct Shard {
    /// Without one it is not a shard, but the only store.
    name: Option<Arc<str>>,
    store: Arc<dyn Store>,
    drains: bool,
}

/// A shard as an instance opens it.
pub(crate) struct Opening {
    pub(crate) name: Option<Arc<str>>,
    pub(crate) namespace: Namespace,
    pub(crate) store: Arc<dyn Store>,
}

impl Shards {
    /// Several stores, each with a name. From 1 to 256.
    ///
    /// A name is 1 to 64 ASCII letters, digits, `_`, `-` and `.`, and decides which keys the store has: keep it when the store moves
    /// to another server. In each store the timers lie in the namespace of the builder.
    pub fn stores<N, S>(stores: impl IntoIterator<Item = (N, S)>) -> Self
    where
        N: Into<String>,
        S: Into<Box<dyn Store>>,
    {
        let shards = stores.into_iter().map(|(name, store)| Shard {
            name: Some(name.into().into()),
            store: store.into().into(),
            drains: false,
        });
        let shards: Vec<_> = shards.collect();
        Shards {
            count: shards.len(),
            all: shards,
            in_one: false,
        }
    }

    /// So many namespaces of one store, from 1 to 256, which share its connections. Those of `orders` are `orders.0`, `orders.1`
    /// and so on, and the names of the shards are `0`, `1` and so on.
    pub fn namespaces(store: impl Into<Box<dyn Store>>, count: usize) -> Self {
        let store: Arc<dyn Store> = store.into().into();
        let names = (0..count.min(*COUNT.end())).map(|number| number.to_string());
        let shards = names.map(|name| Shard {
            name: Some(name.into()),
            store: Arc::clone(&store),
            drains: false,
        });
        Shards {
            all: shards.collect(),
            count,
            in_one: true,
        }
    }

    /// Gives no keys to the shard of this name, which is to be [removed](#adding-and-removing-shards). Its timers are still
    /// delivered. A name that no shard has is ignored.
    pub fn draining(mut self, name: &str) -> Self {
        for shard in &mut self.all {
            shard.drains |= shard.name.as_deref() == Some(name);
        }
        self
    }

    /// Checks number and names.
    pub(crate) fn open(self, namespace: &str) -> Result<(Placement, Vec<Opening>), BuildError> {
        let out_of_bounds = |value| BuildError::Shards {
            value,
            bounds: COUNT,
        };
        if !COUNT.contains(&self.count) {
            return Err(out_of_bounds(self.count));
        }
        if self.all.iter().all(|shard| shard.drains) {
            return Err(out_of_bounds(0));
        }
        let whole = Namespace::new(namespace)?;
        let names = self.all.iter();
        let names = names.map(|shard| (shard.name.clone(), shard.drains));
        let placement = Placement::new(whole.clone(), names);
        let mut opening = Vec::<Opening>::new();
        for Shard { name, store, .. } in self.all {
            let mut namespace = whole.clone();
            if let Some(name) = name.as_deref() {
                let is_taken = opening
                    .iter()
                    .any(|other| other.name.as_deref() == Some(name));
                if is_taken || Namespace::new(name).is_err() {
                    let name = name.to_owned();
                    return Err(BuildError::ShardName { name, is_taken });
                }
                if self.in_one {
                    namespace = Namespace::new(&format!("{whole}.{name}"))?;
                }
            }
            opening.push(Opening {
                name,
                namespace,
                store,
            });
        }
        Ok((placement, opening))
    }
}

impl<S: Store> From<S> for Shards {
    fn from(store: S) -> Self {
        Box::<dyn Store>::from(store).into()
    }
}

impl From<Box<dyn Store>> for Shards {
    fn from(store: Box<dyn Store>) -> Self {
        let shard = Shard {
            name: None,
            store: store.into(),
            drains: false,
        };
        Shards {
            all: vec![shard],
            count: 1,
            in_one: false,
        }
    }
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.all.iter().map(|shard| shard.name.as_deref());
        f.debug_list().entries(names.flatten()).finish()
    }
}

/// Says which shard has a key, by its number.
#[derive(Debug)]
pub(crate) struct Placement {
    /// The namespace that the shards make up.
    namespace: Namespace,
    /// The hash of each name; `None` for a shard that has no keys.
    hashes: Vec<Option<u64>>,
    names: Vec<Option<Arc<str>>>,
}

impl Placement {
    /// For shards with these names, some of which drain.
    fn new(
        namespace: Namespace,
        shards: impl IntoIterator<Item = (Option<Arc<str>>, bool)>,
    ) -> Self {
        let hashed = shards.into_iter().map(|(name, drains)| {
            let hash = fnv(name.as_deref().unwrap_or_default().as_bytes());
            ((!drains).then_some(hash), name)
        });
        let (hashes, names) = hashed.unzip();
        Placement {
            namespace,
            hashes,
            names,
        }
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    pub(crate) fn shard_of(&self, key: &[u8]) -> usize {
        if self.hashes.len() == 1 {
            return 0;
        }
        let key = fnv(key);
        let shards = self.hashes.iter().enumerate();
        let scored = shards.filter_map(|(shard, hash)| Some((shard, mix(key ^ (*hash)?))));
        let best = scored.max_by(|(one, score), (other, other_score)| {
            let by_name = || self.names[*other].cmp(&self.names[*one]);
            score.cmp(other_score).then_with(by_name)
        });
        best.map_or(0, |(shard, _)| shard)
    }

    pub(crate) fn name(&self, shard: usize) -> Option<&str> {
        self.names[shard].as_deref()
    }
}

/// FNV-1a.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The finalizer of `MurmurHash3`.
fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> Namespace {
        Namespace::new("orders").expect("it is a name")
    }

    fn placement(names: &[&str]) -> Placement {
        let names = names.iter().map(|&name| (Some(name.into()), false));
        Placement::new(whole(), names)
    }

    fn name_of(placement: &Placement, key: &str) -> String {
        let shard = placement.shard_of(key.as_bytes());
        placement.name(shard).expect("it has one").to_owned()
    }

    /// The shard that every version of the crate, and a client in another language, has to come to.
    #[test]
    fn key_keeps_its_shard_in_all_versions() {
        assert_eq!(fnv(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv(b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(mix(1), 0xb456_bcfc_34c2_cb2c);
        let placement = placement(&["a", "b", "c", "d"]);
        let keys = [
            "\"order 1\"",
            "\"order 2\"",
            "\"order 3\"",
            "17",
            "",
            "\"ä\"",
        ];
        let shards = keys.map(|key| name_of(&placement, key));
        assert_eq!(shards, ["b", "b", "c", "d", "c", "c"]);
    }

    #[test]
    fn keys_spread_evenly() {
        let names: Vec<String> = (0..16).map(|number| number.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for names in [&names[..2], &names[..5], &names[..]] {
            let placement = placement(names);
            let mut counts = vec![0_usize; names.len()];
            for key in 0..100_000 {
                counts[placement.shard_of(format!("\"order {key}\"").as_bytes())] += 1;
            }
            let mean = 100_000 / names.len();
            for count in counts {
                assert!(count.abs_diff(mean) < mean / 20, "{count} of {mean}");
            }
        }
    }

    #[test]
    fn added_shard_moves_only_the_keys_it_takes() {
        let before = placement(&["a", "b", "c"]);
        let after = placement(&["d", "c", "a", "b"]);
        let mut moved = 0;
        for key in 0..40_000 {
            let key = key.to_string();
            let (old, new) = (name_of(&before, &key), name_of(&after, &key));
            if old != new {
                assert_eq!(new, "d");
                moved += 1;
            }
        }
        assert!((9_500..10_500).contains(&moved), "{moved}");
    }

    #[test]
    fn draining_shard_has_no_keys_and_others_keep_theirs() {
        let names = [("a", false), ("b", true), ("c", false)];
        let names = names.map(|(name, drains)| (Some(name.into()), drains));
        let (draining, removed) = (Placement::new(whole(), names), placement(&["a", "c"]));
        for key in 0..1_000 {
            let key = key.to_string();
            assert_eq!(name_of(&draining, &key), name_of(&removed, &key));
        }
    }
}
